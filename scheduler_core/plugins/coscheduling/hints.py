"""Which events may let the members of a group through that Coscheduling has turned away.

Owns the queueing hints. scheduler-plugins registers additions of pods and changes of PodGroups, for every pod; here
only members of the very group are woken, and only once enough of them exist. Beyond that: a group that was refused for
its ``minResources`` waits for room, which there it learns of only by chance.
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
    """The hints, which ask how the groups are now."""

    def __init__(self, groups: GroupViews) -> None:
        self._groups = groups

    def registrations(self) -> Sequence[EventRegistration]:
        """Events and hints."""
        return (
            EventRegistration(_SIBLING_CAME, self.after_sibling),
            EventRegistration(_GROUP_CHANGED, self.after_group_change),
            EventRegistration(_POD_LEFT, self.after_more_room),
            EventRegistration(_NODE_GREW, self.after_more_room),
        )

    def after_sibling(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Whether a pod that came, or changed, completes the group of ``pod``; its own change always may help."""
        del old
        own = self._groups.group_of(pod)
        if not isinstance(new, Pod) or new.metadata.uid == pod.metadata.uid or own is None:
            return Hint.QUEUE
        other = self._groups.group_of(new)
        if other is None or other.key != own.key or own.group is None:
            return Hint.SKIP
        return Hint.QUEUE if own.known >= own.group.min_member else Hint.SKIP

    def after_group_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Whether it is the group of ``pod`` that came or changed."""
        del old
        own = self._groups.group_of(pod)
        if own is None or not isinstance(new, PodGroup):
            return Hint.QUEUE
        return Hint.QUEUE if own.key == new.key else Hint.SKIP

    def after_more_room(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Whether the group of ``pod`` may have been refused for its resources."""
        del old, new
        own = self._groups.group_of(pod)
        if own is None:
            return Hint.QUEUE
        return Hint.QUEUE if own.group is not None and own.group.min_resources else Hint.SKIP
