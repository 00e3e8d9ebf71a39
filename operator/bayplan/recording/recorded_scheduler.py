"""Builds the recorded scheduler of ``bayplan run --record``; imported only with that setting."""

from __future__ import annotations

from dataclasses import dataclass

import bayplan
from bayplan.kube.timing import SystemClock
from bayplan.recording.record_directory import FLUSH_SECONDS, RecordDirectory, open_directory
from bayplan.settings.operator_settings import Settings
from scheduler_core.framework.registry import Registry
from scheduler_core.ports import ClusterWriter
from scheduler_core.record_assembly import header_of, record_feeds, recorded_ports
from scheduler_core.recording.recorded_ports import RecordedWriter
from scheduler_core.recording.recorder import Recorder
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts


class Recording:
    """The record of a process.

    Args:
        recorder: The recorder.
    """

    def __init__(self, recorder: Recorder, directory: RecordDirectory, clock: SystemClock) -> None:
        self._recorder = recorder
        self._directory = directory
        self._clock = clock

    async def run(self) -> None:
        """Write what was recorded to the file twice a second, until cancelled."""
        while True:
            await self._clock.sleep(FLUSH_SECONDS)
            self._recorder.flush()

    def close(self) -> None:
        """Write the rest, and close the file."""
        self._recorder.close()
        self._directory.close()


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Parts of a scheduler, as it would have them without a record."""

    clock: SystemClock
    writer: ClusterWriter
    options: SchedulerOptions
    registry: Registry
    ports: SchedulerPorts


def recorded_scheduler(settings: Settings, parts: Unrecorded) -> tuple[Scheduler, Recording]:
    """Return a scheduler whose input and decisions are recorded, and the record.

    Raises:
        ConfigError: The directory cannot be written to.
    """
    header = header_of(parts.options, parts.ports, parts.registry, bayplan.__version__)
    directory = open_directory(settings, header, parts.clock.wall)
    recorder = Recorder(parts.clock, directory)
    scheduler = Scheduler(
        recorder.clock,
        RecordedWriter(parts.writer, recorder),
        parts.options,
        parts.registry,
        ports=recorded_ports(recorder, parts.clock, parts.ports),
    )
    record_feeds(recorder, scheduler)
    return scheduler, Recording(recorder, directory, parts.clock)
