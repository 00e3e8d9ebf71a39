"""Selection of victims for gangs, undone before it returns; and whether earlier victims are still awaited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import Feasible, NodeSelection
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.gang_preemptor import GangPreemptor
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.gangs.domain_screen import DomainScreen
from scheduler_core.gangs.native_preemption import NativePlacement
from scheduler_core.gangs.placement_trial import steps_of_search
from scheduler_core.gangs.preemption_dry_run import VictimSearch
from scheduler_core.gangs.preemption_plan import GangPlan, GangRequest
from scheduler_core.ports import Clock
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW
from scheduler_core.step_counter import StepCounter


class GangVictims:
    """Selects victims for gangs.

    Args:
        nodes: The columns; they are unchanged when a method returns.
        nominator: Nominations.
        selection: Searches and selects nodes.
        assumed: Assumes members during a dry run.
        clock: Time.
        steps: Counts the steps of the cycle.
    """

    def __init__(
        self,
        nodes: NodeColumns,
        nominator: NominatedPods,
        selection: NodeSelection,
        assumed: AssumedPods,
        clock: Clock,
        *,
        steps: StepCounter,
    ) -> None:
        self._steps = steps
        self._nodes = nodes
        self._nominator = nominator
        self._selection = selection
        self._assumed = assumed
        self._clock = clock

    def plan_in(
        self,
        request: GangRequest,
        where: Where,
        members: Sequence[QueuedPod],
        *,
        placement: NativePlacement | None = None,
        screen: DomainScreen | None = None,
    ) -> GangPlan | None:
        """Select the victims in one domain.

        Args:
            request: The gang.
            where: The domain.
            members: The members in the order in which they are tried.
            placement: Places the members, which keep their nodes when victims are reprieved; None to place them with
                the least harm.
            screen: Receives the order if no member is feasible in the domain.

        Returns:
            The plan; None if the quorum is infeasible, or feasible without victims and terminating pods.

        Raises:
            SchedulerCoreError: A plugin failed, or there are no nodes.
        """
        with self._searching(request, where, keeps_nodes=placement is not None) as search:
            plan = search.plan(members, None if placement is None else partial(placement.place, search))
            is_none_feasible = not search.assumed
        if plan is None and is_none_feasible and screen is not None:
            screen.none_feasible(members)
        return plan

    def reachable(self, request: GangRequest, queued: QueuedPod) -> Feasible | None:
        """Return where a member is feasible, in any domain, now or after a preemption; None if a plugin failed."""
        try:
            with self._searching(request, ANYWHERE) as search:
                return search.reachable(queued)
        except AttemptLimitError:
            raise
        except SchedulerCoreError:
            return None

    @contextmanager
    def _searching(self, request: GangRequest, where: Where, *, keeps_nodes: bool = False) -> Iterator[VictimSearch]:
        """Search victims in one domain; all changes are undone on exit."""
        nodes, pods = self._nodes, self._assumed
        with ColumnsOverlay(nodes) as overlay:
            search = VictimSearch(
                nodes=nodes,
                nominator=self._nominator,
                selection=self._selection,
                pods=pods,
                clock=self._clock,
                steps=self._steps,
                request=request,
                where=where,
                overlay=overlay,
                keeps_nodes=keeps_nodes,
            )
            try:
                yield search
            finally:
                for attempt in reversed(search.assumed.values()):
                    pods.release(attempt)

    def are_awaited(
        self, members: Sequence[QueuedPod], priority: int, instance: FrameworkInstance, preemptor: GangPreemptor
    ) -> bool:
        """Return whether victims still terminate on a nominated node of a member that may become feasible.

        Args:
            members: The waiting members.
            priority: Priority of the gang.
            instance: The profile's revision that decides.
            preemptor: Its plugin that preempts for gangs.
        """
        for queued in members:
            name = self._nominator.node_of(queued.uid) or queued.info.pod.status.nominated_node_name
            row = self._nodes.row_of(name) if name else NO_ROW
            if row == NO_ROW:
                continue
            if preemptor.is_awaited(priority, row) and not self._is_hopeless(queued, instance, row):
                return True
        return False

    def _is_hopeless(self, queued: QueuedPod, instance: FrameworkInstance, row: int) -> bool:
        self._steps.spend(steps_of_search(self._nodes))
        attempt = Attempt(queued, queued.info, instance, self._clock.now())
        attempt.among = np.zeros(self._nodes.size, dtype=np.bool_)
        attempt.among[row] = True
        feasible = self._selection.find_feasible(attempt, everywhere=True)
        if len(feasible.rows):
            return False
        diagnosis = feasible.diagnosis
        if not diagnosis.pre_filter.is_success:
            return diagnosis.pre_filter.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return diagnosis.status_of(row).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
