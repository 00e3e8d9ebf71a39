"""Victims for a tree of groups: each group that its quorum needs is placed in the domain with the least harm.

::

    root ─▶ children, the smallest first, until the quorum ─▶ ... ─▶ a gang's members, each with the least harm
     in each of its domains; all are taken back, and the least harmful one is applied again

kube-scheduler v1.37.1 removes all pods of lower priority, and uses the domains that score best then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.preemption_dry_run import VictimSearch
from scheduler_core.gangs.preemption_plan import Step
from scheduler_core.gangs.topology_domains import GroupDomains, member_orders, member_room
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupTopology
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.snapshot.cluster_cache import ClusterCache

_ENOUGH_STEPS = 8
"""Number of feasible domains of a group after which no further one is tried, unless all of them violate a budget."""


def quorum_of_tree(cache: ClusterCache, tree: GangTree, members: Sequence[QueuedPod]) -> Callable[[VictimSearch], bool]:
    """Return what places the quorum of a tree in a search for victims, and returns whether it could.

    Args:
        cache: The nodes, and the members that are scheduled.
        tree: The tree.
        members: Waiting members in the order in which they are tried.
    """
    by_gang: dict[GroupKey, list[QueuedPod]] = {}
    for pod in members:
        if pod.group is not None:
            by_gang.setdefault(pod.group, []).append(pod)
    return lambda search: TreeVictims(search, cache, tree, by_gang).place()


class TreeVictims:
    """Places the quorum of a tree in a search for victims.

    Args:
        search: The search.
        cache: The nodes, and the members that are scheduled.
        tree: The tree.
        members: Waiting members by gang, in the order in which they are tried.
    """

    def __init__(
        self,
        search: VictimSearch,
        cache: ClusterCache,
        tree: GangTree,
        members: Mapping[GroupKey, Sequence[QueuedPod]],
    ) -> None:
        self._search = search
        self._cache = cache
        self._tree = tree
        self._members = members
        self._needed = {leaf.key: leaf.needed for leaf in tree.parts}

    def place(self) -> bool:
        """Assume the members of a quorum of the root within the domain of the search; return whether it is met."""
        root = self._tree.forest.get(self._tree.key)
        return root is not None and self._place_children(root, self._search.where, is_further=True)

    def _place(self, key: GroupKey, within: Where, *, is_further: bool) -> bool:
        """Place the quorum of one group, or return False with nothing of it assumed.

        Args:
            key: The group.
            within: The nodes of its parent.
            is_further: Whether a group that has its quorum already must place a further member.
        """
        leaf, composite = self._tree.leaves.get(key), self._tree.forest.get(key)
        if leaf is not None and leaf.group is not None:
            needed = self._needed[key]
            count = max(needed, int(is_further))
            if not count or len(self._members.get(key, ())) < count:
                return not count
            return self._in_domains(
                leaf.group.topology, [leaf], count, within, lambda where: self._place_members(leaf, count, where)
            )
        if composite is None:
            return False
        below = [each for each in self._tree.forest.leaves_below(key) if each.key in self._needed]
        return self._in_domains(
            composite.topology,
            below,
            1,
            within,
            lambda where: self._place_children(composite, where, is_further=is_further),
        )

    def _place_children(self, composite: CompositePodGroup, where: Where, *, is_further: bool) -> bool:
        search, begun, met = self._search, self._search.progress, 0
        children = sorted(self._tree.forest.children(composite.key), key=self._tree.needed_below)
        for child in children:
            if met >= composite.min_groups:
                break
            met += self._place(child, where, is_further=False)
        if met < composite.min_groups:
            search.take_back(begun)
            return False
        if not is_further or search.progress.members > begun.members:
            return True
        return any(self._place(child, where, is_further=True) for child in children)

    def _place_members(self, leaf: Gang, count: int, where: Where) -> bool:
        begun = self._search.progress
        for order in member_orders(self._members[leaf.key]):
            if self._search.place(order, count, where):
                return True
            self._search.take_back(begun)
        return False

    def _in_domains(
        self,
        topology: GroupTopology | None,
        gangs: Sequence[Gang],
        needed: int,
        within: Where,
        place_in: Callable[[Where], bool],
    ) -> bool:
        """Place a group in the least harmful of its domains; without a topology in the domain of its parent."""
        if topology is None:
            return place_in(within)
        search, begun = self._search, self._search.progress
        infos = [pod.info for gang in gangs for pod in self._members.get(gang.key, ())]
        room = member_room(self._cache.columns, infos, when_empty=True)
        steps: list[Step] = []
        group = GroupDomains(self._tree.key, topology, gangs, infos, needed, within)
        for domain, where in group.within_parent(self._cache):
            if room[np.flatnonzero(domain.among)].sum() < needed or not place_in(where):
                continue
            if search.progress.units == begun.units:
                return True
            steps.append(search.take_back(begun))
            if len(steps) >= _ENOUGH_STEPS and min(step.harm for step in steps)[0] == 0:
                break
        return any(search.apply(step) for step in sorted(steps, key=lambda step: step.harm))
