"""Members that count for the quorum of a group, and the check whether a member may be tried.

The group must exist, not be backed off, and have enough members. PreEnqueue runs the check to save attempts that
cannot succeed (scheduler-plugins #682, #450); PreFilter runs it because things may change while a pod is queued.

A member that was rejected at Permit or timed out there keeps its node until its attempt is unwound a moment later. It
does not count for the quorum: counting it would bind a part of the group (scheduler-plugins #930).

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling/core/core.go`` (``PreFilter``). There members are counted by
label; here by UID in their namespace, without those that have failed or are being deleted.
"""

from __future__ import annotations

from scheduler_core.framework.group_view import GroupView
from scheduler_core.framework.handle import WaitingPods
from scheduler_core.framework.status import SUCCESS, Status, unresolvable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.plugins.coscheduling.group_records import Records
from scheduler_core.snapshot.pod_info import PodInfo


def admission(view: GroupView, waiting: WaitingPods, records: Records) -> Status:
    """Return whether members of a group may be tried.

    Returns:
        Success, or UnschedulableAndUnresolvable, because preemption does not help.
    """
    group, key = view.group, view.key
    if group is None:
        return unresolvable(f"waiting for PodGroup {key} to be created")
    quorum = needed(view, group)
    if view.known < group.min_member and not view.succeeded:
        # Decided without reading members, because it runs for each of many members as they are created.
        return _too_few(view, view.known, group.min_member)
    if len(members_with_node(view, waiting)) >= quorum:
        return SUCCESS
    if records.is_backed_off(key):
        return unresolvable(f"PodGroup {key} was rejected recently and is backing off")
    members = view.members()
    if len(members) < quorum:
        return _too_few(view, len(members) + view.succeeded, group.min_member)
    free = sum(map(is_ungated, members))
    if free < quorum:
        return unresolvable(
            f"{len(members) - free} of {len(members)} members of PodGroup {key} have scheduling gates; "
            f"{quorum} members without gates are needed"
        )
    return SUCCESS


def _too_few(view: GroupView, members: int, min_member: int) -> Status:
    return unresolvable(f"waiting for members of PodGroup {view.key}: there are {members} of {min_member}")


def needed(view: GroupView, group: PodGroup) -> int:
    """Return how many members must have a node; members that succeeded in the same run count as done."""
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
