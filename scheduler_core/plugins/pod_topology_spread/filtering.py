"""Filter of PodTopologySpread: compiled constraints, matching pods per domain, and the nodes that exceed the skew.

Labels of ``matchLabelKeys`` are merged into the selector here, although the API server does so too since 1.34: merging
twice has no effect, and pods that older API servers stored keep their meaning. The selector of default constraints is
that of the pod's services and owner; a pod that nothing selects gets no default constraints.

Two counts differ from those of other plugins, as in kube-scheduler: terminating pods do not count, but a dry run that
adds or removes one counts it; and a selector that matches everything counts no pods, although the pod itself matches.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/`` (``common.go``, ``plugin.go``,
``filtering.go``). The minimum is recomputed after a change. kube-scheduler keeps two candidates, which gives the same
result for changes on one node but may be wrong for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import PodTopologySpreadArgs
from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import Codes
from scheduler_core.framework.status import unresolvable, unschedulable
from scheduler_core.kernels.domain_counts import DomainIds, DomainTable, domains_present
from scheduler_core.model.node import HOSTNAME
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.selectors import LabelMatcher, PodQuery, all_of, compile_label_selector, equality_matcher
from scheduler_core.plugins.taint_toleration import TolerationTables
from scheduler_core.snapshot.indexes.selector_index import WorkloadIndex
from scheduler_core.snapshot.interning import NO_VALUE
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
_HONOR = "Honor"

Mask = NDArray[np.bool_]


class SpreadConstraint(Struct, gc=False, frozen=True):
    """One topology spread constraint.

    Attributes:
        min_domains: With fewer domains, the minimum counts as 0.
        honors_affinity: Whether only nodes count that match the pod's node selector and affinity.
        honors_taints: Whether only nodes count whose taints the pod tolerates.
    """

    max_skew: int
    topology_key: str
    selector: LabelMatcher
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


Constraints = tuple[SpreadConstraint, ...]


def compiled(constraints: Iterable[TopologySpreadConstraint], labels: Mapping[str, str], action: str) -> Constraints:
    """Compile the constraints with one action. Raises SelectorError: a selector is invalid."""
    return tuple(_compiled(one, labels) for one in constraints if one.when_unsatisfiable == action)


def _compiled(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> SpreadConstraint:
    selector = compile_label_selector(constraint.label_selector)
    matched = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    if matched:
        selector = all_of((equality_matcher(matched), selector))
    return SpreadConstraint(
        constraint.max_skew,
        constraint.topology_key,
        selector,
        1 if constraint.min_domains is None else constraint.min_domains,
        constraint.node_affinity_policy in (None, _HONOR),
        constraint.node_taints_policy == _HONOR,
    )


def has_all_keys(labels: Mapping[str, str], constraints: Sequence[SpreadConstraint]) -> bool:
    """Return whether a node belongs to a domain of every constraint."""
    return all(constraint.topology_key in labels for constraint in constraints)


class NodeInclusion:
    """Determines which nodes constraints count; caches tables of tolerations and selectors between pods."""

    __slots__ = ("_matching", "_tolerations")

    def __init__(self, nodes: NodeColumns) -> None:
        self._tolerations = TolerationTables(nodes.bounds, nodes.steps)
        self._matching = NodeMatching(nodes)

    def counted_ids(
        self, pod: PodInfo, nodes: NodeColumns, constraints: Constraints, *, all_keys: bool
    ) -> list[DomainIds]:
        """Return the domain of each row as each constraint counts it.

        Args:
            all_keys: Whether a node counts only if it has the keys of all constraints.

        Returns:
            int32[row] per constraint: the domain, -1 for rows without one and rows that do not count. Without
            ``all_keys`` the two cases are not distinguished.
        """
        keyed = with_all_keys(nodes, constraints) if all_keys else None
        allowed = tolerated = None
        if any(constraint.honors_affinity for constraint in constraints):
            allowed = self._allowed(pod)
        if any(constraint.honors_taints for constraint in constraints):
            tolerated = self.tolerated(pod, nodes)
        found: list[DomainIds] = []
        for constraint in constraints:
            mask = keyed
            if constraint.honors_affinity:
                mask = _met(mask, allowed)
            if constraint.honors_taints:
                mask = _met(mask, tolerated)
            ids = nodes.label_column(constraint.topology_key).ids
            found.append(ids if mask is None else np.where(mask, ids, np.int32(NO_VALUE)))
        return found

    def included(self, pod: PodInfo, nodes: NodeColumns, constraint: SpreadConstraint) -> Mask:
        """Return the rows that a constraint's policies include, bool[row], with or without its key."""
        mask: Mask | None = None
        if constraint.honors_affinity:
            mask = self._allowed(pod)
        if constraint.honors_taints:
            mask = _met(mask, self.tolerated(pod, nodes))
        return nodes.alive if mask is None else mask & nodes.alive

    def tolerated(self, pod: PodInfo, nodes: NodeColumns) -> Mask | None:
        """Return the rows whose taints a pod tolerates, bool[row]; None for all."""
        table = self._tolerations.table(pod.pod.spec.tolerations, nodes.taint_sets)
        if not table.rejects:
            return None
        tolerated: Mask = table.codes.take(nodes.taint_set_ids) == 0
        return tolerated

    def _allowed(self, pod: PodInfo) -> Mask | None:
        required = pod.node_affinity
        return None if required.is_everything else self._matching.required(required, ALL_ROWS)


