"""Rate limits of PodGroup status writes: what is written when, and what is not."""

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


async def test_a_new_group_gets_a_status(world: GroupWorld) -> None:
    """Its first status is written soon after it is reported."""
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_nothing_is_written_twice(world: GroupWorld) -> None:
    """Repeated reports and changes that do not affect the status cause no write."""
    gang = world.shows()
    world.has("a", "b")
    await world.passes(1.0)
    sent = len(world.statuses.sent)
    world.shows()
    world.has("a", "b")
    world.gangs.changed(gang)
    await world.passes(30.0, step=0.5)
    assert len(world.statuses.sent) == sent


async def test_a_correct_status_is_not_written(world: GroupWorld) -> None:
    """After a restart the status of the previous process is not written again."""
    world.shows()
    await world.passes()
    written = dict(world.statuses.sent[0][1])
    async for other in running(GroupWorld()):
        other.shows(status=written)
        await other.passes(30.0, step=0.5)
        assert other.statuses.sent == []


async def test_members_that_are_created_together_cause_one_write(world: GroupWorld) -> None:
    """Changes within a tenth of a second are written together."""
    world.shows()
    for name in ("a", "b", "c"):
        world.has(name)
        await world.passes(0.02, step=0.02)
    await world.passes()
    assert world.sent("members") == [3]


async def test_a_phase_is_written_immediately(world: GroupWorld) -> None:
    """The rate limit of counts does not apply to a phase."""
    world.shows()
    world.has("a", "b")
    await world.passes()
    world.has("a", "b", node="n")
    await world.passes()
    assert world.sent() == ["Scheduling", "Running"]


async def test_counts_are_delayed_and_never_lost(world: GroupWorld) -> None:
    """Ten members in half a second cause one write, a second after the one before."""
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


async def test_times_of_attempts_are_written_rarely(world: GroupWorld) -> None:
    """One attempt a second with the same result changes only its time: one write in ten seconds."""
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


async def test_changes_while_a_write_waits_are_merged_into_it(world: GroupWorld) -> None:
    """A write has the status at the time it is sent; later changes cause another write."""
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


async def test_a_change_while_a_write_waits_has_its_event(world: GroupWorld) -> None:
    """The waiting write sends what is new, so that no other write follows; the event is recorded all the same."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    world.has("a", "b", node="n")
    await world.passes()
    world.statuses.release()
    world.statuses.holds = False
    await world.passes()
    assert world.sent() == ["Running"]
    assert [reason for _, reason, _ in world.events()] == ["Scheduled"]


async def test_a_change_during_a_request_is_not_lost(world: GroupWorld) -> None:
    """A change between the request and its response is written afterwards."""
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


async def test_nothing_is_written_for_a_deleted_object(world: GroupWorld) -> None:
    """A waiting write sends nothing if the object is deleted or recreated."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    world.controller.gone(world.key())
    world.statuses.release()
    assert world.statuses.sent == []
    world.gangs.group_deleted(world.key())
    await world.passes(1.0)
    assert world.statuses.held == []


async def test_a_recreated_group_starts_again(world: GroupWorld) -> None:
    """A recreated object is compared with its own status, not with that of the earlier object."""
    gang = world.shows()
    world.has("a", "b", phase="Succeeded")
    await world.passes()
    world.shows(uid="uid-2")
    for name in ("a", "b"):
        world.gangs.lost(f"uid-of-default-{name}")
    await world.passes()
    assert world.sent() == ["Finished", "Pending"]
    assert gang.group is not None


async def test_a_group_that_the_scheduler_does_not_have_yet_waits(world: GroupWorld) -> None:
    """No status is written between the object's event and that of the feed, which may be delayed."""
    world.controller.known(world.key(), "uid-1", 1, {})
    await world.passes(1.0)
    assert world.statuses.sent == []
    world.gangs.group_changed(PodGroup(world.key(), "uid-1", 2))
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_a_rejected_write_is_retried_with_backoff(world: GroupWorld) -> None:
    """The delay grows with each rejection, even if the group changes meanwhile."""
    world.statuses.failures = [ForbiddenError("no"), ForbiddenError("no")]
    world.shows()
    await world.passes()
    world.has("a", "b")
    await world.passes(0.2)
    assert len(world.statuses.failures) == 1
    await world.passes(4.0)
    assert world.sent() == ["Scheduling"]


async def test_a_missing_object_is_not_retried(world: GroupWorld) -> None:
    """After NotFound nothing is written until the object changes."""
    world.statuses.failures = [NotFoundError("gone")]
    world.shows()
    await world.passes(60.0, step=1.0)
    assert world.statuses.sent == []
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_a_dropped_write_frees_its_slot(world: GroupWorld) -> None:
    """A write that the dispatcher drops does not block others."""
    world.statuses.holds = True
    world.shows()
    await world.passes()
    world.statuses.drop()
    world.statuses.holds = False
    world.has("a", "b")
    await world.passes()
    assert world.sent() == ["Scheduling"]


async def test_three_thousand_gangs_take_ten_seconds() -> None:
    """If all are scheduled at the same time, no second exceeds the rate, and all are written within ten seconds."""
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
    """While the API server is unavailable, other writes wait in the controller, where changes are merged."""
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


async def test_an_invalid_spec_is_reported(world: GroupWorld) -> None:
    """Accepted and Scheduled are False with the problems, and an event is recorded; a valid spec resets both."""
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


async def test_a_bug_with_one_group_does_not_stop_the_others(
    world: GroupWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A status that cannot be computed is logged, and the others are written."""
    gang = world.shows("broken")
    gang.victims = (("only-one",),)  # type: ignore[assignment]  # the bug
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]
    assert "please report it" in caplog.text
