"""Planted bugs: defects that the simulation must find.

Each is a plausible mistake: a missing step, a double count, a wrong interpretation of an answer. None of them shows
without faults, or at least without the whole lifetime of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bayplan.kube.watches.informer import Informer
from bayplan.kube.writes.api_dispatcher import ApiDispatcher
from bayplan.kube.writes.binds import Binder
from msgspec.structs import replace

from scheduler_core.cycle import assume_and_reserve
from scheduler_core.cycle.binding_outcomes import FailedBinds
from scheduler_core.cycle.bound_elsewhere import PodsBoundElsewhere
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.errors import ConflictError, NotFoundError, WriteTimeoutError
from scheduler_core.feeds import pod_and_node_feed
from scheduler_core.feeds.read_pods import ReadPods
from scheduler_core.framework.cluster_events import EventRegistration, Hint, Resource
from scheduler_core.plugins.default_preemption.eviction import Evictions
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.plugins.node_affinity import NodeAffinity
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.plugins.node_unschedulable import NodeUnschedulable
from scheduler_core.plugins.taint_toleration import TaintToleration
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.queueing.in_flight_events import InFlightEvents
from scheduler_core.queueing.moves_and_backoff import Moves
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.reserve_and_permit import WaitingPodEntry, WaitingPodMap
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.host_ports import HostPortIndex
from scheduler_core.snapshot.indexes.pod_index import PodIndex
from scheduler_core.snapshot.node_columns import NodeColumns

Bug = Callable[[], AbstractContextManager[None]]
Original = Callable[..., Any]


@contextmanager
def _patched(owner: Any, name: str, make: Callable[[Original], Original]) -> Iterator[None]:
    """Replace a function temporarily."""
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _skipped(owner: Any, name: str) -> Bug:
    """Skip a step."""
    return lambda: _patched(owner, name, lambda _: _nothing)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _deaf(plugin: type[Any], resource: Resource) -> Bug:
    """Make a plugin's hints ignore events of one resource."""

    def registrations(original: Original) -> Original:
        def registrations_of(self: Any) -> tuple[EventRegistration, ...]:
            return tuple(
                EventRegistration(each.event, _skip) if each.event.resource is resource else each
                for each in original(self)
            )

        return registrations_of

    return lambda: _patched(plugin, "events_to_register", registrations)


def _inverted(plugin: type[Any]) -> Bug:
    """Make a plugin's hints return the opposite."""

    def registrations(original: Original) -> Original:
        def registrations_of(self: Any) -> tuple[EventRegistration, ...]:
            return tuple(EventRegistration(each.event, _contrary(each)) for each in original(self))

        return registrations_of

    return lambda: _patched(plugin, "events_to_register", registrations)


def _contrary(registration: EventRegistration) -> Callable[[Any, Any, Any], Hint]:
    def hint(pod: Any, old: Any, new: Any) -> Hint:
        said = Hint.QUEUE if registration.hint is None else registration.hint(pod, old, new)
        return Hint.SKIP if said is Hint.QUEUE else Hint.QUEUE

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


def _room_unreported(original: Original) -> Original:
    def unreported(*given: Any) -> None:
        with _patched(FreedCapacity, "report", lambda _: _nothing):
            original(*given)

    return unreported


def _not_subtracted(original: Original) -> Original:
    def account(self: NodeColumns, info: Any, row: int, sign: int) -> None:
        ends = sign < 0 and info.pod.metadata.deletion_timestamp is not None
        original(self, info, row, 0 if ends else sign)

    return account


def _pods_forgotten(original: Original) -> Original:
    def remove_node(self: ClusterCache, name: str) -> None:
        original(self, name)
        self._without_node.pop(name, None)

    return remove_node


def _labels_stay(original: Original) -> Original:
    def update_node(self: NodeColumns, node: Any) -> Any:
        before = self.nodes[self.row_of(node.metadata.name)]
        assert before is not None
        return original(self, replace(node, metadata=replace(node.metadata, labels=before.metadata.labels)))

    return update_node


