"""Reads the files of one recorded process run as one record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bayplan.recording.record_directory import SUFFIX
from scheduler_core.recording.record_file import Frame, RecordError, RecordHeader, RecordReader


@dataclass
class RecordFiles:
    """The files of a run, in order."""

    header: RecordHeader
    paths: Sequence[Path]
    notes: list[str] = field(default_factory=list)

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in order, up to the first that is incomplete or corrupt.

        Raises:
            RecordError: A file cannot be read.
        """
        for path in self.paths:
            with path.open("rb") as file:
                reader = RecordReader(file, str(path))
                yield from reader.frames()
            if reader.note:
                self.notes.append(reader.note)
                return


def open_record(path: Path) -> RecordFiles:
    """Return the record of which a file is a part, or the newest one of a directory.

    Raises:
        RecordError: There is no record, or parts of it are missing.
    """
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"))
        if not found:
            raise RecordError(f"{path}: no file *{SUFFIX} in this directory; name that of `bayplan run --record`")
        path = found[-1]
    header = _header(path)
    beside = sorted(path.parent.glob(f"*{SUFFIX}"))
    parts = {each.part: name for name in {*beside, path} if (each := _header_or_none(name)) and each.run == header.run}
    order = [parts[part] for part in sorted(parts)]
    missing = [part for part in range(max(parts) + 1) if part not in parts]
    if missing:
        raise RecordError(
            f"{path}: part {missing[0]} of this record is missing, and a replay begins with part 0; increase "
            "recordMebibytes or recordAge, or copy all parts into one directory"
        )
    return RecordFiles(_header(order[0]), order)


def _header_or_none(path: Path) -> RecordHeader | None:
    try:
        return _header(path)
    except RecordError:
        return None


def _header(path: Path) -> RecordHeader:
    try:
        with path.open("rb") as file:
            return RecordReader(file, str(path)).header
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}; name a file or directory of records") from error
