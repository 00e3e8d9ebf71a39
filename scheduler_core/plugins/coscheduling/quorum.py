"""Which members count for the quorum of a group: those that have a node and keep it.

These are not simply the assumed and bound members: a member that was rejected at Permit or timed out there keeps its
node until its attempt is unwound a moment later. Counting it would bind a part of the group (scheduler-plugins #930).
"""

from __future__ import annotations

from scheduler_core.framework.group_view import GroupView
from scheduler_core.framework.handle import WaitingPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.snapshot.pod_info import PodInfo


def needed(view: GroupView, group: PodGroup) -> int:
    """Return how many members must have a node; succeeded members count as done."""
    return group.min_member - view.succeeded


def members_with_node(view: GroupView, waiting: WaitingPods, exclude: str = "") -> list[PodInfo]:
    """Return the members that have a node and are not known to lose it, without the one with UID ``but``."""
    found = []
    for member in view.assigned():
        if member.uid != exclude:
            wait = waiting.get(member.uid)
            if wait is None or not wait.is_refused:
                found.append(member)
    return found


def is_ungated(member: Pod) -> bool:
    """Return whether no scheduling gate holds a member."""
    return bool(member.spec.node_name) or not member.spec.scheduling_gates
