"""What the cluster reports, taken into the cache and the queue.

Owns the translation: which change of which object is which event, and what of it concerns the cache, the queue or both.
Whoever watches (informers, the simulator, tests) calls it on the loop; while a cycle is suspended, changes are kept and
taken in their order when it is over.

Follows kube-scheduler v1.36.3 (``eventhandlers.go``, ``framework/events.go``). A change of a node that alters nothing
the core reads (a heartbeat) ends here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.departure import on_node, tell_departure, tell_unused_promise
from scheduler_core.cycle.left_out import LeftOutPods
from scheduler_core.cycle.pod_reads import PodReads
from scheduler_core.errors import QuantityError, SchedulerCoreError
from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULED_POD_ADD,
    UNSCHEDULED_POD_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.node import Node, NodeStatus
from scheduler_core.model.pod import Pod, Quantities
from scheduler_core.model.pod_requests import accounted_milli, same_granted_resources
from scheduler_core.model.quantity import nano
from scheduler_core.snapshot.cluster_cache import Placement

log = logging.getLogger(__name__)


class ClusterFeed:
    """Takes changes of pods and nodes.

    Attributes:
        left_out: Waiting pods that cannot be taken.
        reads: Reads of pods that the watch has not caught up with.
    """

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self.left_out = LeftOutPods(context)
        self.reads = PodReads()
        self._report = context.suspension.report

    # -- pods ---------------------------------------------------------------------------------------------------

    def pod_added(self, pod: Pod) -> None:
        """A pod has come, or is first seen."""
        self._report(self._guarded, self._pod_added, pod)

    def pod_updated(self, old: Pod, pod: Pod) -> None:
        """A pod has changed."""
        self._report(self._guarded, lambda new: self._pod_updated(old, new), pod)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone, or has ended."""
        self._report(self._pod_gone, pod)

    def _pod_gone(self, pod: Pod) -> None:
        """A pod exists no more; one that has ended and exists still counts for its gang."""
        self.reads.deleted(pod.metadata.uid)
        gang = self._context.queue.gangs.lost(pod.metadata.uid)
        self.left_out.forget(pod.metadata.uid)
        self._pod_deleted(pod)
        if gang is not None:
            if gang.member_left is not None:
                gang.member_left()
            self._context.queue.gang_changed(gang)

    def _pod_deleted(self, pod: Pod) -> None:
        context, uid = self._context, pod.metadata.uid
        placed = context.cache.remove_pod(uid)
        context.queue.remove(uid)
        context.waiting.reject(uid)
        if placed is not None or pod.spec.node_name:
            tell_departure(context, pod, "" if placed is None else placed.node_name)
        else:
            self._tell_promise_ended(pod)

    def _guarded(self, take: Callable[[Pod], None], pod: Pod) -> None:
        if self.reads.is_overtaken(pod):
            return
        queue = self._context.queue
        before = queue.gangs.of_uid(pod.metadata.uid)
        gang = queue.gangs.saw(pod)
        try:
            take(pod)
        except SchedulerCoreError as error:
            self._left_out(pod, error)
        else:
            self.left_out.forget(pod.metadata.uid)
        if gang is not None:
            if gang.member_left is not None and (pod.metadata.deletion_timestamp is not None or pod.is_terminal):
                gang.member_left()
            queue.gang_changed(gang)
            if before is not gang and not pod.spec.node_name:
                # A sibling may be what a Permit plugin's group waits for.
                queue.on_event(UNSCHEDULED_POD_ADD, None, pod, but=pod.metadata.uid)
        if before is not None and before is not gang:
            queue.gang_changed(before)

    def _left_out(self, pod: Pod, error: SchedulerCoreError) -> None:
        """A pod cannot be taken: one that waits is told so, and is not tried as it was before either."""
        uid = pod.metadata.uid
        if pod.spec.node_name or self._context.cache.get(uid) is not None:
            self.left_out.forget(uid)
            log.error("pod %s is left out: %s; correct the pod", pod.key, error, extra={"pod": pod.key})
            return
        self._context.queue.remove(uid)
        self.left_out.leave_out(pod, str(error))

    def _pod_added(self, pod: Pod) -> None:
        if pod.is_terminal:
            return
        context = self._context
        if pod.spec.node_name:
            left = self._left_node(pod)
            context.cache.add_pod(pod)
            promised = context.queue.nominator.node_of(pod.metadata.uid)
            context.queue.remove(pod.metadata.uid)
            waits = context.waiting.get(pod.metadata.uid)
            if waits is not None and waits.node_name != pod.spec.node_name:
                # Someone else has bound it: to wait on at Permit would only hold what others can use.
                waits.reject("", "bound by someone else")
            context.queue.on_event(ASSIGNED_POD_ADD, None, pod)
            tell_unused_promise(context, pod, promised, pod.spec.node_name)
            if left:
                tell_departure(context, on_node(left, pod), left)
            return
        context.queue.add(context.cache.columns.compile_pod(pod))

    def _left_node(self, pod: Pod) -> str:
        """Return the node on which a pod was counted after its bind was answered, if it is bound to another one."""
        held = self._context.cache.get(pod.metadata.uid)
        if held is None or held.placement is not Placement.BOUND or held.info.node_name == pod.spec.node_name:
            return ""
        return held.info.node_name

    def _pod_updated(self, old: Pod, pod: Pod) -> None:
        if pod.metadata.uid != old.metadata.uid:
            self._pod_gone(old)
            self._pod_added(pod)
        elif pod.is_terminal:
            if not old.is_terminal:
                self._pod_deleted(pod)
        elif pod.spec.node_name and not old.spec.node_name:
            self._pod_added(pod)
        elif pod.spec.node_name:
            self._context.cache.add_pod(pod)
            for event in _pod_events(old, pod):
                self._context.queue.on_event(event, old, pod)
        else:
            self._waiting_pod_updated(old, pod)

    def _waiting_pod_updated(self, old: Pod, pod: Pod) -> None:
        context = self._context
        is_assumed = context.cache.get(pod.metadata.uid) is not None
        if is_assumed and not context.queue.is_in_flight(pod.metadata.uid):
            return
        if is_assumed and pod.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None:
            self._assumed_pod_ends(pod)
        info = context.cache.columns.compile_pod(pod)
        # Nothing about a pod that has its node can help it, whatever becomes of it later.
        events = [] if is_assumed else _pod_events(old, pod)
        if not (events or is_assumed) and (old.spec != pod.spec or annotations_of(old) != annotations_of(pod)):
            events = [UNSCHEDULED_POD_UPDATE]
        context.queue.update(info, events, old)
        if not is_assumed and old.status.nominated_node_name != pod.status.nominated_node_name:
            self._tell_promise_ended(old)

    def _assumed_pod_ends(self, pod: Pod) -> None:
        """A pod is being deleted before it was bound: the API server will refuse its bind, so its place is free."""
        context, uid = self._context, pod.metadata.uid
        placed = context.cache.get(uid)
        if placed is None:
            return
        node_name = placed.info.node_name
        if not context.waiting.reject(uid):
            context.cache.forget(placed.info)
        tell_departure(context, pod, node_name)

    def _tell_promise_ended(self, pod: Pod) -> None:
        """The node that a waiting pod was promised, if any, is as free as if the pod had left it.

        It was kept free of pods of no higher priority, so these alone are told. The promises of other schedulers are
        not kept here, and the going of a pod without one helps nobody.
        """
        if pod.status.nominated_node_name and pod.spec.scheduler_name in self._context.profiles:
            highest = pod.spec.priority or 0
            self._context.queue.on_event(ASSIGNED_POD_DELETE, pod, None, max_priority=highest)

    # -- nodes --------------------------------------------------------------------------------------------------

    def node_added(self, node: Node) -> None:
        """A node has come, or is first seen."""
        self._report(self._node_added, node)

    def _node_added(self, node: Node) -> None:
        try:
            self._context.cache.add_node(node)
        except SchedulerCoreError as error:
            name = node.metadata.name
            log.error("node %s is left out: %s; correct its status", name, error, extra={"node": name})  # noqa: TRY400 - the text says it all
            return
        self._context.queue.on_event(NODE_ADD, None, node)

    def node_updated(self, old: Node, node: Node) -> None:
        """A node has changed."""
        self._report(self._node_updated, old, node)

    def _node_updated(self, old: Node, node: Node) -> None:
        if _reads_alike(old, node):
            return
        is_new = self._context.cache.columns.row_of(node.metadata.name) < 0
        try:
            self._context.cache.update_node(node)
        except SchedulerCoreError as error:
            name = node.metadata.name
            log.error(  # noqa: TRY400 - as above
                "node %s stays as it was: %s; correct its status", name, error, extra={"node": name}
            )
            return
        if is_new:
            # What could not be read when it came can be now.
            self._context.queue.on_event(NODE_ADD, None, node)
            return
        for event in _node_events(old, node):
            self._context.queue.on_event(event, old, node)
        self._context.queue.domains_changed(dict(old.metadata.labels.items() ^ node.metadata.labels.items()).keys())
        self._context.reservations.node_changed(node.metadata.name)

    def node_deleted(self, node: Node) -> None:
        """A node is gone."""
        self._report(self._node_deleted, node)

    def _node_deleted(self, node: Node) -> None:
        self._context.cache.remove_node(node.metadata.name)
        self._context.queue.on_event(NODE_DELETE, node, None)
        self._context.reservations.node_changed(node.metadata.name)


