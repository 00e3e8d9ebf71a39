"""A cluster in memory: what the scheduler writes happens at once and is told back as a watch would.

Owns the pods as the API server would have them, and what was written of them. Fulfils
:class:`scheduler_core.ports.ClusterWriter`. It must not know why a pod goes where.

A bind is told back before it is answered, from the binding task and so between two cycles; what is written from within
a cycle is told back on the loop's next turn, since the scheduler must not be fed in the middle of a cycle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from scheduler_core.cycle.cluster_feed import ClusterFeed
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.model.pod import Pod, PodCondition, PodStatus
from scheduler_core.ports import Binding, Event, PodDeletion, PodStatusPatch

POD_SCHEDULED = "PodScheduled"


class MemoryCluster:
    """Pods by namespace and name.

    Attributes:
        events: Everything recorded, in order.
        writes: How many changes were asked for, so that an observer can tell whether anything happens.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.writes = 0
        self._pods: dict[tuple[str, str], Pod] = {}
        self._feed: ClusterFeed | None = None
        self._news: deque[Callable[[], None]] = deque()

    def watch(self, feed: ClusterFeed) -> None:
        """Tell every change to ``feed`` from now on."""
        self._feed = feed

    def add_pod(self, pod: Pod) -> None:
        """A pod is created."""
        self._pods[pod.metadata.namespace, pod.metadata.name] = pod
        if self._feed is not None:
            self._feed.pod_added(pod)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now; None if there is none."""
        return self._pods.get((namespace, name))

    @property
    def is_quiet(self) -> bool:
        """Whether everything that was written has been told back."""
        return not self._news

    async def bind(self, binding: Binding) -> None:
        """Bind a pod.

        Raises:
            NotFoundError: The pod, or this UID of it, is gone.
            ConflictError: The pod is bound already.
        """
        self.writes += 1
        pod = self._current(binding.namespace, binding.name, binding.uid)
        if pod is None:
            raise NotFoundError(f"pod {binding.namespace}/{binding.name} is gone; do not bind it")
        if pod.spec.node_name:
            raise ConflictError(f"pod {pod.key} is bound to node {pod.spec.node_name} already; read it")
        status = _with_condition(pod, PodCondition(POD_SCHEDULED, "True"))
        spec = msgspec.structs.replace(pod.spec, node_name=binding.node_name)
        self._replace(pod, msgspec.structs.replace(pod, spec=spec, status=status), at_once=True)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now; None if there is none."""
        return self.pod(namespace, name)

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Change a pod's status; nothing happens when the pod is gone, as its writer would be told to no use."""
        self.writes += 1
        pod = self._current(patch.namespace, patch.name, patch.uid)
        if pod is None:
            return
        status = pod.status if patch.condition is None else _with_condition(pod, patch.condition)
        if patch.nominated_node_name is not None:
            status = msgspec.structs.replace(status, nominated_node_name=patch.nominated_node_name)
        self._replace(pod, msgspec.structs.replace(pod, status=status), at_once=False)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Delete a pod at once, without grace."""
        self.writes += 1
        pod = self._current(deletion.namespace, deletion.name, deletion.uid)
        if pod is not None:
            del self._pods[deletion.namespace, deletion.name]

        def tell() -> None:
            if pod is not None and self._feed is not None:
                self._feed.pod_deleted(pod)
            done(None if pod is not None else NotFoundError(f"pod {deletion.namespace}/{deletion.name} is gone"))

        self._tell_soon(tell)

    def record(self, event: Event) -> None:
        """Keep an event."""
        self.writes += 1
        self.events.append(event)

    def _current(self, namespace: str, name: str, uid: str) -> Pod | None:
        pod = self._pods.get((namespace, name))
        return pod if pod is not None and pod.metadata.uid == uid else None

    def _replace(self, old: Pod, new: Pod, *, at_once: bool) -> None:
        self._pods[new.metadata.namespace, new.metadata.name] = new
        feed = self._feed
        if feed is None:
            return
        if at_once:
            while self._news:
                self._news.popleft()()
            feed.pod_updated(old, new)
        else:
            self._tell_soon(lambda: feed.pod_updated(old, new))

    def _tell_soon(self, tell: Callable[[], None]) -> None:
        self._news.append(tell)
        asyncio.get_running_loop().call_soon(self._tell_next)

    def _tell_next(self) -> None:
        if self._news:
            self._news.popleft()()


def _with_condition(pod: Pod, condition: PodCondition) -> PodStatus:
    others = [entry for entry in pod.status.conditions if entry.type != condition.type]
    return msgspec.structs.replace(pod.status, conditions=(*others, condition))
