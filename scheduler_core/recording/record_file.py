"""Format of a record: a magic number, then frames, each with its length and checksum.

::

    "BPLREC" version:u16 │ frame │ frame │ ...
    frame: length:u32 crc32:u32 kind:u8 wall_microseconds:u64 │ payload, compressed by zlib

The first frame is the header, the others are lists of entries; both are JSON. The checksum covers the frame behind it.
A process that is killed leaves at most one incomplete frame at the end; everything before it is readable.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.recording.record_entries import Entry

FORMAT_VERSION = 2
MAGIC = b"BPLREC"
_START = struct.Struct("<6sH")
_FRAME = struct.Struct("<IIBQ")
_CHECKED_FROM = 8
_HEADER, _ENTRIES = 0, 1
_LEVEL = 1
_MOST_BYTES = 256 << 20
"""Maximum size of a frame, compressed and not; a longer one is corrupt."""
_MOST_PARTS = 1_000_000
_END_OF_TIME = 253_402_300_800_000_000
"""Microseconds from 1970 to the year 10000, which no date can express."""


class RecordError(SchedulerCoreError):
    """A file is not a record that this version can read; the message has the reason and the remedy."""


def missing_plugin(problem: str) -> RecordError:
    return RecordError(f"{problem}; install the plugins that were installed when the record was written")


class _CutError(Exception):
    """A frame is incomplete or corrupt."""


class RecordHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Circumstances of a record.

    Attributes:
        part: Number of the file within the run, from 0; only a run with part 0 can be replayed exactly.
    """

    run: str
    part: int = 0
    bayplan: str = ""
    options: dict[str, object] = {}
    has_storage: bool = False
    has_claims: bool = False
    has_extenders: bool = False
    plugins: tuple[str, ...] = ()
    notes: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class Frame:
    """Some entries, with the date and time of the first in microseconds since 1970 (UTC)."""

    wall_microseconds: int
    entries: Sequence[Entry]


def start_of_file(header: RecordHeader, wall_microseconds: int) -> bytes:
    """Return the first bytes of a file."""
    payload = msgspec.json.encode(header)
    return _START.pack(MAGIC, FORMAT_VERSION) + _frame(_HEADER, payload, wall_microseconds)


def frame_of(encoded: bytes | bytearray, wall_microseconds: int) -> bytes:
    """Return a frame of at least one encoded entry, each with a comma behind it."""
    return _frame(_ENTRIES, b"[" + encoded[:-1] + b"]", wall_microseconds)


def _frame(kind: int, payload: bytes, wall_microseconds: int) -> bytes:
    packed = zlib.compress(payload, _LEVEL)
    checked = struct.pack("<BQ", kind, wall_microseconds) + packed
    return struct.pack("<II", len(packed), zlib.crc32(checked)) + checked


class RecordReader:
    """Reads a record.

    Attributes:
        note: Why the end of the file is missing; "" if it is complete. Set when all frames were read.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._entries = msgspec.json.Decoder(list[Entry])
        self._at = 0
        self.note = ""
        start = self._read(_START.size)
        if len(start) < _START.size or start[: len(MAGIC)] != MAGIC:
            raise RecordError(f"{name}: not a record of Bayplan; name a file that `bayplan run --record` wrote")
        _, version = _START.unpack(start)
        if version != FORMAT_VERSION:
            raise RecordError(
                f"{name}: format version {version} is not supported: supported version: {FORMAT_VERSION}; read the "
                "record with the version of Bayplan that wrote it"
            )
        first = self._next()
        if first is None or first[0] != _HEADER:
            raise RecordError(f"{name}: the header is missing or corrupt ({self.note or 'another frame is first'})")
        try:
            self.header = msgspec.json.decode(first[2], type=RecordHeader)
        except msgspec.DecodeError as error:
            raise RecordError(f"{name}: the header is corrupt: {error}") from error
        if not 0 <= self.header.part < _MOST_PARTS:
            raise RecordError(f"{name}: the header is corrupt: part {self.header.part} is not a part of a record")

    def frames(self) -> Iterator[Frame]:
        """Yield the frames up to the end, or up to the first that is incomplete or corrupt; see :attr:`note`."""
        while (found := self._next()) is not None:
            kind, wall_microseconds, payload = found
            if kind != _ENTRIES:
                raise RecordError(f"{self._name}: unknown kind of frame {kind}; a newer Bayplan may have written it")
            if wall_microseconds >= _END_OF_TIME:
                raise RecordError(
                    f"{self._name}: a frame has a time after the year 9999, {wall_microseconds} microseconds"
                )
            try:
                yield Frame(wall_microseconds, self._entries.decode(payload))
            except msgspec.DecodeError as error:
                raise RecordError(f"{self._name}: a frame has an unknown content: {error}") from error

    def _read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._at += len(found)
        return found

    def _next(self) -> tuple[int, int, bytes] | None:
        where = self._at
        head = self._read(_FRAME.size)
        if not head:
            return None
        try:
            return self._checked(head)
        except _CutError as cut:
            self.note = f"{self._name}: {cut} at byte {where}; what follows is not read"
            return None

    def _checked(self, head: bytes) -> tuple[int, int, bytes]:
        if len(head) < _FRAME.size:
            raise _CutError("the file ends within a frame")
        length, checksum, kind, wall_microseconds = _FRAME.unpack(head)
        if length > _MOST_BYTES:
            raise _CutError(f"the length of a frame is {length}")
        packed = self._read(length)
        if len(packed) < length:
            raise _CutError("the file ends within a frame")
        if zlib.crc32(head[_CHECKED_FROM:] + packed) != checksum:
            raise _CutError("the checksum of a frame is wrong")
        unpacker = zlib.decompressobj()
        try:
            payload = unpacker.decompress(packed, _MOST_BYTES)
        except zlib.error as error:
            raise _CutError(f"a frame cannot be decompressed ({error})") from error
        if not unpacker.eof:
            raise _CutError("a frame is too long")
        return kind, wall_microseconds, payload
