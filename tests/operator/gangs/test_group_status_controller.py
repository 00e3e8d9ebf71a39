"""Tests of the writes of PodGroup status: rate limits, and room that another pod takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from bayplan.gangs.group_status_controller import GroupController, taken_room

from scheduler_core.errors import ForbiddenError, NotFoundError, Problem
from scheduler_core.model.pod_group import PodGroup
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gangs import add_groups, gang_of, group, member, settle
from tests.support.group_world import PACE, UNSCHEDULABLE, DeferredStatusWriter, GroupWorld, running
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import gang_rig


@pytest.fixture
async def world() -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld()):
        yield made


async def test_unchanged_statuses_are_not_written(world: GroupWorld) -> None:
    """Repeated reports and changes that do not affect the status are not written."""
    gang = world.add_group()
    world.add_members("a", "b")
    await world.advance(1.0)
    sent = len(world.statuses.sent)
    world.add_group()
    world.add_members("a", "b")
    world.gangs.changed(gang)
    await world.advance(30.0, step=0.5)
    assert len(world.statuses.sent) == sent


async def test_a_correct_status_is_not_written(world: GroupWorld) -> None:
    """After a restart a status that is already correct is not written."""
    world.add_group()
    await world.advance()
    written = dict(world.statuses.sent[0][1])
    async for other in running(GroupWorld()):
        other.add_group(status=written)
        await other.advance(30.0, step=0.5)
        assert other.statuses.sent == []


async def test_members_that_are_created_together_cause_one_write(world: GroupWorld) -> None:
    """Changes within a tenth of a second are written together."""
    world.add_group()
    for name in ("a", "b", "c"):
        world.add_members(name)
        await world.advance(0.02, step=0.02)
    await world.advance()
    assert world.sent("members") == [3]


async def test_a_phase_is_written_immediately(world: GroupWorld) -> None:
    """The rate limit of counts does not apply to a phase."""
    world.add_group()
    world.add_members("a", "b")
    await world.advance()
    world.add_members("a", "b", node="n")
    await world.advance()
    assert world.sent() == ["Scheduling", "Running"]


async def test_counts_are_delayed_and_never_lost(world: GroupWorld) -> None:
    """Ten members that run within half a second cause one write, a second after the previous write."""
    world.add_group()
    world.add_members("a", "b", node="n")
    await world.advance()
    assert world.sent("members") == [2]
    for number in range(10):
        world.add_members(f"more-{number}", node="n")
        await world.advance(0.05)
    assert world.sent("members") == [2]
    await world.advance(PACE.count_seconds)
    assert world.sent("members") == [2, 12]


async def test_times_of_attempts_are_written_rarely(world: GroupWorld) -> None:
    """Attempts that change only their time cause one write in ten seconds."""
    gang = world.add_group()
    world.add_members("a", "b")
    world.record_outcome(gang, UNSCHEDULABLE)
    await world.advance()
    before = len(world.statuses.sent)
    for _ in range(30):
        await world.advance(1.0, step=0.1)
        world.record_outcome(gang, UNSCHEDULABLE)
    assert 2 <= len(world.statuses.sent) - before <= 3
    assert all(patch.keys() == {"lastAttemptTime"} for _, patch in world.statuses.sent[before:])


async def test_changes_while_a_write_waits_are_merged_into_it(world: GroupWorld) -> None:
    """A write has the status of the moment it is sent, and later changes cause another write."""
    world.statuses.defers = True
    world.add_group()
    await world.advance()
    world.add_members("a", "b")
    await world.advance()
    assert len(world.statuses.deferred) == 1
    world.statuses.release()
    world.statuses.defers = False
    world.add_members("a", "b", node="n")
    await world.advance()
    assert world.sent() == ["Scheduling", "Running"]


async def test_a_change_while_a_write_waits_has_its_event(world: GroupWorld) -> None:
    """A change that a waiting write sends has its event, although no other write follows."""
    world.statuses.defers = True
    world.add_group()
    await world.advance()
    world.add_members("a", "b", node="n")
    await world.advance()
    world.statuses.release()
    world.statuses.defers = False
    await world.advance()
    assert world.sent() == ["Running"]
    assert [reason for _, reason, _ in world.events()] == ["Scheduled"]


async def test_a_change_during_a_request_is_not_lost(world: GroupWorld) -> None:
    """A change between a request and its response is written afterwards."""
    world.statuses.defers = True
    world.add_group()
    await world.advance()
    (write,) = world.statuses.deferred
    assert write.make()["phase"] == "Pending"
    world.add_members("a", "b")
    await world.advance()
    write.done(None)
    world.statuses.deferred.clear()
    world.statuses.defers = False
    await world.advance(PACE.gather_seconds * 2)
    assert world.sent() == ["Scheduling"]


async def test_nothing_is_written_for_a_deleted_object(world: GroupWorld) -> None:
    """A waiting write sends nothing if the object was deleted or recreated."""
    world.statuses.defers = True
    world.add_group()
    await world.advance()
    world.controller.gone(world.key())
    world.statuses.release()
    assert world.statuses.sent == []
    world.gangs.group_deleted(world.key())
    await world.advance(1.0)
    assert world.statuses.deferred == []


async def test_a_recreated_group_starts_again(world: GroupWorld) -> None:
    """A recreated object is compared with its own status, not with that of the deleted object."""
    gang = world.add_group()
    world.add_members("a", "b", phase="Succeeded")
    await world.advance()
    world.add_group(uid="uid-2")
    for name in ("a", "b"):
        world.gangs.lost(f"uid-of-default-{name}")
    await world.advance()
    assert world.sent() == ["Finished", "Pending"]
    assert gang.group is not None


async def test_a_group_that_the_scheduler_does_not_have_yet_waits(world: GroupWorld) -> None:
    """A status is not written until the scheduler has the group."""
    world.controller.known(world.key(), "uid-1", 1, {})
    await world.advance(1.0)
    assert world.statuses.sent == []
    world.gangs.group_changed(PodGroup(world.key(), "uid-1", 2))
    await world.advance()
    assert world.sent() == ["Pending"]


async def test_a_rejected_write_is_retried_with_backoff(world: GroupWorld) -> None:
    """The delay grows with each rejection, even if the group changes in the meantime."""
    world.statuses.failures = [ForbiddenError("no"), ForbiddenError("no")]
    world.add_group()
    await world.advance()
    world.add_members("a", "b")
    await world.advance(0.2)
    assert len(world.statuses.failures) == 1
    await world.advance(4.0)
    assert world.sent() == ["Scheduling"]


async def test_a_missing_object_is_not_retried(world: GroupWorld) -> None:
    """After NotFound nothing is written until the object changes."""
    world.statuses.failures = [NotFoundError("gone")]
    world.add_group()
    await world.advance(60.0, step=1.0)
    assert world.statuses.sent == []
    world.add_group()
    await world.advance()
    assert world.sent() == ["Pending"]


async def test_a_dropped_write_frees_its_slot(world: GroupWorld) -> None:
    """A write that the dispatcher drops does not block other writes."""
    world.statuses.defers = True
    world.add_group()
    await world.advance()
    world.statuses.drop()
    world.statuses.defers = False
    world.add_members("a", "b")
    await world.advance()
    assert world.sent() == ["Scheduling"]


async def test_three_thousand_gangs_take_ten_seconds() -> None:
    """Simultaneous changes of 3,000 gangs are written within ten seconds and never above the rate."""
    async for world in running(GroupWorld()):
        names = [f"g-{number}" for number in range(3000)]
        for name in names:
            world.add_group(name)
            world.add_members(f"{name}-a", f"{name}-b", group=name, node="n")
        per_second = []
        for _ in range(10):
            before = len(world.statuses.sent)
            await world.advance(1.0, step=0.01)
            per_second.append(len(world.statuses.sent) - before)
        assert sum(per_second) == len(names)
        assert max(per_second) <= PACE.writes_per_second + PACE.burst + 1


async def test_few_writes_wait_in_the_dispatcher() -> None:
    """While the API server is unavailable, other writes wait in the controller, where changes are merged."""
    async for world in running(GroupWorld(replace(PACE, queued=3))):
        world.statuses.defers = True
        for number in range(10):
            world.add_group(f"g-{number}")
        await world.advance(1.0)
        assert len(world.statuses.deferred) == 3
        for number in range(10):
            world.add_members(f"p-{number}", f"q-{number}", group=f"g-{number}")
        world.statuses.defers = False
        world.statuses.release()
        await world.advance(1.0)
        assert [world.sent(name=f"g-{number}") for number in range(10)] == [["Scheduling"]] * 10


async def test_an_invalid_spec_is_reported(world: GroupWorld) -> None:
    """An invalid spec sets both conditions to False and is recorded as an event; a valid spec resets both."""
    problems = [Problem("spec.minMember", "must be 1 or more")]
    world.controller.invalid(world.key(), "uid-1", 1, problems)
    await world.advance()
    (conditions,) = world.sent("conditions")
    assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
        ("Accepted", "False", "InvalidSpec"),
        ("Scheduled", "False", "InvalidSpec"),
    ]
    assert [(kind, reason) for kind, reason, _ in world.events()] == [("Warning", "InvalidSpec")]
    world.add_group()
    await world.advance()
    assert [each["reason"] for each in world.sent("conditions")[-1]] == ["Valid", "MembersMissing"]


async def test_a_bug_with_one_group_does_not_stop_the_others(
    world: GroupWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A status that cannot be computed is logged, and other statuses are written."""
    gang = world.add_group("broken")
    gang.victims = (("only-one",),)  # type: ignore[assignment]  # the bug
    world.add_group()
    await world.advance()
    assert world.sent() == ["Pending"]
    assert "please report it" in caplog.text


