"""A PodGroup that is deleted and created again under its name: a new object, which inherits nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, composite_group, gang_of, group, key, leaf_group, members
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, gang_rig, profile
from tests.support.tables import table

TIMEOUT = 100.0
ONE = group(min_member=2, schedule_timeout_seconds=TIMEOUT, is_strict=True)
TWO = replace(ONE, uid="another-uid")

MEMBERSHIP = {"barrier", "binding", "key", "placed", "pods", "run", "waiting"} | {
    "was_known",
    "was_whole",
    "is_first",
}
"""Attributes of a gang that depend on its members only, not on its PodGroup."""

IS_DELETION_SEEN = pytest.mark.parametrize(
    "is_deletion_seen", [True, False], ids=["deletion-seen", "deletion-not-seen"]
)


def rig_with_infeasible_gang() -> Rig:
    """Return a scheduler with two members of a gang that does not fit."""
    made = gang_rig(node("n0", allocatable={"cpu": "1", "pods": "10"}))
    made.scheduler.group_feed.group_changed(ONE)
    made.add(*members(2))
    return made


async def schedule_all(made: Rig) -> None:
    """Run the scheduling cycle of the gang until the queue is empty."""
    while (entry := made.queue.pop()) is not None:
        assert isinstance(entry, QueuedGang)
        await made.scheduler.cycles.gangs.schedule(entry)


def recreate(made: Rig, group: PodGroup, *, is_deletion_seen: bool) -> None:
    if is_deletion_seen:
        made.scheduler.group_feed.group_deleted(key())
    made.scheduler.group_feed.group_changed(group)


@IS_DELETION_SEEN
async def test_a_reservation_is_not_inherited(is_deletion_seen: bool) -> None:
    """The reservation of the old group ends."""
    made = rig_with_infeasible_gang()
    made.add(node("n1", allocatable={"cpu": "1", "pods": "10"}), pod("runs", node_name="n1", requests={"cpu": "1"}))
    made.scheduler.reservations.after_seconds = 0.0
    await schedule_all(made)
    assert len(made.scheduler.reservations.by_gang) == 1
    recreate(made, TWO, is_deletion_seen=is_deletion_seen)
    assert (len(made.scheduler.reservations.by_gang), gang_of(made).reservation) == (0, "")


async def test_the_same_group_keeps_its_first_failure() -> None:
    """A group that was deleted from the feed and returns with the same UID keeps its first failure."""
    made = rig_with_infeasible_gang()
    await schedule_all(made)
    failed = gang_of(made).first_failure
    made.clock.advance(10)
    recreate(made, ONE, is_deletion_seen=True)
    assert (failed is not None, gang_of(made).first_failure) == (True, failed)


@given(st.lists(st.sampled_from(["try", "wait", "wait long", "edit"]), max_size=6), st.booleans())
async def test_a_recreated_group_starts_without_history(past: list[str], is_deletion_seen: bool) -> None:
    """After recreation a gang equals a new gang, except for its members."""
    made = rig_with_infeasible_gang()
    current = ONE
    for step in past:
        if step == "try":
            await schedule_all(made)
        elif step == "edit":
            current = replace(current, generation=current.generation + 1)
            made.scheduler.group_feed.group_changed(current)
        else:
            made.clock.advance(5.0 if step == "wait" else TIMEOUT)
    recreate(made, TWO, is_deletion_seen=is_deletion_seen)
    gang, first = gang_of(made), Gang(key(), made.clock.now())
    first.group, first.group_uid = TWO, TWO.uid
    rest = set(Gang.__slots__) - MEMBERSHIP - {"entry"}
    assert {name: getattr(gang, name) for name in rest} == {name: getattr(first, name) for name in rest}
    entry = present(gang.entry)
    assert (entry.attempts, entry.unschedulable_count, entry.error_count, entry.rejected_by) == (0, 0, 0, frozenset())


async def test_a_gang_whose_run_cannot_be_followed_stops_no_other_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler starts, and binds other pods and gangs, if the run of one gang raises."""
    made = gang_rig(node("n0"))
    for name in ("broken", "train"):
        made.scheduler.group_feed.group_changed(group(name, min_member=2))
    made.add(*members(2), *members(2, "broken"), pod("other"))
    broken, follow = made.queue.gangs.get(key("broken")), Gang.follow_run

    def fail(gang: Gang) -> None:
        if gang is broken:
            raise RecursionError("planted")
        follow(gang)

    monkeypatch.setattr(Gang, "follow_run", fail)
    async with made.running():
        await made.until(lambda: {"other", "train-0", "train-1"} <= set(made.bound))


def test_a_recreated_group_leaves_no_attempt_in_flight() -> None:
    """The entry of a group that is recreated during its attempt leaves the queue when the new one enters."""
    made = gang_rig(node("n"), *members(2))
    made.scheduler.group_feed.group_changed(ONE)
    made.pop()
    made.scheduler.group_feed.group_changed(TWO)
    assert made.queue.readings.in_flight_count == 0
    made.scheduler.group_feed.group_deleted(TWO.key)
    assert made.queue.readings.is_idle


TREE = composite_group("tree")


@table(
    "groups,pods,recreated",
    ("PodGroup", [ONE], members(2), TWO),
    (
        "CompositePodGroup",
        [TREE, leaf_group("train", "tree", 2)],
        [pod(f"train-{number}", group="train") for number in range(2)],
        replace(TREE, uid="another-uid"),
    ),
)
async def test_members_that_are_gated_during_an_attempt(
    groups: list[PodGroup | CompositePodGroup], pods: list[Pod], recreated: PodGroup | CompositePodGroup
) -> None:
    """A swap of their profile gates members while the group does not exist; the recreated group opens the gate."""
    made = default_rig(groups=list(GroupSource))
    add_groups(made, *groups)
    made.add(node("n"), *pods)
    entry = present(made.pop())
    made.scheduler.group_feed.group_deleted(recreated.key)
    made.serve(profile())
    assert made.queue.pop() is None
    add_groups(made, recreated)
    made.queue.failed(entry)
    async with made.running():
        await made.until(lambda: len(made.bound) == 2)
