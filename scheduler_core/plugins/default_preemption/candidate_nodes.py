"""Dry run of a preemption: which pods may preempt, candidate nodes with their victims, and the least harmful of them.

All pods of lower priority are removed from a node, then each is restored if the pod still fits: first those that a
PodDisruptionBudget protects, in both groups the most important pods first. Many nodes are tried at once if they do not
affect each other; that has the same result as one after another and costs one run of the filters for all of them.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/preemption/preemption.go`` (``findCandidates``,
``DryRunPreemption``, ``pickOneNodeForPreemption``), ``plugins/defaultpreemption/default_preemption.go``
(``PodEligibleToPreemptOthers``, ``SelectVictimsOnNode``, ``FilterVictimsWithPDBViolation``) and ``util/utils.go``
(``MoreImportantPod``). kube-scheduler tries nodes in parallel and in random order; here the order follows from the
nodes' names and a seed. Pods of equal priority and start time are restored in the order in which the scheduler saw
them; in kube-scheduler in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, takewhile

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.errors import AttemptLimitError, PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis, counted_reasons, no_node_text
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.gang_preemptor import NO_TERMS, VictimTerms, ties_by_cost
from scheduler_core.framework.group_view import split_by_budgets
from scheduler_core.framework.handle import DryRun, Handle, SimulatedRemoval
from scheduler_core.framework.status import Code, Status, error, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import deletion_cost
from scheduler_core.plugins.default_preemption.device_victims import SearchedRow, VictimSearch
from scheduler_core.snapshot.held_claims import HeldClaim, HeldClaims, are_ending
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"

_NEVER = "Never"
_NOT_BY_POLICY = "not eligible due to preemptionPolicy=Never."
_NOT_WHILE_VICTIMS_END = "not eligible due to a terminating pod on the nominated node."

_NOT_WHILE_CLAIMS_END = (
    "not eligible due to a resource claim of ended pods that still has devices of the nominated node."
)


def why_not_eligible(
    pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis, nominated: str, *, frees_devices: bool = False
) -> str:
    """Return why ``pod`` may not preempt now; "" if it may.

    A pod whose victims still terminate waits for them, unless its nominated node can no longer become feasible.

    Args:
        nominated: Its nominated node as the nominator has it, which the pod's status may not show yet; "" for none.
        frees_devices: Whether pods are evicted to free their devices.
    """
    if pod.pod.spec.preemption_policy == _NEVER:
        return _NOT_BY_POLICY
    nominated = nominated or pod.pod.status.nominated_node_name
    if not nominated:
        return ""
    row = nodes.row_of(nominated)
    if row == NO_ROW or _code_of(row, diagnosis) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return ""
    if awaits_victims(pod.priority, nodes, row):
        return _NOT_WHILE_VICTIMS_END
    return _NOT_WHILE_CLAIMS_END if frees_devices and awaits_devices(nodes, row) else ""


def awaits_victims(priority: int, nodes: NodeColumns, row: int) -> bool:
    """Return whether preempted pods below a priority still terminate on a row."""
    return any(
        info.priority < priority and (info.is_cancelled or is_ending_by_preemption(info.pod))
        for info in nodes.pods[row].values()
    )


def awaits_devices(nodes: NodeColumns, row: int) -> bool:
    """Return whether devices for a row are in use only by claims whose holders were preempted or are gone."""
    return are_ending(nodes, row, lambda info: info.is_cancelled or is_ending_by_preemption(info.pod))


def _code_of(row: int, diagnosis: Diagnosis) -> Code:
    if not diagnosis.pre_filter.is_success:
        return diagnosis.pre_filter.code
    return diagnosis.status_of(row).code


def rows_to_try(diagnosis: Diagnosis, nodes: NodeColumns) -> NDArray[np.intp]:
    """Return the rows where preemption may help, intp[k], ascending."""
    if diagnosis.pre_filter.is_success:
        return diagnosis.rows_with(Code.UNSCHEDULABLE)
    if diagnosis.pre_filter.code is Code.UNSCHEDULABLE:
        return np.flatnonzero(nodes.alive)
    return np.empty(0, dtype=np.intp)


def is_ending_by_preemption(pod: Pod) -> bool:
    """Return whether a pod is being deleted because a scheduler preempted it."""
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTION_BY_SCHEDULER
    return False


Importance = tuple[int, datetime] | tuple[int, datetime, int]
ImportanceOf = Callable[[PodInfo], Importance]
WhyNot = Callable[[Sequence[PodInfo]], str]


def importance_at(now: datetime, *, by_cost: bool = False) -> ImportanceOf:
    """Return the sort key of pods, most important first: priority, then start time; ``now`` for pods without one.

    Args:
        by_cost: Whether the deletion cost decides between pods that are equal otherwise.
    """

    def importance(info: PodInfo) -> Importance:
        return -info.priority, info.pod.status.start_time or now

    def with_cost(info: PodInfo) -> Importance:
        return -info.priority, info.pod.status.start_time or now, -deletion_cost(info.pod.metadata)

    return with_cost if by_cost else importance


class RowOutcome(Struct):
    """Result for one row.

    Attributes:
        verdict: 0 if the pod fits without ``victims``; else why it does not fit without all pods of lower priority.
        leaving, versions: The pods of lower priority and their objects; empty in explanations, and unless the outcome
            depends on nothing else but the row and its devices.
        claims: The claims that these pods hold, with all holders.
        essential: UIDs of victims without which the pod does not fit, whatever other pods of the row are evicted;
            perhaps not all, and none unless filters read only the row.
        candidate: Set when it is first needed.
    """

    row: int
    verdict: int = 0
    victims: list[PodInfo] = msgspec.field(default_factory=list)
    pdb_violations: int = 0
    leaving: list[PodInfo] = msgspec.field(default_factory=list)
    versions: list[Pod] = msgspec.field(default_factory=list)
    claims: list[HeldClaim] = msgspec.field(default_factory=list)
    essential: frozenset[str] = frozenset()
    candidate: PreemptionCandidate | None = None

    def may_be_stored(self) -> bool:
        """Return whether the outcome is the same at any later time, provided that the row does not change."""
        if not self.versions:
            return False
        if len(self.leaving) == 1:
            return True
        started = [pod.status.start_time for pod in self.versions]
        # The order of a pod without a start time among others depends on the time of the attempt.
        return None not in started or not any(started)


@dataclass(frozen=True, slots=True)
class PreemptionTrial:
    """A preemption to try: a pod of an attempt on nodes, with disruption budgets and pods that must stay.

    Attributes:
        why_not: Returns why victims are not evicted, "" if they may be; None if all may be.
        is_filtered: Whether Filter has rejected the pod on each row as it is.
        stored_for: Name of the plugin for which outcomes of rows are stored.
    """

    handle: Handle
    state: CycleState
    pod: PodInfo
    nodes: NodeColumns
    diagnosis: Diagnosis
    importance: ImportanceOf
    terms: VictimTerms = NO_TERMS
    why_not: WhyNot | None = None
    is_filtered: bool = False
    stored_for: str = ""

    def run(self, walk: Walk) -> DryRunResult:
        """Try nodes until there are enough candidates, without changing anything."""
        found = DryRunResult()
        if walk.without_victims:
            found.fail(_NO_VICTIMS, walk.without_victims)
        if not len(walk.rows):
            return found
        without_violations: list[PreemptionCandidate] = []
        with_violations: list[PreemptionCandidate] = []
        essential: dict[int, frozenset[str]] = {}
        tried = 0
        with self.dry_run() as probe:
            found.is_row_local = probe.is_row_local
            stored = self._stored(probe) if found.is_row_local else None
            # Limits of a profile depend on more than the row.
            reads_stored = self.why_not is None
            in_step = max(walk.wanted, _MIN_IN_STEP) if found.is_row_local else 1
            while tried < len(walk.rows):
                rows = walk.rows[tried : tried + in_step].tolist()
                tried += len(rows)
                try:
                    outcomes = self._try_or_look_up(rows, stored)
                except AttemptLimitError:
                    if not (without_violations or with_violations):
                        raise
                    # As if the rest had not been among the candidates, of which kube-scheduler tries a sample, too.
                    break
                essential.update((each.row, each.essential) for each in outcomes if isinstance(each, RowOutcome))
                for outcome in outcomes:
                    stored_one = outcome.candidate if reads_stored and isinstance(outcome, RowOutcome) else None
                    candidate = self._candidate(outcome) if stored_one is None else stored_one
                    if isinstance(candidate, Status):
                        found.fail(candidate)
                        continue
                    matching = with_violations if candidate.pdb_violations else without_violations
                    if len(matching) < walk.wanted:
                        matching.append(candidate)
                    if without_violations and len(without_violations) + len(with_violations) >= walk.wanted:
                        tried = len(walk.rows)
                        break
            found.candidates = (*without_violations, *with_violations)
            if self.terms.held is not None:
                found.candidates = self._with_least_victims(self.terms.held, found, essential)
        return found

    def _with_least_victims(
        self, held: HeldClaims, found: DryRunResult, essential: Mapping[int, frozenset[str]]
    ) -> tuple[PreemptionCandidate, ...]:
        """Return candidates of a pod that needs devices; the least harmful one has the least harmful victims.

        Args:
            essential: UIDs of essential victims by row; see :class:`RowOutcome`.
        """
        now = self.handle.clock.wall()
        best: Harm | None = None
        protected: set[str] = set()

        def evicting(node_name: str, victims: Iterable[PodInfo]) -> PreemptionCandidate:
            pods = sorted(victims, key=self.importance)
            return PreemptionCandidate(node_name, tuple(pods), sum(info.uid in protected for info in pods))

        search = VictimSearch(held, lambda victims: harm_of(evicting("", victims), now), self.why_not)
        improved = dict.fromkeys(candidate.node_name for candidate in found.candidates)
        for candidate in sorted(found.candidates, key=lambda each: harm_of(each, now)):
            reason = "" if self.why_not is None else self.why_not(candidate.victims)
            if not reason:
                harm = harm_of(candidate, now)
                best = harm if best is None else min(best, harm)
            row = self.nodes.row_of(candidate.node_name)
            protected = self._protected_on(row)
            victims = search.better(SearchedRow(row, self._leaving(row), essential[row], self.dry_run), best)
            if victims is not None:
                improved[candidate.node_name] = better = evicting(candidate.node_name, victims)
                best = harm_of(better, now)
            elif reason:
                found.fail(unschedulable(f"node(s) had {reason}"))
            else:
                improved[candidate.node_name] = candidate
        return tuple(candidate for candidate in improved.values() if candidate is not None)

    def _try_or_look_up(self, rows: Sequence[int], stored: StoredOutcomes | None) -> Sequence[RowOutcome | PluginError]:
        """Try the rows whose outcomes are not stored; return the outcomes of all."""
        if stored is None:
            return self._try(rows)
        self.nodes.steps.spend(len(rows) // _STORED_PER_STEP)
        known = stored.get(rows)
        tried = iter(self._try([row for row, each in zip(rows, known, strict=True) if each is None]))
        outcomes = [next(tried) if each is None else each for each in known]
        for outcome, former in zip(outcomes, known, strict=True):
            if former is None and isinstance(outcome, RowOutcome):
                stored.add(outcome)
        return outcomes

    def _try(self, rows: Sequence[int]) -> list[RowOutcome | PluginError]:
        """Try rows at once; if a plugin fails, try each row on its own, so that only the failing row is lost."""
        if not rows:
            return []
        try:
            with self.dry_run() as dry_run:
                return list[RowOutcome | PluginError](self._select(dry_run, rows))
        except AttemptLimitError:
            raise
        except PluginError as fault:
            if len(rows) == 1:
                return [fault]
        return [outcome for row in rows for outcome in self._try([row])]

    def _candidate(self, found: RowOutcome | PluginError) -> PreemptionCandidate | Status:
        if isinstance(found, PluginError):
            return error(str(found))
        if found.verdict:
            return self.diagnosis.decode(found.verdict)
        node_name = self.nodes.node_name(found.row)
        if not found.victims:
            return error(f'expected at least one victim pod on node "{node_name}"')
        # For devices, other victims of the node may be within the limits.
        if self.terms.held is None and self.why_not is not None and (reason := self.why_not(found.victims)):
            return unschedulable(f"node(s) had {reason}")
        found.candidate = PreemptionCandidate(node_name, tuple(found.victims), found.pdb_violations)
        return found.candidate

    def _stored(self, dry_run: DryRun) -> StoredOutcomes | None:
        """Return the outcomes of rows that are the same for this pod; None if they may not be stored."""
        nodes, terms = self.nodes, self.terms
        # What dry runs store would be a trace of an explanation.
        if nodes.steps.is_dry or not self.is_filtered or terms.protected or terms.leaving:
            return None
        stored = dry_run.results_by_row(self.stored_for, nodes.disruption_budgets.version)
        if stored is None:
            return None
        names = stored.not_on.union(self.handle.nominator.nodes())
        return StoredOutcomes(stored.results, frozenset(map(nodes.row_of, names)), terms.held)

    def dry_run(self) -> AbstractContextManager[DryRun]:
        """Return a dry run of the pod in which pods can be removed."""
        terms = self.terms
        return self.handle.dry_run(self.state, self.pod, frees_shared_ports=terms.frees_shared_ports, held=terms.held)

    def _select(self, dry_run: DryRun, rows: Sequence[int]) -> list[RowOutcome]:
        """Find the victims on rows.

        Args:
            rows: Rows with at least one pod of lower priority; more than one only if the dry run is local to rows.
        """
        removal: SimulatedRemoval | None = dry_run.by_sums(rows) if dry_run.is_row_local else None
        if removal is None:
            removal = dry_run
        outcomes, is_row_local = [RowOutcome(row) for row in rows], dry_run.is_row_local
        if self.terms.protected or self.terms.held is not None:
            leaving = [self._leaving(row) for row in rows]
        else:
            priority, pods = self.pod.priority, self.nodes.pods
            leaving = [[each for each in pods[row].values() if each.priority < priority] for row in rows]
        removal.remove(*chain.from_iterable(leaving))
        _filter_outcomes(removal, outcomes)
        is_of_row = removal is not dry_run or (self.terms.held is not None and is_row_local)
        if is_of_row and not self.nodes.steps.is_dry:
            for outcome, each in zip(outcomes, leaving, strict=True):
                outcome.leaving, outcome.versions = each, [info.pod for info in each]
                outcome.claims = held_by(each, self.terms.held)
        has_budgets = len(self.nodes.disruption_budgets) > 0
        reprieves = [
            _Reprieve(outcome, *self._in_order(pods, has_budgets=has_budgets))
            for outcome, pods in zip(outcomes, leaving, strict=True)
            if not outcome.verdict
        ]
        # With all pods restored, a row is as it is, unless pods of other rows were removed, too.
        _reprieve(removal, reprieves, is_filtered=self.is_filtered and is_row_local)
        for reprieve in reprieves if self.terms.held is not None and is_row_local else ():
            reprieve.outcome.essential = reprieve.essential
        for reprieve in reprieves:
            if reprieve.protected and len(reprieve.order) > reprieve.protected:
                reprieve.outcome.victims.sort(key=self.importance)
        return outcomes

    def _protected_on(self, row: int) -> set[str]:
        """Return the UIDs of the pods that violate a budget if all pods that may leave are evicted."""
        if not len(self.nodes.disruption_budgets):
            return set()
        ordered, count = self._in_order(self._leaving(row), has_budgets=True)
        return {info.uid for info in ordered[:count]}

    def _leaving(self, row: int) -> list[PodInfo]:
        """Return the pods that may be evicted for a row, on other rows if they hold devices that the row reaches."""
        priority, protected = self.pod.priority, self.terms.protected
        lower = [info for info in self.nodes.pods[row].values() if info.priority < priority]
        leaving = [info for info in lower if info.uid not in protected] if protected else lower
        return leaving if self.terms.held is None else leaving + self.terms.held.beyond(row, leaving)

    def _in_order(self, pods: list[PodInfo], *, has_budgets: bool) -> tuple[list[PodInfo], int]:
        """Return pods in the order in which they are restored, and how many of them, the first, violate a budget."""
        if len(pods) > 1:
            pods = sorted(pods, key=self.importance)
        if not has_budgets:
            return pods, 0
        violating, others = split_by_budgets(pods, self.nodes.disruption_budgets, self.terms.leaving)
        return violating + others, len(violating)


class _Reprieve(Struct):
    """Pods in the order in which they are restored; the first ``protected`` violate a budget."""

    outcome: RowOutcome
    order: list[PodInfo]
    protected: int

    @property
    def essential(self) -> frozenset[str]:
        """UIDs of the victims that were tried before any pod stayed: each was the only pod that was not removed."""
        victims = self.outcome.victims
        alone = takewhile(lambda pair: pair[0] is pair[1], zip(self.order, victims, strict=False))
        return frozenset(info.uid for info, _ in alone)


def _filter_outcomes(dry_run: SimulatedRemoval, outcomes: Sequence[RowOutcome]) -> None:
    rows = np.array([outcome.row for outcome in outcomes], dtype=np.intp)
    order = rows.argsort()
    verdicts = np.empty(len(rows), dtype=np.int32)
    verdicts[order] = dry_run.run_filters(rows[order])
    for outcome, verdict in zip(outcomes, verdicts.tolist(), strict=True):
        outcome.verdict = verdict


def _reprieve(dry_run: SimulatedRemoval, reprieves: Sequence[_Reprieve], *, is_filtered: bool) -> None:
    """Restore the k-th pod of each row, for all k, and remove it again if the preemptor does not fit then.

    Args:
        is_filtered: Whether the preemptor is known not to fit beside all pods of a row.
    """
    for turn in range(max((len(reprieve.order) for reprieve in reprieves), default=0)):
        trying = [reprieve for reprieve in reprieves if len(reprieve.order) > turn]
        if is_filtered:
            last = [reprieve for reprieve in trying if len(reprieve.order) == turn + 1 and not reprieve.outcome.victims]
            for reprieve in last:
                reprieve.outcome.victims.append(reprieve.order[turn])
                reprieve.outcome.pdb_violations += turn < reprieve.protected
            if last:
                decided = {reprieve.outcome.row for reprieve in last}
                trying = [reprieve for reprieve in trying if reprieve.outcome.row not in decided]
            if not trying:
                continue
        dry_run.restore(*[reprieve.order[turn] for reprieve in trying])
        _filter_outcomes(dry_run, [reprieve.outcome for reprieve in trying])
        leaving = [reprieve for reprieve in trying if reprieve.outcome.verdict]
        dry_run.remove(*[reprieve.order[turn] for reprieve in leaving])
        for reprieve in leaving:
            reprieve.outcome.victims.append(reprieve.order[turn])
            reprieve.outcome.pdb_violations += turn < reprieve.protected
            reprieve.outcome.verdict = 0


_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_MIN_IN_STEP = 32
_STORED_PER_STEP = 20
"""Stored outcomes that are read in a step."""


class DryRunResult(Struct):
    """Result of the dry run.

    Attributes:
        candidates: Nodes where the pod would fit, those without PodDisruptionBudget violations first.
        is_row_local: Whether rows were tried independently of each other; valid only if rows were tried.
    """

    candidates: tuple[PreemptionCandidate, ...] = ()
    failures: Counter[Status] = msgspec.field(default_factory=Counter)
    is_row_local: bool = False

    def fail(self, status: Status, count: int = 1) -> None:
        self.failures[status] += count

    def error(self) -> Status | None:
        """Return the errors among the failures as one status, None if there are none."""
        texts = dict.fromkeys(status.message for status in self.failures if status.code is Code.ERROR)
        if not texts:
            return None
        return error(next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]")

    def why_no_candidate(self, node_count: int) -> str:
        """Return the message for a preemption without candidates, in the form of a failed attempt's message."""
        counts, tried = counted_reasons(self.failures.items()), sum(self.failures.values())
        if tried < node_count:
            counts[_NOT_HELPFUL] += node_count - tried
        return no_node_text(node_count, counts)