# -- the queue ------------------------------------------------------------------------------------------------------


def _parked_lost(original: Original) -> Original:
    def profile_changed(self: SchedulingQueue, profile: str) -> None:
        if self._rules(profile) is None:
            original(self, profile)

    return profile_changed


def _gates_open(original: Original) -> Original:
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


def _done_forgets_nobody(original: Original) -> Original:
    def failed(self: SchedulingQueue, pod: Any) -> None:
        if pod.rejected_by:
            original(self, pod)
        else:
            self.done(pod.uid)

    return failed


def _added_twice(original: Original) -> Original:
    def remove(self: SchedulingQueue, uid: str) -> Any:
        pod = self.find(uid)
        return None if pod is not None and pod.place.label == "unschedulable" else original(self, uid)

    return remove


# -- Permit, binding and preemption ---------------------------------------------------------------------------------


def _once_preempting(original: Original) -> Original:
    held: set[str] = set()

    def is_preempting(self: Evictions, uid: str) -> bool:
        if original(self, uid):
            held.add(uid)
        return uid in held

    return is_preempting


def _no_patience(original: Original) -> Original:
    def init(self: WaitingPodEntry, pod: Any, node_name: str, waits: dict[str, float], clock: Any) -> None:
        original(self, pod, node_name, dict.fromkeys(waits, 1e9), clock)

    return init


def _success_on(error: type[Exception]) -> Bug:
    """Treat a certain error of a bind as success."""

    def bind(original: Original) -> Original:
        async def tried(self: Binder, binding: Any) -> None:
            try:
                await original(self, binding)
            except error:
                return

        return tried

    return lambda: _patched(Binder, "bind", bind)


def _failure_on_doubt(original: Original) -> Original:
    async def bind(self: Binder, binding: Any) -> None:
        async def unread(*_: Any, **__: Any) -> bool:
            raise ConflictError("not asked")

        is_bound, self._is_bound = self._is_bound, unread  # type: ignore[method-assign]  # a planted bug
        try:
            await original(self, binding)
        finally:
            self._is_bound = is_bound  # type: ignore[method-assign]  # as above

    return bind


# -- what is watched and written ------------------------------------------------------------------------------------


def _deletes_missed(original: Original) -> Original:
    def finish(self: Informer[Any], listed: set[str], resource_version: str) -> None:
        original(self, {*listed, *self.known}, resource_version)

    return finish


def _resumed_late(original: Original) -> Original:
    def note(self: Informer[Any], error: Any) -> None:
        original(self, error)
        if self.resource_version:
            self.resource_version = str(int(self.resource_version) + 3)

    return note


def _same_name_same_pod(original: Original) -> Original:
    def updated(self: pod_and_node_feed.PodAndNodeFeed, old: Any, pod: Any) -> None:
        if pod.is_terminal and pod.spec.node_name:
            return
        original(self, old, pod)

    return updated


def _held_for_good(original: Original) -> Original:
    def end(self: Evictions, preemption: Any) -> None:
        preemption.has_held = False
        original(self, preemption)

    return end


def _never_older(original: Original) -> Original:
    del original
    return lambda *_: False


def _copied(original: Original) -> Original:
    @contextmanager
    def without(self: NominatedPods, uids: Any) -> Iterator[None]:
        by_node = {name: dict(pods) for name, pods in self._by_node.items()}
        node_of = dict(self._node_of)
        with original(self, uids):
            yield
        self._by_node, self._node_of = by_node, node_of

    return without


