"""Frames of records: what was written is read, and hostile files end in a clear error or a note."""

from __future__ import annotations

import io
import struct
import zlib

import msgspec
import pytest

from scheduler_core.recording.record_entries import Entry, Placed, Step
from scheduler_core.recording.record_file import RecordError, RecordHeader, RecordReader, frame_of, start_of_file

FIRST, SECOND = (Step(3), Placed("ns/a", "u1", "n1", "batch", 1)), (Step(4),)
HEADER = RecordHeader(run="r", bayplan="1.2.3", options={"seed": 7})


def frame(*entries: Entry) -> bytes:
    """A frame with some entries."""
    return frame_of(b"".join(msgspec.json.encode(each) + b"," for each in entries), 1_000_000)


def read(content: bytes) -> tuple[RecordReader, list[Entry]]:
    """The reader and all entries."""
    reader = RecordReader(io.BytesIO(content), "f.bpr")
    return reader, [entry for each in reader.frames() for entry in each.entries]


WHOLE = start_of_file(HEADER, 5) + frame(*FIRST) + frame(*SECOND)


def test_what_was_written_is_read() -> None:
    """Header and entries come back, with their times."""
    reader, entries = read(WHOLE)
    assert reader.header == HEADER
    assert entries == [*FIRST, *SECOND]
    assert reader.note == ""
    assert [each.wall_microseconds for each in RecordReader(io.BytesIO(WHOLE), "f").frames()] == [1_000_000] * 2


@pytest.mark.parametrize("missing", range(1, len(frame(*SECOND))))
def test_a_truncated_file_is_read_up_to_the_cut(missing: int) -> None:
    """Whatever is missing of the last frame, the frames before it are read, and a note says so."""
    reader, entries = read(WHOLE[:-missing])
    assert entries == list(FIRST)
    assert reader.note.startswith("f.bpr: the file ends within a frame at byte ")


@pytest.mark.parametrize("position", range(len(WHOLE) - len(frame(*SECOND)), len(WHOLE)))
def test_a_flipped_bit_is_found(position: int) -> None:
    """No byte of a frame can change unnoticed."""
    broken = bytearray(WHOLE)
    broken[position] ^= 0x10
    reader, entries = read(bytes(broken))
    assert entries == list(FIRST)
    assert reader.note


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a record of Bayplan"),
        (b"apiVersion: v1\nkind: Pod\n", "not a record of Bayplan"),
        (b"BPLREC" + struct.pack("<H", 9), "format version 9 is not supported: supported version: 1"),
        (start_of_file(HEADER, 5)[:20], "the header is missing or corrupt"),
        (b"BPLREC" + struct.pack("<H", 1) + frame(*FIRST), "the header is missing or corrupt"),
    ],
)
def test_a_file_that_is_not_a_record(content: bytes, message: str) -> None:
    """The error names the file and says what is wrong."""
    with pytest.raises(RecordError, match=message) as raised:
        read(content)
    assert str(raised.value).startswith("f.bpr: ")


def test_a_frame_with_an_unknown_entry() -> None:
    """The checksum is right, so the file is of another program: an error, not a note."""
    with pytest.raises(RecordError, match="unknown content"):
        read(start_of_file(HEADER, 5) + frame_of(b'[99,"x"],', 0))


def test_a_frame_that_would_fill_the_memory() -> None:
    """A small file that expands to more than a frame may have is not expanded."""
    packed = zlib.compress(b"\0" * ((256 << 20) + 1), 9)
    checked = struct.pack("<BQ", 1, 0) + packed
    bomb = struct.pack("<II", len(packed), zlib.crc32(checked)) + checked
    reader, entries = read(start_of_file(HEADER, 5) + bomb)
    assert entries == []
    assert "a frame is too long" in reader.note