class Walk(Struct, frozen=True):
    """Rows on which candidates are searched.

    Attributes:
        wanted: Number of candidates at which the search ends, provided that one of them violates no budget.
        without_victims: Number of further rows where preemption could help but that have no pods to preempt.
    """

    rows: NDArray[np.intp]
    wanted: int
    without_victims: int = 0


def held_by(pods: Iterable[PodInfo], held: HeldClaims | None) -> list[HeldClaim]:
    return [] if held is None else [each for info in pods for each in held.of(info)]


@dataclass(frozen=True, slots=True)
class StoredOutcomes:
    """Outcomes by row that hold for all preemptors of one class.

    Attributes:
        excluded: Rows with nominations, or devices that are held, whose outcomes depend on more than the row.
    """

    by_row: dict[int, RowOutcome]
    excluded: frozenset[int]
    held: HeldClaims | None = None

    def __post_init__(self) -> None:
        for row in self.excluded:
            self.by_row.pop(row, None)

    def get(self, rows: Sequence[int]) -> list[RowOutcome | None]:
        """Return the outcome of each row; None if it is not stored, or a pod has changed without a change of the row.

        The start time and the conditions of a pod change like this.
        """
        return [
            None
            if each is None
            or [info.pod for info in each.leaving] != each.versions
            or held_by(each.leaving, self.held) != each.claims
            else each
            for each in map(self.by_row.get, rows)
        ]

    def add(self, outcome: RowOutcome) -> None:
        if outcome.row not in self.excluded and outcome.may_be_stored():
            self.by_row[outcome.row] = outcome


