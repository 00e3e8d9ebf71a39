"""Planted bugs: defects that the simulation must find.

Each is a plausible mistake: a missing step, a double count, a misread response. None shows without faults, or at least
without a whole cluster lifetime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bayplan.kube.watches.informer import Informer
from bayplan.kube.writes.api_dispatcher import ApiDispatcher
from bayplan.kube.writes.pod_writes import Binder
from bayplan.rebalancing.pod_moves import PodMoves
from bayplan.reservations.reservation_controller import ReservationController
from msgspec.structs import replace

from scheduler_core.cycle import assume_and_reserve
from scheduler_core.cycle.binding_cycle import BindingOutcomes
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.errors import ConflictError, NotFoundError, WriteTimeoutError
from scheduler_core.feeds import pod_and_node_feed
from scheduler_core.feeds.pod_versions import ReadPods
from scheduler_core.framework import gang_preemptor
from scheduler_core.framework.cluster_events import EventRegistration, Hint, Resource
from scheduler_core.framework.gang_preemptor import EvictionLimits
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.waiting_pods import WaitingPod, WaitingPods
from scheduler_core.gangs.held_room import HeldRoom, HeldRooms
from scheduler_core.model import pod_requests
from scheduler_core.plugins.default_preemption.eviction import Evictions
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.plugins.node_affinity import NodeAffinity
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.plugins.node_unschedulable import NodeUnschedulable
from scheduler_core.plugins.taint_toleration import TaintToleration
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.queueing.event_wakeups import InFlightEvents
from scheduler_core.queueing.queue_moves import Moves
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.shadows import shadow_profiles
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.pod_index import PodIndex
from scheduler_core.snapshot.indexes.row_indexes import HostPortIndex
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.presence import present

Bug = Callable[[], AbstractContextManager[None]]
Original = Callable[..., Any]


def _patched(owner: Any, name: str, make: Callable[[Original], Any]) -> Bug:
    """Return a bug that replaces a function, also one that a class inherits."""

    @contextmanager
    def patched() -> Iterator[None]:
        is_own = name in vars(owner)
        original = vars(owner)[name] if is_own else getattr(owner, name)
        setattr(owner, name, make(original))
        try:
            yield
        finally:
            if is_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

    return patched


def _replaced(owner: Any, name: str, new: Any) -> Bug:
    """Return a bug that replaces a function by one that does not call it."""
    return _patched(owner, name, lambda _: new)


def _skipped(owner: Any, name: str) -> Bug:
    """Return a bug that skips a function."""
    return _replaced(owner, name, _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _only_increments(original: Original) -> Original:
    def count(self: PodIndex, info: Any, row: int, sign: int) -> None:
        if sign > 0:
            original(self, info, row, sign)

    return count


def _without_hints_for(plugin: type[Any], resource: Resource) -> Bug:
    """Return a bug that makes a plugin's hints skip the events of one resource."""

    def registrations(original: Original) -> Original:
        def registrations_of(self: Any) -> tuple[EventRegistration, ...]:
            return tuple(
                EventRegistration(each.event, _skip) if each.event.resource is resource else each
                for each in original(self)
            )

        return registrations_of

    return _patched(plugin, "events_to_register", registrations)


def _inverted(plugin: type[Any]) -> Bug:
    """Return a bug that inverts a plugin's hints."""

    def registrations(original: Original) -> Original:
        def registrations_of(self: Any) -> tuple[EventRegistration, ...]:
            return tuple(EventRegistration(each.event, _opposite(each)) for each in original(self))

        return registrations_of

    return _patched(plugin, "events_to_register", registrations)


def _opposite(registration: EventRegistration) -> Callable[[Any, Any, Any], Hint]:
    def hint(pod: Any, old: Any, new: Any) -> Hint:
        result = Hint.QUEUE if registration.hint is None else registration.hint(pod, old, new)
        return Hint.SKIP if result is Hint.QUEUE else Hint.QUEUE

    return hint


def _skip(*_: Any) -> Hint:
    return Hint.SKIP


# -- the cache ------------------------------------------------------------------------------------------------------


