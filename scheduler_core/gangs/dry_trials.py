"""Tries of members and trees that leave no trace: no recorder, and no position of a partial search."""

from __future__ import annotations

import copy
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.filter_and_score import Feasible
from scheduler_core.cycle.percentage_of_nodes import NodeOrder
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cycle_stages import NOT_COUNTED
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.placement_trial import GangTrial, MemberTrials
from scheduler_core.gangs.tree_search import TreeCycle, TreeSearch
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache

Result = TypeVar("Result")


class DryTrials:
    """Tries members and trees as group cycles do, without extenders.

    Args:
        cache: The nodes, and the members that are scheduled.
        trials: Tries members.
        assumed: Releases members.
        order: Stores the position of the next partial search.
        report: Takes the recorders back.
    """

    def __init__(
        self, cache: ClusterCache, trials: MemberTrials, assumed: AssumedPods, order: NodeOrder, report: CycleReport
    ) -> None:
        self._trials = trials
        self._trees = TreeSearch(cache, trials, assumed)
        self._assumed = assumed
        self._order = order
        self._report = report

    def fill(self, instance: FrameworkInstance, members: Sequence[QueuedPod], needed: int, trial: GangTrial) -> None:
        """Assume members.

        Args:
            instance: The profile's revision that decides; it has no extenders.
            members: The members in the order in which they are tried.
            needed: How many members must be feasible.
            trial: The try; feasible members stay assumed until :meth:`undo`.
        """
        start, known = self._order.next_start, len(trial.placed)
        try:
            _run(self._trials.try_members(instance, members, needed, trial), instance)
        finally:
            self._order.next_start = start
            self._release((*trial.placed[known:], *(attempt for attempt, _ in trial.failed)))

    def feasible_rows(self, instance: FrameworkInstance, queued: QueuedPod) -> Feasible | None:
        """Return where a member is feasible now, in any domain; None if that cannot be decided."""
        return self._trials.feasible_rows(instance, queued)

    def fill_tree(self, cycle: TreeCycle) -> bool:
        """Assume the members of a tree; return whether the root meets its quorum and a member was assumed.

        Args:
            cycle: The tree; its profile has no extenders. Assumed members stay so until :meth:`undo` of its trial.
        """
        start = self._order.next_start
        try:
            return _run(self._trees.search(cycle), cycle.instance)
        finally:
            self._order.next_start = start
            self._release((*cycle.trial.placed, *(attempt for attempt, _ in cycle.trial.failed)))

    def undone(self) -> AbstractContextManager[None]:
        """Undo everything that the block assumes, whatever it raises."""
        return self._assumed.undone()

    def undo(self, trial: GangTrial) -> None:
        """Release the members of a try."""
        trial.undo(self._assumed)

    def _release(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self._report.release_recorder(attempt)


def without_extenders(instance: FrameworkInstance) -> FrameworkInstance:
    """Return a copy of the profile without extenders."""
    if not instance.extenders:
        return instance
    alone = copy.copy(instance)
    alone.extenders = ()
    return alone


def for_dry_run(instance: FrameworkInstance) -> FrameworkInstance:
    """Return a copy of the profile for an explanation, with cached results of its own and without counts."""
    apart = copy.copy(instance)
    apart.pod_classes, apart.evaluations = None, NOT_COUNTED
    return apart


def _run(awaiting: Coroutine[object, None, Result], instance: FrameworkInstance) -> Result:
    """Run a coroutine that does not await."""
    try:
        awaiting.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    # Only extender calls await.
    awaiting.close()
    raise SchedulerCoreError(f"members cannot be dry-run: profile {instance.name} awaits; please report it")