def with_all_keys(nodes: NodeColumns, constraints: Iterable[SpreadConstraint]) -> Mask | None:
    """Return the rows that have the keys of all constraints; None for a single key, where the domain shows it."""
    keys = dict.fromkeys(constraint.topology_key for constraint in constraints)
    if len(keys) == 1:
        return None
    mask: Mask | None = None
    for key in keys:
        mask = _met(mask, nodes.label_column(key).ids >= 0)
    return mask


def _met(mask: Mask | None, condition: Mask | None) -> Mask | None:
    if mask is None or condition is None:
        return condition if mask is None else mask
    return mask & condition


ZONE = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)


def is_system_defaulted(args: PodTopologySpreadArgs) -> bool:
    return args.defaulting_type == "System"


def constraints_of(args: PodTopologySpreadArgs) -> tuple[TopologySpreadConstraint, ...]:
    """Return the default constraints of the args, without selectors."""
    if is_system_defaulted(args):
        return SYSTEM_DEFAULTS
    return tuple(
        convert(
            one.model_dump(by_alias=True, exclude_none=True, exclude={"match_label_keys"}), TopologySpreadConstraint
        )
        for one in args.default_constraints
    )


def default_constraints(
    defaults: Sequence[TopologySpreadConstraint], pod: Pod, workloads: WorkloadIndex, action: str
) -> Constraints:
    constraints = compiled(defaults, {}, action)
    if not constraints:
        return ()
    selector = workloads.default_selector(pod)
    if selector.is_everything:
        return ()
    return tuple(replace(constraint, selector=selector) for constraint in constraints)


SKEWED = 1
UNLABELED = 2
_MISMATCH = "node(s) didn't match pod topology spread constraints"
REASONS = (unschedulable(_MISMATCH), unresolvable(f"{_MISMATCH} (missing required label)"))


def matching_pods(nodes: NodeColumns, namespace: str, constraint: SpreadConstraint) -> NDArray[np.int32]:
    """Return the number of scheduled pods that a constraint counts, int32[row]."""
    selector = constraint.selector
    if selector.is_everything or selector.nothing:
        return np.zeros(nodes.size, dtype=np.int32)
    counts = nodes.pod_index.query(PodQuery(selector, frozenset((namespace,))))
    return counts.total[: nodes.size] - counts.ending[: nodes.size]


class DomainSkew:
    """Counts of one constraint over its domains; ids of the table are -1 for rows that do not count.

    Attributes:
        is_own_match: Whether the constraint counts the pod itself.
    """

    __slots__ = ("_codes", "_is_domain", "_row_ids", "constraint", "is_own_match", "table")

    def __init__(self, constraint: SpreadConstraint, pod: PodInfo, nodes: NodeColumns, counted_ids: DomainIds) -> None:
        column, meta = nodes.label_column(constraint.topology_key), pod.pod.metadata
        domains = len(column.values)
        self.constraint = constraint
        self.table = DomainTable.of_rows(matching_pods(nodes, meta.namespace, constraint), counted_ids, domains)
        self._row_ids = column.ids
        self._is_domain = domains_present(counted_ids, domains)
        self._is_domain[-1] = False
        self.is_own_match = constraint.selector.matches(meta.labels)
        self._codes: Codes | None = None

    def clone(self) -> DomainSkew:
        other = copy(self)
        other.table = self.table.clone()
        return other

    @property
    def minimum(self) -> int:
        """Number of matching pods in the domain with the fewest; 0 with fewer domains than ``minDomains``."""
        counts = self.table.counts[self._is_domain]
        return int(counts.min()) if len(counts) >= max(1, self.constraint.min_domains) else 0

    def domains(self) -> list[int]:
        """Return the domains that count, ascending."""
        return np.flatnonzero(self._is_domain).tolist()

    def count(self, row: int, sign: int) -> None:
        """Add (1) or subtract (-1) a matching pod on a row."""
        if self.table.add(row, sign):
            self._codes = None

    def codes(self, rows: Rows) -> Codes:
        """Filter rows by this constraint alone, int16 each."""
        if self._codes is None:
            most = self.constraint.max_skew + self.minimum - int(self.is_own_match)
            self._codes = (self.table.counts > most).astype(np.int16)
            self._codes[-1] = UNLABELED
        return self._codes.take(self._row_ids[rows])