def _counted_twice(original: Original) -> Original:
    def add_pod(self: ClusterCache, pod: Any) -> Any:
        placed = self.get(pod.metadata.uid)
        info = original(self, pod)
        if placed is not None and info.row >= 0 and pod.status.phase == "Running":
            self.columns._account(info, info.row, 1)
        return info

    return add_pod


def _capacity_unreported(original: Original) -> Original:
    def unreported(*given: Any) -> None:
        with _skipped(FreedCapacity, "report")():
            original(*given)

    return unreported


def _not_subtracted(original: Original) -> Original:
    def account(self: NodeColumns, info: Any, row: int, sign: int) -> None:
        ends = sign < 0 and info.pod.metadata.deletion_timestamp is not None
        original(self, info, row, 0 if ends else sign)

    return account


def _pods_dropped(original: Original) -> Original:
    def remove_node(self: ClusterCache, name: str) -> None:
        original(self, name)
        self._without_node.pop(name, None)

    return remove_node


def _labels_unchanged(original: Original) -> Original:
    def update_node(self: NodeColumns, node: Any) -> Any:
        before = present(self.nodes[self.row_of(node.metadata.name)])
        return original(self, replace(node, metadata=replace(node.metadata, labels=before.metadata.labels)))

    return update_node


# -- the queue ------------------------------------------------------------------------------------------------------


def _parked_lost(original: Original) -> Original:
    def profile_changed(self: SchedulingQueue, profile: str, listener: Any = None) -> None:
        if self._rules(profile) is None:
            original(self, profile, listener)

    return profile_changed


def _gates_called_once(original: Original) -> Original:
    def passes(self: Moves, pod: Any, rules: Any, label: str) -> bool:
        return bool(pod.attempts == 0 and pod.gated_by) or bool(original(self, pod, rules, label))

    return passes


def _timer_runs_once(original: Original) -> Original:
    def end_backoffs(self: Moves) -> None:
        schedule, self._schedule_backoff = self._schedule_backoff, _nothing  # type: ignore[method-assign]  # a planted bug
        try:
            original(self)
        finally:
            self._schedule_backoff = schedule  # type: ignore[method-assign]  # as above

    return end_backoffs


def _done_after_error(original: Original) -> Original:
    def failed(self: SchedulingQueue, pod: Any) -> None:
        if pod.rejected_by:
            original(self, pod)
        else:
            self.done(pod.uid)

    return failed


def _not_removed_when_unschedulable(original: Original) -> Original:
    def remove(self: SchedulingQueue, uid: str) -> Any:
        pod = self.find(uid)
        return None if pod is not None and pod.place.label == "unschedulable" else original(self, uid)

    return remove


# -- Permit, binding and preemption ---------------------------------------------------------------------------------


def _preempting_forever(original: Original) -> Original:
    preempting: set[str] = set()

    def is_preempting(self: Evictions, uid: str) -> bool:
        if original(self, uid):
            preempting.add(uid)
        return uid in preempting

    return is_preempting


def _without_timeout(original: Original) -> Original:
    def init(self: WaitingPod, pod: Any, node_name: str, waits: dict[str, float], clock: Any) -> None:
        original(self, pod, node_name, dict.fromkeys(waits, 1e9), clock)

    return init


def _success_on(error: type[Exception]) -> Bug:
    """Return a bug that treats an error of a bind as success."""

    def bind(original: Original) -> Original:
        async def tried(self: Binder, binding: Any) -> None:
            try:
                await original(self, binding)
            except error:
                return

        return tried

    return _patched(Binder, "bind", bind)


def _unknown_outcome_fails(original: Original) -> Original:
    async def bind(self: Binder, binding: Any) -> None:
        async def unread(*_: Any, **__: Any) -> bool:
            raise ConflictError("not read")

        is_bound, self._is_bound = self._is_bound, unread  # type: ignore[method-assign]  # a planted bug
        try:
            await original(self, binding)
        finally:
            self._is_bound = is_bound  # type: ignore[method-assign]  # as above

    return bind


# -- what is watched and written ------------------------------------------------------------------------------------


def _without_deletions(original: Original) -> Original:
    def finish(self: Informer[Any], listed: set[str], resource_version: str) -> None:
        original(self, {*listed, *self.known}, resource_version)

    return finish


