"""What the first infeasible member of a placement lacks, for :mod:`.gang_dry_run`."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.explain.device_findings import device_findings
from scheduler_core.explain.gang_nearest_nodes import labels_of
from scheduler_core.explain.nearest_nodes import NearMiss, near_misses
from scheduler_core.explain.pod_dry_run import Examiner, GangContext
from scheduler_core.explain.unblocking_events import Unblocking, UnblockingEvents
from scheduler_core.placement.requests import Placement, PlacementRequest
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


@dataclass(frozen=True, slots=True)
class NextMembers:
    """Finds out what the first infeasible member of a placement lacks, while the members before it are assumed."""

    nodes: NodeColumns
    examiner: Examiner
    unblocking: UnblockingEvents

    def next_of(
        self, request: PlacementRequest, found: Placement, limit: int, *, with_events: bool
    ) -> NextMember | None:
        """Return the first infeasible member of a placement; None if no member was rejected.

        Args:
            limit: Number of nodes for which the reasons are computed.
            with_events: Whether to compute unblocking events, too.
        """
        if not found.failed:
            return None
        attempt, failure = found.failed[0]
        if failure.is_error:
            return NextMember(attempt.info, failure.message)
        assert request.gang.group is not None
        labels = labels_of(self.nodes, request.gang.group.topology, found.where)
        gang_context = GangContext(frozenset(request.gang.pods), labels)
        again = self.examiner.examine_member(request.instance, attempt.queued, gang_context)
        if again.feasible or again.error:
            # A later point rejected it after its node was chosen, so no node lacks anything.
            return NextMember(attempt.info, failure.message)
        try:
            devices = device_findings(self.nodes, request.instance, again)
            misses = near_misses(self.nodes, request.instance, again, limit, devices)
            events = self.unblocking.find(request.instance, again, misses, devices) if with_events else ()
        except SchedulerCoreError:
            return NextMember(attempt.info, failure.message)
        return NextMember(attempt.info, failure.message, misses, events)
