"""A scheduler whose searches continue in copies of the process after a few steps, or are not interrupted at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from bayplan.process.copies import Done, Send, fork, reap, result_of

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.background_search import SearchCounts
from scheduler_core.cycle.journal import Journal
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Clock
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from scheduler_core.step_counter import NO_LIMIT, PART_STEPS
from tests.support.cluster_state import cluster_state
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig, rig
from tests.support.virtual_clock import VirtualClock

SLICE = 60


class Slices(Journal):
    """Journal that sets the steps of a slice, and of a part."""

    def __init__(self, slice_steps: int, part_steps: int = PART_STEPS) -> None:
        self.slice_steps, self.part_steps = slice_steps, part_steps


class AwaitedSearches:
    """Copies whose end is awaited at once, for simulations: the result is delivered after a given virtual time.

    Attributes:
        seconds: Virtual duration of a search.
        count: Number of copies.
        kills: Called for each copy with its number; whether it is killed before its end.
    """

    def __init__(self, clock: Clock, seconds: float, kills: Callable[[int], bool] = lambda _: False) -> None:
        self.seconds = seconds
        self.count = 0
        self.kills = kills
        self._clock = clock
        self._is_stopped = False

    def fork(self, done: Done) -> Send | None:
        """Start a copy of this process, and await its result."""
        is_killed = self.kills(self.count)
        pid, reader, send = fork(niceness=0)
        if send is not None:
            if is_killed:
                os._exit(1)
            return send
        self.count += 1
        with os.fdopen(reader, "rb") as pipe:
            received = pipe.read()
        reap(pid)
        self._clock.call_later(self.seconds, partial(self._deliver, done, result_of(received)))
        return None

    def stop(self) -> None:
        """Drop the results that are not delivered."""
        self._is_stopped = True

    def _deliver(self, done: Done, result: bytes | None) -> None:
        if not self._is_stopped:
            done(result)


@dataclass
class Run:
    """A scheduler, and the copies that its searches make; None for none."""

    made: Rig
    processes: AwaitedSearches | None
    claims: RecordingClaimWriter = field(default_factory=RecordingClaimWriter)

    @classmethod
    def begun(
        cls,
        *,
        in_background: bool,
        kills: Callable[[int], bool] = lambda _: False,
        slice_steps: int = SLICE,
        part_steps: int = PART_STEPS,
        plugins: Iterable[type[Plugin]] = (),
        defaults: Plugins | None = None,
        options: SchedulerOptions | None = None,
        seconds: float = 1.0,
    ) -> Run:
        """Return a scheduler whose searches are not interrupted, or continue in copies after a few steps."""
        clock = VirtualClock()
        processes = AwaitedSearches(clock, seconds, kills) if in_background else None
        journal = Slices(slice_steps, part_steps) if in_background else Slices(NO_LIMIT, NO_LIMIT)
        claims = RecordingClaimWriter()
        ports = SchedulerPorts(journal=journal, processes=processes, claims=claims)
        options = options or SchedulerOptions(gang_reservation_seconds=0.0, attempt_steps=NO_LIMIT >> 20)
        defaults = defaults or default_plugins()
        made = rig(plugins, defaults=defaults, options=options, ports=ports, clock=clock, groups=GroupSource)
        return cls(made, processes, claims)

    async def settle(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Schedule until nothing is left to do."""
        async with self.made.running():
            await self.rest(meanwhile)

    async def rest(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Let the scheduler, which runs, do what is left; call a function once when a copy has been made."""
        made, is_first = self.made, True
        before = 0 if self.processes is None else self.processes.count
        for _ in range(400):
            for _ in range(10):
                await asyncio.sleep(0)
            is_idle = made.queue.readings.is_idle and not made.context.suspension.is_on
            if is_idle and not made.scheduler.binding_count:
                return
            if self.processes is not None and self.processes.count > before and is_first:
                meanwhile()
                is_first = False
            if made.queue.readings.in_flight_count and not made.context.suspension.is_on:
                made.clock.advance(1.0)
        raise AssertionError("the scheduler does not come to rest")

    async def until_moved(self, copies: int = 1) -> None:
        """Schedule until some searches have continued in copies, the last of which has not delivered its result."""
        await self.made.until(lambda: self.processes is not None and self.processes.count >= copies)

    async def step(self, count: int = 1) -> None:
        """Deliver the results of copies, and schedule, some times."""
        for _ in range(count):
            self.made.clock.advance(1.0)
            for _ in range(10):
                await asyncio.sleep(0)

    def used(self) -> int:
        """Return the number of moved searches; assert that the results of all were used."""
        counts = self.counts
        assert counts.outdated == counts.lost == counts.refused == 0
        assert counts.used == counts.started
        return counts.used

    def queued(self, name: str) -> QueuedPod:
        """Return a pod of the namespace ``ns`` in the queue."""
        return present(self.made.queue.find(f"uid-of-ns-{name}"))

    @property
    def counts(self) -> SearchCounts:
        """Numbers of moved searches by what became of them."""
        return self.made.context.background.counts

    @property
    def entry(self) -> QueuedGang:
        """The entry of the gang in the queue."""
        (gang,) = self.made.queue.gangs.units()
        assert gang.entry is not None
        return gang.entry

    @property
    def decisions(self) -> object:
        """What was decided: binds, conditions, nominations, evictions, and outcomes of gangs."""
        made, writer = self.made, self.made.writer
        patches = [
            (each.name, each.nominated_node_name, each.condition and each.condition.message) for each in writer.patches
        ]
        outcomes = sorted((str(gang.key), str(gang.outcome), gang.reservation) for gang in made.queue.gangs.units())
        deletions = [each.name for each in writer.deletions]
        return made.bound, patches, deletions, outcomes, cluster_state(made.context)
