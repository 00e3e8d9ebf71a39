"""Compiled topology spread constraints, and the nodes that each constraint counts.

Labels of ``matchLabelKeys`` are merged into the selector here, although the API server does so too since 1.34: merging
twice has no effect, and pods that older API servers stored keep their meaning.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/common.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.kernels.domain_counts import DomainIds
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.selectors import LabelMatcher, all_of, compile_label_selector, equality_matcher
from scheduler_core.plugins.taint_toleration import TolerationTables
from scheduler_core.snapshot.label_columns import NO_VALUE
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.table_bounds import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.step_counter import StepCounter

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
_HONOR = "Honor"

Mask = NDArray[np.bool_]


class SpreadConstraint(Struct, gc=False, frozen=True):
    """One topology spread constraint.

    Attributes:
        max_skew: How many more pods a domain may have than the domain with the fewest.
        selector: Selects the pods in the pod's namespace that count.
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
    """Compile the constraints with one action.

    Args:
        labels: The pod's labels, for ``matchLabelKeys``.

    Raises:
        SelectorError: A selector is invalid.
    """
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

    def __init__(self, bounds: SnapshotBounds = DEFAULT_BOUNDS, steps: StepCounter | None = None) -> None:
        self._tolerations = TolerationTables(bounds, steps)
        self._matching: NodeMatching | None = None

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
            allowed = self._allowed(pod, nodes)
        if any(constraint.honors_taints for constraint in constraints):
            tolerated = self._tolerated(pod.pod, nodes)
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
            mask = self._allowed(pod, nodes)
        if constraint.honors_taints:
            mask = _met(mask, self._tolerated(pod.pod, nodes))
        return nodes.alive if mask is None else mask & nodes.alive

    def tolerated(self, pod: PodInfo, nodes: NodeColumns) -> Mask | None:
        """Return the rows whose taints a pod tolerates, bool[row]; None for all."""
        return self._tolerated(pod.pod, nodes)

    def _allowed(self, pod: PodInfo, nodes: NodeColumns) -> Mask | None:
        required = pod.node_affinity
        if required.is_everything:
            return None
        matching = self._matching
        if matching is None or matching.nodes is not nodes:
            matching = self._matching = NodeMatching(nodes)
        return matching.required(required, ALL_ROWS)

    def _tolerated(self, pod: Pod, nodes: NodeColumns) -> Mask | None:
        table = self._tolerations.table(pod.spec.tolerations, nodes.taint_sets)
        if not table.rejects:
            return None
        tolerated: Mask = table.codes.take(nodes.taint_set_ids) == 0
        return tolerated


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
