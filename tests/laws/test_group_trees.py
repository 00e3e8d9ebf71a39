"""Law: a pod in a tree of groups is bound only if all groups above meet their quorums with bound pods.

The law holds for any shape of tree and after each report, in any order of reports. With enough capacity, every pod
whose gang and groups above have enough members is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup
from tests.support.builders import node, pod
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
