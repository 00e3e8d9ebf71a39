"""Evaluation of the plugins that requeue a waiting pod after a change of an object.

The change passes through the scheduler's feeds, the profile's registrations and queueing hints, and the queue's rules.
Unlike in the queue, every plugin is called, not only those that rejected the pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.feeds.object_feed import DeviceFeed, NodeHolds, PodSurrounding, StorageFeed
from scheduler_core.feeds.pod_and_node_feed import EventHandling, PodAndNodeFeed
from scheduler_core.framework.cluster_events import ClusterEvent
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from scheduler_core.model.workloads import Namespace, PodDisruptionBudget, Service
from scheduler_core.queueing.queueing_rules import QueueingRules, Requeue
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.device_index import DeviceObject
from scheduler_core.snapshot.pod_info import PodInfo
from tests.parity.conformance.attempt import add_objects
from tests.parity.conformance.cases import Case, decode_line, profile_of

_STORAGE: dict[str, type[StorageObject]] = {
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "StorageClass": StorageClass,
    "CSINode": CsiNode,
    "CSIDriver": CsiDriver,
    "CSIStorageCapacity": CsiStorageCapacity,
    "VolumeAttachment": VolumeAttachment,
}
_SURROUNDINGS: dict[str, type[PodSurrounding]] = {
    "Namespace": Namespace,
    "Service": Service,
    "PodDisruptionBudget": PodDisruptionBudget,
}

_DEVICES: dict[str, type[DeviceObject]] = {
    "ResourceClaim": ResourceClaim,
    "ResourceSlice": ResourceSlice,
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
}

_REJECTING_POINTS = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
QUEUE = "Queue"
SKIP = "Skip"


class Change(msgspec.Struct, frozen=True, gc=False):
    """Change of an object: an addition if there is no old object, a deletion if there is no new object."""

    kind: str
    old: msgspec.Raw = msgspec.Raw(b"null")
    new: msgspec.Raw = msgspec.Raw(b"null")


class HintCase(Case, frozen=True, gc=False, kw_only=True):
    """Case with a waiting pod and a change."""

    change: Change


@dataclass(frozen=True, slots=True)
class _RecordedEvent:
    event: ClusterEvent
    pod: PodInfo
    old: object | None
    new: object | None


class _RecordingQueue(SchedulingQueue):
    """Scheduling queue that records the events for one pod."""

    def __init__(self, waiting: PodInfo, clock: SimulatedClock) -> None:
        super().__init__(lambda _: None, clock)
        self.recorded: list[_RecordedEvent] = []
        self._waiting = waiting

    def on_event(self, event: ClusterEvent, old: object | None, new: object | None, **limits: Any) -> None:
        """Record an event for all pods, unless its limits exclude the waiting pod."""
        pod = QueuedPod(self._waiting, 0.0, 0)
        if limits.get("exclude") == pod.uid:
            return
        highest = limits.get("max_priority")
        if highest is None or self._waiting.priority <= highest:
            self.recorded.append(_RecordedEvent(event, self._waiting, old, new))

    def update(self, info: PodInfo, events: Sequence[ClusterEvent] = (), old: object | None = None) -> None:
        """Record the events of the waiting pod's own change with its new version."""
        if info.uid == self._waiting.uid:
            self.recorded.extend(_RecordedEvent(event, info, old, info.pod) for event in events)


def hints_of(case: HintCase, registry: Registry, defaults: Plugins) -> dict[str, str]:
    """Apply the change of a case.

    Returns:
        Queue or Skip by plugin; plugins that registered none of the events are absent.

    Raises:
        ConfigError: The case's profile is invalid, or its change is of an unknown kind.
        QuantityError: A quantity of the case's pod cannot be parsed.
    """
    clock = SimulatedClock()
    scheduler = Scheduler(clock, MemoryCluster(), registry=registry, defaults=defaults)
    instance = scheduler.build(profile_of(case, registry).config)
    scheduler.activate([instance])
    add_objects(scheduler, case, (*case.pods, case.pod))
    queue = _RecordingQueue(scheduler.context.cache.columns.compile_pod(case.pod), clock)
    context = scheduler.context
    freed = FreedCapacity(queue, scheduler.reservations)
    holds = NodeHolds(context.cache.columns, queue, freed)
    scheduler.feed = PodAndNodeFeed(
        cache=context.cache,
        queue=queue,
        waiting=context.waiting,
        profiles=context.profiles,
        invalid_pods=scheduler.feed.invalid_pods,
        freed=freed,
        holds=holds,
        handling=EventHandling(context.suspension, context.clock, context.metrics),
        contested=context.contested,
    )
    columns = context.cache.columns
    scheduler.storage_feed = StorageFeed(columns, queue, context.suspension, holds)
    scheduler.device_feed = DeviceFeed(columns.devices, queue, context.suspension)
    _apply(scheduler, case.change)
    return _verdicts(instance, queue.recorded)


def decode_hint_case(line: bytes) -> HintCase:
    """Decode one line.

    Raises:
        ConfigError: It is not a case.
    """
    return decode_line(line, _CASES.decode, "a case of -hints")


_CASES = msgspec.json.Decoder(HintCase)


def _apply(scheduler: Scheduler, change: Change) -> None:
    kind = change.kind
    if kind == "Pod":
        feed = scheduler.feed
        _deliver(_decode_objects(change, Pod), feed.pod_added, feed.pod_updated, feed.pod_deleted)
    elif kind == "Node":
        feed = scheduler.feed
        _deliver(_decode_objects(change, Node), feed.node_added, feed.node_updated, feed.node_deleted)
    elif kind in _STORAGE:
        storage = scheduler.storage_feed
        _deliver(_decode_objects(change, _STORAGE[kind]), storage.added, storage.updated, storage.deleted)
    elif kind in _DEVICES:
        devices = scheduler.device_feed
        _deliver(_decode_objects(change, _DEVICES[kind]), devices.added, devices.updated, devices.deleted)
    elif kind in _SURROUNDINGS:
        workloads = scheduler.workload_feed
        _deliver(_decode_objects(change, _SURROUNDINGS[kind]), workloads.added, workloads.updated, workloads.deleted)
    else:
        known = ", ".join(["Pod", "Node", *_STORAGE, *_DEVICES, *_SURROUNDINGS])
        raise ConfigError([Problem("change.kind", f"unknown kind {kind}; use one of {known}")])


def _decode_objects(change: Change, kind: type[Any]) -> tuple[Any, Any]:
    optional = kind | None
    return msgspec.json.decode(change.old, type=optional), msgspec.json.decode(change.new, type=optional)


def _deliver(pair: tuple[Any, Any], added: Any, updated: Any, deleted: Any) -> None:
    old, new = pair
    if old is None:
        added(new)
    elif new is None:
        deleted(old)
    else:
        updated(old, new)


def _verdicts(instance: FrameworkInstance, events: Iterable[_RecordedEvent]) -> dict[str, str]:
    """Call the plugins that can reject a pod; a profile can disable all extension points of a plugin."""
    rejecting = {entry.name for point in _REJECTING_POINTS for entry in instance.resolved[point]}
    rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
    verdicts: dict[str, str] = {}
    for recorded in events:
        for plugin in rejecting.intersection(name for name, _ in rules.interested(recorded.event)):
            pod = QueuedPod(recorded.pod, 0.0, 0)
            pod.rejected_by = frozenset({plugin})
            requeues = rules.evaluate(pod, recorded.event, recorded.old, recorded.new) is not Requeue.STAY
            if requeues or plugin not in verdicts:
                verdicts[plugin] = QUEUE if requeues else SKIP
    return verdicts
