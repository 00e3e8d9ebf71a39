"""A cluster in memory: writes of the scheduler succeed at once and are reported to it as a watch would report them.

Implements :class:`scheduler_core.ports.ClusterWriter`. A bind is reported before its response, from the binding task
and therefore between two cycles. A write from within a cycle is reported on the next turn of the event loop, since the
scheduler must not receive changes during a cycle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from bayplan.simulation.memory_claims import MemoryClaims
from bayplan.simulation.memory_storage import MemoryStorage
from bayplan.simulation.simulated_clock import SimulatedClock
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod, PodCondition, PodStatus
from scheduler_core.ports import Binding, Event, PodDeletion, PodStatusPatch
from scheduler_core.scheduler import Scheduler

POD_SCHEDULED = "PodScheduled"


class MemoryCluster:
    """Pods of a cluster in memory.

    Attributes:
        events: Recorded events, in order.
        writes: Number of writes, from which a caller sees whether anything happens.
    """

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
        """Create a pod."""
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
        """Return the current state of a pod; None if it does not exist."""
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
            done(None if pod is not None else NotFoundError(f"pod {deletion.namespace}/{deletion.name} not found"))

        self._notify_soon(notify)

    def record(self, event: Event) -> None:
        """Store an event."""
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


def offline_scheduler() -> Scheduler:
    """Return a scheduler without a cluster, with all installed plugins, for building profiles.

    Raises:
        RegistryError: An installed plugin cannot be loaded.
    """
    registry = in_tree_registry()
    registry.load_entry_points()
    return Scheduler(SimulatedClock(), MemoryCluster(), registry=registry)


def _with_annotations(metadata: ObjectMeta, binding: Binding) -> ObjectMeta:
    """Return the metadata of a bound pod; annotations are dropped if no plugin declares that it reads them."""
    if not binding.annotations or not isinstance(metadata, AnnotatedMeta):
        return metadata
    return msgspec.structs.replace(metadata, annotations={**metadata.annotations, **dict(binding.annotations)})


def _with_condition(pod: Pod, condition: PodCondition) -> PodStatus:
    others = [entry for entry in pod.status.conditions if entry.type != condition.type]
    return msgspec.structs.replace(pod.status, conditions=(*others, condition))
