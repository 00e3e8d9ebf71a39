"""A cluster in memory: writes of the scheduler succeed at once and are reported to it as a watch would report them.

Implements :class:`scheduler_core.ports.ClusterWriter`. A bind is reported before its response, from the binding task
and therefore between two cycles. A write from within a cycle is reported on the next turn of the event loop, since the
scheduler must not receive changes during a cycle.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from bayplan.simulation.admission import uid_of
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.feeds.object_feed import DeviceFeed, ObjectFeed
from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.fit.claim_binding import bound, new_volume, reserved, volume_at_once
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.devices import (
    AllocatedDeviceStatus,
    AllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from scheduler_core.model.meta import AnnotatedMeta, ObjectCondition, ObjectMeta
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod, PodCondition, PodStatus
from scheduler_core.model.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumePhase,
)
from scheduler_core.ports import Binding, Event, PodDeletion, PodStatusPatch
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.device_index import DeviceObject

_START = datetime(2000, 1, 1, tzinfo=UTC)


class SimulatedTimer:
    """Callback that runs at a given time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class SimulatedClock:
    """Clock that starts at 0 seconds, which is ``start`` in UTC, and advances from timer to timer."""

    def __init__(self, start: datetime = _START) -> None:
        self._now = 0.0
        self._start = start
        self._timers: list[tuple[float, int, SimulatedTimer]] = []
        self._sequence = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._start + timedelta(seconds=self._now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SimulatedTimer:
        timer = SimulatedTimer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._sequence), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        elapsed = asyncio.Event()
        self.call_later(seconds, elapsed.set)
        await elapsed.wait()

    def advance(self, until: float) -> bool:
        """Advance to the next timer and run it.

        Args:
            until: Latest time to advance to, in seconds.

        Returns:
            Whether a timer ran.
        """
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._now = due
            timer.callback()
            return True
        return False


_BOUND = VolumePhase("Bound")


