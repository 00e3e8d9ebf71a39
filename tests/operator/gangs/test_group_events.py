"""Tests of the events about PodGroups: one for each result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupSource
from scheduler_core.queueing.gang_members import GangOutcome, HealingOutcome
from tests.support.builders import pod
from tests.support.group_world import PACE, UNSCHEDULABLE, GroupWorld, running
from tests.support.tables import table


@pytest.fixture
async def world() -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld()):
        yield made


async def test_events_of_a_gang_that_waits_and_is_scheduled(world: GroupWorld) -> None:
    """Each different result is recorded once, and no event is recorded while the gang only waits."""
    gang = world.add_group()
    world.add_members("a")
    await world.advance()
    world.add_members("b")
    await world.advance()
    for _ in range(5):
        world.record_outcome(gang, UNSCHEDULABLE)
        await world.advance(1.0, step=0.1)
    world.record_outcome(gang, GangOutcome("Preempting", "2 pods are evicted."))
    await world.advance(1.0)
    world.record_outcome(gang, GangOutcome("TimedOut", "Not placed within 60 s."))
    await world.advance(1.0)
    world.add_members("a", "b", node="n")
    await world.advance(1.0)
    world.add_members("a", "b", phase="Succeeded", node="n")
    await world.advance(1.0)
    assert world.events() == [
        ("Warning", "FailedScheduling", UNSCHEDULABLE.message),
        ("Normal", "Preempting", "2 pods are evicted."),
        ("Warning", "TimedOut", "Not placed within 60 s."),
        ("Normal", "Scheduled", "All 2 required members are scheduled."),
    ]


async def test_events_of_lost_members(world: GroupWorld) -> None:
    """Each hold of room and its end is recorded; an end without a replacement is a warning."""
    gang = world.add_group()
    world.add_members("a", "b", node="n")
    await world.advance()
    for reason in ("RoomHeld", "MembersReplaced", "HoldExpired"):
        for callback in world.gangs.on_healing:
            callback(gang, HealingOutcome(reason, "room on n"))
    await world.advance()
    assert world.events()[1:] == [
        ("Normal", "RoomHeld", "Room on n."),
        ("Normal", "MembersReplaced", "Room on n."),
        ("Warning", "HoldExpired", "Room on n."),
    ]


async def test_scheduled_is_recorded_although_the_gang_ends(world: GroupWorld) -> None:
    """The event Scheduled is recorded for a status that was sent, although the gang ends before the next reconcile."""
    world.add_group()
    world.add_members("a", "b")
    await world.advance(1.0)
    world.statuses.defers = True
    world.add_members("c")
    await world.advance(1.0)
    world.add_members("a", "b", "c", node="n")
    world.statuses.release()
    world.add_members("a", "b", "c", node="n", phase="Succeeded")
    world.statuses.defers = False
    await world.advance(1.0)
    assert world.sent() == ["Scheduling", "Running", "Finished"]
    assert world.events() == [("Normal", "Scheduled", "All 2 required members are scheduled.")]


async def test_changed_messages_are_recorded_every_ten_seconds(world: GroupWorld) -> None:
    """Messages that change with each attempt are rate limited, and the last message is always recorded."""
    gang = world.add_group()
    world.add_members("a", "b")
    for number in range(20):
        world.record_outcome(gang, replace(UNSCHEDULABLE, message=f"lacks {number}"))
        await world.advance(0.5, step=0.1)
    await world.advance(PACE.event_seconds, step=0.5)
    notes = [note for _, _, note in world.events()]
    assert len(notes) <= 3
    assert (notes[0], notes[-1]) == ("lacks 0", "lacks 19")


async def test_regained_quorum_is_recorded_again(world: GroupWorld) -> None:
    """A gang that loses its quorum and regains it has two Scheduled events."""
    world.add_group()
    world.add_members("a", "b", node="n")
    await world.advance()
    world.gangs.lost("uid-of-default-b")
    await world.advance()
    world.add_members("c", node="n")
    await world.advance()
    assert [reason for _, reason, _ in world.events()] == ["Scheduled", "Scheduled"]


@table("outcome", ("failed", UNSCHEDULABLE), ("timed-out", replace(UNSCHEDULABLE, reason="TimedOut")))
async def test_a_restart_repeats_no_event(world: GroupWorld, outcome: GangOutcome) -> None:
    """An event that the status implies was recorded by the previous process and is not repeated."""
    gang = world.add_group()
    world.add_members("a", "b")
    world.record_outcome(gang, outcome)
    await world.advance()
    async for other in running(GroupWorld()):
        again = other.add_group(status=world.statuses.sent[-1][1])
        other.add_members("a", "b")
        other.record_outcome(again, outcome)
        await other.advance(1.0)
        assert other.events() == []


@table(
    "source, version",
    ("bayplan", GroupSource.BAYPLAN, "bayplan.dev/v1alpha1"),
    ("scheduler-plugins", GroupSource.SCHEDULER_PLUGINS, "scheduling.x-k8s.io/v1alpha1"),
    ("native", GroupSource.NATIVE, "scheduling.k8s.io/v1beta1"),
)
async def test_events_name_the_object(world: GroupWorld, source: GroupSource, version: str) -> None:
    """The kind, API version, name and UID of an event are those of the object."""
    gang = world.add_group(source=source)
    for name in ("a", "b"):
        labels = {} if source is GroupSource.NATIVE else {POD_GROUP_LABELS[source]: "train"}
        member = pod(name, labels=labels)
        if source is GroupSource.NATIVE:
            member = pod(name, group="train")
        world.gangs.saw(member)
    world.record_outcome(gang, UNSCHEDULABLE)
    await world.advance()
    (event,) = world.writer.events
    regarding = event.regarding
    assert (regarding.kind, regarding.api_version, regarding.namespace, regarding.name, regarding.uid) == (
        "PodGroup",
        version,
        "default",
        "train",
        "uid-1",
    )