def _reads_alike(old: Node, new: Node) -> bool:
    return (
        old.spec == new.spec
        and old.status == new.status
        and old.metadata.labels == new.metadata.labels
        and annotations_of(old) == annotations_of(new)
    )


def _declared_status(node: Node) -> list[object]:
    """The fields of a node's status that are decoded only because a plugin declares them."""
    fields = node.status.__struct_fields__[len(NodeStatus.__struct_fields__) :]
    return [getattr(node.status, name) for name in fields]


def _node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """What about a node changed, as plugins name it; a cordon keeps pods off and is no event."""
    actions: list[Action] = []
    if _differ(old.status.allocatable, new.status.allocatable):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints or (old.spec.unschedulable and not new.spec.unschedulable):
        actions.append(Action.UPDATE_NODE_TAINT)
    if _declared_status(old) != _declared_status(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if annotations_of(old) != annotations_of(new):
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action) for action in actions]


def _differ(old: Quantities, new: Quantities) -> bool:
    """Whether amounts are others, not only written otherwise."""
    if old == new:
        return False
    try:
        return {name: nano(text) for name, text in old.items()} != {name: nano(text) for name, text in new.items()}
    except QuantityError:
        # What cannot be read now was not there before, or the other way round.
        return True


def _pod_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """What about a pod changed, as plugins name it."""
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if old.spec != new.spec or not same_granted_resources(old, new):
        if _is_scaled_down(old, new):
            actions.append(Action.UPDATE_POD_SCALE_DOWN)
        # They can be added and not altered, but for their seconds, which matter on nodes alone.
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(Action.UPDATE_POD_TOLERATION)
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    return [ClusterEvent(Resource.POD, action) for action in actions]


def _is_scaled_down(old: Pod, new: Pod) -> bool:
    """Whether any request is lower or gone, be it of a resource that nodes are not asked for."""
    after = accounted_milli(new)
    return any(name not in after or after[name] < amount for name, amount in accounted_milli(old).items())
