"""Coscheduling: the members of a pod group are bound together or not at all, each of them scheduled on its own.

A member that has a node waits at Permit until a quorum of its group has nodes; if one of them is rejected, all are. Use
it instead of the group cycle in profiles with plugins that decide pod by pod. Unlike in the group cycle, waiting
members hold their nodes until their timeout at Permit. Enable it as the last plugin at Permit: a later plugin could
still reject the member that completes a quorum.

A member::

    gated --quorum exists--> tried --feasible--> waits at Permit --quorum has nodes--> bound
                               |                     |
                               +--infeasible---------+--timeout, or a sibling is rejected--> requeued

A group that backs off::

    free --back_off--> backed off --timer, or scheduled--> free

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling``. It differs where users report problems: members are counted by
UID, and one that is rejected, being deleted or failed does not count (#930), members without enough siblings cause no
attempts (#450, #682), the other members are activated as soon as one waits at Permit (#125, #364), and of two groups
that block each other the later one backs off (#114, #117). Only members of the group are requeued by its events, and
only once enough of them exist; a group that was rejected for its ``minResources`` is requeued when resources become
free. The state belongs to the plugin instance, so the next revision starts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.config.plugin_args import CoschedulingArgs
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    CONTINUE,
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
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.model.pod_requests import PODS
from scheduler_core.ports import Timer
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import free_amount

Order = tuple[int, float, str]
"""Sort key of groups: priority, descending; when they were first seen; their names."""

_FIRST_SWEEP = 256
_FIRST_SECONDS, _LONGEST_SECONDS, _MOST_DOUBLINGS = 1.0, 10.0, 16


@dataclass(slots=True)
class Record:
    """State of one group.

    Attributes:
        failed_at: When it was last rejected as a whole, in the clock's seconds; None if not since it was scheduled.
        order: Its sort key at that time; lower goes first.
        backed_off_until: Until when none of its members is tried, in the clock's seconds.
        has_room_until: Until when the check of its ``minResources`` need not be repeated.
        backoffs: Number of backoffs since it was scheduled; each is longer than the one before.
    """

    failed_at: float | None = None
    order: Order = (0, 0.0, "")
    backed_off_until: float = 0.0
    has_room_until: float = 0.0
    held: dict[str, PodInfo] = field(default_factory=dict)
    backoffs: int = 0
    timer: Timer | None = None


class Records:
    """State of all groups."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._records: dict[GroupKey, Record] = {}
        self._sweep_at = _FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._records)

    def find(self, key: GroupKey) -> Record | None:
        """Return the record of a group; None if there is none."""
        return self._records.get(key)

    def of(self, key: GroupKey) -> Record:
        """Return the record of a group; create it if there is none."""
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= self._sweep_at:
                for gone in [known for known in self._records if self._handle.groups.get(known) is None]:
                    self.placed(gone)
                self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._records))
            record = self._records[key] = Record()
        return record

    def is_backed_off(self, key: GroupKey) -> bool:
        record = self._records.get(key)
        return record is not None and record.backed_off_until > self._handle.clock.now()

    def failed(self, key: GroupKey, order: Order) -> None:
        """Record that a group was rejected as a whole; it moves back in the queue and needs a new resource check."""
        record = self.of(key)
        record.failed_at = self._handle.clock.now()
        record.order = order
        record.has_room_until = 0.0

    def has_failed_before(self, order: Order, seconds: float) -> bool:
        """Return whether a group with a sort key before ``order`` was rejected within the last ``seconds``."""
        since = self._handle.clock.now() - seconds
        return any(
            record.failed_at is not None and record.failed_at >= since and record.order < order
            for record in self._records.values()
        )

    def back_off(self, key: GroupKey, seconds: float, then: Callable[[GroupKey], None]) -> None:
        """Back off a group; a backoff that is under way is not extended.

        Args:
            seconds: The minimum duration. The actual one starts at 1 second and doubles each time up to 10 seconds.
                Without it, members that take turns on released resources would be tried forever, because the queue pops
                backing-off pods early while it has nothing else to try.
        """
        if self.is_backed_off(key):
            return
        record = self.of(key)
        seconds = max(seconds, min(_FIRST_SECONDS * 2.0 ** min(record.backoffs, _MOST_DOUBLINGS), _LONGEST_SECONDS))
        # First: without a timer, nothing would activate the members of a group that is backed off.
        record.timer = self._handle.clock.call_later(seconds, lambda: then(key))
        record.backoffs += 1
        record.backed_off_until = self._handle.clock.now() + seconds

    def placed(self, key: GroupKey) -> None:
        """Remove the record of a group whose members were scheduled together."""
        record = self._records.pop(key, None)
        if record is not None and record.timer is not None:
            record.timer.cancel()

    def close(self) -> None:
        for key in list(self._records):
            self.placed(key)