_ABOVE_ANY_PRIORITY = 2**31
Harm = tuple[int, int, int, int, timedelta]
"""Sort key of candidates, the lowest is the best."""


def least_harmful(
    candidates: Sequence[PreemptionCandidate], now: datetime, *, by_cost: bool = False
) -> PreemptionCandidate:
    """Return the best of at least one candidate; the first of equals.

    Criteria, in this order: fewest budget violations; lowest priority of the most important victim; smallest sum of
    priorities, each shifted to be positive, so that more victims are worse for any sign; fewest victims; latest start
    of the longest running victim among those of the highest priority; with ``by_cost`` the sums of the deletion costs,
    then of the ages.
    """
    if by_cost:
        return min(candidates, key=lambda each: (harm_of(each, now), ties_by_cost(each.victims, now)))
    return candidates[0] if len(candidates) == 1 else min(candidates, key=lambda each: harm_of(each, now))


def harm_of(candidate: PreemptionCandidate, now: datetime) -> Harm:
    victims = candidate.victims
    if len(victims) == 1:
        # By far the most frequent case.
        (info,) = victims
        started, priority = info.pod.status.start_time or now, info.priority
        return candidate.pdb_violations, priority, priority + _ABOVE_ANY_PRIORITY, 1, now - started
    # A loop, because a preemption compares hundreds of candidates.
    highest, started = victims[0].priority, victims[0].pod.status.start_time or now
    total = len(victims) * _ABOVE_ANY_PRIORITY
    for info in victims:
        priority, start = info.priority, info.pod.status.start_time or now
        total += priority
        if priority > highest:
            highest, started = priority, start
        elif priority == highest and start < started:
            started = start
    return candidate.pdb_violations, highest, total, len(victims), now - started


def least_harm(pods: Sequence[PodInfo], now: datetime) -> Harm:
    """Return a lower bound of the harm of a candidate whose victims are some of these pods, at least one."""
    lowest = min(info.priority for info in pods)
    started = max(info.pod.status.start_time or now for info in pods if info.priority == lowest)
    return 0, lowest, lowest + _ABOVE_ANY_PRIORITY, 1, now - started
