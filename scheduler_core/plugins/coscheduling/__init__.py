"""Coscheduling: the members of a group are bound together or not at all, each of them placed by itself.

Owns the promise at Permit: a member that has a node waits there until its whole quorum has one, and when one of them is
turned away all are. Must not know how groups are described or counted. Its steps stand in modules: ``admission``
(PreEnqueue, PreFilter), ``cluster_room`` (``minResources``), ``quorum`` (who counts), ``records`` (what is remembered
of groups) and ``hints``.

Why beside the group cycle: for profiles that rely on plugins which decide pod by pod. While members wait they hold
their nodes, which the group cycle never does; what ends that is their time at Permit.

A member::

    held back --quorum exists--> tried --fits--> waits at Permit --quorum has nodes--> bound
                                  |                  |
                                  +--does not fit----+--time is up, or a sibling is turned away--> tried again

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling``. It differs where users report harm: a member that is refused,
being deleted or failed does not count (#930), members that lack siblings take no attempts (#450, #682), the members
that wait elsewhere are called as soon as one waits at Permit (#125, #364), and of two groups that got into each
other's way the later one lets the other go first (#114, #117).

Let it be the last plugin at Permit: one after it could still refuse the member that completes a quorum.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.config.plugin_args import CoschedulingArgs
from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PermitPlugin,
    PermitResult,
    PodReads,
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    QueueSortPlugin,
    ReservePlugin,
    Reuse,
)
from scheduler_core.framework.group_view import GroupView
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.pods_to_activate import pods_to_activate
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.plugins.coscheduling.admission import admission
from scheduler_core.plugins.coscheduling.cluster_room import gaps
from scheduler_core.plugins.coscheduling.hints import GroupHints
from scheduler_core.plugins.coscheduling.quorum import needed, standing
from scheduler_core.plugins.coscheduling.records import Order, Records
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

__all__ = ["Coscheduling"]

YIELD_SECONDS = 12.0
"""How long a group lets one before it go first, when each may hold what the other lacks: longer than a pod backs off
by default, or the other would not be back yet."""

_DEFAULT_WAIT_SECONDS = 60.0
_ALL_NODES = PreFilterResult()
_NOTHING_TO_DO = PostFilterResult(unschedulable())


class Coscheduling(QueueSortPlugin, PreEnqueuePlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin, PermitPlugin):
    """Holds the members of a group at Permit until its quorum has nodes."""

    name = "Coscheduling"
    reuse = Reuse(pod=PodReads.LABELS)
    args_model = CoschedulingArgs

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        """Begin without any memory of groups.

        Args:
            args: Times and the share that may be missing.
            handle: The rest of the scheduler.
        """
        super().__init__(args, handle)
        self._args = args
        self._groups = handle.groups
        self._records = Records(handle)
        self._hints = GroupHints(handle.groups)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Siblings that come, changes of the PodGroup, and room for groups that say how much they need."""
        return self._hints.registrations()

    def close(self) -> None:
        """Stop the timers of backoffs."""
        self._records.close()

    # -- the order of the queue ---------------------------------------------------------------------------------

    def sort_key(self, pod: QueuedPod) -> tuple[int, float, str, int]:
        """Priority, descending; how long the group has waited, or a pod alone; names; the order of arrival.

        The members of a group stand together: only between groups does it matter who came first. A group that was
        turned away whole has waited since then, so that it does not stand before all others for good.
        """
        view = self._groups.group_of(pod.info.pod)
        if view is None:
            return -pod.info.priority, pod.timestamp, pod.info.key, pod.sequence
        rank, since, name = _standing_order(view, pod.info)
        record = self._records.find(view.key)
        if record is not None and record.failed_at is not None:
            since = record.failed_at
        return rank, since, name, pod.sequence

    # -- before nodes are looked at -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Hold back members that lack siblings; the one that completes the quorum lets the others in as well."""
        view = self._groups.group_of(pod.pod)
        if view is None:
            return SUCCESS
        status = admission(view, self.handle.waiting_pods, self._records)
        if not status.is_success:
            self._records.of(view.key).held[pod.uid] = pod
            return status
        record = self._records.find(view.key)
        if record is not None and record.held:
            held, record.held = record.held, {}
            held.pop(pod.uid, None)
            self.handle.activate(held.values())
        return SUCCESS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Refuse members of a group that cannot be placed, be it for want of members or of resources in all."""
        del state
        view = self._groups.group_of(pod.pod)
        if view is None:
            return _ALL_NODES
        status = admission(view, self.handle.waiting_pods, self._records)
        if status.is_success and view.group is not None and view.group.min_resources:
            status = self._room(view, view.group, nodes)
        return _ALL_NODES if status.is_success else PreFilterResult(status)

    def _room(self, view: GroupView, group: PodGroup, nodes: NodeColumns) -> Status:
        record, now = self._records.of(view.key), self.handle.clock.now()
        if now < record.has_room_until:
            return SUCCESS
        missing = gaps(group, nodes, view.assigned())
        if missing:
            told = ", ".join(f"{amount} of {name}" for name, amount in missing.items())
            return unresolvable(f"the cluster has too little free for PodGroup {view.key}: {told} missing")
        record.has_room_until = now + self._wait_seconds(group)
        return SUCCESS

    # -- when a member does not fit -----------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Turn the whole group away, unless only few members are missing: the others would hardly fit either."""
        del state, nodes, diagnosis
        view, result = self._verdict(pod)
        if view is not None and view.group is not None:
            self._turn_away(view, view.group, pod)
        return result

    def preview(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterPreview | None:
        """What it would say."""
        del state, nodes, diagnosis
        return PostFilterPreview(self._verdict(pod)[1])

    def _verdict(self, pod: PodInfo) -> tuple[GroupView | None, PostFilterResult]:
        """The group to be turned away, None for none; and what is said."""
        view = self._groups.group_of(pod.pod)
        if view is None or view.group is None:
            return None, _NOTHING_TO_DO
        minimum = view.group.min_member
        missing = needed(view, view.group) - len(standing(view, self.handle.waiting_pods, pod.uid))
        if missing <= 0 or 100 * missing <= self._args.pod_group_reject_percentage * minimum:
            return None, _NOTHING_TO_DO
        told = unschedulable(f"PodGroup {view.key} is turned away, since member {pod.pod.metadata.name} fits nowhere")
        return view, PostFilterResult(told)

    def _turn_away(self, view: GroupView, group: PodGroup, pod: PodInfo) -> None:
        self._refuse_siblings(view, pod, f"member {pod.pod.metadata.name} of PodGroup {view.key} fits nowhere")
        is_complete = len(view.members()) >= group.min_member
        self._note_failure(view, pod, float(self._args.pod_group_backoff_seconds) if is_complete else 0.0)

    def _note_failure(self, view: GroupView, pod: PodInfo, backoff: float = 0.0) -> None:
        """Remember that a group was turned away, and let it stand back if it got into the way of one before it.

        That is one which has members at Permit, or was turned away itself a moment ago: each may have held what the
        other lacks. Else both would come back together and meet again.
        """
        order = _standing_order(view, pod)
        if self._meets_one_before(view, order) or self._records.has_failed_before(order, YIELD_SECONDS):
            backoff = max(backoff, YIELD_SECONDS)
        self._records.back_off(view.key, backoff, self._backoff_over)
        self._records.failed(view.key, order)

    def _meets_one_before(self, view: GroupView, order: Order) -> bool:
        for wait in self.handle.waiting_pods:
            other = self._groups.group_of(wait.pod.pod)
            if other is not None and other.key != view.key and _standing_order(other, wait.pod) < order:
                return True
        return False

    def _backoff_over(self, key: GroupKey) -> None:
        """Let in whom something has woken meanwhile; the first of them that waits at Permit calls the others."""
        record = self._records.find(key)
        if record is not None:
            held, record.held = record.held, {}
            self.handle.activate(held.values())

    def _refuse_siblings(self, view: GroupView, pod: PodInfo, reason: str) -> None:
        for member in view.assigned():
            wait = None if member.uid == pod.uid else self.handle.waiting_pods.get(member.uid)
            if wait is not None:
                wait.reject(self.name, reason)

    # -- when a member has a node -------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Nothing is reserved beyond the node."""
        del state, pod, node_name
        return SUCCESS

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Let a member wait until the quorum has nodes; then let all go that wait."""
        del node_name
        view = self._groups.group_of(pod.pod)
        if view is None:
            return PermitResult()
        group = view.group
        if group is None:
            return PermitResult(unschedulable(f"PodGroup {view.key} does not exist any more"))
        others = standing(view, self.handle.waiting_pods, pod.uid)
        waits = [wait for member in others if (wait := self.handle.waiting_pods.get(member.uid)) is not None]
        if len(others) + 1 >= needed(view, group):
            self._records.placed(view.key)
            for wait in waits:
                wait.allow(self.name)
            return PermitResult()
        if not waits:
            # Once for a round of attempts: siblings that failed or back off are called by the first that waits.
            self._call(view, state, pod)
        return PermitResult(Status(Code.WAIT), self._wait_seconds(group))

    def _call(self, view: GroupView, state: CycleState, pod: PodInfo) -> None:
        called = pods_to_activate(state)
        for sibling in view.waiting():
            if sibling.uid != pod.uid:
                called.add(sibling)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """A member has lost its node: those that wait for it are turned away, unless the quorum stands without it."""
        del state, node_name
        view = self._groups.group_of(pod.pod)
        if view is None:
            return
        left = len(standing(view, self.handle.waiting_pods, pod.uid))
        if view.group is not None and left >= needed(view, view.group):
            return
        self._refuse_siblings(view, pod, f"member {pod.pod.metadata.name} of PodGroup {view.key} has lost its node")
        self._note_failure(view, pod)

    def _wait_seconds(self, group: PodGroup) -> float:
        """The group's own time, else the profile's; neither may be 0, or nobody could ever wait."""
        own = group.schedule_timeout_seconds
        return own or float(self._args.permit_waiting_time_seconds) or _DEFAULT_WAIT_SECONDS


def _standing_order(view: GroupView, member: PodInfo) -> Order:
    """Where a group stands by its own priority, else by a member's."""
    group = view.group
    priority = member.priority if group is None or group.priority is None else group.priority
    return -priority, view.since, f"{view.key} {view.key.source}"
