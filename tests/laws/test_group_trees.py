"""Law: a pod in a tree of groups is bound only if all groups above meet their quorums with bound pods.

The law holds for any shape of tree and after each report, in any order of reports. With enough capacity, every pod
whose gang and groups above have enough members is bound.

With topology constraints and preemption, bound members of each group with a constraint share a domain, and pods are
evicted only if more members are bound after their deletion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology, PodGroup
from tests.support.builders import node, pod
from tests.support.gang_preemption import evicted, running_pod, small_node
from tests.support.gangs import settle
from tests.support.scheduling import Rig, default_rig


@dataclass(frozen=True)
class Tree:
    """A tree of CompositePodGroups with gangs below them; the root has number 0.

    Attributes:
        parents: Number of the parent of each CompositePodGroup after the root.
        quorums: ``minGroupCount`` of each CompositePodGroup.
        gangs: Parent, ``minCount`` and number of members of each gang.
    """

    parents: tuple[int, ...]
    quorums: tuple[int, ...]
    gangs: tuple[tuple[int, int, int], ...]

    @property
    def groups(self) -> list[CompositePodGroup | PodGroup]:
        """All group objects."""
        above = ["", *(f"c{parent}" for parent in self.parents)]
        composites = [
            CompositePodGroup(GroupKey(GroupSource.COMPOSITE, "default", f"c{number}"), f"u{number}", quorum, parent)
            for number, (quorum, parent) in enumerate(zip(self.quorums, above, strict=True))
        ]
        leaves = [
            PodGroup(
                GroupKey(GroupSource.NATIVE, "default", f"g{number}"),
                f"g{number}",
                quorum,
                parent=f"c{parent}",
                priority=0,
            )
            for number, (parent, quorum, _) in enumerate(self.gangs)
        ]
        return [*composites, *leaves]

    @property
    def pods(self) -> list[Pod]:
        """All member pods."""
        return [
            pod(f"g{number}-{each}", requests={"cpu": "1"}, group=f"g{number}")
            for number, (_, _, count) in enumerate(self.gangs)
            for each in range(count)
        ]

    def is_met(self, number: int, counts: list[int]) -> bool:
        """Return whether a CompositePodGroup meets its quorum with the given member counts of the gangs."""
        below = [counts[each] >= quorum for each, (parent, quorum, _) in enumerate(self.gangs) if parent == number]
        below += [self.is_met(each, counts) for each, parent in enumerate(self.parents, start=1) if parent == number]
        return sum(below) >= self.quorums[number]

    def all_quorums_met(self, gang: int, counts: list[int]) -> bool:
        """Return whether a gang and every group above it meet their quorums."""
        parent, quorum, _ = self.gangs[gang]
        if counts[gang] < quorum:
            return False
        while self.is_met(parent, counts):
            if parent == 0:
                return True
            parent = self.parents[parent - 1]
        return False


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Generate a tree of up to four CompositePodGroups and five gangs."""
    parents = tuple(draw(st.integers(0, number)) for number in range(draw(st.integers(0, 3))))
    quorums = tuple(draw(st.integers(1, 3)) for _ in range(len(parents) + 1))
    gang = st.tuples(st.integers(0, len(parents)), st.integers(1, 3), st.integers(1, 4))
    return Tree(parents, quorums, tuple(draw(st.lists(gang, min_size=1, max_size=5))))


def bound_counts(made: Rig, tree: Tree) -> list[int]:
    names = [name.partition("-")[0] for name in made.bound]
    return [names.count(f"g{number}") for number in range(len(tree.gangs))]


@given(tree=trees(), cpus=st.sampled_from((2, 4, 6, 99)), data=st.data())
async def test_quorums_of_bound_pods(tree: Tree, cpus: int, data: st.DataObject) -> None:
    """Quorums are met after each report; with enough capacity, every pod whose quorums exist is bound."""
    made = default_rig()
    feed = made.scheduler.group_feed
    feed.serve(GroupSource.NATIVE)
    made.add(node("n", allocatable={"cpu": str(cpus), "pods": "99"}))
    steps: list[Callable[[], object]] = [lambda: feed.serve(GroupSource.COMPOSITE)]
    steps += [partial(feed.group_changed, each) for each in tree.groups]
    steps += [partial(made.add, each) for each in tree.pods]
    for step in data.draw(st.permutations(steps)):
        step()
        await settle(made)
        counts = bound_counts(made, tree)
        assert all(tree.all_quorums_met(number, counts) for number, count in enumerate(counts) if count)
    await settle(made, after=60.0)
    counts, existing = bound_counts(made, tree), [count for _, _, count in tree.gangs]
    assert all(tree.all_quorums_met(number, counts) for number, count in enumerate(counts) if count)
    if cpus == 99:
        assert counts == [
            count if tree.all_quorums_met(number, existing) else 0 for number, count in enumerate(existing)
        ]


# -- topology constraints and preemption -------------------------------------------------------------------------------


LEVELS = ("", "zone", "rack")


@dataclass(frozen=True)
class Group:
    """A group: number of its parent, quorum, level of its topology constraint, and members if it is a gang."""

    parent: int
    quorum: int
    level: str
    members: int = 0

    @property
    def topology(self) -> GroupTopology | None:
        """The topology constraint."""
        return GroupTopology(self.level, prefers_allocated=True) if self.level else None


