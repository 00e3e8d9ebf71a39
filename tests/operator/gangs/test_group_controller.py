"""The pace of PodGroup statuses: what is written when, and what is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from scheduler_core.errors import ForbiddenError, NotFoundError, Problem
from scheduler_core.model.pod_group import PodGroup
from tests.support.group_world import LACKS, PACE, GroupWorld, running


@pytest.fixture
async def world() -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld()):
        yield made


async def test_a_group_that_is_seen_is_told_of(world: GroupWorld) -> None:
    """Its first status is written soon after it was seen."""
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_nothing_is_written_twice(world: GroupWorld) -> None:
    """What is shown again and what changes nothing costs no write."""
    gang = world.shows()
    world.has("a", "b")
    await world.passes(1.0)
    sent = len(world.statuses.sent)
    world.shows()
    world.has("a", "b")
    world.gangs.changed(gang)
    await world.passes(30.0, step=0.5)
    assert len(world.statuses.sent) == sent


async def test_a_status_that_is_right_already_is_not_written(world: GroupWorld) -> None:
    """After a restart the status of the process before is taken as it is."""
    world.shows()
    await world.passes()
    written = dict(world.statuses.sent[0][1])
    async for other in running(GroupWorld()):
        other.shows(status=written)
        await other.passes(30.0, step=0.5)
        assert other.statuses.sent == []


async def test_members_that_come_together_are_one_write(world: GroupWorld) -> None:
    """Changes within a tenth of a second are written together."""
    world.shows()
    for name in ("a", "b", "c"):
        world.has(name)
        await world.passes(0.02, step=0.02)
    await world.passes()
    assert world.sent("members") == [3]


async def test_a_phase_is_written_at_once(world: GroupWorld) -> None:
    """A phase is not held back by the pace of counts."""
    world.shows()
    world.has("a", "b")
    await world.passes()
    world.has("a", "b", node="n")
    await world.passes()
    assert world.sent() == ["Scheduling", "Running"]


async def test_counts_wait_for_their_time_and_are_never_lost(world: GroupWorld) -> None:
    """Ten members in half a second are one write, a second after the one before."""
    world.shows()
    world.has("a", "b", node="n")
    await world.passes()
    assert world.sent("members") == [2]
    for number in range(10):
        world.has(f"more-{number}", node="n")
        await world.passes(0.05)
    assert world.sent("members") == [2]
    await world.passes(PACE.count_seconds)
    assert world.sent("members") == [2, 12]


async def test_attempts_alone_are_written_at_leisure(world: GroupWorld) -> None:
    """An attempt a second that finds the same changes its time alone: one write in ten seconds."""
    gang = world.shows()
    world.has("a", "b")
    world.outcome(gang, LACKS)
    await world.passes()
    before = len(world.statuses.sent)
    for _ in range(30):
        await world.passes(1.0, step=0.1)
        world.outcome(gang, LACKS)
    assert 2 <= len(world.statuses.sent) - before <= 3
    assert all(patch.keys() == {"lastAttemptTime"} for _, patch in world.statuses.sent[before:])


async def test_what_changes_while_a_write_waits_is_in_it(world: GroupWorld) -> None:
    """A write says what holds when it is sent; what changes after that is another one."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    world.has("a", "b")
    await world.passes()
    assert len(world.statuses.held) == 1
    world.statuses.release()
    world.statuses.holds = False
    world.has("a", "b", node="n")
    await world.passes()
    assert world.sent() == ["Scheduling", "Running"]


async def test_a_change_while_a_write_is_on_the_wire_is_not_lost(world: GroupWorld) -> None:
    """What changed between the patch and its answer is written after it."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    (write,) = world.statuses.held
    assert write.make()["phase"] == "Pending"
    world.has("a", "b")
    await world.passes()
    write.done(None)
    world.statuses.held.clear()
    world.statuses.holds = False
    await world.passes(PACE.gather_seconds * 2)
    assert world.sent() == ["Scheduling"]


async def test_nothing_is_written_of_what_is_gone(world: GroupWorld) -> None:
    """A write that waits when the object is gone, or is another one of its name, sends nothing."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    world.controller.gone(world.key())
    world.statuses.release()
    assert world.statuses.sent == []
    world.gangs.group_deleted(world.key())
    await world.passes(1.0)
    assert world.statuses.held == []


