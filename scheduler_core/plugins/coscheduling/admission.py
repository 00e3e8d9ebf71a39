"""Whether a member may be tried at all: its group must exist, be allowed to try, and have enough members to be placed.

Owns the check that PreEnqueue and PreFilter share. Must not know nodes. Why both: PreEnqueue saves attempts that cannot
succeed (scheduler-plugins #682, #450); PreFilter sees what has changed while a pod stood in the queue.

Follows scheduler-plugins v0.34.7, ``pkg/coscheduling/core/core.go`` (``PreFilter``). There members are counted by
label; here by UID in their namespace, without those that have failed or are being deleted.
"""

from __future__ import annotations

from scheduler_core.framework.group_view import GroupView
from scheduler_core.framework.handle import WaitingPods
from scheduler_core.framework.status import SUCCESS, Status, unresolvable
from scheduler_core.plugins.coscheduling.quorum import is_free_to_go, needed, standing
from scheduler_core.plugins.coscheduling.records import Records


def admission(view: GroupView, waiting: WaitingPods, records: Records) -> Status:
    """Whether members of a group may be tried.

    Args:
        view: The group.
        waiting: Pods that wait at Permit.
        records: What is remembered of groups.

    Returns:
        Success, or UnschedulableAndUnresolvable: no preemption helps.
    """
    group, key = view.group, view.key
    if group is None:
        return unresolvable(f"waiting for PodGroup {key} to be created")
    quorum = needed(view, group)
    if view.known < group.min_member:
        # Said without looking at any member: this is asked for each of many that come one after the other.
        return _too_few(view, view.known, group.min_member)
    if len(standing(view, waiting)) >= quorum:
        return SUCCESS
    if records.is_backed_off(key):
        return unresolvable(f"PodGroup {key} was turned away a short while ago and backs off")
    members = view.members()
    if len(members) < quorum:
        return _too_few(view, len(members) + view.succeeded, group.min_member)
    free = sum(map(is_free_to_go, members))
    if free < quorum:
        return unresolvable(
            f"scheduling gates hold {len(members) - free} of {len(members)} members of PodGroup {key}, "
            f"which needs {quorum} to go"
        )
    return SUCCESS


def _too_few(view: GroupView, members: int, min_member: int) -> Status:
    return unresolvable(f"waiting for members of PodGroup {view.key}: there are {members} of {min_member}")
