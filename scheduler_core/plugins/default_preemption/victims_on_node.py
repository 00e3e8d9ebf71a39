"""Which pods of a node must be evicted so that another pod fits.

All pods of lower priority are removed, then each is restored if the pod still fits: first those that a
PodDisruptionBudget protects, in both groups the most important pods first. Many nodes are tried at once if they do not
affect each other; that has the same result as one after another and costs one run of the filters for all of them.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go``
(``SelectVictimsOnNode``, ``FilterVictimsWithPDBViolation``) and ``util/utils.go`` (``MoreImportantPod``). Pods of equal
priority and start time are restored in the order in which the scheduler saw them; in kube-scheduler in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

import numpy as np

from scheduler_core.framework.gang_preemptor import NO_TERMS, VictimTerms
from scheduler_core.framework.group_view import split_by_budgets
from scheduler_core.framework.handle import DryRun, SimulatedRemoval
from scheduler_core.plugins.default_preemption.eligibility import lower_priority_pods
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

Importance = tuple[int, datetime]
ImportanceOf = Callable[[PodInfo], Importance]


def importance_at(now: datetime) -> ImportanceOf:
    """Return the sort key of pods, most important first: priority, then start time; ``now`` for pods without one."""

    def importance(info: PodInfo) -> Importance:
        return -info.priority, info.pod.status.start_time or now

    return importance


@dataclass(slots=True)
class RowOutcome:
    """Result for one row.

    Attributes:
        verdict: 0 if the pod fits without ``victims``; else why it does not fit without all pods of lower priority.
        victims: Pods to evict, most important first.
        pdb_violations: How many of them violate a PodDisruptionBudget.
    """

    row: int
    verdict: int = 0
    victims: list[PodInfo] = field(default_factory=list)
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """A preemption to try: a pod on nodes, with disruption budgets and pods that must stay."""

    pod: PodInfo
    nodes: NodeColumns
    importance: ImportanceOf
    terms: VictimTerms = NO_TERMS

    def select(self, dry_run: DryRun, rows: Sequence[int]) -> list[RowOutcome]:
        """Find the victims on rows.

        Args:
            dry_run: The dry run; removed pods stay removed.
            rows: Rows with at least one pod of lower priority; more than one only if the dry run is local to rows.

        Returns:
            The outcomes in the order of ``rows``.

        Raises:
            PluginError: A plugin raised, or returned a value that its extension point does not allow.
        """
        removal: SimulatedRemoval | None = dry_run.by_sums(rows) if dry_run.is_row_local else None
        if removal is None:
            removal = dry_run
        outcomes = [RowOutcome(row) for row in rows]
        leaving = [self._leaving(row) for row in rows]
        removal.remove(*chain.from_iterable(leaving))
        _filter_outcomes(removal, outcomes)
        has_budgets = len(self.nodes.disruption_budgets) > 0
        reprieves = [
            _Reprieve(outcome, *self._in_order(pods, has_budgets=has_budgets))
            for outcome, pods in zip(outcomes, leaving, strict=True)
            if not outcome.verdict
        ]
        _reprieve(removal, reprieves)
        for reprieve in reprieves:
            if reprieve.protected and len(reprieve.order) > reprieve.protected:
                reprieve.outcome.victims.sort(key=self.importance)
        return outcomes

    def _leaving(self, row: int) -> list[PodInfo]:
        lower, protected = lower_priority_pods(self.pod, self.nodes, row), self.terms.protected
        return [info for info in lower if info.uid not in protected] if protected else lower

    def _in_order(self, pods: list[PodInfo], *, has_budgets: bool) -> tuple[list[PodInfo], int]:
        """Return pods in the order in which they are restored, and how many of them, the first, violate a budget."""
        if len(pods) > 1:
            pods = sorted(pods, key=self.importance)
        if not has_budgets:
            return pods, 0
        violating, others = split_by_budgets(pods, self.nodes.disruption_budgets, self.terms.leaving)
        return violating + others, len(violating)


@dataclass(slots=True)
class _Reprieve:
    """Pods in the order in which they are restored; the first ``protected`` violate a budget."""

    outcome: RowOutcome
    order: list[PodInfo]
    protected: int


def _filter_outcomes(dry_run: SimulatedRemoval, outcomes: Sequence[RowOutcome]) -> None:
    rows = np.array([outcome.row for outcome in outcomes], dtype=np.intp)
    order = rows.argsort()
    verdicts = np.empty(len(rows), dtype=np.int32)
    verdicts[order] = dry_run.run_filters(rows[order])
    for outcome, verdict in zip(outcomes, verdicts.tolist(), strict=True):
        outcome.verdict = verdict


def _reprieve(dry_run: SimulatedRemoval, reprieves: Sequence[_Reprieve]) -> None:
    """Restore the k-th pod of each row, for all k, and remove it again if the preemptor does not fit then."""
    for turn in range(max((len(reprieve.order) for reprieve in reprieves), default=0)):
        trying = [reprieve for reprieve in reprieves if len(reprieve.order) > turn]
        dry_run.restore(*(reprieve.order[turn] for reprieve in trying))
        _filter_outcomes(dry_run, [reprieve.outcome for reprieve in trying])
        leaving = [reprieve for reprieve in trying if reprieve.outcome.verdict]
        dry_run.remove(*(reprieve.order[turn] for reprieve in leaving))
        for reprieve in leaving:
            reprieve.outcome.victims.append(reprieve.order[turn])
            reprieve.outcome.pdb_violations += turn < reprieve.protected
            reprieve.outcome.verdict = 0
