"""Records of operator processes, and their replay."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.record_assembly import ROOMS, ReplayLoop, header_of, replay_of
from scheduler_core.recording.record_entries import Entry, Fed
from scheduler_core.recording.record_file import RecordHeader, RecordReader, frame_of, start_of_file
from scheduler_core.recording.replayed_input import ReplayDifference
from scheduler_core.scheduler_options import SchedulerOptions, SchedulerPorts
from tests.simulation.api_server import ApiServer
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.ledger import ReservationLedger, RunState
from tests.simulation.plugins import plugin_types
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import defaults

_INJECTED_FAULTS = "injected_faults"


@dataclass
class ProcessRecord:
    """In-memory record of one process; implements :class:`scheduler_core.recording.recorder.RecordSink`."""

    header: RecordHeader
    frames: list[bytes] = field(default_factory=list)

    is_open = True

    def write(self, encoded: bytearray) -> None:
        """Add a frame."""
        self.frames.append(frame_of(encoded, 0))

    def close(self) -> None:
        """Keep the frames."""

    @property
    def content(self) -> bytes:
        """Content of the record file."""
        return start_of_file(self.header, 0) + b"".join(self.frames)


class Records:
    """Records of one run, one for each operator process."""

    def __init__(self) -> None:
        self.processes: list[ProcessRecord] = []

    def begin(
        self, options: SchedulerOptions, ports: SchedulerPorts, registry: Registry, injected_faults: dict[str, int]
    ) -> ProcessRecord:
        """Begin the record of a process."""
        header = header_of(options, ports, registry, "simulation")
        self.processes.append(ProcessRecord(replace(header, notes={_INJECTED_FAULTS: dict(injected_faults)})))
        return self.processes[-1]


class ReplayedLedger(ReservationLedger):
    """Ledger of a replay, which only counts injected faults; the recorded run has checked the reservations."""

    def __init__(self, injected_faults: dict[str, int]) -> None:
        counts = FaultCounts()
        run_state = RunState(
            ApiServer(), counts, injected_faults, _ignore, _ignore, float, {}, {}, PodGroups(_ignore), _ignore
        )
        super().__init__(run_state)
        self.is_closed = True


def _ignore(text: str) -> None:
    del text


def replay_process(content: bytes, name: str = "record") -> tuple[int, ReplayDifference | None]:
    """Replay the record of a process.

    Returns:
        The number of equal decisions, and the first difference.
    """
    reader = RecordReader(io.BytesIO(content), name)
    injected_faults = reader.header.notes[_INJECTED_FAULTS]
    assert isinstance(injected_faults, dict)
    registry = in_tree_registry()
    for kind in plugin_types(ReplayedLedger(injected_faults)):
        registry.register(kind)
    recorded, _, replay = replay_of(reader.header, _entries(reader), registry, defaults())
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=ReplayLoop) as runner:
            runner.run(replay.run())
    finally:
        logging.disable(logging.NOTSET)
    return recorded.decisions, recorded.difference


def holds_room(content: bytes) -> bool:
    """Return whether a record contains room that is held for pods that do not exist yet."""
    entries = _entries(RecordReader(io.BytesIO(content), "record"))
    return any(isinstance(entry, Fed) and (entry.feed, entry.method) == (ROOMS, "hold") for entry in entries)


def _entries(reader: RecordReader) -> Iterator[Entry]:
    for frame in reader.frames():
        yield from frame.entries
