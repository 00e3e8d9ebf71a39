"""Directory of records with bounded size and age, written by a running operator.

Each process run writes files ``<start>-<run>-<part>.bpr``, one after another. When the directory becomes too large or a
file too old, the oldest files are deleted, also those of earlier runs. Of a run whose first file is gone, no exact
replay is possible. A directory that cannot be written to stops the record, never the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from bayplan.settings.operator_settings import Settings
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.recording.record_file import RecordHeader, frame_of, start_of_file

log = logging.getLogger(__name__)

SUFFIX = ".bpr"
FLUSH_SECONDS = 0.5
_MEBIBYTE = 1 << 20
_PARTS = 16
"""Number of files into which the maximum size is divided."""
_MICROSECONDS = 1_000_000
_RUN_DIGITS = 8


class RecordDirectory:
    """The directory; implements :class:`scheduler_core.recording.recorder.RecordSink`.

    Args:
        path: The directory; it is created.
        header: Header of the first file.
        max_bytes: Maximum size of all records.
        max_seconds: Maximum age of a file that is not written to any more.
        wall: Returns the date and time, UTC.

    Attributes:
        written: Bytes written.

    Raises:
        ConfigError: The directory cannot be written to.
    """

    def __init__(
        self, path: Path, header: RecordHeader, max_bytes: int, max_seconds: float, wall: Callable[[], datetime]
    ) -> None:
        self._path = path
        self._header = header
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._wall = wall
        self._part_bytes = max_bytes // _PARTS
        self._started = wall().strftime("%Y%m%dT%H%M%SZ")
        self._file: BinaryIO | None = None
        self._size = 0
        self.written = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._begin()
        except OSError as error:
            raise ConfigError(
                [Problem("record", f"cannot write to {path} ({error}); specify a directory that can be written to")]
            ) from error

    def write(self, encoded: bytearray) -> None:
        """Append a frame; begin the next file when this one is large enough."""
        if self._file is None:
            return
        try:
            if self._size >= self._part_bytes:
                self._file.close()
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
        # Without a buffer: what was written survives the process.
        self._file = (self._path / name).open("wb", buffering=0)
        self._size = 0
        self._append(start_of_file(self._header, self._now()))
        self._prune(self._path / name)

    def _append(self, content: bytes) -> None:
        assert self._file is not None
        self._file.write(content)
        self._size += len(content)
        self.written += len(content)

    def _prune(self, current: Path) -> None:
        """Delete the oldest files, so that one more file of full size fits."""
        files = sorted((each.stat().st_mtime, each) for each in self._path.glob(f"*{SUFFIX}") if each != current)
        size = sum(each.stat().st_size for _, each in files) + self._part_bytes
        oldest = self._wall().timestamp() - self._max_seconds
        for modified, each in files:
            if size <= self._max_bytes and modified >= oldest:
                break
            size -= each.stat().st_size
            each.unlink(missing_ok=True)

    def _now(self) -> int:
        return int(self._wall().astimezone(UTC).timestamp() * _MICROSECONDS)


def open_directory(settings: Settings, header: RecordHeader, wall: Callable[[], datetime]) -> RecordDirectory:
    """Return the directory of the settings.

    Raises:
        ConfigError: It cannot be written to.
    """
    assert settings.record is not None
    return RecordDirectory(
        Path(settings.record), header, settings.record_mebibytes * _MEBIBYTE, settings.record_age, wall
    )