class RequiredSpread:
    """State from PreFilter to Filter: all required constraints, in the pod's order."""

    __slots__ = ("skews",)

    def __init__(self, skews: tuple[DomainSkew, ...]) -> None:
        self.skews = skews

    @classmethod
    def of(cls, pod: PodInfo, nodes: NodeColumns, constraints: Constraints, inclusion: NodeInclusion) -> RequiredSpread:
        ids = inclusion.counted_ids(pod, nodes, constraints, all_keys=True)
        pairs = zip(constraints, ids, strict=True)
        return cls(tuple(DomainSkew(constraint, pod, nodes, counted) for constraint, counted in pairs))

    def clone(self) -> RequiredSpread:
        return RequiredSpread(tuple(skew.clone() for skew in self.skews))

    def count(self, pod: PodInfo, other: PodInfo, row: int, sign: int) -> None:
        """Add or subtract another pod in the constraints of ``pod`` that count it."""
        meta = other.pod.metadata
        if meta.namespace != pod.pod.metadata.namespace:
            return
        for skew in self.skews:
            if skew.constraint.selector.matches(meta.labels):
                skew.count(row, sign)

    def codes(self, rows: Rows) -> Codes:
        """Filter rows: int16 each, by the first constraint that rejects a row."""
        codes = self.skews[0].codes(rows)
        for skew in self.skews[1:]:
            np.copyto(codes, skew.codes(rows), where=codes == 0)
        return codes


REQUIRED: StateKey[RequiredSpread] = StateKey("PodTopologySpread/required")


_MAX_NAMED = 3


def spread_details(
    spread: RequiredSpread, pod: PodInfo, nodes: NodeColumns, row: int, inclusion: NodeInclusion
) -> Iterator[str]:
    """Yield a sentence for each constraint that rejects a row."""
    at = np.array([row], dtype=np.intp)
    for skew in spread.skews:
        if not int(skew.codes(at)[0]):
            continue
        key = skew.constraint.topology_key
        column = nodes.label_column(key)
        domain = int(column.ids[row])
        if domain < 0:
            yield f"the node has no label {key}"
            continue
        yield _exceeded(skew, pod, nodes, domain, inclusion)


def _exceeded(skew: DomainSkew, pod: PodInfo, nodes: NodeColumns, domain: int, inclusion: NodeInclusion) -> str:
    constraint, minimum = skew.constraint, skew.minimum
    key, names = constraint.topology_key, nodes.label_column(constraint.topology_key).values.keys
    count = int(skew.table.counts[domain])
    own = int(skew.is_own_match)
    after = f"{count + own} with this pod" if own else "this pod does not count"
    text = f"{key}={names[domain]} has {_pods(count)} ({after}), maxSkew {constraint.max_skew}"
    present = skew.domains()
    if len(present) < constraint.min_domains:
        text += f", the minimum is 0 because there are {len(present)} of minDomains {constraint.min_domains} domains"
        lowest = min((int(skew.table.counts[each]) for each in present), default=0)
        if count + own - lowest <= constraint.max_skew:
            text += f"; minDomains {max(1, len(present))} would admit the node"
        return text
    lowest_domains = [each for each in present if int(skew.table.counts[each]) == minimum]
    named = ", ".join(f"{names[each]}" for each in lowest_domains[:_MAX_NAMED])
    more = f" and {len(lowest_domains) - _MAX_NAMED} more" if len(lowest_domains) > _MAX_NAMED else ""
    noun = "empty domain" if minimum == 0 else "domain"
    noun += "" if len(lowest_domains) == 1 else "s"
    text += f", the minimum is {minimum} in {noun} {named}{more}"
    return text + _with_honored_taints(skew, pod, nodes, domain, inclusion)


def _with_honored_taints(
    skew: DomainSkew, pod: PodInfo, nodes: NodeColumns, domain: int, inclusion: NodeInclusion
) -> str:
    """Return what ``nodeTaintsPolicy: Honor`` would change; "" for nothing."""
    constraint = skew.constraint
    if constraint.honors_taints:
        return ""
    tolerated = inclusion.tolerated(pod, nodes)
    if tolerated is None:
        return ""
    counts, present = skew.table.counts, skew.domains()
    left = {int(each) for each in skew.table.ids[tolerated & nodes.alive].tolist() if each >= 0}
    dropped = [each for each in present if each not in left and int(counts[each]) == skew.minimum]
    if not dropped or not left:
        return ""
    column = nodes.label_column(constraint.topology_key)
    named = ", ".join(str(column.values.keys[each]) for each in dropped[:_MAX_NAMED])
    lowest = min(int(counts[each]) for each in left)
    is_enough = int(counts[domain]) + int(skew.is_own_match) - lowest <= constraint.max_skew
    result = "and the node would be admitted" if is_enough else f"and the minimum would be {lowest}"
    return f"; the pod tolerates no node of {named}: nodeTaintsPolicy: Honor would not count it, {result}"


def _pods(count: int) -> str:
    return f"{count} matching pod" if count == 1 else f"{count} matching pods"
