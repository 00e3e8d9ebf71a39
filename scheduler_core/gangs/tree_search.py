"""The search of one cycle for a tree of groups: every group meets its quorum on the nodes of its parent, or is undone.

::

    root, in each of its domains ─▶ child, in each of its domains within ─▶ ... ─▶ a gang's members, assumed
         │ too few children succeed                                                  │ no quorum
         └────────────── everything below is undone ◀────────────────────────────────┘

A child beyond the quorum of its parent is placed too if it fits. A group with a topology constraint is tried in each of
its domains, and assumed again in the one that scores best: by the number of members and the allocated share of CPU and
memory. Of equal domains the first is used, in the order of
:func:`scheduler_core.gangs.topology_domains.candidate_domains`.

Follows kube-scheduler v1.37.1, ``schedule_one_podgroup.go``, which chooses randomly among equal domains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.domain_screen import DomainScreen
from scheduler_core.gangs.placement_trial import GangTrial, MemberTrials
from scheduler_core.gangs.topology_domains import Domain, GroupDomains, allocated_share, member_orders, placement_score
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache

SearchPart: TypeAlias = Generator["SearchPart | Awaitable[None]", bool, bool]
"""A part of the search: yields parts whose results it needs, and what must be awaited; returns whether it succeeds.

Users choose the depth of trees, so the parts are run from a stack of their own instead of Python's.
"""


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
        is_minimal: Whether only the members and groups that the quorums need are placed.
        needed_below: How many waiting members the gangs below each group need together.
        screens: Rules out domains, for each gang, while no member of the tree is assumed.
        orders: Orders in which the members of each gang are tried.
    """

    tree: GangTree
    instance: FrameworkInstance
    members: dict[GroupKey, list[QueuedPod]]
    needed: dict[GroupKey, int]
    trial: GangTrial = field(default_factory=lambda: GangTrial(ANYWHERE))
    is_broken: bool = False
    is_minimal: bool = False
    needed_below: dict[GroupKey, int] = field(default_factory=dict)
    screens: dict[GroupKey, DomainScreen] = field(default_factory=dict)
    orders: dict[GroupKey, list[Sequence[QueuedPod]]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: GangTree, instance: FrameworkInstance, members: Sequence[QueuedPod]) -> TreeCycle:
        """Return the inputs for members of a tree, in the order in which they are tried."""
        by_gang: dict[GroupKey, list[QueuedPod]] = {}
        for pod in members:
            if pod.group is not None:
                by_gang.setdefault(pod.group, []).append(pod)
        return cls(tree, instance, by_gang, {leaf.key: leaf.needed for leaf in tree.parts})