async def test_a_group_made_anew_starts_anew(world: GroupWorld) -> None:
    """Another object of the name is judged by its own status, not by what was written of the one before."""
    gang = world.shows()
    world.has("a", "b", phase="Succeeded")
    await world.passes()
    world.shows(uid="uid-2")
    for name in ("a", "b"):
        world.gangs.lost(f"uid-of-default-{name}")
    await world.passes()
    assert world.sent() == ["Finished", "Pending"]
    assert gang.group is not None


async def test_a_group_that_the_scheduler_does_not_know_yet_waits(world: GroupWorld) -> None:
    """Between the object's event and the feed's, which may be held back, nothing is told."""
    world.controller.known(world.key(), "uid-1", 1, {})
    await world.passes(1.0)
    assert world.statuses.sent == []
    world.gangs.group_changed(PodGroup(world.key(), "uid-1", 2))
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_a_refused_write_is_tried_again_at_its_own_pace(world: GroupWorld) -> None:
    """A write that was refused waits, longer each time, also when the group changes meanwhile."""
    world.statuses.failures = [ForbiddenError("no"), ForbiddenError("no")]
    world.shows()
    await world.passes()
    world.has("a", "b")
    await world.passes(0.2)
    assert len(world.statuses.failures) == 1
    await world.passes(4.0)
    assert world.sent() == ["Scheduling"]


async def test_an_object_that_is_not_there_is_left_alone(world: GroupWorld) -> None:
    """NotFound is the end of a write, until the object changes."""
    world.statuses.failures = [NotFoundError("gone")]
    world.shows()
    await world.passes(60.0, step=1.0)
    assert world.statuses.sent == []
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_a_dropped_write_frees_its_place(world: GroupWorld) -> None:
    """A write that the dispatcher drops blocks no other."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    world.statuses.drop()
    world.statuses.holds = False
    world.has("a", "b")
    await world.passes()
    assert world.sent() == ["Scheduling"]


async def test_three_thousand_gangs_take_ten_seconds() -> None:
    """They are placed at the same time: no more than the rate is written in any second, and all within ten seconds."""
    async for world in running(GroupWorld()):
        names = [f"g-{number}" for number in range(3000)]
        for name in names:
            world.shows(name)
            world.has(f"{name}-a", f"{name}-b", group=name, node="n")
        per_second = []
        for _ in range(10):
            before = len(world.statuses.sent)
            await world.passes(1.0, step=0.01)
            per_second.append(len(world.statuses.sent) - before)
        assert sum(per_second) == len(names)
        assert max(per_second) <= PACE.writes_per_second + PACE.burst + 1


async def test_few_writes_wait_in_the_dispatcher() -> None:
    """While the API server is away the others stay here, where what changes is merged."""
    async for world in running(GroupWorld(replace(PACE, queued=3))):
        world.statuses.holds = True
        for number in range(10):
            world.shows(f"g-{number}")
        await world.passes(1.0)
        assert len(world.statuses.held) == 3
        for number in range(10):
            world.has(f"p-{number}", f"q-{number}", group=f"g-{number}")
        world.statuses.holds = False
        world.statuses.release()
        await world.passes(1.0)
        assert [world.sent(name=f"g-{number}") for number in range(10)] == [["Scheduling"]] * 10


async def test_an_invalid_spec_is_told(world: GroupWorld) -> None:
    """Accepted and Scheduled are False with the problems, and an event says so; put right, it is forgotten."""
    problems = [Problem("spec.minMember", "must be 1 or more")]
    world.controller.invalid(world.key(), "uid-1", 1, problems)
    await world.passes()
    (conditions,) = world.sent("conditions")
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Accepted", "False", "InvalidSpec"),
        ("Scheduled", "False", "InvalidSpec"),
    ]
    assert [(kind, reason) for kind, reason, _ in world.events()] == [("Warning", "InvalidSpec")]
    world.shows()
    await world.passes()
    assert [each["reason"] for each in world.sent("conditions")[-1]] == ["Valid", "MembersMissing"]


async def test_a_fault_in_one_group_does_not_stop_the_others(
    world: GroupWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A status that cannot be made is logged, and the others are written."""
    gang = world.shows("broken")
    gang.victims = (("only-one",),)  # type: ignore[assignment]  # the fault
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]
    assert "please report it" in caplog.text