def admission(view: GroupView, waiting: WaitingPods, records: Records) -> Status:
    """Return whether members may be tried: Success, or UnschedulableAndUnresolvable, as preemption does not help."""
    group, key = view.group, view.key
    if group is None:
        return unresolvable(f"waiting for PodGroup {key} to be created")
    quorum = needed(view, group)
    if view.known < group.min_member and not view.succeeded:
        # Decided without reading members, because it runs for each of many members as they are created.
        return _too_few(view, view.known, group.min_member)
    if len(members_with_node(view, waiting)) >= quorum:
        return SUCCESS
    if records.is_backed_off(key):
        return unresolvable(f"PodGroup {key} was rejected recently and is backing off")
    members = view.members()
    if len(members) < quorum:
        return _too_few(view, len(members) + view.succeeded, group.min_member)
    free = sum(map(is_ungated, members))
    if free < quorum:
        return unresolvable(
            f"{len(members) - free} of {len(members)} members of PodGroup {key} have scheduling gates; "
            f"{quorum} members without gates are needed"
        )
    return SUCCESS


def _too_few(view: GroupView, members: int, min_member: int) -> Status:
    return unresolvable(f"waiting for members of PodGroup {view.key}: there are {members} of {min_member}")


def needed(view: GroupView, group: PodGroup) -> int:
    """Return how many members must have a node; members that succeeded in the same run count as done."""
    return group.min_member - view.succeeded


def members_with_node(view: GroupView, waiting: WaitingPods, exclude: str = "") -> list[PodInfo]:
    """Return the members that have a node and are not known to lose it, without the one with UID ``exclude``."""
    found = []
    for member in view.assigned():
        if member.uid != exclude:
            wait = waiting.get(member.uid)
            if wait is None or not wait.is_refused:
                found.append(member)
    return found


def is_ungated(member: Pod) -> bool:
    return bool(member.spec.node_name) or not member.spec.scheduling_gates


_SIBLING_CAME = ClusterEvent(
    Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
)
_GROUP_CHANGED = ClusterEvent(Resource.POD_GROUP, Action.ADD | Action.UPDATE)
_POD_LEFT = ClusterEvent(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)
_NODE_GREW = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)


YIELD_SECONDS = 12.0
"""How long a group backs off for an earlier one when each may hold what the other needs. Longer than the default
backoff of a pod, so that the pods of the earlier group are back by then."""

_DEFAULT_WAIT_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_SKIPPED = PostFilterResult(unschedulable())
_HAS_ROOM_UNTIL: StateKey[float] = StateKey("Coscheduling/hasRoomUntil")


