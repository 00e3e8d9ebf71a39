"""Event handlers for pods and nodes: they update the cache and the queue.

Informers, the simulator and tests call them on the event loop. While a cycle is suspended, changes are buffered and
then applied in order. Follows kube-scheduler v1.36.3 (``eventhandlers.go``, ``framework/events.go``). Changes of a node
that the core does not read, such as heartbeats, are dropped here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import ParamSpec

from msgspec.structs import replace

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.freed_room import on_node, report_freed_room, report_unused_nomination
from scheduler_core.errors import QuantityError, SchedulerCoreError
from scheduler_core.feeds.pod_reads import PodReads
from scheduler_core.feeds.rejected_pods import InvalidPods
from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    TARGET_POD_UPDATE,
    UNSCHEDULED_POD_ADD,
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
from scheduler_core.snapshot.node_order import REGION_LABEL, ZONE_LABEL

log = logging.getLogger(__name__)
P = ParamSpec("P")

_EVENTS = (
    "AssignedPodAdd",
    "AssignedPodUpdate",
    "AssignedPodDelete",
    "UnscheduledPodAdd",
    "UnscheduledPodUpdate",
    "UnscheduledPodDelete",
    "NodeAdd",
    "NodeUpdate",
    "NodeDelete",
)
"""Events in the metrics, named as in kube-scheduler; an update counts once, there once for each changed property."""


class ClusterFeed:
    """Event handlers for pods and nodes.

    Args:
        context: The shared parts.
        node_changed: Called with the name of each node that was changed or deleted.

    Attributes:
        invalid_pods: Waiting pods that cannot be scheduled, because a field is unreadable or exceeds a limit.
        reads: Reads of pods that the watch has not caught up with.
    """

    def __init__(self, context: CycleContext, node_changed: Callable[[str], None]) -> None:
        self._context = context
        self._node_changed = node_changed
        self.invalid_pods = InvalidPods(context.profiles, context.writer)
        self.reads = PodReads()
        self._report = context.suspension.report
        self._now = context.clock.now
        self._observe = {event: context.metrics.events_backlog.of(event).observe for event in _EVENTS}

    def _take(self, event: str, handle: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Handle a change, at once or after the suspended cycle, and record the duration for the metrics."""
        started = self._now()
        self._report(handle, *args, **kwargs)
        self._observe[event](self._now() - started)

    # -- pods ---------------------------------------------------------------------------------------------------

    def pod_added(self, pod: Pod) -> None:
        """Handle a pod that was created or is seen for the first time."""
        event = "AssignedPodAdd" if pod.spec.node_name else "UnscheduledPodAdd"
        self._take(event, self._guarded, self._pod_added, pod)

    def pod_updated(self, old: Pod, pod: Pod) -> None:
        """Handle an updated pod."""
        event = "UnscheduledPodUpdate"
        if pod.spec.node_name:
            event = "AssignedPodUpdate" if old.spec.node_name else "AssignedPodAdd"
        self._take(event, self._guarded, lambda new: self._pod_updated(old, new), pod)

    def pod_deleted(self, pod: Pod) -> None:
        """Handle a pod that was deleted or has ended."""
        event = "AssignedPodDelete" if pod.spec.node_name else "UnscheduledPodDelete"
        self._take(event, self._pod_gone, pod)

    def _pod_gone(self, pod: Pod) -> None:
        """Handle a deleted pod; a pod that has ended but still exists counts for its gang."""
        self.reads.deleted(pod.metadata.uid)
        gang = self._context.queue.gangs.lost(pod.metadata.uid)
        self.invalid_pods.remove(pod.metadata.uid)
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
            report_freed_room(context.queue, context.reservations, pod, "" if placed is None else placed.node_name)
        else:
            self._report_ended_nomination(pod)

    def _guarded(self, take: Callable[[Pod], None], pod: Pod) -> None:
        if self.reads.is_overtaken(pod):
            return
        queue = self._context.queue
        before = queue.gangs.of_uid(pod.metadata.uid)
        gang = queue.gangs.saw(pod)
        try:
            take(pod)
        except SchedulerCoreError as error:
            self._reject_invalid(pod, error)
        else:
            self.invalid_pods.remove(pod.metadata.uid)
        if gang is not None:
            if gang.member_left is not None and (pod.metadata.deletion_timestamp is not None or pod.is_terminal):
                gang.member_left()
            queue.gang_changed(gang)
            if before is not gang and not pod.spec.node_name:
                # A Permit plugin may be waiting for a further member of the group.
                queue.on_event(UNSCHEDULED_POD_ADD, None, pod, exclude=pod.metadata.uid)
        if before is not None and before is not gang:
            queue.gang_changed(before)

    def _reject_invalid(self, pod: Pod, error: SchedulerCoreError) -> None:
        """Handle a pod that cannot be read: report it if it waits, and stop scheduling its previous version."""
        uid = pod.metadata.uid
        if pod.spec.node_name or self._context.cache.get(uid) is not None:
            self.invalid_pods.remove(uid)
            log.error("pod %s is ignored: %s; correct the pod", pod.key, error, extra={"pod": pod.key})
            return
        self._context.queue.remove(uid)
        self.invalid_pods.add(pod, str(error))

    def _pod_added(self, pod: Pod) -> None:
        if pod.is_terminal:
            return
        context = self._context
        if pod.spec.node_name:
            counted = self._counted(pod)
            context.cache.add_pod(pod)
            nominated = context.queue.nominator.node_of(pod.metadata.uid)
            context.queue.remove(pod.metadata.uid)
            waits = context.waiting.get(pod.metadata.uid)
            if waits is not None and waits.node_name != pod.spec.node_name:
                # Another scheduler has bound it: waiting at Permit would only block the room that it reserved.
                waits.reject("", "bound by someone else")
            context.queue.on_event(ASSIGNED_POD_ADD, None, pod)
            report_unused_nomination(context.queue, pod, nominated, pod.spec.node_name)
            if counted is not None:
                self._report_difference(counted, pod)
            return
        context.queue.add(context.cache.columns.compile_pod(pod))

    def _counted(self, pod: Pod) -> Pod | None:
        """Return the version of an assumed pod that its node counts; None if the pod confirms no bind.

        A pod that is assumed on another node, and whose bind has not ended, is released there when its bind fails.
        """
        held = self._context.cache.get(pod.metadata.uid)
        if held is None or held.placement is Placement.ADDED:
            return None
        if held.placement is Placement.ASSUMED and held.info.node_name != pod.spec.node_name:
            return None
        return on_node(held.info.node_name, held.info.pod)

    def _report_difference(self, counted: Pod, pod: Pod) -> None:
        """Report what changed about a pod between its attempt and its bind: other nodes or fewer requests free room.

        An assumed pod counts as it was when its attempt began; later changes count once it is bound.
        """
        if counted.spec.node_name != pod.spec.node_name:
            report_freed_room(self._context.queue, self._context.reservations, counted, counted.spec.node_name)
            return
        for event in _pod_events(_labelled_by_bind(counted, pod), pod):
            self._context.queue.on_event(event, counted, pod)

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
        # Its own changes cannot help an assumed pod, even if its attempt fails later.
        events = [] if is_assumed else _pod_events(old, pod)
        if not (events or is_assumed) and (old.spec != pod.spec or annotations_of(old) != annotations_of(pod)):
            events = [TARGET_POD_UPDATE]
        context.queue.update(info, events, old)
        if not is_assumed and old.status.nominated_node_name != pod.status.nominated_node_name:
            self._report_ended_nomination(old)

    def _assumed_pod_ends(self, pod: Pod) -> None:
        """Release a pod that is being deleted before it is bound: the API server will reject its bind."""
        context, uid = self._context, pod.metadata.uid
        placed = context.cache.get(uid)
        if placed is None:
            return
        node_name = placed.info.node_name
        if not context.waiting.reject(uid):
            context.cache.forget(placed.info)
        report_freed_room(context.queue, context.reservations, pod, node_name)

    def _report_ended_nomination(self, pod: Pod) -> None:
        """Report the nominated node of a waiting pod, if any, as if the pod had been deleted from it.

        Only pods of the same or a lower priority were rejected by the nomination, so only they are requeued.
        Nominations of other schedulers are not counted here.
        """
        if pod.status.nominated_node_name and pod.spec.scheduler_name in self._context.profiles:
            highest = pod.spec.priority or 0
            self._context.queue.on_event(ASSIGNED_POD_DELETE, pod, None, max_priority=highest)

    # -- nodes --------------------------------------------------------------------------------------------------

    def node_added(self, node: Node) -> None:
        """Handle a node that was created or is seen for the first time."""
        self._take("NodeAdd", self._node_added, node)

    def _node_added(self, node: Node) -> None:
        try:
            self._context.cache.add_node(node)
        except SchedulerCoreError as error:
            name = node.metadata.name
            log.error("node %s is ignored: %s; correct its status", name, error, extra={"node": name})  # noqa: TRY400 - the text says it all
            return
        self._context.queue.on_event(NODE_ADD, None, node)

    def node_updated(self, old: Node, node: Node) -> None:
        """Handle an updated node."""
        self._take("NodeUpdate", self._node_updated, old, node)

    def _node_updated(self, old: Node, node: Node) -> None:
        if _is_unchanged(old, node):
            return
        is_new = self._context.cache.columns.row_of(node.metadata.name) < 0
        try:
            self._context.cache.update_node(node)
        except SchedulerCoreError as error:
            name = node.metadata.name
            log.error(  # noqa: TRY400 - as above
                "update of node %s is ignored: %s; correct its status", name, error, extra={"node": name}
            )
            return
        if is_new:
            # An earlier version of the node was unreadable.
            self._context.queue.on_event(NODE_ADD, None, node)
            return
        for event in _node_events(old, node):
            self._context.queue.on_event(event, old, node)
        self._context.queue.domains_changed(dict(old.metadata.labels.items() ^ node.metadata.labels.items()).keys())
        self._node_changed(node.metadata.name)

    def node_deleted(self, node: Node) -> None:
        """Handle a deleted node."""
        self._take("NodeDelete", self._node_deleted, node)

    def _node_deleted(self, node: Node) -> None:
        self._context.cache.remove_node(node.metadata.name)
        self._context.queue.on_event(NODE_DELETE, node, None)
        self._node_changed(node.metadata.name)


