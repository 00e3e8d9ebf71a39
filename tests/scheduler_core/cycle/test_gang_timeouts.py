"""``scheduleTimeoutSeconds``: a group that had its time is told so and stands back."""

from __future__ import annotations

from tests.support.gang_traffic import PATIENCE, Traffic, full_traffic


async def test_the_timeout() -> None:
    """After it the group is told, in words that say what was lacking, and its reservation is given up."""
    traffic = await full_traffic(schedule_timeout_seconds=50.0)
    gang, since = traffic.of("big"), traffic.of("big").since
    traffic.rig.clock.advance(50.0 - PATIENCE - 1.0)
    assert gang.outcome is not None
    assert (gang.outcome.reason, gang.reservation, bool(traffic.rig.context.reservations)) == ("TimedOut", "", False)
    assert "within its scheduleTimeoutSeconds of 50;" in gang.outcome.message
    assert "none of the 3 members that must be placed together fits" in gang.outcome.message
    assert gang.since > since


async def test_behind_its_peers() -> None:
    """A gang whose time is over is tried after one that came later."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    filler = traffic.runs("a", 4)
    traffic.gang("old", 2, 2, is_strict=False, schedule_timeout_seconds=30.0)
    await traffic.settle()
    traffic.rig.clock.advance(5.0)
    traffic.gang("young", 2, 2, is_strict=False)
    await traffic.settle()
    traffic.rig.clock.advance(30.0)
    traffic.ends(filler)
    await traffic.settle()
    assert (traffic.is_placed("old"), traffic.is_placed("young")) == (False, True)


async def test_it_tries_on() -> None:
    """A gang whose time is over is placed when there is room, and has its whole time again before that."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    filler = traffic.runs("a", 4)
    traffic.gang("big", 2, 2, schedule_timeout_seconds=30.0)
    await traffic.settle()
    traffic.rig.clock.advance(31.0)
    traffic.ends(filler)
    await traffic.settle()
    assert traffic.is_placed("big")


async def test_no_timeout_without_a_quorum() -> None:
    """A gang that cannot be tried does not lose its turn by it."""
    traffic = await full_traffic(schedule_timeout_seconds=50.0)
    gang = traffic.of("big")
    traffic.rig.scheduler.feed.pod_deleted(next(iter(gang.pods.values())))
    traffic.rig.clock.advance(100.0)
    assert gang.outcome is not None
    assert gang.outcome.reason == "Unschedulable"


async def test_a_plan_is_looked_for_again() -> None:
    """A Strict gang that could not even be planned is tried again after a while, though nothing happens."""
    traffic = Traffic()
    traffic.nodes({"a": 1})
    traffic.gang("big", 2, 2)
    await traffic.settle()
    attempts = []
    for _ in range(3):
        traffic.rig.clock.advance(PATIENCE + 2.0)
        await traffic.settle()
        entry = traffic.of("big").entry
        assert entry is not None
        attempts.append(entry.attempts)
    assert attempts == sorted(set(attempts))
    assert traffic.of("big").reservation == ""