@dataclass(frozen=True, slots=True)
class _Placement:
    """Members of a group and the groups below it that fit in one domain, and are not assumed.

    Attributes:
        members: Attempts with the nodes of the members, in the order in which they were assumed.
        lacks: What each group of the tree lacks, for groups that failed.
        count: Number of members with a node, those that had one before included.
        share: Allocated share of the domain with these members.
    """

    members: list[tuple[Attempt, str]]
    lacks: dict[GroupKey, str]
    count: int
    share: int


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
            if await self._is_met(cycle):
                return True
            lacks, cycle.is_minimal, cycle.needed_below = trial.lacks, True, tree.needed_below()
            # Members and groups beyond the quorums may have taken the room of those that they need.
            if not cycle.is_broken and await self._is_met(cycle):
                return True
        except BaseException:
            trial.undo(self._assumed)
            raise
        trial.lacks = lacks
        for screen in cycle.screens.values():
            trial.add(screen)
        key = tree.key if tree.key in trial.lacks else next(iter(trial.lacks), tree.key)
        kind = "composite pod group" if key.source is GroupSource.COMPOSITE else "pod group"
        trial.lack = f'{kind} "{key.name}": {trial.lacks.get(key, "no member waits")}'
        inherited: dict[GroupKey, str] = {}
        for each in tree.from_above():
            above = tree.forest.parent_of(each)
            inherited[each] = trial.lacks.get(each) or ("" if above is None else inherited.get(above, ""))
        for leaf in tree.parts:
            trial.lacks.setdefault(leaf.key, inherited.get(leaf.key, ""))
        return False

    async def _is_met(self, cycle: TreeCycle) -> bool:
        """Return whether the root meets its quorum and a member is assumed; otherwise nothing is assumed."""
        trial = cycle.trial
        trial.lacks = {}
        if await _run(self._try(cycle, cycle.tree.key, ANYWHERE)) and trial.placed:
            return True
        self._undo(trial, 0)
        return False

    def _try(self, cycle: TreeCycle, key: GroupKey, within: Where) -> SearchPart:
        """Try one group on some nodes; return whether it meets its quorum, with nothing of it assumed otherwise."""
        leaf, composite = cycle.tree.leaves.get(key), cycle.tree.forest.get(key)
        cycle.trial.lacks.pop(key, None)
        if leaf is not None and leaf.group is not None:
            return (yield self._try_leaf(cycle, leaf, within))
        if composite is None:
            return False
        if composite.topology is None:
            return (yield self._try_children(cycle, composite, within))
        below = [leaf for leaf in cycle.tree.forest.leaves_below(key) if leaf.key in cycle.needed]
        group = _domains_of(cycle, key, composite.topology, below, within)
        return (yield self._try_domains(cycle, group, lambda where: self._try_children(cycle, composite, where)))

    def _try_domains(self, cycle: TreeCycle, group: GroupDomains, try_in: Callable[[Where], SearchPart]) -> SearchPart:
        """Try one group in all of its domains, and assume its members in the one that scores best."""
        trial, begun, lacks = cycle.trial, len(cycle.trial.placed), dict(cycle.trial.lacks)
        found: list[_Placement] = []
        first_lacks: dict[GroupKey, str] | None = None
        tried = 0
        for domain, where in group.within_parent(self._cache):
            tried += 1
            trial.lacks = dict(lacks)
            if found and domain.room < group.needed:
                trial.has_untried_domains = True
                continue
            if (yield try_in(where)):
                found.append(self._taken_back(cycle, group, begun, domain))
                continue
            if cycle.is_broken:
                return False
            first_lacks = trial.lacks if first_lacks is None else first_lacks
        most = max((placement.count for placement in found), default=0)
        for placement in sorted(found, key=lambda each: -placement_score(each.count, most, each.share)):
            if self._assume_again(cycle, placement):
                return True
        trial.lacks = lacks if first_lacks is None else first_lacks
        lack = trial.lacks.get(group.key, "no node has the label of the topology constraint")
        trial.lacks[group.key] = f"0/{tried} placements are available, first placement status: {lack}"
        return False

    def _taken_back(self, cycle: TreeCycle, group: GroupDomains, begun: int, domain: Domain) -> _Placement:
        """Score the domain in which a group is assumed, and undo."""
        trial, nodes = cycle.trial, self._cache.columns
        members = [(attempt, attempt.node_name) for attempt in trial.placed[begun:]]
        # The members that are assumed are among those with a node.
        count = sum(len(gang.placed) for gang in group.gangs)
        placement = _Placement(members, trial.lacks, count, allocated_share(nodes, domain.subset.rows))
        self._undo(trial, begun)
        return placement

    def _assume_again(self, cycle: TreeCycle, placement: _Placement) -> bool:
        trial, begun = cycle.trial, len(cycle.trial.placed)
        for attempt, node_name in placement.members:
            failure = self._assumed.reserve_or_release(attempt, node_name)
            if failure is not None:
                trial.failed.append((attempt, failure))
                self._undo(trial, begun)
                return False
            trial.placed.append(attempt)
        trial.lacks = placement.lacks
        return True

    def _try_children(self, cycle: TreeCycle, composite: CompositePodGroup, where: Where) -> SearchPart:
        children, trial = cycle.tree.forest.children(composite.key), cycle.trial
        begun, met, remaining = len(trial.placed), 0, len(children)
        for child in sorted(children, key=cycle.needed_below.__getitem__) if cycle.is_minimal else children:
            if met + remaining < composite.min_groups or (cycle.is_minimal and met >= composite.min_groups):
                break
            met += yield self._try(cycle, child, where)
            remaining -= 1
            if cycle.is_broken:
                break
        if met >= composite.min_groups and not cycle.is_broken:
            return True
        self._undo(trial, begun)
        lack = f"minCount ({composite.min_groups}) cannot be satisfied: {met} scheduled, {remaining} remaining"
        trial.lacks[composite.key] = lack
        return False

    def _try_leaf(self, cycle: TreeCycle, leaf: Gang, within: Where) -> SearchPart:
        assert leaf.group is not None
        needed, members = cycle.needed[leaf.key], cycle.members.get(leaf.key, [])
        if not members and not needed:
            return True
        if len(members) < needed:
            _note_lack(cycle, leaf, 0, len(members))
            return False
        if leaf.group.topology is None:
            return (yield self._try_members(cycle, leaf, within))
        group = _domains_of(cycle, leaf.key, leaf.group.topology, [leaf], within)
        return (yield self._try_domains(cycle, group, lambda where: self._try_members(cycle, leaf, where)))

    def _try_members(self, cycle: TreeCycle, leaf: Gang, where: Where) -> SearchPart:
        trial, needed, key = cycle.trial, cycle.needed[leaf.key], leaf.key
        if key not in cycle.orders:
            cycle.orders[key] = member_orders(cycle.members.get(key, []))
            cycle.screens[key] = DomainScreen(cycle.instance, needed, self._trials.feasible_rows)
        screen = cycle.screens[key] if needed and where.subset is not None and not trial.placed else None
        for order in cycle.orders[key]:
            if screen is not None and screen.rules_out(where, order):
                _note_lack(cycle, leaf, 0, needed - 1)
                continue
            part = GangTrial(where)
            try:
                yield self._trials.try_members(cycle.instance, order, needed, part)
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
                if cycle.is_minimal:
                    self._undo(trial, len(trial.placed) - len(part.placed) + needed)
                return True
            _note_lack(cycle, leaf, len(part.placed), len(part.untried))
            if screen is not None and not part.placed:
                screen.none_feasible(order)
            part.undo(self._assumed)
        return False

    def _undo(self, trial: GangTrial, begun: int) -> None:
        for attempt in reversed(trial.placed[begun:]):
            self._assumed.release(attempt)
        trial.undone += trial.placed[begun:]
        del trial.placed[begun:]