def _is_unchanged(old: Node, new: Node) -> bool:
    return (
        old.spec == new.spec
        and old.status == new.status
        and old.metadata.labels == new.metadata.labels
        and annotations_of(old) == annotations_of(new)
    )


def _declared_status(node: Node) -> list[object]:
    """Return the status fields that are decoded only because a plugin declares them."""
    fields = node.status.__struct_fields__[len(NodeStatus.__struct_fields__) :]
    return [getattr(node.status, name) for name in fields]


def _node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """Return the events of an updated node; a cordon is none, because it cannot make the node feasible."""
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
    """Return whether amounts differ in value, not only in notation."""
    if old == new:
        return False
    try:
        return {name: nano(text) for name, text in old.items()} != {name: nano(text) for name, text in new.items()}
    except QuantityError:
        # One of the two is unreadable, and they differ as text.
        return True


def _pod_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """Return the events of an updated pod."""
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if old.spec != new.spec or not same_granted_resources(old, new):
        before, after = accounted_milli(old), accounted_milli(new)
        if _is_less(after, before):
            actions.append(Action.UPDATE_POD_SCALE_DOWN)
        if _is_less(before, after):
            actions.append(Action.UPDATE_POD_SCALE_UP)
        # Tolerations can only be added; their seconds may change, but matter only to running pods.
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(Action.UPDATE_POD_TOLERATION)
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    resource = Resource.ASSIGNED_POD if new.spec.node_name else Resource.TARGET_POD
    return [ClusterEvent(resource, action) for action in actions]


def _labelled_by_bind(before: Pod, pod: Pod) -> Pod:
    """Return a pod with the topology labels that the API server copies from the node when the pod is bound."""
    labels = pod.metadata.labels
    if before.metadata.labels == labels:
        return before
    copied = {key: labels[key] for key in (REGION_LABEL, ZONE_LABEL) if key in labels}
    return replace(before, metadata=replace(before.metadata, labels={**before.metadata.labels, **copied}))


def _is_less(amounts: Mapping[str, int], than: Mapping[str, int]) -> bool:
    """Return whether any request is lower or missing, even of a resource that is not counted."""
    return any(name not in amounts or amounts[name] < amount for name, amount in than.items())
