"""Law: no pod that names a group is decided before its PodGroup is known, whatever is reported first.

Known means that the group was reported and that the first list of its API is complete. The law also holds for liveness:
the last of the reports lets the gang be placed at once, without any further event.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import (
    POD_GROUP_LABELS,
    POD_GROUP_SOURCES,
    GroupKey,
    GroupSource,
    GroupTopology,
    PodGroup,
)
from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.scheduling import Rig, profile, rig

STEPS = ("nodes", "pod 0", "pod 1", "group", "list", "profile")
LATER = ("nothing", "group deleted", "source refused", "profile swapped", "pod changed")


def member(source: GroupSource, number: int) -> Pod:
    """A pod of the group ``train`` that fits a node of its own."""
    if source is GroupSource.NATIVE:
        return pod(f"train-{number}", requests={"cpu": "1"}, group="train")
    return pod(f"train-{number}", requests={"cpu": "1"}, labels={POD_GROUP_LABELS[source]: "train"})


class Start:
    """A scheduler that starts while two members of a gang wait, which must share a rack.

    Each node has room for one. Members that are decided by themselves may go to node ``a``, whose rack has no other.
    """

    def __init__(self, source: GroupSource) -> None:
        self.made: Rig = rig(defaults=default_plugins(), serve=False)
        self.source = source
        self.key = GroupKey(source, "default", "train")
        self.steps: dict[str, Callable[[], object]] = {
            "nodes": self._nodes,
            "pod 0": lambda: self.made.add(member(source, 0)),
            "pod 1": lambda: self.made.add(member(source, 1)),
            "group": lambda: self.made.scheduler.group_feed.group_changed(self.group),
            "list": lambda: self.made.scheduler.group_feed.serve(source),
            "profile": lambda: self.made.serve(profile()),
            "group deleted": lambda: self.made.scheduler.group_feed.group_deleted(self.key),
            "source refused": lambda: self.made.scheduler.group_feed.withhold(source, "it is refused"),
            "profile swapped": lambda: self.made.serve(profile(percentage=50)),
            "pod changed": self._change,
            "nothing": lambda: None,
        }

    @property
    def group(self) -> PodGroup:
        """The PodGroup as it is reported."""
        return PodGroup(self.key, "uid", min_member=2, topology=GroupTopology("rack"))

    def _nodes(self) -> None:
        room = {"cpu": "1", "pods": "9"}
        for name, rack in (("a", "r1"), ("b", "r2"), ("c", "r2")):
            self.made.add(node(name, labels={"rack": rack}, allocatable=room))

    def _change(self) -> None:
        old = member(self.source, 0)
        if self.made.queue.find(old.metadata.uid) is not None:
            metadata = replace(old.metadata, labels={**old.metadata.labels, "touched": ""})
            self.made.scheduler.feed.pod_updated(old, replace(old, metadata=metadata))

    async def take(self, step: str) -> None:
        """Take a step, and let the scheduler do what it can."""
        self.steps[step]()
        await settle(self.made)


@pytest.mark.parametrize("source", POD_GROUP_SOURCES)
@settings(max_examples=30)
@given(order=st.permutations(STEPS))
async def test_reports_in_any_order(source: GroupSource, order: list[str]) -> None:
    """Nothing is bound before the last report; then both members are, in the rack that has room for both."""
    start = Start(source)
    for step in order[:-1]:
        await start.take(step)
        assert start.made.bound == {}
    await start.take(order[-1])
    assert set(start.made.bound.values()) == {"b", "c"}


@pytest.mark.parametrize("source", POD_GROUP_SOURCES)
@settings(max_examples=30)
@given(order=st.permutations(("pod 0", "pod 1", "group", "list", "profile")), later=st.permutations(LATER))
async def test_what_is_known_is_lost_again(source: GroupSource, order: list[str], later: list[str]) -> None:
    """A node's allocatable amounts, and the requests of its bound pods by name."""
    start = Start(source)
    for step in (*order, *later):
        await start.take(step)
    await start.take("nodes")
    assert start.made.bound == {}
    await start.take("group")
    await start.take("list")
    assert set(start.made.bound.values()) == {"b", "c"}


@settings(max_examples=30)
@given(order=st.permutations((*STEPS[1:], "plain")))
async def test_other_pods_wait_for_no_list(order: list[str]) -> None:
    """A pod without a group is decided as soon as it and its profile are there."""
    start = Start(GroupSource.NATIVE)
    await start.take("nodes")
    start.steps["plain"] = lambda: start.made.add(pod("plain"))
    for step in order:
        await start.take(step)
        known = order[: order.index(step) + 1]
        assert ("plain" in start.made.bound) is ({"plain", "profile"} <= set(known))
