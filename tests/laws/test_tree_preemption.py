"""Laws of trees of groups with topology constraints and preemption.

- Bound members of each group with a constraint share a domain, and all quorums above a bound member are met.
- Pods are evicted only if more members are bound after their deletion.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology, PodGroup
from tests.support.builders import pod
from tests.support.gang_preemption import evicted, running_pod, small_node
from tests.support.gangs import settle
from tests.support.scheduling import Rig, default_rig

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
class Tree:
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
def trees(draw: st.DrawFn) -> Tree:
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
    return Tree(tuple(composites), tuple(gangs))


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


def check(made: Rig, tree: Tree) -> int:
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


@given(tree=trees(), cluster=clusters())
async def test_evictions_let_members_be_bound(tree: Tree, cluster: tuple[list[Node], list[Pod]]) -> None:
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