@pytest.mark.parametrize(("until", "count"), [("2026-01-31T12:00:00Z", 1), ("2026-01-31T12:00:00", 0), ("soon", 0)])
async def test_a_time_of_a_lost_member_has_a_time_zone(world: GroupWorld, until: str, count: int) -> None:
    """A status that the API server would reject is not read, and does not hide those of other groups."""
    lost = {"name": "train-0", "node": "a", "held": True}
    world.add_group("first", {"lost": [{**lost, "until": until}]})
    world.add_group("second", {"lost": [{**lost, "until": "2026-01-31T12:00:00Z"}]}, uid="uid-2")
    found = [key.name for key, _ in world.controller.recorded_losses()]
    assert found == ["first", "second"][1 - count :]


async def test_room_that_a_pod_of_higher_priority_takes() -> None:
    """The room is not reported as held while the pod runs there, and is again when the pod has left."""
    made, statuses, status = gang_rig(), DeferredStatusWriter(), dict[str, Any]()
    add_groups(made, group(min_member=2, hold_seconds=600.0))
    made.add(*(small_node(name) for name in "ab"))
    made.add(*(member(f"train-{name}", requests={"cpu": "2"}, node_name=name) for name in "ab"))
    gangs = made.queue.gangs
    controller = GroupController(
        gangs, statuses, RecordingWriter(), made.clock, taken=partial(taken_room, made.scheduler)
    )
    gang = gang_of(made)
    controller.known(gang.key, "uid-of-group-default-train", 1, {})

    async def status_later() -> tuple[bool, str]:
        for _ in range(16):
            made.clock.advance(0.5)
            for _ in range(10):
                await asyncio.sleep(0)
        for _, patch in statuses.sent:
            status.update(patch)
        healing = next(each for each in status["conditions"] if each["type"] == "Healing")
        return status["lost"][0]["held"], f"{healing['reason']}: {healing['message']}"

    running = asyncio.create_task(controller.run())
    made.scheduler.feed.pod_deleted(gang.pods["uid-of-default-train-a"])
    held, text = await status_later()
    assert held
    assert text.startswith("RoomHeld: Members were lost: room on a is held for default/train-a until ")
    await settle(made, pod("urgent", requests={"cpu": "2"}, priority=5))
    assert made.bound == {"urgent": "a"}
    taken = "MembersLost: Members were lost: pods of higher priority have taken the room of train-a."
    assert await status_later() == (False, taken)
    urgent = next(info.pod for pods in made.context.cache.columns.pods for uid, info in pods.items() if "urgent" in uid)
    made.scheduler.feed.pod_deleted(urgent)
    held, text = await status_later()
    assert held
    assert text.startswith("RoomHeld: ")
    running.cancel()
