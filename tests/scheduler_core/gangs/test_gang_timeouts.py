"""``scheduleTimeoutSeconds``: a group that has timed out is reported and moved behind its peers."""

from __future__ import annotations

from tests.support.gang_traffic import PATIENCE, Traffic, full_traffic
from tests.support.presence import present


async def test_a_group_that_times_out() -> None:
    """The group's status has reason TimedOut and what was lacking, and its reservation ends."""
    traffic = await full_traffic(schedule_timeout_seconds=50.0)
    gang, since = traffic.gang_named("big"), traffic.gang_named("big").since
    traffic.rig.clock.advance(50.0 - PATIENCE - 1.0)
    outcome = present(gang.outcome)
    assert (outcome.reason, gang.reservation) == ("TimedOut", "")
    assert not traffic.rig.scheduler.reservations.by_gang
    assert "within its scheduleTimeoutSeconds of 50;" in outcome.message
    assert "none of the 3 members that must be placed together fits" in outcome.message
    assert gang.since > since


async def test_a_group_that_timed_out_moves_behind_its_peers() -> None:
    """A gang that has timed out is attempted after one that was created later."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    filler = traffic.add_running("a", 4)
    traffic.gang("old", 2, 2, is_strict=False, schedule_timeout_seconds=30.0)
    await traffic.settle()
    traffic.rig.clock.advance(5.0)
    traffic.gang("young", 2, 2, is_strict=False)
    await traffic.settle()
    traffic.rig.clock.advance(30.0)
    traffic.delete(filler)
    await traffic.settle()
    assert (traffic.is_scheduled("old"), traffic.is_scheduled("young")) == (False, True)


async def test_a_group_that_timed_out_is_still_scheduled() -> None:
    """A gang that has timed out is scheduled when capacity is freed."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    filler = traffic.add_running("a", 4)
    traffic.gang("big", 2, 2, schedule_timeout_seconds=30.0)
    await traffic.settle()
    traffic.rig.clock.advance(31.0)
    traffic.delete(filler)
    await traffic.settle()
    assert traffic.is_scheduled("big")


async def test_no_timeout_without_a_quorum() -> None:
    """A gang without its quorum does not time out."""
    traffic = await full_traffic(schedule_timeout_seconds=50.0)
    gang = traffic.gang_named("big")
    traffic.rig.scheduler.feed.pod_deleted(next(iter(gang.pods.values())))
    traffic.rig.clock.advance(100.0)
    assert present(gang.outcome).reason == "Unschedulable"


async def test_a_gang_without_a_plan_is_retried() -> None:
    """A Strict gang without a plan is retried by time alone, without any event."""
    traffic = Traffic()
    traffic.nodes({"a": 1})
    traffic.gang("big", 2, 2)
    await traffic.settle()
    attempts = []
    for _ in range(3):
        traffic.rig.clock.advance(PATIENCE + 2.0)
        await traffic.settle()
        entry = present(traffic.gang_named("big").entry)
        attempts.append(entry.attempts)
    assert attempts == sorted(set(attempts))
    assert traffic.gang_named("big").reservation == ""
