"""Law: no pod that names a group is scheduled before its PodGroup is received, whatever the order of reports.

The PodGroup counts as received when it was reported and the first list of its API is complete. After the last report,
the gang is scheduled at once, without any further event.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import (
    POD_GROUP_SOURCES,
    GroupKey,
    GroupSource,
    GroupTopology,
    PodGroup,
)
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.group_scenarios import member as member_of_train
from tests.support.scheduling import Rig, default_rig, profile

STEPS = ("nodes", "pod 0", "pod 1", "group", "list", "profile")
LATER_STEPS = ("nothing", "group deleted", "list forbidden", "profile edited", "pod changed")


def member(source: GroupSource, number: int) -> Pod:
    """Return a pod of the group ``train`` that needs a whole node."""
    return member_of_train(source, f"train-{number}", requests={"cpu": "1"})


class StartingScheduler:
    """A scheduler that starts while two members of a gang are pending, which must run in the same rack.

    Each node has capacity for one member. Members that are scheduled as single pods may go to node ``a``, whose rack
    has no other node.
    """

    def __init__(self, source: GroupSource) -> None:
        options = SchedulerOptions(volcano_groups=source is GroupSource.VOLCANO)
        self.made: Rig = default_rig(options=options, serve=False)
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
            "list forbidden": lambda: self.made.scheduler.group_feed.withhold(source, "the list is forbidden"),
            "profile edited": lambda: self.made.serve(profile(percentage=50)),
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

    async def perform(self, step: str) -> None:
        """Perform a step, and run the scheduler until it is idle."""
        self.steps[step]()
        await settle(self.made)


@pytest.mark.parametrize("source", POD_GROUP_SOURCES)
@settings(max_examples=30)
@given(order=st.permutations(STEPS))
async def test_reports_in_any_order(source: GroupSource, order: list[str]) -> None:
    """No member is bound before the last report; then both members are bound in the rack with two nodes."""
    scheduler = StartingScheduler(source)
    for step in order[:-1]:
        await scheduler.perform(step)
        assert scheduler.made.bound == {}
    await scheduler.perform(order[-1])
    assert set(scheduler.made.bound.values()) == {"b", "c"}


@pytest.mark.parametrize("source", POD_GROUP_SOURCES)
@settings(max_examples=30)
@given(order=st.permutations(("pod 0", "pod 1", "group", "list", "profile")), later=st.permutations(LATER_STEPS))
async def test_a_group_that_is_no_longer_received(source: GroupSource, order: list[str], later: list[str]) -> None:
    """After the group is deleted and its source fails, no member is bound until both are reported again."""
    scheduler = StartingScheduler(source)
    for step in (*order, *later):
        await scheduler.perform(step)
    await scheduler.perform("nodes")
    assert scheduler.made.bound == {}
    await scheduler.perform("group")
    await scheduler.perform("list")
    assert set(scheduler.made.bound.values()) == {"b", "c"}


@settings(max_examples=30)
@given(order=st.permutations((*STEPS[1:], "plain")))
async def test_other_pods_wait_for_no_list(order: list[str]) -> None:
    """A pod without a group is bound as soon as the pod and its profile exist."""
    scheduler = StartingScheduler(GroupSource.NATIVE)
    await scheduler.perform("nodes")
    scheduler.steps["plain"] = lambda: scheduler.made.add(pod("plain"))
    for step in order:
        await scheduler.perform(step)
        reported = order[: order.index(step) + 1]
        assert ("plain" in scheduler.made.bound) is ({"plain", "profile"} <= set(reported))
