"""Record files: written frames are read back, and invalid files end in an error or a note."""

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
    return frame_of(b"".join(msgspec.json.encode(each) + b"," for each in entries), 1_000_000)


def read(content: bytes) -> tuple[RecordReader, list[Entry]]:
    """Return the reader of a file, and all its entries."""
    reader = RecordReader(io.BytesIO(content), "f.bpr")
    return reader, [entry for each in reader.frames() for entry in each.entries]


COMPLETE_FILE = start_of_file(HEADER, 5) + frame(*FIRST) + frame(*SECOND)


def test_a_written_file_is_read() -> None:
    """The header, the entries and their times are read as they were written."""
    reader, entries = read(COMPLETE_FILE)
    assert reader.header == HEADER
    assert entries == [*FIRST, *SECOND]
    assert reader.note == ""
    assert [each.wall_microseconds for each in RecordReader(io.BytesIO(COMPLETE_FILE), "f").frames()] == [1_000_000] * 2


@pytest.mark.parametrize("missing", range(1, len(frame(*SECOND))))
def test_a_truncated_file_is_read_up_to_the_cut(missing: int) -> None:
    """If the last frame is truncated, the frames before it are read and the reader has a note."""
    reader, entries = read(COMPLETE_FILE[:-missing])
    assert entries == list(FIRST)
    assert reader.note.startswith("f.bpr: the file ends within a frame at byte ")


@pytest.mark.parametrize("position", range(len(COMPLETE_FILE) - len(frame(*SECOND)), len(COMPLETE_FILE)))
def test_a_flipped_bit_is_found(position: int) -> None:
    """A flipped bit in any byte of a frame ends the entries with a note."""
    broken = bytearray(COMPLETE_FILE)
    broken[position] ^= 0x10
    reader, entries = read(bytes(broken))
    assert entries == list(FIRST)
    assert reader.note


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a record of Bayplan"),
        (b"apiVersion: v1\nkind: Pod\n", "not a record of Bayplan"),
        (b"BPLREC" + struct.pack("<H", 9), "format version 9 is not supported: supported version: 2"),
        (start_of_file(HEADER, 5)[:20], "the header is missing or corrupt"),
        (b"BPLREC" + struct.pack("<H", 2) + frame(*FIRST), "the header is missing or corrupt"),
    ],
)
def test_a_file_that_is_not_a_record(content: bytes, message: str) -> None:
    """The error contains the file name and the problem."""
    with pytest.raises(RecordError, match=message) as raised:
        read(content)
    assert str(raised.value).startswith("f.bpr: ")


def test_a_frame_with_an_unknown_entry() -> None:
    """A frame with a valid checksum and unknown content is an error."""
    with pytest.raises(RecordError, match="unknown content"):
        read(start_of_file(HEADER, 5) + frame_of(b'[99,"x"],', 0))


def test_a_compressed_frame_over_the_maximum_size() -> None:
    """A small compressed frame that exceeds the maximum size is not decompressed."""
    packed = zlib.compress(b"\0" * ((256 << 20) + 1), 9)
    checked = struct.pack("<BQ", 1, 0) + packed
    oversized = struct.pack("<II", len(packed), zlib.crc32(checked)) + checked
    reader, entries = read(start_of_file(HEADER, 5) + oversized)
    assert entries == []
    assert "a frame is too long" in reader.note
