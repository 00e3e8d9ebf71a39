"""What the first infeasible member of a try lacks, for :mod:`.gang_dry_run`."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.explain.device_findings import device_findings
from scheduler_core.explain.gang_nearest_nodes import labels_of
from scheduler_core.explain.nearest_nodes import NearMiss, near_misses
from scheduler_core.explain.pod_dry_run import Companions, Examiner
from scheduler_core.explain.unblocking_events import Unblocking, UnblockingEvents
from scheduler_core.gangs.placement_search import GroupCycle
from scheduler_core.gangs.placement_trial import GangTrial
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class NextMember:
    """The first infeasible member while the members before it are assumed.

    Attributes:
        pod: The member.
        message: The reason, as in its condition.
        nearest: The nodes of the domain that lack least for it.
        unblocking: Events after which it is feasible; the members after it may need more.
    """

    pod: PodInfo
    message: str
    nearest: tuple[NearMiss, ...] = ()
    unblocking: tuple[Unblocking, ...] = ()


class NextMembers:
    """Finds out what the first infeasible member of a try lacks, while the members before it are assumed.

    Args:
        nodes: The columns.
        examiner: Dry-runs attempts.
        unblocking: Finds unblocking events.
    """

    def __init__(self, nodes: NodeColumns, examiner: Examiner, unblocking: UnblockingEvents) -> None:
        self._nodes = nodes
        self._examiner = examiner
        self._unblocking = unblocking

    def next_of(self, cycle: GroupCycle, trial: GangTrial, limit: int, *, with_events: bool) -> NextMember | None:
        """Return the first infeasible member of a try; None if no member was rejected.

        Args:
            cycle: The group cycle.
            trial: The try, whose feasible members are still assumed.
            limit: Number of nodes for which the reasons are computed.
            with_events: Whether to compute unblocking events, too.
        """
        if not trial.failed:
            return None
        attempt, failure = trial.failed[0]
        if failure.is_error:
            return NextMember(attempt.info, failure.message)
        assert cycle.gang.group is not None
        labels = labels_of(self._nodes, cycle.gang.group.topology, trial.where)
        companions = Companions(frozenset(cycle.gang.pods), labels)
        again = self._examiner.examine_member(cycle.instance, attempt.queued, companions)
        if again.feasible or again.error:
            # A later point rejected it after its node was chosen, so no node lacks anything.
            return NextMember(attempt.info, failure.message)
        try:
            devices = device_findings(self._nodes, cycle.instance, again)
            misses = near_misses(self._nodes, cycle.instance, again, limit, devices)
            events = self._unblocking.find(cycle.instance, again, misses, devices) if with_events else ()
        except SchedulerCoreError:
            return NextMember(attempt.info, failure.message)
        return NextMember(attempt.info, failure.message, misses, events)
