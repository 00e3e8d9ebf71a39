"""Event handlers for pods and nodes: they update the cache and the queue, with an event for each relevant change.

Informers, the simulator and tests call them on the event loop. While a cycle is suspended, changes are buffered and
then applied in order. Follows kube-scheduler v1.37.1 (``eventhandlers.go``, ``framework/events.go``). Changes of a
node that the core does not read, such as heartbeats, are dropped here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, ParamSpec

from msgspec.structs import replace

from scheduler_core.cycle.contested_nodes import ContestedNodes
from scheduler_core.cycle.filter_and_score import REGION_LABEL, ZONE_LABEL
from scheduler_core.cycle.freed_capacity_event import FreedCapacity, on_node
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import QuantityError, SchedulerCoreError
from scheduler_core.feeds.object_feed import NodeHolds
from scheduler_core.feeds.pod_versions import AcceptedDeletions, InvalidPods, ReadPods
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
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.model.node import Node, NodeStatus
from scheduler_core.model.pod import TERMINAL_PHASES, Pod, Quantities
from scheduler_core.model.pod_requests import accounted_milli, nano, same_granted_resources
from scheduler_core.ports import Clock, PodDeletion
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import CachedPod, ClusterCache, PodState
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


def is_unchanged(old: Node, new: Node) -> bool:
    """Return whether an update changes nothing that the core reads, such as a heartbeat."""
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


def node_events(old: Node, new: Node) -> list[ClusterEvent]:
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
    if old.spec.pod_preemption_policy != new.spec.pod_preemption_policy:
        actions.append(Action.UPDATE_NODE_PREEMPTION_POLICY)
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


def pod_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    has_other_grants = not same_granted_resources(old, new)
    if old.spec != new.spec or has_other_grants:
        # A bind changes the spec, but no resources: the sums over all containers would be equal.
        if has_other_grants or _resources_of(old.spec) != _resources_of(new.spec):
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
    if _claims(old) != _claims(new):
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    resource = Resource.ASSIGNED_POD if new.spec.node_name else Resource.TARGET_POD
    return [ClusterEvent(resource, action) for action in actions]


_resources_of = attrgetter("containers", "init_containers", "resources", "overhead")
"""What the accounted resources depend on, besides the status."""


def _claims(pod: Pod) -> tuple[object, object]:
    return pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status


def labelled_by_bind(before: Pod, pod: Pod) -> Pod:
    """Return a pod with the topology labels that the API server copies from the node when the pod is bound."""
    labels = pod.metadata.labels
    if before.metadata.labels == labels:
        return before
    copied = {key: labels[key] for key in (REGION_LABEL, ZONE_LABEL) if key in labels}
    return replace(before, metadata=replace(before.metadata, labels={**before.metadata.labels, **copied}))


def _is_less(amounts: Mapping[str, int], than: Mapping[str, int]) -> bool:
    """Return whether any request is lower or missing, even of a resource that is not counted."""
    return any(name not in amounts or amounts[name] < amount for name, amount in than.items())


log = logging.getLogger(__name__)
P = ParamSpec("P")

_UNREAD = "node(s) had a pod that could not be read"
_UNREAD_NODE = "node(s) had a change that could not be handled yet"
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


class EventHandling:
    """Handles changes at once or after the suspended cycle, and records the durations for the metrics.

    Attributes:
        run_or_defer: Handles a change of the scheduler itself, which the metrics do not count.
    """

    def __init__(self, suspension: Suspension, clock: Clock, metrics: SchedulerMetrics) -> None:
        self.run_or_defer = suspension.run_or_defer
        self._suspension = suspension
        self._now = clock.now
        self._observe = {event: metrics.events_backlog.of(event).observe for event in _EVENTS}

    def take(self, event: str, handle: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        started = self._now()
        if self._suspension.is_on:
            self.run_or_defer(handle, *args, **kwargs)
        else:
            self._suspension.reported += 1
            handle(*args, **kwargs)
        self._observe[event](self._now() - started)


class PodAndNodeFeed:
    """Event handlers for pods and nodes.

    Attributes:
        reads: Reads of pods that the watch has not caught up with.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        profiles: ProfileTable,
        invalid_pods: InvalidPods,
        freed: FreedCapacity,
        holds: NodeHolds,
        handling: EventHandling,
        contested: ContestedNodes,
        queues_resizes: bool = False,
    ) -> None:
        self.invalid_pods = invalid_pods
        self.reads = ReadPods()
        self._cache = cache
        self._queue = queue
        self._waiting = waiting
        self._profiles = profiles
        self._freed = freed
        self._holds = holds
        self._contested = contested
        self._take = handling.take
        self._defer = handling.run_or_defer
        self._deletions = AcceptedDeletions()
        self._queues_resizes = queues_resizes

    # -- pods ---------------------------------------------------------------------------------------------------

    def pod_added(self, pod: Pod) -> None:
        event = "AssignedPodAdd" if pod.spec.node_name else "UnscheduledPodAdd"
        self._take(event, self._guarded, self._pod_added, pod)

    def pod_updated(self, old: Pod, pod: Pod) -> None:
        event = "UnscheduledPodUpdate"
        if pod.spec.node_name:
            event = "AssignedPodUpdate" if old.spec.node_name else "AssignedPodAdd"
        self._take(event, self._guarded, partial(self._pod_updated, old), pod)

    def pod_deleted(self, pod: Pod) -> None:
        event = "AssignedPodDelete" if pod.spec.node_name else "UnscheduledPodDelete"
        self._take(event, self._pod_gone, pod)

    def deletion_accepted(self, deletion: PodDeletion, at: datetime) -> None:
        """Handle the successful response to a deletion by this process, which may overtake the watch.

        The pod terminates from now on, whatever the watch still delivers. If it did not, a preemptor that is tried
        before the watch shows the deletion would evict other pods as well.
        """
        self._defer(self._deletion_accepted, deletion, at)

    def gangs_changed(self, profile: str, pods: Callable[[], Iterable[Pod]]) -> None:
        """Handle that a profile's rules for owners have changed: each of its pods joins its gang, or leaves it.

        Args:
            pods: Returns the pods that the rules are about, waiting, placed and ended ones. It is called when all
                earlier changes are applied: a version from before would undo an update or a deletion.
        """
        self._defer(self._change_gangs, profile, pods)

    def _change_gangs(self, profile: str, pods: Callable[[], Iterable[Pod]]) -> None:
        for pod in pods():
            self._change_gang(pod)
        self._queue.gangs.owner_rules_applied(profile)

    def _change_gang(self, pod: Pod) -> None:
        # An exception that one pod raises every time must not keep the profile from going live.
        if not try_twice(self._gang_changed, pod):
            self._queue.remove(pod.metadata.uid)

    def _gang_changed(self, pod: Pod) -> None:
        gangs = self._queue.gangs
        before = gangs.of_uid(pod.metadata.uid)
        if (None if before is None else before.key) != gangs.key_of(pod):
            self._guarded(partial(self._pod_updated, pod), pod)
            placed = self._cache.get(pod.metadata.uid)
            if placed is not None and placed.state is PodState.ASSUMED:
                gangs.assumed(pod.metadata.uid)

    def has_queued(self, uid: str) -> bool:
        """Return whether a pod is in the queue or in flight."""
        return self._queue.find(uid) is not None

    def _deletion_accepted(self, deletion: PodDeletion, at: datetime) -> None:
        placed = self._cache.get(deletion.uid)
        if placed is None or placed.info.pod.metadata.deletion_timestamp is not None:
            return
        info = placed.info
        self._deletions.accept(deletion, at)
        pod = self._deletions.completed(info.pod)
        self._take_version(lambda _: self._cache.replace_pod(info, pod), pod, pod)

    def pod_unreadable(self, pod: Pod, reason: str) -> None:
        """Handle a version of a pod that cannot be decoded.

        A pod on a node keeps its last known room there. The node accepts no pods if that room is not known. A waiting
        pod is reported and not scheduled.

        Args:
            reason: Why it cannot be decoded; "" if it can be again, before :meth:`pod_updated` or :meth:`pod_added`.
        """
        self._take("UnscheduledPodUpdate", self._pod_unreadable, pod, reason)

    def _pod_unreadable(self, pod: Pod, reason: str) -> None:
        uid, node_name = pod.metadata.uid, pod.spec.node_name
        placed, waiting = self._cache.get(uid), self._queue.find(uid)
        if reason and placed is None and waiting is None and node_name and not pod.is_terminal:
            self._holds.hold(node_name, _source_of_pod(pod), "node(s) had a pod that could not be decoded")
            return
        self._holds.release(_source_of_pod(pod))
        if not reason:
            return
        if placed is None and node_name and waiting is not None:
            # Another scheduler has bound it: what it was when it waited is the best estimate of its room.
            known = waiting.info.pod
            self._pod_added(replace(known, spec=replace(known.spec, node_name=node_name)))
        elif not node_name and (placed is None or placed.state is PodState.ASSUMED):
            self._queue.remove(uid)
            self._waiting.reject(uid)
            self.invalid_pods.add(pod, f"it could not be decoded: {reason}")

    def _pod_gone(self, pod: Pod) -> None:
        """Handle a deleted pod; a pod that has ended but still exists counts for its gang."""
        gangs, uid = self._queue.gangs, pod.metadata.uid
        if not self._cache.columns.held.is_empty:
            self._holds.release(_source_of_pod(pod))
        self.reads.deleted(uid)
        if self._deletions.by_uid:
            self._deletions.ended(uid)
        if pod.is_terminal and gangs.of_uid(uid) is not None:
            # The watch may report the end of a pod only with its deletion.
            gangs.saw(pod)
        gang = gangs.lost(uid)
        try:
            self.invalid_pods.remove(uid)
            self._pod_deleted(pod)
            # Reviewed once the queue has dropped the pod, so that no entry of the gang is made from it.
            if gang is not None:
                if gang.barrier is not None:
                    gang.barrier.member_left()
                self._queue.gang_changed(gang)
                self._queue.gang_requeueing.member_moved(gang)
        except Exception:
            # Raised again; when the deletion is delivered again, the pod must be known as a member of the gang.
            if gang is not None:
                gangs.repeat_loss(uid, gang)
            raise

    def _pod_deleted(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        placed, nominated = self._cache.remove_pod(uid), self._queue.nominator.nomination_of(uid)
        try:
            self._queue.remove(uid)
            self._waiting.reject(uid)
            self._report_freed(pod, placed, nominated)
        except Exception:
            # When the deletion is delivered again, neither is known any more.
            if placed is not None or nominated is not None:
                try_twice(self._report_freed, pod, placed, nominated)
            raise

    def _report_freed(self, pod: Pod, placed: PodInfo | None, nominated: PodInfo | None) -> None:
        if placed is not None or pod.spec.node_name:
            self._freed.report(pod, "" if placed is None else placed.node_name)
        else:
            self._report_ended_nomination(pod, nominated)

    def _guarded(self, take: Callable[[Pod], None], pod: Pod) -> None:
        try:
            if self.reads.by_uid and self.reads.is_overtaken(pod):
                return
            self._take_version(take, pod, self._deletions.completed(pod) if self._deletions.by_uid else pod)
        except Exception:
            # Raised again, and delivered again; until then nothing may be decided on the old version.
            try_twice(self._fail_closed, pod)
            raise

    def _fail_closed(self, pod: Pod) -> None:
        """Hold the node of a pod until its change, which raised, is delivered again; do not schedule the pod."""
        node_name = pod.spec.node_name
        if not node_name or pod.status.phase in TERMINAL_PHASES:
            return
        placed = self._cache.get(pod.metadata.uid)
        if placed is None or placed.info.node_name != node_name:
            self._holds.hold(node_name, _source_of_pod(pod), _UNREAD)
            self._queue.remove(pod.metadata.uid)

    def _take_version(self, take: Callable[[Pod], None], given: Pod, pod: Pod) -> None:
        """Handle a version of a pod.

        A version without a node may be older than a bind that took effect before the deletion, so an assumed pod is not
        released for a deletion that only the response to it has shown.

        Args:
            pod: The version with the deletion that the watch does not show yet.
        """
        queue = self._queue
        before = queue.gangs.of_uid(pod.metadata.uid)
        try:
            gang = queue.gangs.saw(pod)
            try:
                take(pod if pod.spec.node_name else given)
            except SchedulerCoreError as error:
                self._reject_invalid(pod, error)
            else:
                if self.invalid_pods.by_uid:
                    self.invalid_pods.remove(pod.metadata.uid)
                if not self._cache.columns.held.is_empty:
                    self._holds.release(_source_of_pod(pod))
            if gang is not None:
                if gang.barrier is not None and (pod.metadata.deletion_timestamp is not None or pod.is_terminal):
                    gang.barrier.member_left()
                queue.gang_changed(gang)
                if before is not gang:
                    self._member_joined(pod)
            if before is not None and before is not gang:
                queue.gang_changed(before)
        except Exception:
            # When the version is delivered again, the pod is no new member of the one and has left the other.
            gang = queue.gangs.of_uid(pod.metadata.uid)
            if gang is not None and before is not gang:
                try_twice(self._member_joined, pod)
            if before is not None and before is not gang:
                try_twice(queue.gang_changed, before)
            raise

    def _member_joined(self, pod: Pod) -> None:
        if not pod.spec.node_name:
            # A Permit plugin may be waiting for a further member of the group.
            self._queue.on_event(UNSCHEDULED_POD_ADD, None, pod, exclude=pod.metadata.uid)

    def _reject_invalid(self, pod: Pod, error: SchedulerCoreError) -> None:
        """Handle a pod that cannot be read: report it if it waits, and stop scheduling its previous version."""
        uid = pod.metadata.uid
        if pod.spec.node_name or self._cache.get(uid) is not None:
            self.invalid_pods.remove(uid)
            log.error("pod %s is ignored: %s; correct the pod", pod.key, error, extra={"pod": pod.key})
            if self._cache.get(uid) is None:
                # How much room it takes is not known.
                self._holds.hold(pod.spec.node_name, _source_of_pod(pod), _UNREAD)
            return
        self._queue.remove(uid)
        self.invalid_pods.add(pod, str(error))

    def _pod_added(self, pod: Pod) -> None:
        if pod.is_terminal:
            return
        if pod.spec.node_name:
            self._pod_placed(pod)
        else:
            self._queue.add(self._cache.columns.compile_pod(pod))

    def _pod_placed(self, pod: Pod) -> None:
        uid, queue, node_name = pod.metadata.uid, self._queue, pod.spec.node_name
        held = self._cache.placed.get(uid)
        is_new_there = held is None or held.info.node_name != node_name
        nominated = None
        if uid in queue.nominator.node_by_uid:
            nominated = queue.nominator.nomination_of(uid)
        nominated_node = queue.nominator.node_of(uid) if nominated is not None else ""
        assumed = None if held is None else held.info.pod
        if held is None or assumed is None or not self._cache.confirm(held, pod):
            counted = self._counted(held, pod)
            self._cache.add_pod(pod)
        elif (
            assumed.metadata.labels == pod.metadata.labels
            and assumed.status.resource_claim_statuses == pod.status.resource_claim_statuses
            and assumed.status.extended_resource_claim_status == pod.status.extended_resource_claim_status
        ):
            # Most confirmed binds change nothing else that plugins read.
            counted = None
        else:
            counted = on_node(node_name, assumed)
        # Before the event of its bind, which could requeue the pod itself.
        queue.remove(uid)
        waits = self._waiting.entries.get(uid)
        if waits is not None and waits.node_name != node_name:
            # Another scheduler has bound it: waiting at Permit would only block the room that it reserved.
            waits.reject("", "bound by another client")
        queue.on_event(ASSIGNED_POD_ADD, None, pod)
        if nominated is not None:
            self._freed.nomination_unused(nominated, nominated_node, node_name)
        if counted is not None:
            self._report_difference(counted, pod)
        if is_new_there:
            queue.gang_requeueing.member_moved(queue.gangs.of_uid(uid))
            # A pod that this process binds is assumed on its node before the watch shows it there.
            placed = self._cache.get(uid)
            if placed is not None:
                self._contested.rival_bound(placed.info, self._profiles)
        if self._queues_resizes:
            self._follow_resize(pod)

    def _counted(self, held: CachedPod | None, pod: Pod) -> Pod | None:
        """Return the version of an assumed pod that its node counts; None if the pod confirms no bind.

        A pod that is assumed on another node, and whose bind has not ended, is released there when its bind fails.
        """
        if held is None or held.state is PodState.ADDED:
            return None
        if held.state is PodState.ASSUMED and held.info.node_name != pod.spec.node_name:
            return None
        return on_node(held.info.node_name, held.info.pod)

    def _report_difference(self, counted: Pod, pod: Pod) -> None:
        """Report what changed about a pod between its attempt and its bind: other nodes or fewer requests free room.

        An assumed pod counts as it was when its attempt began; later changes count once it is bound.
        """
        if counted.spec.node_name != pod.spec.node_name:
            self._freed.report(counted, counted.spec.node_name)
            return
        for event in pod_events(labelled_by_bind(counted, pod), pod):
            self._queue.on_event(event, counted, pod)

    def _pod_updated(self, old: Pod, pod: Pod) -> None:
        if pod.metadata.uid != old.metadata.uid:
            self._pod_gone(old)
            self._pod_added(pod)
        elif pod.status.phase in TERMINAL_PHASES:
            if not old.is_terminal:
                self._pod_deleted(pod)
        elif pod.spec.node_name and not old.spec.node_name:
            self._pod_placed(pod)
        elif pod.spec.node_name:
            self._follow_resize(pod, old)
            self._cache.add_pod(pod)
            for event in pod_events(old, pod):
                self._queue.on_event(event, old, pod)
        else:
            self._waiting_pod_updated(old, pod)

    def _follow_resize(self, pod: Pod, old: Pod | None = None) -> None:
        """Queue a running pod while its resize is deferred, so that it may preempt on its node."""
        if not self._queues_resizes:
            return
        if pod.has_deferred_resize:
            self._queue.update(self._cache.columns.compile_pod(pod), [] if old is None else pod_events(old, pod), old)
        elif old is not None and old.has_deferred_resize:
            self._queue.remove(pod.metadata.uid)

    def _waiting_pod_updated(self, old: Pod, pod: Pod) -> None:
        is_assumed = self._cache.get(pod.metadata.uid) is not None
        if is_assumed and not self._queue.is_in_flight(pod.metadata.uid):
            return
        if is_assumed and pod.metadata.deletion_timestamp is not None and old.metadata.deletion_timestamp is None:
            self._assumed_pod_ends(pod)
        info = self._cache.columns.compile_pod(pod)
        # Its own changes cannot help an assumed pod, even if its attempt fails later.
        events = [] if is_assumed else pod_events(old, pod)
        if not (events or is_assumed) and (old.spec != pod.spec or _annotations(old) != _annotations(pod)):
            events = [TARGET_POD_UPDATE]
        nominated = self._queue.nominator.nomination_of(pod.metadata.uid)
        if not is_assumed and self._queue.is_in_flight(pod.metadata.uid):
            # Its search continues in another process, perhaps for long.
            self._queue.nominator.update(old, info)
        self._queue.update(info, events, old)
        if not is_assumed and old.status.nominated_node_name != pod.status.nominated_node_name:
            self._report_ended_nomination(old, nominated)

    def _assumed_pod_ends(self, pod: Pod) -> None:
        """Release a pod that is being deleted before it is bound: the API server will reject its bind."""
        uid = pod.metadata.uid
        placed = self._cache.get(uid)
        if placed is None:
            return
        node_name = placed.info.node_name
        if not self._waiting.reject(uid):
            self._cache.forget(placed.info)
        self._freed.report(pod, node_name)

    def _report_ended_nomination(self, pod: Pod, nominated: PodInfo | None) -> None:
        """Report the nominated node of a waiting pod, if any, as if the pod had been deleted from it.

        Only pods of the same or a lower priority than that by which it counted were rejected; only they are requeued.
        Nominations of other schedulers are not counted here.
        """
        if nominated is not None or pod.status.nominated_node_name:
            # A preemption may have withdrawn the nomination before.
            self._freed.nominated_devices_freed(pod.metadata.uid)
        if pod.status.nominated_node_name and pod.spec.scheduler_name in self._profiles:
            highest = (pod.spec.priority or 0) if nominated is None else nominated.priority
            self._queue.on_event(ASSIGNED_POD_DELETE, pod, None, max_priority=highest)

    # -- nodes --------------------------------------------------------------------------------------------------

    def node_added(self, node: Node) -> None:
        self._take("NodeAdd", self._node_added, node)

    def _node_added(self, node: Node) -> None:
        try:
            self._cache.add_node(node)
        except SchedulerCoreError as error:
            self._reject_invalid_node(node, error)
            return
        except Exception:
            # Raised again; perhaps only some of the pods that were added before it are counted.
            try_twice(self._holds.hold, node.metadata.name, _change_of_node(node), _UNREAD_NODE)
            raise
        self._holds.release(_source_of_node(node))
        self._holds.release(_change_of_node(node))
        self._queue.on_event(NODE_ADD, None, node)

    def _reject_invalid_node(self, node: Node, error: SchedulerCoreError) -> None:
        name = node.metadata.name
        text = "node %s accepts no pods: %s; correct its status"
        log.error(text, name, error, extra={"node": name})
        self._node_unreadable(node, str(error))

    def node_unreadable(self, node: Node, reason: str) -> None:
        """Handle a version of a node that cannot be decoded: it accepts no pods, until ``reason`` is empty."""
        self._take("NodeUpdate", self._node_unreadable, node, reason)

    def _node_unreadable(self, node: Node, reason: str) -> None:
        if not reason:
            self._holds.release(_source_of_node(node))
            return
        if self._cache.columns.row_of(node.metadata.name) == NO_ROW:
            try:
                self._cache.add_node(node)
            except SchedulerCoreError:
                self._cache.add_node(Node(node.metadata, node.spec))
        self._holds.hold(node.metadata.name, _source_of_node(node), f"node(s) could not be decoded: {reason}")

    def node_updated(self, old: Node, node: Node) -> None:
        self._take("NodeUpdate", self._node_updated, old, node)

    def _node_updated(self, old: Node, node: Node) -> None:
        try:
            if not is_unchanged(old, node):
                self._take_node_version(old, node)
        except Exception:
            # Raised again, and delivered again; its last version may have more room.
            try_twice(self._holds.hold, node.metadata.name, _change_of_node(node), _UNREAD_NODE)
            raise
        if not self._cache.columns.held.is_empty:
            self._holds.release(_change_of_node(node))

    def _take_node_version(self, old: Node, node: Node) -> None:
        try:
            self._cache.add_node(node)
        except SchedulerCoreError as error:
            self._reject_invalid_node(node, error)
            return
        self._holds.release(_source_of_node(node))
        for event in node_events(old, node):
            self._queue.on_event(event, old, node)
        self._queue.gang_requeueing.domains_changed(
            dict(old.metadata.labels.items() ^ node.metadata.labels.items()).keys()
        )
        self._freed.node_changed(node.metadata.name)

    def node_deleted(self, node: Node) -> None:
        self._take("NodeDelete", self._node_deleted, node)

    def _node_deleted(self, node: Node) -> None:
        self._cache.remove_node(node.metadata.name)
        self._contested.node_removed(node.metadata.name)
        self._cache.columns.release_node(_source_of_node(node))
        self._cache.columns.release_node(_change_of_node(node))
        self._queue.on_event(NODE_DELETE, node, None)
        self._freed.node_changed(node.metadata.name)


def _source_of_node(node: Node) -> str:
    return f"node/{node.metadata.name}"


def _change_of_node(node: Node) -> str:
    return f"change of node/{node.metadata.name}"


def _source_of_pod(pod: Pod) -> str:
    return f"pod/{pod.metadata.uid}"


def _annotations(pod: Pod) -> Any:
    """Return the decoded annotations of a pod: all, those that name gangs of other schedulers, or none."""
    return getattr(pod.metadata, "annotations", None)
