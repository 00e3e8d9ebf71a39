"""Reservations with a clock that advances with each reading and timers that fire slightly early, as real ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from tests.support.builders import node
from tests.support.gangs import gang_of, group, members, settle
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, profile
from tests.support.virtual_clock import VirtualClock, VirtualTimer

TICK, EARLY, PATIENCE = 1e-5, 4e-4, 5.0


class RealClock(VirtualClock):
    """Clock that advances with each reading, and whose timers fire less than a millisecond early."""

    def now(self) -> float:
        self._now += TICK
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        return super().call_later(max(0.0, seconds - EARLY), callback)


@pytest.mark.parametrize("readings", range(60))
async def test_the_time_of_a_reservation_is_never_missed(readings: int) -> None:
    """Capacity is reserved for the gang, whichever reading of the clock first returns the due time."""
    clock, writer = RealClock(), RecordingWriter()
    options = SchedulerOptions(gang_reservation_seconds=PATIENCE)
    rig = Rig(Scheduler(clock, writer, options, in_tree_registry(), default_plugins()), clock, writer)
    rig.serve(profile())
    rig.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    rig.add(node("a", allocatable={"cpu": "2", "pods": "9"}))
    rig.scheduler.group_feed.group_changed(group("other", min_member=2))
    await settle(rig, *members(2, "other"))
    rig.scheduler.group_feed.group_changed(group("large", min_member=2, is_strict=True))
    await settle(rig, *members(2, "large"))
    failed = present(gang_of(rig, "large").first_failure)
    # When the node requeues the gang, the due time is *readings* readings of the clock away.
    clock.advance(failed + PATIENCE - readings * TICK - clock.now())
    await settle(rig, node("b", allocatable={"cpu": "1", "pods": "9"}))
    clock.advance(0.5)
    await settle(rig)
    assert gang_of(rig, "large").reservation
