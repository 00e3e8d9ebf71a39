"""Static files of the page, read once when the server starts."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parent / "assets"
INDEX = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_OTHER_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class AssetFile:
    """A static file.

    Attributes:
        compressed: Content with gzip.
        etag: Value of ETag: the hash of the content.
    """

    body: bytes
    compressed: bytes
    content_type: str
    etag: str


def read_assets(directory: Path = DIRECTORY) -> Mapping[str, AssetFile]:
    """Return all files of a directory by their path in it, such as ``panels/pending.mjs``.

    Raises:
        OSError: A file cannot be read.
    """
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            body = path.read_bytes()
            found[path.relative_to(directory).as_posix()] = AssetFile(
                body=body,
                compressed=gzip.compress(body, mtime=0),
                content_type=_TYPES.get(path.suffix, _OTHER_TYPE),
                etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            )
    return found
