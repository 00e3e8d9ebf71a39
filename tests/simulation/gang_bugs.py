"""Planted bugs in the handling of gangs, of trees of groups and of gangs by owner.

Each violates the guarantee that a gang is placed as a whole or not at all, or a tree with the groups that its quorums
need, breaks a count, loses what waits, or lets a PodGroup differ from its owner, outlive it or end before it. See
:mod:`tests.simulation.planted_bugs`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayplan.gangs import owner_groups
from bayplan.gangs.owner_groups import OwnerGroups, OwnersOfKind

from scheduler_core.cycle.gang_bind_barrier import GangBindBarrier
from scheduler_core.feeds.unconfirmed_pods import UnconfirmedPods
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.gangs import failure_handler as gang_failure
from scheduler_core.gangs import healing
from scheduler_core.gangs.healing import Healing
from scheduler_core.gangs.held_room import HeldRooms
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.placement.engine import World, _Search
from scheduler_core.queueing import gang_registry as membership
from scheduler_core.queueing.gang_entries import GangEntries
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.group_trees import GangTree, GroupForest
from tests.simulation.planted_bugs import Bug, Original, _patched, _replaced, _skipped


async def _no_barrier(self: GangBindBarrier, uid: str) -> Status:
    return SUCCESS


def _all_namespaces(original: Original) -> Original:
    def key_of(pod: Any, *rest: Any) -> GroupKey | None:
        key: GroupKey | None = original(pod, *rest)
        return None if key is None else key._replace(namespace="default")

    return key_of


def _terminated_are_placed(original: Original) -> Original:
    def saw(self: Gang, pod: Any) -> None:
        was_placed = pod.metadata.uid in self.placed
        original(self, pod)
        if was_placed and pod.is_terminal:
            self.placed.add(pod.metadata.uid)

    return saw


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


def _needed(gang: Gang) -> int:
    """Return the number of members that are needed, without those that have succeeded."""
    return 1 if gang.group is None else max(0, gang.group.min_member - len(gang.placed))


GANG_BUGS: dict[str, Bug] = {
    "members are scheduled before their PodGroup is received": _replaced(GangEntries, "gate", lambda *_: SUCCESS),
    "members are scheduled before the first list of PodGroups": _patched(Gangs, "obstacle", _without_list),
    "members stay gated when their PodGroup is received": _skipped(GangEntries, "try_gate"),
    "members are not gated when their PodGroup is deleted": _skipped(GangEntries, "_gate_members"),
    "a gated member of a native group does not gate its gang": _skipped(GangEntries, "note_gate"),
    "the barrier before the binds of a gang is skipped": _replaced(GangBindBarrier, "ready", _no_barrier),
    "a member that fails before the barrier fails alone": _skipped(GangBindBarrier, "failed"),
    "the binding of a gang never ends": _skipped(GangBindBarrier, "ended"),
    "failed members are not requeued with their gang": _replaced(GangEntries, "requeue_member", lambda *_: False),
    "members that wait as single pods are not regrouped": _skipped(GangEntries, "_regroup"),
    "a released member counts as placed": _skipped(Gangs, "released"),
    "members are counted across namespaces": _patched(membership, "group_key_of", _all_namespaces),
    "members that succeeded do not count": _replaced(Gang, "needed", property(_needed)),
    "terminated members count as placed": _patched(Gang, "saw", _terminated_are_placed),
    "the queue entry of a gang without quorum is not removed": _skipped(GangEntries, "_withdraw"),
    "deleted members stay in their gang": _skipped(GangEntries, "remove_member"),
    "a change of minMember requeues no gang": _skipped(GangEntries, "group_changed"),
    "a gang without PodGroup and members is stored": _skipped(Gangs, "_drop_if_empty"),
    "a recreated PodGroup inherits the state of the old one": _patched(Gangs, "group_changed", _without_reset),
    "a member that was never bound counts as placed": _patched(UnconfirmedPods, "_settle", _still_placed),
    "free resources of overcommitted nodes are negative": _patched(gang_failure, "free_amount", _sum_with_negatives),
    "a failed placement trial is not reverted": _skipped(World, "undo"),
    "the room of a lost member is not held": _skipped(Healing, "_begin"),
    "held room of a lost member blocks no pod": _replaced(HeldRooms, "blocking", lambda *_: []),
    "pods of equal priority use the room of a lost member": _patched(healing, "_priority_of", _one_lower),
    "a hold does not end after its time": _skipped(Healing, "_expire"),
}
"""Planted bugs by the defect that they cause."""


# -- trees of groups ---------------------------------------------------------------------------------------------------


def _one_group_is_enough(original: Original) -> Original:
    def try_children(self: _Search, tree: Any, composite: Any, where: Any) -> Any:
        return original(self, tree, replace(composite, min_groups=1), where)

    return try_children


def _without_changed_gangs(original: Original) -> Original:
    def changed(self: Any, subject: Any) -> list[Gang]:
        original(self, subject)
        return []

    return changed


TREE_BUGS: dict[str, Bug] = {
    "one group of a tree is enough": _patched(_Search, "_children", _one_group_is_enough),
    "a tree without its quorum is tried": _replaced(GangTree, "has_quorum", property(lambda self: bool(self.waiting))),
    "a new root does not admit members": _patched(Gangs, "composite_changed", _without_changed_gangs),
    "a tree is stored after its root is deleted": _replaced(
        GroupForest, "composite_deleted", lambda self, key: self.leaves_below(key)
    ),
    "a failed group of a tree is not reverted": _skipped(_Search, "_undo"),
    "a gang is complete without its tree": _replaced(GangTree, "settles", lambda *_: True),
}
"""Planted bugs by the defect that they cause."""


# -- gangs by owner ----------------------------------------------------------------------------------------------------


def _of_any_uid(original: Original) -> Original:
    def find(self: OwnerGroups, instance: Any) -> Any:
        found = self._owners_of(instance.rule).by_name.get((instance.key.namespace, instance.owner_name))
        return original(self, instance) if found is None else found

    return find


def _without_ended(original: Original) -> Original:
    def ended_of_owners(self: Gangs, profile: str) -> list[Any]:
        return [pod for pod in original(self, profile) if pod.metadata.owner_references]

    return ended_of_owners


OWNER_BUGS: dict[str, Bug] = {
    "a change of an owner does not change minMember": _skipped(OwnersOfKind, "updated"),
    "a gang is not reconciled when its owner is received": _skipped(OwnerGroups, "_owner_changed"),
    "a failed write of a PodGroup is not repeated": _skipped(OwnerGroups, "_retry"),
    "a PodGroup of an earlier owner is kept": _replaced(owner_groups, "_is_owned", lambda *_: True),
    "a PodGroup of the owner is deleted": _replaced(owner_groups, "_is_owned", lambda *_: False),
    "an orphaned PodGroup is not deleted": _skipped(OwnerGroups, "_check"),
    "an owner of another UID has the pods": _patched(OwnerGroups, "_owner", _of_any_uid),
    "ended pods without owner reference do not count after a restart": _patched(
        Gangs, "ended_of_owners", _without_ended
    ),
}
"""Planted bugs by the defect that they cause."""
