"""What the cluster reports of PodGroups, whichever API they are of.

Owns the way of a change into the gangs and the queue. Must not know the APIs: whoever watches them translates. While a
cycle is suspended, changes are kept and taken in their order when it is over.
"""

from __future__ import annotations

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.departure import on_node
from scheduler_core.framework.cluster_events import ASSIGNED_POD_DELETE, Action, ClusterEvent, Resource
from scheduler_core.framework.queued_pod import Place
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang import Gang


class GroupFeed:
    """Takes changes of PodGroups."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._report = context.suspension.report

    def serve(self, source: GroupSource) -> None:
        """All PodGroups of a source have been reported: pods that name another group of it wait for that one alone."""
        self._report(self._serve, source)

    def _serve(self, source: GroupSource) -> None:
        queue = self._context.queue
        if queue.gangs.unread(source) is not None:
            queue.gangs.serve(source)
            queue.source_changed(source)

    def withhold(self, source: GroupSource, reason: str) -> None:
        """The PodGroups of a source are not known: no pod that names one is decided until :meth:`serve` is called.

        Every source is in this state before its first call.

        Args:
            source: The API.
            reason: Why they are not known, and what to do.
        """
        self._report(self._withhold, source, reason)

    def _withhold(self, source: GroupSource, reason: str) -> None:
        queue = self._context.queue
        if queue.gangs.unread(source) != reason:
            queue.gangs.withhold(source, reason)
            queue.source_changed(source)
            for gang in [gang for gang in queue.gangs if gang.key.source is source]:
                self._end_nominations(gang)

    def group_changed(self, group: PodGroup) -> None:
        """A group has come or has changed."""
        self._report(self._group_changed, group)

    def _group_changed(self, group: PodGroup) -> None:
        queue = self._context.queue
        known = queue.gangs.get(group.key)
        before = None if known is None else known.group
        if before == group:
            return
        if before is not None and before.uid != group.uid:
            # It was deleted and created again: the same as if its deletion had been delivered.
            self._group_deleted(group.key)
            before = None
        queue.group_changed(queue.gangs.group_changed(group))
        action = Action.ADD if before is None else Action.UPDATE_OTHER
        queue.on_event(ClusterEvent(Resource.POD_GROUP, action), before, group)

    def group_deleted(self, key: GroupKey) -> None:
        """A group is gone; its members wait until it comes back."""
        self._report(self._group_deleted, key)

    def _group_deleted(self, key: GroupKey) -> None:
        queue = self._context.queue
        gang = queue.gangs.group_deleted(key)
        if gang is None:
            return
        queue.group_changed(gang)
        self._end_nominations(gang)

    def _end_nominations(self, gang: Gang) -> None:
        for uid in list(gang.pods):
            self._end_nomination(uid)

    def _end_nomination(self, uid: str) -> None:
        """Free the node to which a pod is nominated that is not decided any more, and wake those that kept off it."""
        queue = self._context.queue
        queued, node_name = queue.find(uid), queue.nominator.node_of(uid)
        if queued is None or not node_name or queued.place is not Place.GATED:
            return
        priorities = [info.priority for info in queue.nominator.nominated_pods(node_name) if info.uid == uid]
        queue.nominator.withdraw(uid)
        gone = on_node(node_name, queued.info.pod)
        queue.on_event(ASSIGNED_POD_DELETE, gone, None, but=uid, max_priority=max(priorities, default=None))