async def _run(first: SearchPart) -> bool:
    """Run a part of the search with all parts that it yields, each from the same depth of Python's stack."""
    running = [first]
    result: Any = None
    error: BaseException | None = None
    while True:
        part = running[-1]
        try:
            step = part.send(result) if error is None else part.throw(error)
        except StopIteration as end:
            running.pop()
            result, error = end.value, None
            if not running:
                return bool(result)
            continue
        except BaseException as raised:
            running.pop()
            if not running:
                raise
            error = raised
            continue
        result = error = None
        if isinstance(step, Generator):
            running.append(step)
            continue
        try:
            await step
        except BaseException as raised:
            error = raised


def _domains_of(
    cycle: TreeCycle, key: GroupKey, topology: GroupTopology, gangs: Sequence[Gang], within: Where
) -> GroupDomains:
    infos = [pod.info for gang in gangs for pod in cycle.members.get(gang.key, ())]
    # A group of several gangs may meet its quorum without some of them.
    needed = max(1, cycle.needed[gangs[0].key]) if len(gangs) == 1 else 1
    return GroupDomains(key, topology, gangs, infos, needed, within)


def _note_lack(cycle: TreeCycle, leaf: Gang, fitting: int, remaining: int) -> None:
    assert leaf.group is not None
    least, needed = leaf.group.min_member, cycle.needed[leaf.key]
    scheduled = least - needed + fitting
    cycle.trial.lacks[leaf.key] = (
        f"minCount ({least}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
    )