BUGS: dict[str, Bug] = {
    "Unreserve is skipped": _skipped(assume_and_reserve, "run_unreserve"),
    "an assumed pod is not forgotten": _skipped(ClusterCache, "forget"),
    "a confirmed pod is counted twice": lambda: _patched(ClusterCache, "add_pod", _counted_twice),
    "requests of a pod that was being deleted stay": lambda: _patched(NodeColumns, "_account", _not_subtracted),
    "a pod that a rival has bound is not counted": _skipped(PodsBoundElsewhere, "_count_there"),
    "pods of a deleted node are forgotten": lambda: _patched(ClusterCache, "remove_node", _pods_forgotten),
    "labels of a changed node stay": lambda: _patched(NodeColumns, "update_node", _labels_stay),
    "host ports stay taken": _skipped(HostPortIndex, "remove"),
    "counts of selected pods only grow": _skipped(PodIndex, "remove"),
    "events during an attempt are dropped": _skipped(InFlightEvents, "note"),
    "attempts never end for the record of events": _skipped(InFlightEvents, "end"),
    "a pod that met an error is dropped": lambda: _patched(SchedulingQueue, "failed", _done_forgets_nobody),
    "a pod bound by a rival stays in the queue": lambda: _patched(SchedulingQueue, "remove", _added_twice),
    "an update of an unschedulable pod is ignored": _skipped(SchedulingQueue, "_wake_by_own"),
    "the backoff timer is not set again": lambda: _patched(Moves, "_end_backoffs", _timer_runs_once),
    "a gate is called once": lambda: _patched(Moves, "_passes_gates", _gates_open),
    "parked pods are lost when their profile returns": lambda: _patched(
        SchedulingQueue, "profile_changed", _parked_lost
    ),
    "podsToActivate are ignored": _skipped(SchedulingQueue, "activate"),
    "NodeResourcesFit is deaf to pods that leave": _deaf(NodeResourcesFit, Resource.ASSIGNED_POD),
    "TaintToleration's hint is inverted": _inverted(TaintToleration),
    "NodeUnschedulable is deaf to nodes": _deaf(NodeUnschedulable, Resource.NODE),
    "NodeResourcesFit's hint is inverted": _inverted(NodeResourcesFit),
    "NodeAffinity is deaf to nodes": _deaf(NodeAffinity, Resource.NODE),
    "InterPodAffinity is deaf to pods": _deaf(InterPodAffinity, Resource.ASSIGNED_POD),
    "nominations are not withdrawn": _skipped(NominatedPods, "withdraw"),
    "the patience of Permit never ends": lambda: _patched(WaitingPodEntry, "__init__", _no_patience),
    "a rejected pod goes on waiting": _skipped(WaitingPodEntry, "reject"),
    "a deleted pod goes on waiting": _skipped(WaitingPodMap, "reject"),
    "the gate of a preemption never opens": lambda: _patched(Evictions, "is_preempting", _once_preempting),
    "a try that was held back is not made up for": lambda: _patched(Evictions, "_end", _held_for_good),
    "the departure of a pod is not reported": lambda: _patched(
        pod_and_node_feed.PodAndNodeFeed, "_pod_deleted", _room_unreported
    ),
    "a failed bind does not report that its node is free": lambda: _patched(FailedBinds, "record", _room_unreported),
    "assumed volumes are not restored": _skipped(VolumeBinding, "unreserve"),
    "an attempt is not ended on its instance": _skipped(FrameworkInstance, "end"),
    "404 on a bind is taken for success": _success_on(NotFoundError),
    "a conflict on a bind is taken for success": _success_on(ConflictError),
    "a doubtful bind is taken for a failure": lambda: _patched(Binder, "bind", _failure_on_doubt),
    "an unread bind is taken for success": _success_on(WriteTimeoutError),
    "bound pods that nobody confirms are not read": _skipped(ClusterCache, "finish_binding"),
    "a list does not delete": lambda: _patched(Informer, "_finish_list", _deletes_missed),
    "a watch is resumed too late": lambda: _patched(Informer, "_note_error", _resumed_late),
    "a pod that has ended keeps its place": lambda: _patched(
        pod_and_node_feed.PodAndNodeFeed, "pod_updated", _same_name_same_pod
    ),
    "an older state undoes what was read": lambda: _patched(ReadPods, "is_overtaken", _never_older),
    "nominations are restored from a copy": lambda: _patched(NominatedPods, "without", _copied),
    "writes that were held are not released": _skipped(ApiDispatcher, "release"),
}
"""Planted bugs by the defect that they cause."""