@dataclass(frozen=True)
class BusyTree:
    """CompositePodGroups, of which the first is the root, and gangs."""

    composites: tuple[Group, ...]
    gangs: tuple[Group, ...]

    @property
    def objects(self) -> list[CompositePodGroup | PodGroup]:
        """All group objects."""
        composites = [
            CompositePodGroup(
                GroupKey(GroupSource.COMPOSITE, "default", f"c{number}"),
                f"c{number}",
                each.quorum,
                f"c{each.parent}" if number else "",
                topology=each.topology,
            )
            for number, each in enumerate(self.composites)
        ]
        gangs = [
            PodGroup(
                GroupKey(GroupSource.NATIVE, "default", f"g{number}"),
                f"g{number}",
                each.quorum,
                parent=f"c{each.parent}",
                priority=0,
                is_uniform=True,
                topology=each.topology,
            )
            for number, each in enumerate(self.gangs)
        ]
        return [*composites, *gangs]

    def nodes_below(self, composite: int, nodes: list[set[str]]) -> set[str]:
        """Return the nodes of all members below a CompositePodGroup."""
        found = set().union(*(nodes[each] for each, gang in enumerate(self.gangs) if gang.parent == composite))
        below = (each for each, group in enumerate(self.composites) if each and group.parent == composite)
        return found.union(*(self.nodes_below(each, nodes) for each in below))

    def is_met(self, composite: int, counts: list[int]) -> bool:
        """Return whether a CompositePodGroup meets its quorum."""
        met = sum(counts[each] >= gang.quorum for each, gang in enumerate(self.gangs) if gang.parent == composite)
        below = (each for each, group in enumerate(self.composites) if each and group.parent == composite)
        return met + sum(self.is_met(each, counts) for each in below) >= self.composites[composite].quorum


@st.composite
def busy_trees(draw: st.DrawFn) -> BusyTree:
    """Generate a tree of up to three CompositePodGroups and four gangs."""
    quorum, level = st.integers(1, 2), st.sampled_from(LEVELS)
    other_composites = range(draw(st.integers(0, 2)))
    composites = [Group(0, draw(quorum), draw(level)), *(Group(0, draw(quorum), draw(level)) for _ in other_composites)]
    gangs = draw(
        st.lists(
            st.builds(Group, st.integers(0, len(composites) - 1), quorum, level, st.integers(1, 3)),
            min_size=1,
            max_size=4,
        )
    )
    return BusyTree(tuple(composites), tuple(gangs))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    """Generate nodes in two zones with two racks each, and running pods of lower or higher priority."""
    nodes, running = [], []
    for zone in "ab":
        for rack in "12":
            name, cpus = f"{zone}{rack}", draw(st.integers(1, 4))
            nodes.append(small_node(name, cpus, zone=zone, rack=name))
            priorities = draw(st.lists(st.sampled_from((-9, -5, 9)), max_size=cpus))
            running += [running_pod(f"v-{name}-{number}", name, priority) for number, priority in enumerate(priorities)]
    return nodes, running


def check(made: Rig, tree: BusyTree) -> int:
    """Check topology domains and quorums; return the number of bound members."""
    nodes = [
        {place for name, place in made.bound.items() if name.startswith(f"g{number}-")}
        for number in range(len(tree.gangs))
    ]
    names = [name.partition("-")[0] for name in made.bound]
    counts = [names.count(f"g{number}") for number in range(len(tree.gangs))]
    shared = [(gang.level, nodes[number]) for number, gang in enumerate(tree.gangs)]
    shared += [(each.level, tree.nodes_below(number, nodes)) for number, each in enumerate(tree.composites)]
    for level, places in shared:
        length = {"": 0, "zone": 1, "rack": 2}[level]
        assert len({place[:length] for place in places}) <= 1
    for number, gang in enumerate(tree.gangs):
        if counts[number]:
            assert counts[number] >= gang.quorum
            assert tree.is_met(gang.parent, counts)
            assert tree.is_met(0, counts)
    return sum(counts)


@given(tree=busy_trees(), cluster=clusters())
async def test_evictions_let_members_be_bound(tree: BusyTree, cluster: tuple[list[Node], list[Pod]]) -> None:
    """After evicted pods are deleted, more members are bound."""
    made, (nodes, running) = default_rig(), cluster
    feed = made.scheduler.group_feed
    feed.serve(GroupSource.NATIVE)
    feed.serve(GroupSource.COMPOSITE)
    made.add(*nodes, *running)
    for each in tree.objects:
        feed.group_changed(each)
    made.add(
        *(
            pod(f"g{number}-{each}", requests={"cpu": "1"}, group=f"g{number}")
            for number, gang in enumerate(tree.gangs)
            for each in range(gang.members)
        )
    )
    await settle(made)
    count, deleted = check(made, tree), set[str]()
    while terminating := evicted(made) - deleted:
        for victim in running:
            if victim.metadata.name in terminating:
                made.scheduler.feed.pod_deleted(victim)
        deleted |= terminating
        await settle(made, after=60.0)
        new_count = check(made, tree)
        assert new_count > count
        count = new_count
