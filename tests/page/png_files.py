"""Compress PNG files to at most 256 colours, one byte a pixel."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_PALETTE = 3
_CHANNELS = {2: 3, 6: 4}
Pixels = NDArray[np.uint8]
"""uint8[row, column, channel], red, green and blue."""


def compressed(file: bytes) -> bytes:
    """Return a PNG with a palette of frequent colours; every other pixel gets the nearest of them.

    Args:
        file: PNG of 8 bits a channel without interlace, as Chromium writes it.
    """
    pixels = _decoded(file)
    packed = (pixels.astype(np.uint32) * np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    colours, positions, counts = np.unique(packed, return_inverse=True, return_counts=True)
    wanted = _channels(colours)
    palette = _chosen(wanted[np.argsort(-counts, kind="stable")])
    nearest = np.array([np.abs(palette - colour).sum(axis=1).argmin() for colour in wanted], dtype=np.uint8)
    indexes = nearest[positions.reshape(packed.shape)]
    height, width = packed.shape
    rows = np.hstack((np.zeros((height, 1), dtype=np.uint8), indexes))
    header = struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
    )
    return _SIGNATURE + b"".join(_chunk(*each) for each in (*chunks, (b"IEND", b"")))


def _chosen(colours: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return at most 256 colours, the first ones that differ enough from those before them."""
    for distance in (0, 4, 8, 12, 16, 24, 32, 48, 64, 96):
        found: list[NDArray[np.int32]] = []
        for colour in colours:
            if not found or np.abs(np.array(found) - colour).sum(axis=1).min() > distance:
                found.append(colour)
            if len(found) > _COLOURS:
                break
        else:
            return np.array(found)
    return np.array(found[:_COLOURS])


def _channels(colours: NDArray[np.uint32]) -> NDArray[np.int32]:
    return np.stack((colours >> 16, colours >> 8 & 0xFF, colours & 0xFF), axis=1).astype(np.int32)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _decoded(file: bytes) -> Pixels:
    assert file.startswith(_SIGNATURE)
    at, data, header = len(_SIGNATURE), b"", b""
    while at < len(file):
        size, kind = struct.unpack(">I4s", file[at : at + 8])
        body = file[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            data += body
        at += 12 + size
    width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", header)
    assert (depth, interlace) == (8, 0)
    channels = _CHANNELS[colour_type]
    raw = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height + 1, width, channels), dtype=np.uint8)
    for row in range(height):
        line = raw[row, 1:].reshape(width, channels)
        rows[row + 1] = _unfiltered(int(raw[row, 0]), line, rows[row])
    return rows[1:, :, :3]


def _unfiltered(kind: int, line: Pixels, above: Pixels) -> Pixels:
    """Return a row without its filter: 0 none, 1 left, 2 up, 3 average, 4 Paeth."""
    if kind == 0:
        return line
    if kind == 1:
        return np.cumsum(line, axis=0, dtype=np.uint8)
    if kind == 2:
        return line + above
    found = np.zeros_like(line)
    zero = [0] * line.shape[1]
    left, corner = zero, zero
    for column, (values, up) in enumerate(zip(line.tolist(), above.tolist(), strict=True)):
        if kind == 3:
            guess = [(one + two) // 2 for one, two in zip(left, up, strict=True)]
        else:
            guess = [_paeth(*each) for each in zip(left, up, corner, strict=True)]
        left = [(value + each) & 0xFF for value, each in zip(values, guess, strict=True)]
        corner = up
        found[column] = left
    return found


def _paeth(left: int, up: int, corner: int) -> int:
    distances = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    return (left, up, corner)[distances.index(min(distances))]
