"""RebalancePlans with a schedule: when they are made, and what happens to times that are missed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.gang_preemption import small_node
from tests.support.planned_cluster import PlannedCluster
from tests.support.rebalancing import movable

TEN = "*/10 * * * *"
"""Every ten minutes; the clock starts at a full hour."""


def times(status: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the last and the next time of the schedule, as hours and minutes."""
    found = (status.get("lastScheduleTime"), status.get("nextScheduleTime"))
    last, following = (None if each is None else each.removeprefix("2026-01-01T")[:5] for each in found)
    return last, following


async def test_a_schedule(cluster: PlannedCluster) -> None:
    """The plan is made at its times, and not at once; the status has the next one."""
    cluster.plan(schedule=TEN)
    status = await cluster.until_phase("Scheduled")
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Scheduled")
    assert condition["message"] == "The next plan is made at 2026-01-01T00:10:00Z"
    assert times(status) == (None, "00:10")
    await cluster.until_later(590)
    assert (len(cluster.statuses), cluster.evicted) == (1, [])
    assert times(await cluster.until_phase("Completed")) == ("00:10", "00:20")
    assert cluster.evicted == ["p"]
    cluster.rig.add(small_node("d", 4), movable("s", "d"))
    await cluster.until(lambda: len(cluster.evicted) > 1)
    assert times(cluster.statuses[-1]) == ("00:20", "00:30")


async def test_a_dry_run_with_a_schedule(cluster: PlannedCluster) -> None:
    """It is repeated, too."""
    cluster.plan(schedule=TEN, dryRun=True)
    assert times(await cluster.until_phase("Planned")) == ("00:10", "00:20")
    await cluster.until(lambda: times(cluster.statuses[-1]) == ("00:20", "00:30"))
    assert [each["phase"] for each in cluster.statuses] == ["Scheduled", "Planned", "Planned"]


async def test_times_that_pass_while_the_plan_is_suspended(cluster: PlannedCluster) -> None:
    """One plan is made for them when it is resumed."""
    cluster.plan(schedule=TEN)
    await cluster.until_phase("Scheduled")
    cluster.plan(schedule=TEN, suspend=True)
    await cluster.until_phase("Suspended")
    await cluster.until_later(900)
    await cluster.until_later(900)
    assert not cluster.evicted
    cluster.plan(schedule=TEN)
    assert times(await cluster.until_phase("Completed")) == ("00:30", "00:40")
    written = len(cluster.statuses)
    await cluster.until_later(300)
    assert len(cluster.statuses) == written


async def test_times_that_pass_while_moves_are_made(cluster: PlannedCluster) -> None:
    """No second plan begins; when the first one ends, one is made for all of them."""
    cluster.refusals = 1500
    cluster.plan(schedule=TEN, moveTimeoutSeconds=3600)
    await cluster.until_phase("Moving")
    await cluster.until_later(900)
    await cluster.until_later(800)
    ended = [times(each) for each in cluster.statuses if each["phase"] == "Completed"]
    assert ended == [("00:10", "00:20"), ("00:30", "00:40")]
    assert cluster.evicted == ["p"]


async def test_a_changed_schedule(cluster: PlannedCluster) -> None:
    """Times of the earlier schedule that passed do not count."""
    cluster.plan(schedule=TEN, suspend=True)
    await cluster.until_phase("Suspended")
    cluster.plan(schedule=TEN)
    await cluster.until_phase("Scheduled")
    cluster.plan(schedule=TEN, suspend=True)
    await cluster.until_phase("Suspended")
    await cluster.until_later(900)
    cluster.plan(schedule="30 * * * *")
    assert times(await cluster.until_phase("Scheduled")) == (None, "00:30")
    assert not cluster.evicted


@pytest.mark.parametrize("is_missed", [False, True])
async def test_a_restart(cluster: PlannedCluster, *, is_missed: bool) -> None:
    """For all times that passed while no process ran, one plan is made."""
    now = cluster.rig.clock.wall()
    following = now + timedelta(minutes=-50 if is_missed else 10)
    before = {"observedGeneration": 1, "phase": "Completed", "nextScheduleTime": following.isoformat()}
    cluster.plan(before, schedule=TEN)
    await cluster.until_later(5)
    assert len(cluster.evicted) == is_missed
    assert times(await cluster.until_phase("Completed")) == (("00:00", "00:10") if is_missed else ("00:10", "00:20"))


async def test_a_restart_during_the_moves(cluster: PlannedCluster) -> None:
    """The plan is continued with the rest of its budget; its time does not count as missed."""
    following = cluster.rig.clock.wall() + timedelta(minutes=10)
    before = {"observedGeneration": 1, "phase": "Moving", "moved": 3, "nextScheduleTime": following.isoformat()}
    cluster.plan(before, schedule=TEN, budget={"moves": 4})
    status = await cluster.until_phase("Completed")
    assert (status["moved"], times(status)) == (4, (None, "00:10"))


async def test_an_invalid_schedule(cluster: PlannedCluster) -> None:
    """The condition names the field."""
    cluster.plan(schedule="0 25 * * *", timeZone="Mars/Base", intervalSeconds=60)
    (condition,) = (await cluster.until_phase("Invalid"))["conditions"]
    for field in ("schedule", "timeZone", "intervalSeconds"):
        assert f"spec.{field}: " in condition["message"]