def _resumed_at_later_version(original: Original) -> Original:
    def note(self: Informer[Any], error: Any) -> None:
        original(self, error)
        if self.resource_version:
            self.resource_version = str(int(self.resource_version) + 3)

    return note


def _without_termination(original: Original) -> Original:
    def updated(self: pod_and_node_feed.PodAndNodeFeed, old: Any, pod: Any) -> None:
        if pod.is_terminal and pod.spec.node_name:
            return
        original(self, old, pod)

    return updated


def _without_repeated_attempt(original: Original) -> Original:
    def end(self: Evictions, preemption: Any) -> None:
        preemption.has_held = False
        original(self, preemption)

    return end


def _restored_from_copy(original: Original) -> Original:
    @contextmanager
    def without(self: NominatedPods, uids: Any) -> Iterator[None]:
        by_node = {name: dict(pods) for name, pods in self._by_node.items()}
        node_of = dict(self.node_by_uid)
        with original(self, uids):
            yield
        self._by_node, self.node_by_uid = by_node, node_of

    return without


def _none_leaving(original: Original) -> Original:
    def init(self: EvictionLimits, *given: Any) -> None:
        original(self, *given)
        self._leaving = []

    return init


BUGS: dict[str, Bug] = {
    "Unreserve is skipped": _skipped(assume_and_reserve, "run_unreserve"),
    "an assumed pod is not forgotten": _skipped(ClusterCache, "forget"),
    "a confirmed pod is counted twice": _patched(ClusterCache, "add_pod", _counted_twice),
    "requests of a terminating pod are not subtracted": _patched(NodeColumns, "_account", _not_subtracted),
    "a pod bound by another scheduler is not counted": _skipped(BindingOutcomes, "_count_there"),
    "pods of a deleted node are dropped": _patched(ClusterCache, "remove_node", _pods_dropped),
    "label changes of a node are ignored": _patched(NodeColumns, "update_node", _labels_unchanged),
    "host ports are not released": _skipped(HostPortIndex, "remove"),
    "counts of selected pods are not decremented": _patched(PodIndex, "count", _only_increments),
    "events during an attempt are dropped": _skipped(InFlightEvents, "note"),
    "events are recorded for attempts that have ended": _skipped(InFlightEvents, "end"),
    "a pod whose attempt ends in an error is dropped": _patched(SchedulingQueue, "failed", _done_after_error),
    "a pod bound by another scheduler stays in the queue": _patched(
        SchedulingQueue, "remove", _not_removed_when_unschedulable
    ),
    "an update of an unschedulable pod is ignored": _skipped(SchedulingQueue, "_wake_by_own"),
    "the backoff timer is not set again": _patched(Moves, "_end_backoffs", _timer_runs_once),
    "a PreEnqueue plugin is called only once": _patched(Moves, "_passes_gates", _gates_called_once),
    "parked pods are lost when their profile is created again": _patched(
        SchedulingQueue, "profile_changed", _parked_lost
    ),
    "podsToActivate is ignored": _skipped(SchedulingQueue, "activate"),
    "NodeResourcesFit skips events of assigned pods": _without_hints_for(NodeResourcesFit, Resource.ASSIGNED_POD),
    "TaintToleration's hint is inverted": _inverted(TaintToleration),
    "NodeUnschedulable skips node events": _without_hints_for(NodeUnschedulable, Resource.NODE),
    "NodeResourcesFit's hint is inverted": _inverted(NodeResourcesFit),
    "NodeAffinity skips node events": _without_hints_for(NodeAffinity, Resource.NODE),
    "InterPodAffinity skips events of assigned pods": _without_hints_for(InterPodAffinity, Resource.ASSIGNED_POD),
    "nominations are not withdrawn": _skipped(NominatedPods, "withdraw"),
    "the Permit timeout never expires": _patched(WaitingPod, "__init__", _without_timeout),
    "a rejected pod keeps waiting at Permit": _skipped(WaitingPod, "reject"),
    "a deleted pod keeps waiting at Permit": _skipped(WaitingPods, "reject"),
    "a preemptor is gated forever": _patched(Evictions, "is_preempting", _preempting_forever),
    "an attempt that was gated by a preemption is not repeated": _patched(Evictions, "_end", _without_repeated_attempt),
    "a deleted pod does not report freed capacity": _patched(
        pod_and_node_feed.PodAndNodeFeed, "_pod_deleted", _capacity_unreported
    ),
    "a failed bind does not report freed capacity": _patched(BindingOutcomes, "failed", _capacity_unreported),
    "assumed volumes are not reverted": _skipped(VolumeBinding, "unreserve"),
    "a framework instance counts attempts that have ended": _skipped(FrameworkInstance, "end"),
    "status 404 of a bind is treated as success": _success_on(NotFoundError),
    "a conflict of a bind is treated as success": _success_on(ConflictError),
    "a bind with unknown outcome is treated as failed": _patched(Binder, "bind", _unknown_outcome_fails),
    "a bind with unknown outcome is treated as success": _success_on(WriteTimeoutError),
    "unconfirmed bound pods are not read": _skipped(ClusterCache, "finish_binding"),
    "objects that a list lacks are not deleted": _patched(Informer, "_finish_list", _without_deletions),
    "a watch is resumed from a later resourceVersion": _patched(Informer, "_note_error", _resumed_at_later_version),
    "a terminated pod stays on its node": _patched(
        pod_and_node_feed.PodAndNodeFeed, "pod_updated", _without_termination
    ),
    "an older watch event overrides a read": _replaced(ReadPods, "is_overtaken", lambda *_: False),
    "nominations are restored from a copy": _patched(NominatedPods, "without", _restored_from_copy),
    "delayed writes are not released": _skipped(ApiDispatcher, "release"),
}
"""Planted bugs by the defect that they cause."""


