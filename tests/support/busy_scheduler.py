"""A scheduler whose attempts take time, for tests of who comes next where there is more to do than can be done.

Owns the clock that a cycle moves on, and one step of the scheduler's loop. It must not know what is tested.
"""

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
"""What an attempt takes."""


class WorkingClock(VirtualClock):
    """A clock that work moves on; what falls due meanwhile comes when the work is done, as with one loop."""

    def spend(self, seconds: float) -> None:
        """Time passes while nothing else can run."""
        self._now += seconds


class TakesTime(PreFilterPlugin):
    """Takes :data:`SECONDS` for each pod, or for each class of gang members, that is tried."""

    name = "TakesTime"
    reuse = Reuse(pod=PodReads.NOTHING)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Let any pod pass, after a while."""
        del state, nodes
        clock = self.handle.clock
        assert isinstance(clock, WorkingClock)
        clock.spend(SECONDS)
        return PreFilterResult()

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool]:
        """Always: every pod passes."""
        del pod, nodes
        return always


def busy_rig() -> Rig:
    """A scheduler for gangs, without nodes."""
    registry = in_tree_registry()
    registry.register(TakesTime)
    slow = Plugins(multi_point=default_plugins().multi_point, pre_filter=plugin_set("TakesTime"))
    clock, writer = WorkingClock(), RecordingWriter()
    made = Rig(Scheduler(clock, writer, None, registry, slow), clock, writer)
    made.serve(profile())
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    return made


async def step(made: Rig) -> str:
    """Take who is next through all cycles, or let a moment pass; the UID of who it was, "" for nobody."""
    queued = made.queue.pop()
    if queued is None:
        made.clock.advance(SECONDS)
        return ""
    if isinstance(queued, QueuedGang):
        attempts = await made.scheduler.cycles.gangs.schedule(queued)
    else:
        one = made.scheduler.cycles.pods.schedule(queued)
        attempts = [] if one is None else [one]
    await asyncio.gather(*(made.scheduler.cycles.binding.bind(attempt) for attempt in attempts))
    # What fell due while the scheduler was at work.
    made.clock.advance(0.0)
    return queued.uid
