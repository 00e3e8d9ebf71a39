"""Records the pods and nodes that the scheduler has received, at the time when it processes them.

The informers' state differs. While a cycle waits for an extender, events are queued, so the informers are ahead of the
scheduler. After a read, the scheduler is ahead of the informers.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.feeds.object_feed import NodeHolds
from scheduler_core.feeds.pod_and_node_feed import EventHandling, PodAndNodeFeed
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler


class ReceivedFeed(PodAndNodeFeed):
    """The scheduler's feed, which records the objects that it has received.

    Attributes:
        pods: Pods by ``namespace/name``.
        nodes: Nodes by name.
        on_gone: Called with the UID of each deleted pod, also when a read has shown the deletion.
        on_found_unbound: Called with the UID of each pod whose bind was acknowledged and that a read shows as pending.
        unhandled: UIDs of pods whose last change raised; it is delivered again.
        removed: Last versions of deleted pods, by UID.
        leaving: UIDs of pods whose deletion was received, and perhaps has raised: their room may be free already.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        context = scheduler.context
        super().__init__(
            cache=context.cache,
            queue=context.queue,
            waiting=context.waiting,
            profiles=context.profiles,
            invalid_pods=scheduler.feed.invalid_pods,
            freed=scheduler.cycles.freed,
            holds=NodeHolds(context.cache.columns, context.queue, scheduler.cycles.freed),
            handling=EventHandling(context.suspension, clock, context.metrics),
            contested=context.contested,
        )
        self._run_or_defer = context.suspension.run_or_defer
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.on_gone: Callable[[str], None] = _ignore
        self.on_found_unbound: Callable[[str], None] = _ignore
        self.unhandled: set[str] = set()
        self.leaving: set[str] = set()
        self.removed: dict[str, Pod] = {}
        self._gone: set[str] = set()

    def pod_added(self, pod: Pod) -> None:
        """Receive a new pod."""
        self._run_or_defer(self._record_added, pod)
        super().pod_added(pod)

    def pod_updated(self, old: Pod, pod: Pod) -> None:
        """Receive a changed pod."""
        self._run_or_defer(self._record_pod, pod)
        super().pod_updated(old, pod)

    def pod_deleted(self, pod: Pod) -> None:
        """Receive the deletion of a pod."""
        # Afterwards: a change that raises is delivered again, and counts until then.
        super().pod_deleted(pod)
        self._run_or_defer(self._remove_pod, pod)

    def node_added(self, node: Node) -> None:
        """Receive a new node."""
        self._run_or_defer(self._record_node, node)
        super().node_added(node)

    def node_updated(self, old: Node, node: Node) -> None:
        """Receive a changed node."""
        self._run_or_defer(self._record_node, node)
        super().node_updated(old, node)

    def node_deleted(self, node: Node) -> None:
        """Receive the deletion of a node."""
        super().node_deleted(node)
        self._run_or_defer(self._remove_node, node)

    def _guarded(self, take: Callable[[Pod], None], pod: Pod) -> None:
        self.unhandled.add(pod.metadata.uid)
        super()._guarded(take, pod)
        self.unhandled.discard(pod.metadata.uid)

    def _pod_gone(self, pod: Pod) -> None:
        self.leaving.add(pod.metadata.uid)
        super()._pod_gone(pod)
        self.unhandled.discard(pod.metadata.uid)

    def _record_added(self, pod: Pod) -> None:
        known = self.pods.get(pod.key)
        is_known = known is not None and known.metadata.uid == pod.metadata.uid
        if is_known and pod.metadata.uid not in self.unhandled:
            # An informer adds a pod only once, unless that raised; a pod that is added again comes from a read.
            self.on_found_unbound(pod.metadata.uid)
        self._record_pod(pod)

    def _record_pod(self, pod: Pod) -> None:
        if pod.metadata.uid in self._gone:
            return
        known = self.pods.get(pod.key)
        is_stale = (
            known is not None
            and known.metadata.uid == pod.metadata.uid
            and int(known.metadata.resource_version) > int(pod.metadata.resource_version)
        )
        if not is_stale:
            self.pods[pod.key] = pod

    def _remove_pod(self, pod: Pod) -> None:
        known = self.pods.get(pod.key)
        if known is not None and known.metadata.uid == pod.metadata.uid:
            del self.pods[pod.key]
        self._gone.add(pod.metadata.uid)
        self.removed[pod.metadata.uid] = pod
        self.on_gone(pod.metadata.uid)

    def _record_node(self, node: Node) -> None:
        self.nodes[node.metadata.name] = node

    def _remove_node(self, node: Node) -> None:
        self.nodes.pop(node.metadata.name, None)


def _ignore(uid: str) -> None:
    del uid
