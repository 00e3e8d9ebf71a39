"""Events about PodGroups: one for each result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupSource
from scheduler_core.queueing.gang_members import GangOutcome
from tests.support.builders import pod
from tests.support.group_world import LACKS, PACE, GroupWorld, running


@pytest.fixture
async def world() -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld()):
        yield made


async def test_events_of_a_gang_that_waits_and_is_scheduled(world: GroupWorld) -> None:
    """One event for each different result, and one when it is scheduled; none while it only waits."""
    gang = world.shows()
    world.has("a")
    await world.passes()
    world.has("b")
    await world.passes()
    for _ in range(5):
        world.outcome(gang, LACKS)
        await world.passes(1.0, step=0.1)
    world.outcome(gang, GangOutcome("Preempting", "2 pods are evicted."))
    await world.passes(1.0)
    world.outcome(gang, GangOutcome("TimedOut", "Not placed within 60 s."))
    await world.passes(1.0)
    world.has("a", "b", node="n")
    await world.passes(1.0)
    world.has("a", "b", phase="Succeeded", node="n")
    await world.passes(1.0)
    assert world.events() == [
        ("Warning", "FailedScheduling", LACKS.message),
        ("Normal", "Preempting", "2 pods are evicted."),
        ("Warning", "TimedOut", "Not placed within 60 s."),
        ("Normal", "Scheduled", "All 2 required members are scheduled."),
    ]


async def test_a_gang_that_ends_while_its_status_is_written(world: GroupWorld) -> None:
    """Its event says that it was scheduled: the status that was sent says so."""
    world.shows()
    world.has("a", "b")
    await world.passes(1.0)
    world.statuses.holds = True
    world.has("c")
    await world.passes(1.0)
    world.has("a", "b", "c", node="n")
    world.statuses.release()
    world.has("a", "b", "c", node="n", phase="Succeeded")
    world.statuses.holds = False
    await world.passes(1.0)
    assert world.sent() == ["Scheduling", "Running", "Finished"]
    assert world.events() == [("Normal", "Scheduled", "All 2 required members are scheduled.")]


async def test_changed_messages_are_recorded_every_ten_seconds(world: GroupWorld) -> None:
    """Messages that change with each attempt are rate limited, and the last one is always recorded."""
    gang = world.shows()
    world.has("a", "b")
    for number in range(20):
        world.outcome(gang, replace(LACKS, message=f"lacks {number}"))
        await world.passes(0.5, step=0.1)
    await world.passes(PACE.event_seconds, step=0.5)
    notes = [note for _, _, note in world.events()]
    assert len(notes) <= 3
    assert (notes[0], notes[-1]) == ("lacks 0", "lacks 19")


async def test_scheduled_again_is_recorded_again(world: GroupWorld) -> None:
    """A gang that loses its quorum and regains it gets two Scheduled events."""
    world.shows()
    world.has("a", "b", node="n")
    await world.passes()
    world.gangs.lost("uid-of-default-b")
    await world.passes()
    world.has("c", node="n")
    await world.passes()
    assert [reason for _, reason, _ in world.events()] == ["Scheduled", "Scheduled"]


@pytest.mark.parametrize(
    "outcome", [pytest.param(LACKS, id="failed"), pytest.param(replace(LACKS, reason="TimedOut"), id="timed-out")]
)
async def test_a_restart_repeats_no_event(world: GroupWorld, outcome: GangOutcome) -> None:
    """An event that the status implies was recorded by the previous process."""
    gang = world.shows()
    world.has("a", "b")
    world.outcome(gang, outcome)
    await world.passes()
    async for other in running(GroupWorld()):
        again = other.shows(status=world.statuses.sent[-1][1])
        other.has("a", "b")
        other.outcome(again, outcome)
        await other.passes(1.0)
        assert other.events() == []


@pytest.mark.parametrize(
    ("source", "version"),
    [
        pytest.param(GroupSource.BAYPLAN, "bayplan.dev/v1alpha1", id="bayplan"),
        pytest.param(GroupSource.SCHEDULER_PLUGINS, "scheduling.x-k8s.io/v1alpha1", id="scheduler-plugins"),
        pytest.param(GroupSource.NATIVE, "scheduling.k8s.io/v1beta1", id="native"),
    ],
)
async def test_events_name_the_object(world: GroupWorld, source: GroupSource, version: str) -> None:
    """``kubectl describe`` finds the event: kind, API version, name and UID are those of the object."""
    gang = world.shows(source=source)
    for name in ("a", "b"):
        labels = {} if source is GroupSource.NATIVE else {POD_GROUP_LABELS[source]: "train"}
        member = pod(name, labels=labels)
        if source is GroupSource.NATIVE:
            member = pod(name, group="train")
        world.gangs.saw(member)
    world.outcome(gang, LACKS)
    await world.passes()
    (event,) = world.writer.events
    regarding = event.regarding
    assert (regarding.kind, regarding.api_version, regarding.namespace, regarding.name, regarding.uid) == (
        "PodGroup",
        version,
        "default",
        "train",
        "uid-1",
    )