class MemoryStorage:
    """Volumes, claims and classes by name."""

    def __init__(self) -> None:
        self._feed: ObjectFeed[StorageObject] | None = None
        self._volumes: dict[str, PersistentVolume] = {}
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._classes: dict[str, StorageClass] = {}
        self._versions = itertools.count(1)

    def serve(self, objects: Iterable[StorageObject], feed: ObjectFeed[StorageObject]) -> None:
        """Store and report the initial objects, and report later changes; some kinds never change."""
        self._feed = feed
        stored = tuple(objects)
        for each in stored:
            if isinstance(each, PersistentVolume):
                self._volumes[each.metadata.name] = each
            elif isinstance(each, PersistentVolumeClaim):
                self._claims[each.key] = each
            elif isinstance(each, StorageClass):
                self._classes[each.metadata.name] = each
            feed.added(each)
        self._versions = _versions_after(stored)
        for key in sorted(self._claims):
            self._bind_immediate(self._claims[key])

    # -- writes of the scheduler --------------------------------------------------------------------------------

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Bind a volume to the claim of its claimRef, and the claim to it.

        Raises:
            NotFoundError: The volume does not exist.
            ConflictError: The volume has another resource version.
        """
        _check(f'volume "{volume.metadata.name}"', volume.metadata, self._volumes.get(volume.metadata.name))
        written = self._put_volume(replace(volume, status=_BOUND))
        pointer = written.spec.claim_ref
        claim = None if pointer is None else self._claims.get(f"{pointer.namespace}/{pointer.name}")
        if claim is not None and written.is_reserved_for(claim):
            self._put_claim(bound(claim, written.metadata.name))
        return written

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Store the selected node of a claim, and create its volume.

        Raises:
            NotFoundError: The claim does not exist.
            ConflictError: The claim has another resource version.
        """
        _check(f'claim "{claim.metadata.name}"', claim.metadata, self._claims.get(claim.key))
        written = self._put_claim(claim)
        of_class = self._classes.get(written.class_name)
        if of_class is not None:
            self._join(new_volume(written, of_class), written)
        return written

    # -- controllers --------------------------------------------------------------------------------------------

    def _bind_immediate(self, claim: PersistentVolumeClaim) -> None:
        volumes = self._volumes.values()
        chosen = volume_at_once(
            claim,
            self._classes.get(claim.class_name),
            named=self._volumes.get(claim.spec.volume_name),
            reserved_for=(volume for volume in volumes if volume.is_reserved_for(claim)),
            free=volumes,
        )
        if chosen is not None:
            self._join(chosen, claim)

    def _join(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        self._put_volume(reserved(volume, claim))
        self._put_claim(bound(claim, volume.metadata.name))

    # -- changes ------------------------------------------------------------------------------------------------

    def _put_volume(self, volume: PersistentVolume) -> PersistentVolume:
        new = replace(volume, metadata=self._next(volume.metadata))
        old = self._volumes.get(new.metadata.name)
        self._volumes[new.metadata.name] = new
        self._report(old, new)
        return new

    def _report(self, old: StorageObject | None, new: StorageObject) -> None:
        assert self._feed is not None  # the scheduler writes only to objects that were reported
        if old is None:
            self._feed.added(new)
        else:
            self._feed.updated(old, new)

    def _put_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        new = replace(claim, metadata=self._next(claim.metadata))
        old = self._claims[new.key]
        self._claims[new.key] = new
        self._report(old, new)
        return new

    def _next(self, metadata: AnnotatedMeta) -> AnnotatedMeta:
        return replace(metadata, resource_version=str(next(self._versions)))


def _versions_after(objects: Iterable[StorageObject | ResourceClaim]) -> itertools.count[int]:
    """Return the resource versions of later writes."""
    versions = (each.metadata.resource_version for each in objects)
    return itertools.count(max((int(each) for each in versions if each.isdecimal()), default=0) + 1)


def _check(
    what: str, given: ObjectMeta, current: PersistentVolume | PersistentVolumeClaim | ResourceClaim | None
) -> None:
    if current is None or current.metadata.uid != given.uid:
        raise NotFoundError(f"{what} not found")
    if current.metadata.resource_version != given.resource_version:
        raise ConflictError(f"{what} has been modified; apply the change to the latest version")


WritePodStatus = Callable[[Pod, ExtendedResourceClaimStatus], None]
"""Writes ``status.extendedResourceClaimStatus`` of a pod."""


class MemoryClaims:
    """Resource claims by key; writes raise as :class:`scheduler_core.ports.ClaimWriter` requires."""

    def __init__(self, write_pod_status: WritePodStatus) -> None:
        self._write_pod_status = write_pod_status
        self._feed: DeviceFeed | None = None
        self._claims: dict[str, ResourceClaim] = {}
        self._versions = itertools.count(1)

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        return tuple(self._claims.values())

    def serve(self, objects: Iterable[DeviceObject], feed: DeviceFeed) -> None:
        """Store the initial claims, and report them, all other objects, and every later change of a claim."""
        self._feed = feed
        for each in objects:
            if isinstance(each, ResourceClaim):
                self._claims[each.key] = each
            feed.added(each)
        self._versions = _versions_after(self._claims.values())

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        current = self._claims.get(claim.key)
        if current is None:
            raise NotFoundError(f"resource claim {claim.key} not found")
        return current

    async def write_finalizers(self, claim: ResourceClaim) -> ResourceClaim:
        current = self._checked(claim)
        return self._put(replace(current, metadata=replace(current.metadata, finalizers=claim.metadata.finalizers)))

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the allocation, the reservations, and the binding conditions that drivers report."""
        given = claim.status
        status = ResourceClaimStatus(given.allocation, given.reserved_for, _fulfilled(given.allocation))
        return self._put(replace(self._checked(claim), status=status))

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the reservations and the allocation with its timestamp."""
        current = self._checked(claim)
        status = replace(current.status, allocation=claim.status.allocation, reserved_for=claim.status.reserved_for)
        return self._put(replace(current, status=status))

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Remove the allocation, the reservations and the states of devices."""
        return self._put(replace(self._checked(claim), status=ResourceClaimStatus()))

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Remove one consumer, whatever the version of the claim is."""
        current = await self.read(claim)
        remaining = tuple(each for each in current.status.reserved_for if each.uid != consumer_uid)
        return self._put(replace(current, status=replace(current.status, reserved_for=remaining)))

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim for the extended resources of its owner."""
        owner = claim.metadata.owner_references[0]
        version = str(next(self._versions))
        name = f"{owner.name}-extended-resources-{version}"
        uid = uid_of("ResourceClaim", claim.metadata.namespace, f"{owner.uid}/{name}")
        metadata = replace(claim.metadata, name=name, uid=uid, resource_version=version)
        created = self._claims[f"{metadata.namespace}/{name}"] = ResourceClaim(metadata, claim.spec)
        if self._feed is not None:
            self._feed.added(created)
        return created

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim; no error if it does not exist."""
        current = self._claims.get(claim.key)
        if current is not None and current.metadata.uid == claim.metadata.uid:
            del self._claims[claim.key]
            if self._feed is not None:
                self._feed.deleted(current)

    def end_pod(self, uid: str) -> None:
        """End the reservations of a deleted pod, as kube-controller-manager does: the last one ends the allocation."""
        for claim in [each for each in self._claims.values() if _is_used_by(each, uid)]:
            remaining = tuple(each for each in claim.status.reserved_for if each.uid != uid)
            status = replace(claim.status, reserved_for=remaining) if remaining else ResourceClaimStatus()
            self._put(replace(claim, status=status))

    async def write_extended_claim(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        self._write_pod_status(pod, status)

    def _checked(self, claim: ResourceClaim) -> ResourceClaim:
        current = self._claims.get(claim.key)
        _check(f"resource claim {claim.key}", claim.metadata, current)
        assert current is not None
        return current

    def _put(self, claim: ResourceClaim) -> ResourceClaim:
        new = replace(claim, metadata=replace(claim.metadata, resource_version=str(next(self._versions))))
        old = self._claims[new.key]
        self._claims[new.key] = new
        if self._feed is not None:
            self._feed.updated(old, new)
        return new


def _is_used_by(claim: ResourceClaim, pod_uid: str) -> bool:
    return any(each.uid == pod_uid for each in claim.status.reserved_for)


def _fulfilled(allocation: AllocationResult | None) -> tuple[AllocatedDeviceStatus, ...]:
    """Return the states of allocated devices that have binding conditions, with all of them true."""
    return tuple(
        AllocatedDeviceStatus(
            each.driver,
            each.pool,
            each.device,
            each.share_id,
            tuple(ObjectCondition(name, "True") for name in each.binding_conditions),
        )
        for each in (() if allocation is None else allocation.devices.results)
        if each.binding_conditions
    )


POD_SCHEDULED = "PodScheduled"


class MemoryCluster:
    """Pods of a cluster in memory; a caller sees from the number of ``writes`` whether anything happens."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.claims = MemoryClaims(self._write_extended_claim)
        self.events: list[Event] = []
        self.writes = 0
        self._pods: dict[tuple[str, str], Pod] = {}
        self._feed: PodAndNodeFeed | None = None
        self._notifications: deque[Callable[[], None]] = deque()

    def watch(self, feed: PodAndNodeFeed) -> None:
        """Report every change to ``feed`` from now on."""
        self._feed = feed

    def add_pod(self, pod: Pod) -> None:
        self._pods[pod.metadata.namespace, pod.metadata.name] = pod
        if self._feed is not None:
            self._feed.pod_added(pod)

    def remove_pod(self, pod: Pod) -> None:
        """Delete a pod; a pod that does not exist is ignored."""
        current = self._pods.pop((pod.metadata.namespace, pod.metadata.name), None)
        if current is not None and self._feed is not None:
            self._feed.pod_deleted(current)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return the current state of a pod; None if it does not exist."""
        return self._pods.get((namespace, name))

    @property
    def is_quiet(self) -> bool:
        """Whether every write has been reported to the feed."""
        return not self._notifications

    async def bind(self, binding: Binding) -> None:
        """Bind a pod.

        Raises:
            NotFoundError: The pod does not exist or has another UID.
            ConflictError: The pod is already bound.
        """
        self.writes += 1
        pod = self._current(binding.namespace, binding.name, binding.uid)
        if pod is None:
            raise NotFoundError(f"pod {binding.namespace}/{binding.name} not found")
        if pod.spec.node_name:
            raise ConflictError(f"pod {pod.key} is already assigned to node {pod.spec.node_name}")
        status = _with_condition(pod, PodCondition(POD_SCHEDULED, "True"))
        spec = msgspec.structs.replace(pod.spec, node_name=binding.node_name)
        metadata = _with_annotations(pod.metadata, binding)
        self._replace(pod, msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status), immediately=True)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        return self.pod(namespace, name)

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Change a pod's status; a pod that does not exist is ignored, since the writer could not do anything."""
        self.writes += 1
        pod = self._current(patch.namespace, patch.name, patch.uid)
        if pod is None:
            return
        status = pod.status if patch.condition is None else _with_condition(pod, patch.condition)
        if patch.nominated_node_name is not None:
            status = msgspec.structs.replace(status, nominated_node_name=patch.nominated_node_name)
        self._replace(pod, msgspec.structs.replace(pod, status=status), immediately=False)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Delete a pod immediately, without a grace period."""
        self.writes += 1
        pod = self._current(deletion.namespace, deletion.name, deletion.uid)
        if pod is not None:
            del self._pods[deletion.namespace, deletion.name]

        def notify() -> None:
            if pod is not None and self._feed is not None:
                self._feed.pod_deleted(pod)
                self.claims.end_pod(pod.metadata.uid)
            done(None if pod is not None else NotFoundError(f"pod {deletion.namespace}/{deletion.name} not found"))

        self._notify_soon(notify)

    def record(self, event: Event) -> None:
        self.writes += 1
        self.events.append(event)

    def _write_extended_claim(self, pod: Pod, claim: ExtendedResourceClaimStatus) -> None:
        self.writes += 1
        current = self._current(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        if current is None:
            raise NotFoundError(f"pod {pod.key} not found")
        status = msgspec.structs.replace(current.status, extended_resource_claim_status=claim)
        self._replace(current, msgspec.structs.replace(current, status=status), immediately=True)

    def _current(self, namespace: str, name: str, uid: str) -> Pod | None:
        pod = self._pods.get((namespace, name))
        return pod if pod is not None and pod.metadata.uid == uid else None

    def _replace(self, old: Pod, new: Pod, *, immediately: bool) -> None:
        self._pods[new.metadata.namespace, new.metadata.name] = new
        feed = self._feed
        if feed is None:
            return
        if immediately:
            while self._notifications:
                self._notifications.popleft()()
            feed.pod_updated(old, new)
        else:
            self._notify_soon(lambda: feed.pod_updated(old, new))

    def _notify_soon(self, notify: Callable[[], None]) -> None:
        self._notifications.append(notify)
        asyncio.get_running_loop().call_soon(self._notify_next)

    def _notify_next(self) -> None:
        if self._notifications:
            self._notifications.popleft()()


def installed_plugins() -> Registry:
    """Return the built-in and installed plugins; raises RegistryError if an installed one cannot be loaded."""
    registry = in_tree_registry()
    registry.load_entry_points()
    return registry


def offline_scheduler() -> Scheduler:
    """Return a scheduler without a cluster, with all installed plugins, for building profiles."""
    return Scheduler(SimulatedClock(), MemoryCluster(), registry=installed_plugins())


def _with_annotations(metadata: ObjectMeta, binding: Binding) -> ObjectMeta:
    """Return the metadata of a bound pod; annotations are dropped if no plugin declares that it reads them."""
    if not binding.annotations or not isinstance(metadata, AnnotatedMeta):
        return metadata
    return msgspec.structs.replace(metadata, annotations={**metadata.annotations, **dict(binding.annotations)})


def _with_condition(pod: Pod, condition: PodCondition) -> PodStatus:
    others = [entry for entry in pod.status.conditions if entry.type != condition.type]
    return msgspec.structs.replace(pod.status, conditions=(*others, condition))