class Coscheduling(QueueSortPlugin, PreEnqueuePlugin, PreFilterPlugin, PostFilterPlugin, ReservePlugin, PermitPlugin):
    """Makes members of a group wait at Permit until a quorum has nodes."""

    name = "Coscheduling"
    reuse = Reuse(pod=PodReads.LABELS)
    args_model = CoschedulingArgs
    gathers_gangs = True

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._args = args
        self._groups = handle.groups
        self._records = Records(handle)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return additions of siblings, changes of the PodGroup, and free resources for ``minResources``."""
        return (
            EventRegistration(_SIBLING_CAME, self.after_sibling),
            EventRegistration(_GROUP_CHANGED, self.after_group_change),
            EventRegistration(_POD_LEFT, self.after_more_room),
            EventRegistration(_NODE_GREW, self.after_more_room),
        )

    def after_sibling(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if the pod completes the group of ``pod``, or is ``pod`` itself."""
        own = self._groups.group_of(pod)
        if not isinstance(new, Pod) or new.metadata.uid == pod.metadata.uid or own is None:
            return Hint.QUEUE
        other = self._groups.group_of(new)
        if other is None or other.key != own.key or own.group is None:
            return Hint.SKIP
        return Hint.QUEUE if own.known >= own.group.min_member else Hint.SKIP

    def after_group_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if it is the group of ``pod``."""
        own = self._groups.group_of(pod)
        if own is None or not isinstance(new, PodGroup):
            return Hint.QUEUE
        return Hint.QUEUE if own.key == new.key else Hint.SKIP

    def after_more_room(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if the group of ``pod`` has ``minResources``."""
        own = self._groups.group_of(pod)
        if own is None:
            return Hint.QUEUE
        return Hint.QUEUE if own.group is not None and own.group.min_resources else Hint.SKIP

    def close(self) -> None:
        self._records.close()

    # -- the order of the queue ---------------------------------------------------------------------------------

    def sort_key(self, pod: QueuedPod) -> tuple[int, float, str, int]:
        """Return the priority, descending; the waiting time of the group or pod; its name; the arrival number.

        The members of a group are adjacent: waiting time matters only between groups. The waiting time of a group that
        was rejected as a whole starts again, so that it does not stay ahead of all others.
        """
        view = self._groups.group_of(pod.info.pod)
        if view is None:
            return -pod.info.priority, pod.timestamp, pod.info.key, pod.sequence
        rank, since, name = _group_order(view, pod.info)
        record = self._records.find(view.key)
        if record is not None and record.failed_at is not None:
            since = record.failed_at
        return rank, since, name, pod.sequence

    # -- before nodes are looked at -----------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gate members of a group without quorum; the member that completes the quorum activates the others."""
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

    def preview_gate(self, pod: PodInfo) -> Status:
        view = self._groups.group_of(pod.pod)
        return SUCCESS if view is None else admission(view, self.handle.waiting_pods, self._records)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Reject members of a group that has too few members, or needs more resources than the cluster has free."""
        view = self._groups.group_of(pod.pod)
        if view is None:
            return CONTINUE
        status = admission(view, self.handle.waiting_pods, self._records)
        if status.is_success and view.group is not None and view.group.min_resources and not view.succeeded:
            status = self._room(state, view, view.group, nodes)
        return CONTINUE if status.is_success else PreFilterResult(status)

    def _room(self, state: CycleState, view: GroupView, group: PodGroup, nodes: NodeColumns) -> Status:
        record, now = self._records.find(view.key), self.handle.clock.now()
        if record is not None and now < record.has_room_until:
            return SUCCESS
        missing = missing_resources(group, nodes, view.assigned())
        if missing:
            amounts = ", ".join(f"{amount} of {name}" for name, amount in missing.items())
            text = f"insufficient free resources in the cluster for PodGroup {view.key}: {amounts} missing"
            return unresolvable(text)
        # Reserve records it: a dry run, which does not reserve the pod, must not spare later attempts the check.
        state.write(_HAS_ROOM_UNTIL, now + self._wait_seconds(group))
        return SUCCESS

    # -- when a member does not fit -----------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Reject the whole group, unless only few members are missing."""
        view, result = self._result(pod)
        if view is not None and view.group is not None:
            self._reject_group(view, view.group, pod)
        return result

    def preview(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterPreview | None:
        return PostFilterPreview(self._result(pod)[1])

    def _result(self, pod: PodInfo) -> tuple[GroupView | None, PostFilterResult]:
        """Return the group to reject, None for none, and the result of PostFilter."""
        view = self._groups.group_of(pod.pod)
        if view is None or view.group is None:
            return None, _SKIPPED
        minimum = view.group.min_member
        missing = needed(view, view.group) - len(members_with_node(view, self.handle.waiting_pods, pod.uid))
        if missing <= 0 or 100 * missing <= self._args.pod_group_reject_percentage * minimum:
            return None, _SKIPPED
        status = unschedulable(f"PodGroup {view.key} is rejected: member {pod.pod.metadata.name} is infeasible")
        return view, PostFilterResult(status)

    def _reject_group(self, view: GroupView, group: PodGroup, pod: PodInfo) -> None:
        self._reject_siblings(view, pod, f"member {pod.pod.metadata.name} of PodGroup {view.key} is infeasible")
        is_complete = len(view.members()) >= group.min_member
        self._note_failure(view, pod, float(self._args.pod_group_backoff_seconds) if is_complete else 0.0)

    def _note_failure(self, view: GroupView, pod: PodInfo, backoff: float = 0.0) -> None:
        """Record that a group was rejected, and back it off if it conflicts with an earlier group.

        That is a group with members at Permit, or one that was itself rejected shortly before: each of the two may have
        held what the other needs, and without the backoff both would be retried together and conflict again.
        """
        order = _group_order(view, pod)
        if self._conflicts_with_earlier(view, order) or self._records.has_failed_before(order, YIELD_SECONDS):
            backoff = max(backoff, YIELD_SECONDS)
        self._records.back_off(view.key, backoff, self._backoff_over)
        self._records.failed(view.key, order)

    def _conflicts_with_earlier(self, view: GroupView, order: Order) -> bool:
        for wait in self.handle.waiting_pods:
            other = self._groups.group_of(wait.pod.pod)
            if other is not None and other.key != view.key and _group_order(other, wait.pod) < order:
                return True
        return False

    def _backoff_over(self, key: GroupKey) -> None:
        """Activate the gated members; the first of them that waits at Permit activates the others."""
        record = self._records.find(key)
        if record is not None:
            held, record.held = record.held, {}
            try:
                self.handle.activate(held.values())
            except Exception:
                record.held = held | record.held
                self.handle.clock.call_later(_RETRY_SECONDS, lambda: self._backoff_over(key))
                raise

    def _reject_siblings(self, view: GroupView, pod: PodInfo, reason: str) -> None:
        for member in view.assigned():
            wait = None if member.uid == pod.uid else self.handle.waiting_pods.get(member.uid)
            if wait is not None:
                wait.reject(self.name, reason)

    # -- when a member has a node -------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Record that the check of ``minResources`` need not be repeated; reserve nothing but the node."""
        until = state.get(_HAS_ROOM_UNTIL)
        view = None if until is None else self._groups.group_of(pod.pod)
        if view is not None and until is not None:
            self._records.of(view.key).has_room_until = until
        return SUCCESS

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Make a member wait until the quorum has nodes; then allow all waiting members."""
        view = self._groups.group_of(pod.pod)
        if view is None:
            return PermitResult()
        group = view.group
        if group is None:
            return PermitResult(unschedulable(f"PodGroup {view.key} does not exist"))
        others = members_with_node(view, self.handle.waiting_pods, pod.uid)
        waits = [wait for member in others if (wait := self.handle.waiting_pods.get(member.uid)) is not None]
        if len(others) + 1 >= needed(view, group):
            self._records.placed(view.key)
            for wait in waits:
                wait.allow(self.name)
            return PermitResult()
        if not waits:
            # Once per round of attempts: the first waiting member activates siblings that failed or back off.
            activated = pods_to_activate(state)
            for sibling in view.waiting():
                if sibling.uid != pod.uid:
                    activated.add(sibling)
        return PermitResult(Status(Code.WAIT), self._wait_seconds(group))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Reject the waiting members after one lost its node, unless the quorum is met without it."""
        view = self._groups.group_of(pod.pod)
        if view is None:
            return
        left = len(members_with_node(view, self.handle.waiting_pods, pod.uid))
        if view.group is not None and left >= needed(view, view.group):
            return
        self._reject_siblings(view, pod, f"member {pod.pod.metadata.name} of PodGroup {view.key} lost its node")
        self._note_failure(view, pod)

    def _wait_seconds(self, group: PodGroup) -> float:
        """Return the timeout of the group, else that of the profile; a timeout of 0 is replaced by the default."""
        own = group.schedule_timeout_seconds
        return own or float(self._args.permit_waiting_time_seconds) or _DEFAULT_WAIT_SECONDS


def _group_order(view: GroupView, member: PodInfo) -> Order:
    """Return the position of a group by its own priority, else by that of a member."""
    group = view.group
    priority = member.priority if group is None or group.priority is None else group.priority
    return -priority, view.since, f"{view.key} {view.key.source}"


def missing_resources(group: PodGroup, nodes: NodeColumns, own: Sequence[PodInfo]) -> Mapping[str, int]:
    """Return missing amounts, CPU in millicores, the rest in whole units; a pod slot for each member is added."""
    required = {**group.min_resources, PODS: group.min_member}
    with ColumnsOverlay(nodes) as overlay:
        overlay.remove(own)
        free = {name: free_amount(nodes, name) for name in required}
    missing = {name: required[name] - amount for name, amount in free.items() if amount is not None}
    return {name: amount for name, amount in missing.items() if amount > 0}
