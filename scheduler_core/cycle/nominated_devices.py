"""Devices that are held for nominated pods whose profile preempts for devices.

A nomination has a node and no devices, so that another pod could take devices that a preemption has freed. Devices are
therefore chosen for a nominated pod as soon as a pod of the same or lower priority searches for some: as if claims had
ended whose holders terminate, are gone, or are being evicted. The choice stands until the pod is nominated again.

kube-scheduler does not preempt for devices, and holds none for nominated pods.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field

from msgspec import Struct

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay
from scheduler_core.model.devices import AllocationResult, ClaimMeta, ResourceClaim, ResourceClaimStatus
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import device_chooser
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.held_claims import ending_claims
from scheduler_core.snapshot.indexes.device_index import HeldDevices, allocations_of
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)
_ANY = ClaimMeta(name="")
FREED = (ResourceClaim(_ANY, status=ResourceClaimStatus(AllocationResult())), ResourceClaim(_ANY))
"""Any claim with devices, and without them."""


class _Held(Struct, frozen=True):
    """Devices of a nominated pod, chosen for the nomination that was made at a version with a priority."""

    node_name: str
    priority: int
    version: int
    allocations: tuple[AllocationResult, ...]


@dataclass(slots=True, eq=False)
class NominatedDevices:
    """Devices that are held for nominated pods.

    Args:
        others: Returns the devices that a nominated pod may not use, because they are held for other reasons.
        priority_of: Returns the priority of a pod, or of its group, by which nominations count, too.
    """

    cache: ClusterCache
    queue: SchedulingQueue
    profiles: ProfileTable
    preemptions: PreemptionsUnderWay
    others: Callable[[PodInfo], Iterable[HeldDevices]]
    priority_of: Callable[[PodInfo], int]
    _by_uid: dict[str, _Held] = field(default_factory=dict)
    _in_dry_run: MutableMapping[str, _Held] = field(default_factory=dict)
    """Those of the last dry run, which has made its own choices for nominations that have none."""
    _dry_run: int = 0
    _nodes: NodeColumns = field(init=False)
    _nominator: NominatedPods = field(init=False)

    def __post_init__(self) -> None:
        self._nodes, self._nominator = self.cache.columns, self.queue.nominator

    def held_from(self, pod: PodInfo) -> list[HeldDevices]:
        """Return the devices that are held for other pods of at least a pod's priority."""
        if not self._nominator.node_by_uid:
            return []
        priority = self.priority_of(pod)
        others = (each for each in self._nominated() if each.priority >= priority and each.uid != pod.uid)
        return [
            HeldDevices(f"nominated pod {other.key}", allocations)
            for other in others
            if (allocations := self._of(other))
        ]

    def end(self, uid: str) -> int | None:
        """Drop what is held for a pod if its nomination has ended, is to another node, or has a lower priority.

        Returns:
            The highest priority of the pods that the devices were held from; None if none were.
        """
        held = self._by_uid.get(uid)
        if held is None:
            return None
        nominated, node_name = self._nominator.nomination_of(uid), self._nominator.node_of(uid)
        if nominated is not None and node_name == held.node_name and nominated.priority >= held.priority:
            return None
        del self._by_uid[uid]
        return held.priority if held.allocations else None

    @property
    def _chosen_for(self) -> MutableMapping[str, _Held]:
        """What is held by UID; choices that a dry run makes end with it."""
        steps = self._nodes.steps
        if not steps.is_dry:
            return self._by_uid
        if self._dry_run != steps.dry_runs:
            self._dry_run, self._in_dry_run = steps.dry_runs, ChainMap({}, self._by_uid)
        return self._in_dry_run

    def _nominated(self) -> Iterator[PodInfo]:
        nominator = self._nominator
        for name in nominator.nodes():
            for other in nominator.nominated_pods(name):
                # Filters may run while the pod is hypothetically on its node; an assumed one has devices in flight.
                if (other.pod.spec.resource_claims or other.scalars) and self.cache.get(other.uid) is None:
                    yield other

    def _of(self, nominated: PodInfo) -> tuple[AllocationResult, ...]:
        uid, chosen = nominated.uid, self._chosen_for
        version, node_name = self._nominator.made_at[uid], self._nominator.node_of(uid)
        held = chosen.get(uid)
        # A dry run may nominate a pod to several nodes at the same version, one after the other.
        if held is None or held.version != version or held.node_name != node_name:
            before, held = held, _Held(node_name, nominated.priority, version, self._choice(nominated))
            if chosen is self._by_uid:
                for gone in [each for each in chosen if self.queue.find(each) is None]:
                    del chosen[gone]
            chosen[uid] = held
            if chosen is self._by_uid and before is not None and before.allocations not in ((), held.allocations):
                # Pods that wait for the devices of the earlier choice may get them.
                self.queue.on_event(CLAIM_UPDATE, *FREED, exclude=uid, max_priority=before.priority)
        return held.allocations

    def _choice(self, nominated: PodInfo) -> tuple[AllocationResult, ...]:
        instance = self.profiles.get(nominated.pod.spec.scheduler_name)
        chooser = None if instance is None else device_chooser(instance)
        if instance is None or chooser is None or not instance.config.preemption.devices:
            return ()
        evicted = {info.uid for each in self.preemptions for info in each.victims}

        def is_ending(info: PodInfo) -> bool:
            return info.is_leaving or info.uid in evicted

        node_name = self._nominator.node_of(nominated.uid)
        row = self._nodes.row_of(node_name)
        if row == NO_ROW:
            return ()
        freed = [
            claim.status.allocation
            for claim in ending_claims(self._nodes, row, is_ending)
            if claim.status.allocation is not None
        ]
        # Of pods that are equal, the one whose devices are chosen first has the first choice.
        chosen = self._chosen_for
        beside = [
            allocation
            for other in self._nominated()
            if other.uid != nominated.uid and other.priority >= nominated.priority
            if (held := chosen.get(other.uid)) is not None and held.version == self._nominator.made_at[other.uid]
            for allocation in held.allocations
        ]
        beside += allocations_of(self.others(nominated))
        return chooser.devices_without(nominated, node_name, freed, beside)
