"""Who counts for the quorum of a group.

Owns the counting at Permit: a member counts that has a node which it will keep. Must not know what follows from it.

Why that is not simply the number of assumed and bound members: one that was refused at Permit, or whose time there is
up, has its node until its attempt is unwound, which is a moment later. Whoever counts it in that moment lets a part of
a group through (scheduler-plugins #930).
"""

from __future__ import annotations

from scheduler_core.framework.group_view import GroupView
from scheduler_core.framework.handle import WaitingPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.snapshot.pod_info import PodInfo


def needed(view: GroupView, group: PodGroup) -> int:
    """How many members must have a node; those that ended well have had theirs."""
    return group.min_member - view.succeeded


def standing(view: GroupView, waiting: WaitingPods, but: str = "") -> list[PodInfo]:
    """The members that have a node and will keep it as far as is known, without the one of UID ``but``."""
    found = []
    for member in view.assigned():
        if member.uid != but:
            wait = waiting.get(member.uid)
            if wait is None or not wait.is_refused:
                found.append(member)
    return found


def is_free_to_go(member: Pod) -> bool:
    """Whether no scheduling gate holds a member back."""
    return bool(member.spec.node_name) or not member.spec.scheduling_gates
