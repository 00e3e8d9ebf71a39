"""Devices that are held for nominated pods whose profile preempts for devices.

A nomination has a node and no devices, so that another pod could take devices that a preemption has freed. Devices are
therefore chosen for a nominated pod as soon as a pod of the same or lower priority searches for some: as if claims had
ended whose holders terminate, are gone, or are being evicted. The choice stands until the pod is nominated again.

kube-scheduler does not preempt for devices, and holds none for nominated pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from scheduler_core.cycle.search_basis import device_chooser
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay
from scheduler_core.model.devices import AllocationResult
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.held_claims import ending_claims
from scheduler_core.snapshot.indexes.device_index import HeldDevices, allocations_of
from scheduler_core.snapshot.pod_info import PodInfo


class _Held(Struct, frozen=True):
    """Devices of a nominated pod, chosen for the nomination that was made at a version."""

    node_name: str
    version: int
    allocations: tuple[AllocationResult, ...]


class NominatedDevices:
    """Devices that are held for nominated pods.

    Args:
        others: Returns the devices that a nominated pod may not use, because they are held for other reasons.
    """

    def __init__(
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        profiles: ProfileTable,
        preemptions: PreemptionsUnderWay,
        others: Callable[[PodInfo], Iterable[HeldDevices]] = lambda _: (),
    ) -> None:
        self._cache = cache
        self._nodes = cache.columns
        self._nominator = queue.nominator
        self._profiles = profiles
        self._preemptions = preemptions
        self._others = others
        self._by_uid: dict[str, _Held] = {}

    def held_from(self, pod: PodInfo) -> list[HeldDevices]:
        """Return the devices that are held for other pods of at least a pod's priority."""
        if not self._nominator.node_by_uid:
            return []
        others = (each for each in self._nominated() if each.priority >= pod.priority and each.uid != pod.uid)
        return [
            HeldDevices(f"nominated pod {other.key}", allocations)
            for other in others
            if (allocations := self._of(other))
        ]

    def end(self, uid: str) -> bool:
        """Drop what is held for a pod if its nomination has ended; return whether devices were."""
        held = self._by_uid.get(uid)
        if held is None or held.node_name == self._nominator.node_of(uid):
            return False
        del self._by_uid[uid]
        return bool(held.allocations)

    def _nominated(self) -> Iterator[PodInfo]:
        nominator = self._nominator
        for name in nominator.nodes():
            for other in nominator.nominated_pods(name):
                # Filters may run while the pod is hypothetically on its node; an assumed one has devices in flight.
                if (other.pod.spec.resource_claims or other.scalars) and self._cache.get(other.uid) is None:
                    yield other

    def _of(self, nominated: PodInfo) -> tuple[AllocationResult, ...]:
        version = self._nominator.made_at[nominated.uid]
        held = self._by_uid.get(nominated.uid)
        if held is None or held.version != version:
            held = _Held(self._nominator.node_of(nominated.uid), version, self._chosen(nominated))
            if not self._nodes.steps.is_dry:
                for uid in [uid for uid in self._by_uid if uid not in self._nominator.made_at]:
                    del self._by_uid[uid]
                self._by_uid[nominated.uid] = held
        return held.allocations

    def _chosen(self, nominated: PodInfo) -> tuple[AllocationResult, ...]:
        instance = self._profiles.get(nominated.pod.spec.scheduler_name)
        chooser = None if instance is None else device_chooser(instance)
        if instance is None or chooser is None or not instance.config.preemption.devices:
            return ()
        evicted = {info.uid for each in self._preemptions for info in each.victims}

        def is_ending(info: PodInfo) -> bool:
            return info.is_leaving or info.uid in evicted

        freed = [
            claim.status.allocation
            for claim in ending_claims(self._nodes, is_ending)
            if claim.status.allocation is not None
        ]
        # Of pods that are equal, the one whose devices are chosen first has the first choice.
        beside = [
            allocation
            for other in self._nominated()
            if other.uid != nominated.uid and other.priority >= nominated.priority
            if (held := self._by_uid.get(other.uid)) is not None and held.version == self._nominator.made_at[other.uid]
            for allocation in held.allocations
        ]
        beside += allocations_of(self._others(nominated))
        return chooser.devices_without(nominated, self._nominator.node_of(nominated.uid), freed, beside)