async def _not_ended(*_: Any) -> None:
    return None


def _passed_by_equals(original: Original) -> Original:
    def init(self: HeldRoom, *given: Any) -> None:
        original(self, *given)
        self.reservation.priority -= 1

    return init


RESERVATION_BUGS: dict[str, Bug] = {
    "the room of a NodeReservation blocks no pod": _replaced(HeldRooms, "blocking", lambda *_: []),
    "pods of equal priority use the room of a NodeReservation": _patched(HeldRoom, "__init__", _passed_by_equals),
    "a NodeReservation does not expire": _replaced(ReservationController, "_end_time", lambda *_: None),
    "the room of a deleted NodeReservation stays held": _replaced(ReservationController, "_end", _not_ended),
}
"""Planted bugs in NodeReservations."""


async def _succeeds(*_: Any) -> str:
    return ""


PLAN_BUGS: dict[str, Bug] = {
    "the next move begins before the replacement is bound": _replaced(PodMoves, "outcome", _succeeds),
    "a restart resumes no move": _replaced(PodMoves, "resume", _not_ended),
}
"""Planted bugs in RebalancePlans."""

LIMIT_BUGS: dict[str, Bug] = {
    "a resize frees room before the kubelet makes it": _replaced(pod_requests, "_is_resized", lambda _: False),
    "evictions that budgets do not show are not counted": _patched(EvictionLimits, "__init__", _none_leaving),
    "a budget that is never violated is violated": _skipped(EvictionLimits, "_violates"),
    "the maximum of victims is ignored": _replaced(gang_preemptor, "why_too_many", lambda *_: ""),
}
"""Planted bugs in the limits of a profile on victims, and in resizes."""


# -- shadow profiles, which change the live state ----------------------------------------------------------------------


def _never_reverted(original: Original) -> Original:
    class Unreverted(original):  # type: ignore[misc, valid-type]
        def restore(self, pods: object) -> None:
            """Do nothing."""

        def undo(self) -> None:
            """Do nothing."""

    return Unreverted


@contextmanager
def _without_node(info: PodInfo) -> Iterator[None]:
    info.node_name = ""
    yield


SHADOW_BUGS: dict[str, Bug] = {
    "the overlay of a shadow is not reverted": _patched(shadow_profiles, "ColumnsOverlay", _never_reverted),
    "a pod that a shadow has scheduled loses its node": _replaced(shadow_profiles, "_on_no_node", _without_node),
}
"""Planted bugs by the defect that they cause."""
