"""Queueing hints: which events may make members of a group schedulable that Coscheduling rejected.

scheduler-plugins registers additions of pods and changes of PodGroups for all pods; here only members of that group are
requeued, and only once enough of them exist. In addition, a group that was rejected for its ``minResources`` is
requeued when resources become free.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.group_view import GroupViews
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup

_SIBLING_CAME = ClusterEvent(
    Resource.POD, Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
)
_GROUP_CHANGED = ClusterEvent(Resource.POD_GROUP, Action.ADD | Action.UPDATE)
_POD_LEFT = ClusterEvent(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)
_NODE_GREW = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)


class GroupHints:
    """Queueing hints that read the current state of the groups."""

    def __init__(self, groups: GroupViews) -> None:
        self._groups = groups

    def registrations(self) -> Sequence[EventRegistration]:
        """Return the events with their hints."""
        return (
            EventRegistration(_SIBLING_CAME, self.after_sibling),
            EventRegistration(_GROUP_CHANGED, self.after_group_change),
            EventRegistration(_POD_LEFT, self.after_more_room),
            EventRegistration(_NODE_GREW, self.after_more_room),
        )

    def after_sibling(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if the pod completes the group of ``pod``, or is ``pod`` itself."""
        del old
        own = self._groups.group_of(pod)
        if not isinstance(new, Pod) or new.metadata.uid == pod.metadata.uid or own is None:
            return Hint.QUEUE
        other = self._groups.group_of(new)
        if other is None or other.key != own.key or own.group is None:
            return Hint.SKIP
        return Hint.QUEUE if own.known >= own.group.min_member else Hint.SKIP

    def after_group_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if it is the group of ``pod``."""
        del old
        own = self._groups.group_of(pod)
        if own is None or not isinstance(new, PodGroup):
            return Hint.QUEUE
        return Hint.QUEUE if own.key == new.key else Hint.SKIP

    def after_more_room(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if the group of ``pod`` has ``minResources``."""
        del old, new
        own = self._groups.group_of(pod)
        if own is None:
            return Hint.QUEUE
        return Hint.QUEUE if own.group is not None and own.group.min_resources else Hint.SKIP
