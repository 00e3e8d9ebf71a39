"""Planted bugs in the handling of gangs; see :mod:`tests.simulation.planted_bugs`.

Each violates the guarantee that a gang is placed as a whole or not at all, breaks a count, or loses a waiting gang.
"""

from __future__ import annotations

from typing import Any

from scheduler_core.cycle.gang_bind_barrier import GangBindBarrier
from scheduler_core.feeds.unconfirmed_pods import UnconfirmedPods
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.gangs import failure_handler as gang_failure
from scheduler_core.gangs import healing
from scheduler_core.gangs.healing import Healing
from scheduler_core.gangs.held_room import HeldRooms
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.placement.engine import World
from scheduler_core.queueing import gang_registry as membership
from scheduler_core.queueing.gang_entries import GangEntries
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from tests.simulation.planted_bugs import Bug, Original, _nothing_blocked, _patched, _skipped


def _no_barrier(original: Original) -> Original:
    async def ready(self: GangBindBarrier, uid: str) -> Status:
        del self, uid
        return SUCCESS

    del original
    return ready


def _not_requeued(original: Original) -> Original:
    del original
    return lambda *_: False


def _all_namespaces(original: Original) -> Original:
    def key_of(pod: Any, *rest: Any) -> GroupKey | None:
        key: GroupKey | None = original(pod, *rest)
        return None if key is None else key._replace(namespace="default")

    return key_of


def _without_succeeded(original: Any) -> Any:
    del original
    return property(lambda self: 1 if self.group is None else max(0, self.group.min_member - len(self.placed)))


def _terminated_are_placed(original: Original) -> Original:
    def saw(self: Gang, pod: Any) -> None:
        was_placed = pod.metadata.uid in self.placed
        original(self, pod)
        if was_placed and pod.is_terminal:
            self.placed.add(pod.metadata.uid)

    return saw


def _no_group_gate(original: Original) -> Original:
    del original
    return lambda *_: SUCCESS


def _without_list(original: Original) -> Original:
    def unlisted(self: Gangs, key: GroupKey) -> str:
        gang = self.get(key)
        return "" if gang is not None and gang.group is not None else str(original(self, key))

    return unlisted


def _without_reset(original: Original) -> Original:
    def group_changed(self: Gangs, group: Any) -> Gang:
        known = self.get(group.key)
        if known is not None:
            known.group_uid = group.uid
        gang: Gang = original(self, group)
        return gang

    return group_changed


def _still_placed(original: Original) -> Original:
    def settle(self: UnconfirmedPods, feed: Any, info: Any, pod: Any) -> None:
        original(self, feed, info, pod)
        if pod is not None and not pod.spec.node_name:
            self.gangs.assumed(info.uid)

    return settle


def _sum_with_negatives(original: Original) -> Original:
    def free_amount(nodes: Any, name: str, leaving: Any = ()) -> int:
        column = nodes.resources.find(name)
        if column is None or tuple(leaving):
            amount: int = original(nodes, name, leaving)
            return amount
        return int((nodes.allocatable[column] - nodes.requested[column])[nodes.alive].sum())

    return free_amount


def _one_lower(original: Original) -> Original:
    def priority_of(gang: Gang, pod: Any) -> int:
        return int(original(gang, pod)) - 1

    return priority_of


GANG_BUGS: dict[str, Bug] = {
    "members are scheduled before their PodGroup is received": lambda: _patched(GangEntries, "gate", _no_group_gate),
    "members are scheduled before the first list of PodGroups": lambda: _patched(Gangs, "obstacle", _without_list),
    "members stay gated when their PodGroup is received": _skipped(GangEntries, "try_gate"),
    "members are not gated when their PodGroup is deleted": _skipped(GangEntries, "_gate_members"),
    "a gated member of a native group does not gate its gang": _skipped(GangEntries, "note_gate"),
    "the barrier before the binds of a gang is skipped": lambda: _patched(GangBindBarrier, "ready", _no_barrier),
    "a member that fails before the barrier fails alone": _skipped(GangBindBarrier, "failed"),
    "the binding of a gang never ends": _skipped(GangBindBarrier, "ended"),
    "failed members are not requeued with their gang": lambda: _patched(GangEntries, "requeue_member", _not_requeued),
    "members that wait as single pods are not regrouped": _skipped(GangEntries, "_regroup"),
    "a released member counts as placed": _skipped(Gangs, "released"),
    "members are counted across namespaces": lambda: _patched(membership, "group_key_of", _all_namespaces),
    "members that succeeded do not count": lambda: _patched(Gang, "needed", _without_succeeded),
    "terminated members count as placed": lambda: _patched(Gang, "saw", _terminated_are_placed),
    "the queue entry of a gang without quorum is not removed": _skipped(GangEntries, "_withdraw"),
    "deleted members stay in their gang": _skipped(GangEntries, "remove_member"),
    "a change of minMember requeues no gang": _skipped(GangEntries, "group_changed"),
    "a gang without PodGroup and members is stored": _skipped(Gangs, "_drop_if_empty"),
    "a recreated PodGroup inherits the state of the old one": lambda: _patched(Gangs, "group_changed", _without_reset),
    "a member that was never bound counts as placed": lambda: _patched(UnconfirmedPods, "_settle", _still_placed),
    "free resources of overcommitted nodes are negative": lambda: _patched(
        gang_failure, "free_amount", _sum_with_negatives
    ),
    "a failed placement trial is not reverted": _skipped(World, "undo"),
    "the room of a lost member is not held": _skipped(Healing, "_begin"),
    "held room of a lost member blocks no pod": lambda: _patched(HeldRooms, "blocking", _nothing_blocked),
    "pods of equal priority use the room of a lost member": lambda: _patched(healing, "_priority_of", _one_lower),
    "a hold does not end after its time": _skipped(Healing, "_expire"),
}
"""Planted bugs by the defect that they cause."""
