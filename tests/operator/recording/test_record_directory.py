"""Tests of the ring of record files and of reading the files of a run."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest
from bayplan.recording import RecordDirectory, open_record

from scheduler_core.errors import ConfigError
from scheduler_core.recording.record_entries import Readings, Step
from scheduler_core.recording.record_file import RecordError, RecordHeader
from scheduler_core.recording.recorder import Recorder
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
INCOMPRESSIBLE = 7_919
PART = 160


class Time:
    """Date that a test advances."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def write(directory: RecordDirectory, numbers: range) -> None:
    """Write one frame for each number."""
    for number in numbers:
        steps = (Step(number), *(Step(number * INCOMPRESSIBLE % (each + 3)) for each in range(20)))
        directory.write(bytearray(b"".join(msgspec.json.encode(step) + b"," for step in steps)))


def open_directory(path: Path, run: str = "r" * 32, parts: int = 1000, wall: Time | None = None) -> RecordDirectory:
    """Return a directory with a bound on the number of small files."""
    return RecordDirectory(path, RecordHeader(run=run), PART * parts, 3600.0, wall or Time())


def numbers(path: Path) -> list[int]:
    """Return the first entry of each frame that was written."""
    return [frame.entries[0].task for frame in open_record(path).frames() if isinstance(frame.entries[0], Step)]


def test_the_parts_of_a_run_are_one_record(tmp_path: Path) -> None:
    """All parts of a run are read in order, whichever part is named."""
    directory = open_directory(tmp_path, parts=16)
    write(directory, range(3))
    directory.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 1
    assert numbers(tmp_path) == numbers(files[-1]) == [0, 1, 2]


def test_the_size_is_bounded(tmp_path: Path) -> None:
    """The oldest files are deleted, and a run without its first file is an error with the remedy."""
    directory = open_directory(tmp_path, parts=16)
    write(directory, range(100))
    directory.close()
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 2 * 16 * PART
    with pytest.raises(RecordError, match=r"part 0 of this record is missing, .*; increase recordMebibytes"):
        open_record(tmp_path)


def test_old_files_are_deleted(tmp_path: Path) -> None:
    """A later run deletes records that are older than the maximum age."""
    open_directory(tmp_path).close()
    old = next(tmp_path.iterdir())
    later = Time()
    later.now = datetime.now(UTC) + timedelta(hours=2)
    open_directory(tmp_path, "s" * 32, wall=later).close()
    assert not old.exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_an_unwritable_directory_is_an_error(tmp_path: Path) -> None:
    """A directory that cannot be written is an error that names the setting."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"record: cannot write to .*file"):
        open_directory(tmp_path / "file")


def test_a_full_disk_ends_the_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A full disk ends the record with a log message, and scheduling continues."""
    directory = open_directory(tmp_path)
    directory._file.close()  # type: ignore[union-attr]
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - the directory closes it
    directory._file = full
    write(directory, range(2))
    assert "The record in" in caplog.text
    assert "scheduling continues" in caplog.text


def test_a_directory_without_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no file \*\.bpr in this directory"):
        open_record(tmp_path)
    with pytest.raises(RecordError, match="cannot be read"):
        open_record(tmp_path / "nothing.bpr")


def test_only_this_user_can_read_records(tmp_path: Path) -> None:
    """The files, and a directory that is created for them, are readable by this user only, whatever the umask."""
    before = os.umask(0)
    try:
        directory = open_directory(tmp_path / "records", parts=16)
        write(directory, range(3))
        directory.close()
    finally:
        os.umask(before)
    assert (tmp_path / "records").stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "records").iterdir()} == {0o600}


class ShortWrites:
    """File that takes only some bytes at a time, and then none."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self.left = left

    def write(self, content: memoryview) -> int:
        """Take at most seven bytes."""
        if not self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._file.write(content[: min(7, self.left)])
        self.left -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@table("left", ("short writes", 1 << 20), ("full disk", 200))
def test_no_frame_is_torn(tmp_path: Path, left: int) -> None:
    """Writes that take a part of a frame are continued; when the disk is full, the record ends with a whole frame."""
    directory = open_directory(tmp_path)
    assert directory._file is not None
    directory._file = ShortWrites(directory._file, left)  # type: ignore[assignment]
    write(directory, range(10))
    assert directory.is_open == (left > 200)
    directory.close()
    found = numbers(tmp_path)
    assert found == list(range(len(found)))
    assert len(found) == 10 or not left > 200


def test_a_recorder_stops_with_its_directory(tmp_path: Path) -> None:
    """After an error of the directory a recorder records nothing more."""
    directory = open_directory(tmp_path)
    recorder = Recorder(VirtualClock(), directory)
    recorder.write(Step(1))
    recorder.flush()
    assert recorder.is_recording
    directory.close()
    recorder.write(Step(2))
    recorder.flush()
    assert not recorder.is_recording


def test_readings_without_another_entry_are_bounded(tmp_path: Path) -> None:
    """A long search that reads the clock often fills neither the readings nor the buffer."""
    directory = open_directory(tmp_path, parts=1 << 20)
    recorder = Recorder(VirtualClock(), directory)
    for _ in range(200_000):
        recorder.now()
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) > 100
    recorder.write(Step(1))
    recorder.close()
    directory.close()
    entries = [entry for frame in open_record(tmp_path).frames() for entry in frame.entries]
    assert sum(len(each.seconds) for each in entries if isinstance(each, Readings)) == 200_000


@pytest.mark.parametrize("step", [timedelta(days=400), timedelta(days=-400)], ids=["forward", "back"])
def test_a_clock_that_is_set_deletes_no_file_of_this_run(tmp_path: Path, step: timedelta) -> None:
    """When the date is set, the files of the running process stay, and their order is that of their parts."""
    wall = Time()
    directory = open_directory(tmp_path, parts=16 * 100, wall=wall)
    write(directory, range(200))
    wall.now += step
    write(directory, range(200, 400))
    directory.close()
    assert numbers(tmp_path) == list(range(400))
