"""A controller of PodGroup statuses on virtual time, for gangs that the test changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bayplan.gangs.group_status import GroupStatusWrite, OtherProcesses
from bayplan.gangs.group_status_controller import GroupController, GroupPace
from bayplan.kube.writes.api_dispatcher import WriteDroppedError

from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.gang_registry import Gangs
from tests.support.builders import pod
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

UNSCHEDULABLE = GangOutcome("Unschedulable", "1 of 2 members fit, 1 lacks cpu.", fitting=1)
PACE = GroupPace()
_GATHERED = PACE.gather_seconds + 0.01


class DeferredStatusWriter:
    """In-memory :class:`bayplan.gangs.group_status_controller.GroupStatusWriter` that writes immediately or on release.

    Attributes:
        sent: Name and patch of every write whose patch was not empty.
        deferred: Writes that are not carried out yet while ``defers`` is set.
        failures: Errors of the next writes, one for each.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self.deferred: list[GroupStatusWrite] = []
        self.defers = False
        self.failures: list[Exception] = []

    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write."""
        self.deferred.append(write)
        if not self.defers:
            self.release()

    def release(self) -> None:
        """Carry out the deferred writes."""
        deferred, self.deferred = self.deferred, []
        for write in deferred:
            patch = write.make()
            if self.failures:
                write.done(self.failures.pop(0))
                continue
            if patch:
                self.sent.append((write.key.name, patch))
            write.done(None)

    def drop(self) -> None:
        """Drop the deferred writes, as when the process stops."""
        deferred, self.deferred = self.deferred, []
        for write in deferred:
            write.done(WriteDroppedError("stopping"))


@dataclass
class GroupWorld:
    """Controller and the gangs that the test changes."""

    pace: GroupPace = PACE
    clock: VirtualClock = field(default_factory=VirtualClock)
    statuses: DeferredStatusWriter = field(default_factory=DeferredStatusWriter)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    others: OtherProcesses | None = None

    def __post_init__(self) -> None:
        self.gangs = Gangs(self.clock)
        for source in GroupSource:
            self.gangs.serve(source)
        self.gangs.follow_runs()
        self.controller = GroupController(
            self.gangs, self.statuses, self.writer, self.clock, others=self.others, pace=self.pace
        )

    def key(self, name: str = "train", source: GroupSource = GroupSource.BAYPLAN) -> GroupKey:
        """Return the key of a group in the namespace ``default``."""
        return GroupKey(source, "default", name)

    def add_group(
        self,
        name: str = "train",
        status: Mapping[str, Any] | None = None,
        *,
        uid: str = "uid-1",
        source: GroupSource = GroupSource.BAYPLAN,
    ) -> Gang:
        """Report a PodGroup of two members."""
        key = self.key(name, source)
        self.controller.known(key, uid, 1, status or {})
        return self.gangs.group_changed(PodGroup(key, uid, 2))

    def add_members(self, *names: str, group: str = "train", node: str = "", phase: str = "") -> None:
        """Report members of a group of Bayplan's API."""
        for name in names:
            labels = {POD_GROUP_LABELS[GroupSource.BAYPLAN]: group}
            self.gangs.saw(pod(name, labels=labels, node_name=node, phase=phase or ("Running" if node else "Pending")))

    def record_outcome(self, gang: Gang, outcome: GangOutcome) -> None:
        """Record the result of an attempt."""
        gang.outcome, gang.last_attempt = outcome, self.clock.wall()
        self.gangs.changed(gang)

    async def advance(self, seconds: float = _GATHERED, step: float = 0.05) -> None:
        """Advance the time in small steps, so that every timer fires on time."""
        until = self.clock.now() + seconds
        await self._settle()
        while self.clock.now() < until - 1e-9:
            self.clock.advance(min(step, until - self.clock.now()))
            await self._settle()

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def sent(self, field_name: str = "phase", name: str = "train") -> list[Any]:
        """Return the values that were sent for one field."""
        return [patch[field_name] for group, patch in self.statuses.sent if group == name and field_name in patch]

    def events(self) -> list[tuple[str, str, str]]:
        """Return type, reason and note of every event."""
        return [(event.type, event.reason, event.note) for event in self.writer.events]


async def running(world: GroupWorld) -> AsyncIterator[GroupWorld]:
    """Run the controller of a world until the iteration is resumed."""
    task = asyncio.create_task(world.controller.run())
    yield world
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
