"""Which pods must leave a node so that another fits.

Owns the choice on single nodes: all pods of lower priority leave, then each that can comes back, those that a
PodDisruptionBudget protects first, in either group the most important first. Many nodes are tried in step, which is the
same as one after another as long as they do not touch each other, and costs one run of the filters for all of them.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go``
(``SelectVictimsOnNode``, ``filterPodsWithPDBViolation``) and ``util/utils.go`` (``MoreImportantPod``). Pods of equal
priority that started at the same time come back in the order in which the scheduler saw them; there, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

import numpy as np

from scheduler_core.framework.disruption_units import split_by_budgets
from scheduler_core.framework.gang_preemptor import NO_TERMS, VictimTerms
from scheduler_core.framework.handle import DryRun, SimulatedRemoval
from scheduler_core.plugins.default_preemption.eligibility import lower_priority_pods
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

Importance = tuple[int, datetime]
ImportanceOf = Callable[[PodInfo], Importance]


def importance_at(now: datetime) -> ImportanceOf:
    """The sorting key of pods, most important first: by priority, then by start; who has not started starts ``now``."""

    def importance(info: PodInfo) -> Importance:
        return -info.priority, info.pod.status.start_time or now

    return importance


@dataclass(slots=True)
class RowOutcome:
    """What a trial of one row found.

    Attributes:
        row: The row.
        verdict: 0 where the pod fits without ``victims``; else why not even without all pods of lower priority.
        victims: Pods that must leave, most important first.
        pdb_violations: How many of them a budget protects.
    """

    row: int
    verdict: int = 0
    victims: list[PodInfo] = field(default_factory=list)
    pdb_violations: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried: a pod on nodes, under budgets, without harm to those who are spared."""

    pod: PodInfo
    nodes: NodeColumns
    importance: ImportanceOf
    terms: VictimTerms = NO_TERMS

    def select(self, dry_run: DryRun, rows: Sequence[int]) -> list[RowOutcome]:
        """Find the victims on rows.

        Args:
            dry_run: The question; pods that it took off stay off.
            rows: Rows with at least one pod of lower priority; more than one only if the question is local to rows.

        Returns:
            The outcomes in the order of ``rows``.

        Raises:
            PluginError: A plugin raised, or answered what the point does not allow.
        """
        question: SimulatedRemoval | None = dry_run.in_sums(rows) if dry_run.is_row_local else None
        if question is None:
            question = dry_run
        outcomes = [RowOutcome(row) for row in rows]
        leaving = [self._leaving(row) for row in rows]
        question.remove(*chain.from_iterable(leaving))
        _judge(question, outcomes)
        has_budgets = len(self.nodes.disruption_budgets) > 0
        reprieves = [
            _Reprieve(outcome, *self._in_order(pods, has_budgets=has_budgets))
            for outcome, pods in zip(outcomes, leaving, strict=True)
            if not outcome.verdict
        ]
        _reprieve(question, reprieves)
        for reprieve in reprieves:
            if reprieve.protected and len(reprieve.order) > reprieve.protected:
                reprieve.outcome.victims.sort(key=self.importance)
        return outcomes

    def _leaving(self, row: int) -> list[PodInfo]:
        lower, spared = lower_priority_pods(self.pod, self.nodes, row), self.terms.spared
        return [info for info in lower if info.uid not in spared] if spared else lower

    def _in_order(self, pods: list[PodInfo], *, has_budgets: bool) -> tuple[list[PodInfo], int]:
        """Pods in the order in which they may come back, and how many of them, the first, violate a budget."""
        if len(pods) > 1:
            pods = sorted(pods, key=self.importance)
        if not has_budgets:
            return pods, 0
        violating, others = split_by_budgets(pods, self.nodes.disruption_budgets, self.terms.leaving)
        return violating + others, len(violating)


@dataclass(slots=True)
class _Reprieve:
    """Pods in the order in which they may come back, of which the first ``protected`` violate a budget."""

    outcome: RowOutcome
    order: list[PodInfo]
    protected: int


def _judge(dry_run: SimulatedRemoval, outcomes: Sequence[RowOutcome]) -> None:
    rows = np.array([outcome.row for outcome in outcomes], dtype=np.intp)
    order = rows.argsort()
    verdicts = np.empty(len(rows), dtype=np.int32)
    verdicts[order] = dry_run.run_filters(rows[order])
    for outcome, verdict in zip(outcomes, verdicts.tolist(), strict=True):
        outcome.verdict = verdict


def _reprieve(dry_run: SimulatedRemoval, reprieves: Sequence[_Reprieve]) -> None:
    """Let the k-th pod of each row come back, for all k, unless the pod to be placed does not fit then."""
    for turn in range(max((len(reprieve.order) for reprieve in reprieves), default=0)):
        trying = [reprieve for reprieve in reprieves if len(reprieve.order) > turn]
        dry_run.restore(*(reprieve.order[turn] for reprieve in trying))
        _judge(dry_run, [reprieve.outcome for reprieve in trying])
        leaving = [reprieve for reprieve in trying if reprieve.outcome.verdict]
        dry_run.remove(*(reprieve.order[turn] for reprieve in leaving))
        for reprieve in leaving:
            reprieve.outcome.victims.append(reprieve.order[turn])
            reprieve.outcome.pdb_violations += turn < reprieve.protected
            reprieve.outcome.verdict = 0
