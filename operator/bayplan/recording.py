"""Records of a running scheduler: their directory, the files of one run, and the scheduler whose input is recorded."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

import bayplan
from bayplan.kube.timing import SystemClock
from bayplan.settings.operator_settings import Settings
from scheduler_core import record_assembly
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.registry import Registry
from scheduler_core.ports import ClusterWriter
from scheduler_core.recording.record_file import Frame, RecordError, RecordHeader, RecordReader, frame_of, start_of_file
from scheduler_core.recording.recorder import Recorder
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts

log = logging.getLogger(__name__)

SUFFIX = ".bpr"
_MEBIBYTE = 1 << 20
_PARTS = 16
"""Number of files into which the maximum size is divided."""
_MICROSECONDS = 1_000_000
_RUN_DIGITS = 8


class RecordDirectory:
    """The directory; implements :class:`scheduler_core.recording.recorder.RecordSink`.

    Args:
        now: Returns monotonic seconds, for the age of files of this run: the date may be set.

    Raises:
        ConfigError: The directory cannot be written to.
    """

    def __init__(
        self,
        path: Path,
        header: RecordHeader,
        max_bytes: int,
        max_seconds: float,
        wall: Callable[[], datetime],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._header = header
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._wall = wall
        self._monotonic = now
        self._ended: dict[Path, float] = {}
        self._current = path
        self._part_bytes = max_bytes // _PARTS
        self._started = wall().strftime("%Y%m%dT%H%M%SZ")
        self._file: BinaryIO | None = None
        self._size = 0
        try:
            # A record names the pods, nodes and labels of all namespaces. An existing directory keeps its mode, which
            # may be that of a volume.
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._begin()
        except OSError as error:
            raise ConfigError(
                [Problem("record", f"cannot write to {path} ({error}); specify a directory that can be written to")]
            ) from error

    @property
    def is_open(self) -> bool:
        """Whether frames are still written; False after an error."""
        return self._file is not None

    def write(self, encoded: bytearray) -> None:
        """Append a frame; begin the next file when this one is large enough."""
        if self._file is None:
            return
        try:
            if self._size >= self._part_bytes:
                self._file.close()
                self._ended[self._current] = self._monotonic()
                self._header = replace(self._header, part=self._header.part + 1)
                self._begin()
            self._append(frame_of(encoded, self._now()))
        except OSError as error:
            log.error("The record in %s ends, scheduling continues: %s; free space and restart", self._path, error)  # noqa: TRY400 - the message is complete
            self.close()

    def close(self) -> None:
        """Close the file; what follows is not recorded."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        name = f"{self._started}-{self._header.run[:_RUN_DIGITS]}-{self._header.part:05d}{SUFFIX}"
        self._current = self._path / name
        # Without a buffer: what was written survives the process.
        file = os.open(self._current, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(file, "wb", buffering=0)
        self._size = 0
        self._append(start_of_file(self._header, self._now()))
        self._prune()

    def _append(self, content: bytes) -> None:
        assert self._file is not None
        end, left = self._size, memoryview(content)
        try:
            # A write without a buffer may take only a part, as when the disk is nearly full.
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError:
            self._file.truncate(end)
            raise
        self._size += len(content)

    def _prune(self) -> None:
        """Delete the oldest files, so that one more file of full size fits: those of earlier runs before those of this.

        Dates order only the files of earlier runs. If the clock is set, those of this run keep their order and age.
        """
        found = [each for each in self._path.glob(f"*{SUFFIX}") if each != self._current]
        today, now = self._wall().timestamp(), self._monotonic()
        earlier = sorted((each.stat().st_mtime, each) for each in found if each not in self._ended)
        files = [(today - modified, each) for modified, each in earlier]
        files += [(now - ended, each) for each, ended in self._ended.items() if each in found]
        size = sum(each.stat().st_size for _, each in files) + self._part_bytes
        for age, each in files:
            if size > self._max_bytes or age > self._max_seconds:
                size -= each.stat().st_size
                each.unlink(missing_ok=True)
                self._ended.pop(each, None)

    def _now(self) -> int:
        return int(self._wall().astimezone(UTC).timestamp() * _MICROSECONDS)


@dataclass
class RecordFiles:
    """The files of a run, in order."""

    header: RecordHeader
    paths: Sequence[Path]
    notes: list[str] = field(default_factory=list)

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in order up to an incomplete or corrupt one. Raises RecordError: a file cannot be read."""
        for path in self.paths:
            with path.open("rb") as file:
                reader = RecordReader(file, str(path))
                yield from reader.frames()
            if reader.note:
                self.notes.append(reader.note)
                return


def open_record(path: Path) -> RecordFiles:
    """Return the record of a file, or a directory's newest. Raises RecordError: it is missing, or a part of it is."""
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"))
        if not found:
            raise RecordError(f"{path}: no file *{SUFFIX} in this directory; name that of `bayplan run --record`")
        path = found[-1]
    header, parts = _header(path), {}
    for name in {*path.parent.glob(f"*{SUFFIX}"), path}:
        with suppress(RecordError):
            each = _header(name)
            if each.run == header.run:
                parts[each.part] = name
    order = [parts[part] for part in sorted(parts)]
    missing = [part for part in range(max(parts) + 1) if part not in parts]
    if missing:
        raise RecordError(
            f"{path}: part {missing[0]} of this record is missing, and a replay begins with part 0; increase "
            "recordMebibytes or recordAge, or copy all parts into one directory"
        )
    return RecordFiles(_header(order[0]), order)


def _header(path: Path) -> RecordHeader:
    try:
        with path.open("rb") as file:
            return RecordReader(file, str(path)).header
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}; name a file or directory of records") from error


def recorded_scheduler(
    settings: Settings,
    clock: SystemClock,
    writer: ClusterWriter,
    options: SchedulerOptions,
    registry: Registry,
    *,
    ports: SchedulerPorts,
) -> tuple[Scheduler, Recorder]:
    """Return a recorded scheduler, and its recorder; raise ConfigError if the directory cannot be written to."""
    path, header = Path(settings.record or ""), record_assembly.header_of(options, ports, registry, bayplan.__version__)
    max_bytes = settings.record_mebibytes * _MEBIBYTE
    directory = RecordDirectory(path, header, max_bytes, settings.record_age, clock.wall)
    recorder = Recorder(clock, directory)
    return record_assembly.recorded_scheduler(recorder, writer, options, registry, ports=ports), recorder
