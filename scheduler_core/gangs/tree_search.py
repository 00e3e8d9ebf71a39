"""The search of one cycle for a tree of groups: every group meets its quorum on the nodes of its parent, or is undone.

::

    root, in each of its domains ─▶ child, in each of its domains within ─▶ ... ─▶ a gang's members, assumed
         │ too few children succeed                                                  │ no quorum
         └────────────── everything below is undone ◀────────────────────────────────┘

A child beyond the quorum of its parent is placed too if it fits. Of several domains the first one in which a group
succeeds is used, in the order of :func:`scheduler_core.gangs.topology_domains.candidate_domains`.

Follows kube-scheduler v1.37.1, ``schedule_one_podgroup.go``, which tries all domains and uses the one that scores best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.placement_trial import GangTrial, MemberTrials
from scheduler_core.gangs.topology_domains import candidate_domains, member_orders
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache


@dataclass(slots=True)
class TreeCycle:
    """Inputs of one cycle for a tree.

    Attributes:
        tree: The tree.
        instance: The profile's revision that decides.
        members: Waiting members in the order in which they are tried, by gang.
        needed: How many members must be scheduled together, by gang.
        trial: Receives the assumed members, the failures, and what each group lacks.
        is_broken: Whether a member met an error.
    """

    tree: GangTree
    instance: FrameworkInstance
    members: dict[GroupKey, list[QueuedPod]]
    needed: dict[GroupKey, int]
    trial: GangTrial = field(default_factory=lambda: GangTrial(ANYWHERE))
    is_broken: bool = False


class TreeSearch:
    """Tries to schedule trees of groups.

    Args:
        cache: The nodes, and the members that are scheduled.
        trials: Tries members.
        assumed: Releases members.
    """

    def __init__(self, cache: ClusterCache, trials: MemberTrials, assumed: AssumedPods) -> None:
        self._cache = cache
        self._trials = trials
        self._assumed = assumed

    async def search(self, cycle: TreeCycle) -> bool:
        """Try to schedule a tree; return whether the root meets its quorum and a member was assumed.

        On failure nothing is assumed. Awaits only if the profile has extenders.
        """
        tree, trial = cycle.tree, cycle.trial
        try:
            is_met = await self._try(cycle, tree.key, ANYWHERE)
        except BaseException:
            trial.undo(self._assumed)
            raise
        if is_met and trial.placed:
            return True
        trial.undo(self._assumed)
        key = tree.key if tree.key in trial.lacks else next(iter(trial.lacks), tree.key)
        kind = "composite pod group" if key.source is GroupSource.COMPOSITE else "pod group"
        trial.lack = f'{kind} "{key.name}": {trial.lacks.get(key, "no member waits")}'
        for leaf in tree.parts:
            above = (each.key for each in tree.forest.above(leaf))
            trial.lacks.setdefault(leaf.key, next((trial.lacks[key] for key in above if key in trial.lacks), ""))
        return False

    async def _try(self, cycle: TreeCycle, key: GroupKey, within: Where) -> bool:
        """Try one group on some nodes; return whether it meets its quorum, with nothing of it assumed otherwise."""
        leaf, composite = cycle.tree.leaves.get(key), cycle.tree.forest.get(key)
        cycle.trial.lacks.pop(key, None)
        if leaf is not None and leaf.group is not None:
            return await self._try_leaf(cycle, leaf, within)
        if composite is None:
            return False
        tried = 0
        below = [leaf for leaf in cycle.tree.forest.leaves_below(key) if leaf.key in cycle.needed]
        for where in self._domains(cycle, composite.topology, below, within):
            tried += 1
            if await self._try_children(cycle, composite, where):
                return True
            if cycle.is_broken:
                return False
        _note_domains(cycle, key, composite.topology, tried)
        return False

    async def _try_children(self, cycle: TreeCycle, composite: CompositePodGroup, where: Where) -> bool:
        children, trial = cycle.tree.forest.children(composite.key), cycle.trial
        begun, met, remaining = len(trial.placed), 0, len(children)
        for child in children:
            if met + remaining < composite.min_groups:
                break
            met += await self._try(cycle, child, where)
            remaining -= 1
            if cycle.is_broken:
                break
        if met >= composite.min_groups and not cycle.is_broken:
            return True
        self._undo(trial, begun)
        lack = f"minCount ({composite.min_groups}) cannot be satisfied: {met} scheduled, {remaining} remaining"
        trial.lacks[composite.key] = lack
        return False

    async def _try_leaf(self, cycle: TreeCycle, leaf: Gang, within: Where) -> bool:
        assert leaf.group is not None
        trial, needed, members = cycle.trial, cycle.needed[leaf.key], cycle.members.get(leaf.key, [])
        tried = 0
        if not members and not needed:
            return True
        if len(members) >= needed:
            for where in self._domains(cycle, leaf.group.topology, [leaf], within):
                tried += 1
                for order in member_orders(members):
                    part = GangTrial(where)
                    try:
                        await self._trials.try_members(cycle.instance, order, needed, part)
                    except BaseException:
                        part.undo(self._assumed)
                        raise
                    trial.reached = max(trial.reached, len(trial.placed) + len(part.placed))
                    trial.failed += part.failed
                    if part.is_error:
                        cycle.is_broken = True
                        part.undo(self._assumed)
                        return False
                    if len(part.placed) >= needed:
                        trial.placed += part.placed
                        return True
                    _note_lack(cycle, leaf, len(part.placed), len(part.untried))
                    part.undo(self._assumed)
        else:
            _note_lack(cycle, leaf, 0, len(members))
        _note_domains(cycle, leaf.key, leaf.group.topology, tried)
        return False

    def _undo(self, trial: GangTrial, begun: int) -> None:
        for attempt in reversed(trial.placed[begun:]):
            self._assumed.release(attempt)
        del trial.placed[begun:]

    def _domains(
        self, cycle: TreeCycle, topology: GroupTopology | None, gangs: Sequence[Gang], within: Where
    ) -> Iterator[Where]:
        """Yield the nodes on which a group may be scheduled: the domains of its topology, or those of its parent."""
        if topology is None:
            yield within
            return
        infos = [pod.info for gang in gangs for pod in cycle.members.get(gang.key, ())]
        needed = max(1, sum(cycle.needed[gang.key] for gang in gangs)) if len(gangs) == 1 else 1
        # None of these gangs has assumed members: a group is tried in one domain at a time.
        known = (self._cache.get(uid) for gang in gangs for uid in sorted(gang.placed))
        placed = [each.info for each in known if each is not None]
        for domain in candidate_domains(
            self._cache.columns, topology, infos, needed, placed=placed, within=within.among
        ):
            where = domain.where
            yield Where(where.among, where.reason, f"{within.name}, {where.name}" if within.name else where.name)


def _note_lack(cycle: TreeCycle, leaf: Gang, fitting: int, remaining: int) -> None:
    assert leaf.group is not None
    least, needed = leaf.group.min_member, cycle.needed[leaf.key]
    scheduled = least - needed + fitting
    cycle.trial.lacks[leaf.key] = (
        f"minCount ({least}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
    )


def _note_domains(cycle: TreeCycle, key: GroupKey, topology: GroupTopology | None, tried: int) -> None:
    """Put the number of domains before what a group with a topology constraint lacks."""
    if topology is not None:
        lack = cycle.trial.lacks.get(key, "no node has the label of the topology constraint")
        cycle.trial.lacks[key] = f"0/{tried} placements are available, first placement status: {lack}"
