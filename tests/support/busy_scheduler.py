"""A scheduler whose scheduling attempts take time, for tests of the queue order under overload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PodReads, PreFilterPlugin, PreFilterResult, Reuse
from scheduler_core.framework.plugin import always
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, plugin_set, profile
from tests.support.virtual_clock import VirtualClock

SECONDS = 0.1
"""Duration of an attempt."""


class WorkingClock(VirtualClock):
    """Clock that work advances; timers that expire meanwhile fire after the work, as in an event loop."""

    def spend(self, seconds: float) -> None:
        """Advance the time without firing timers."""
        self._now += seconds


class TakesTime(PreFilterPlugin):
    """PreFilter plugin that takes :data:`SECONDS` for each attempt of a pod or of a class of gang members."""

    name = "TakesTime"
    reuse = Reuse(pod=PodReads.NOTHING)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Let any pod pass after :data:`SECONDS`."""
        clock = self.handle.clock
        assert isinstance(clock, WorkingClock)
        clock.spend(SECONDS)
        return PreFilterResult()

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool]:
        """Allow reuse always: the result is the same for every pod."""
        return always


def busy_rig() -> Rig:
    """Return a scheduler with gangs and without nodes."""
    registry = in_tree_registry()
    registry.register(TakesTime)
    slow = Plugins(multi_point=default_plugins().multi_point, pre_filter=plugin_set("TakesTime"))
    clock, writer = WorkingClock(), RecordingWriter()
    made = Rig(Scheduler(clock, writer, None, registry, slow), clock, writer)
    made.serve(profile())
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    return made


async def step(made: Rig) -> str:
    """Pop the next pod or gang and run all its cycles; return its UID.

    If the queue is empty, advance the clock and return "".
    """
    queued = made.queue.pop()
    if queued is None:
        made.clock.advance(SECONDS)
        return ""
    if isinstance(queued, QueuedGang):
        attempts = await made.scheduler.cycles.gangs.schedule(queued)
    else:
        attempt = made.scheduler.cycles.pods.schedule(queued)
        attempts = [] if attempt is None else [attempt]
    await asyncio.gather(*(made.scheduler.cycles.binding.bind(attempt) for attempt in attempts))
    # Fire the timers that expired during the cycles.
    made.clock.advance(0.0)
    return queued.uid
