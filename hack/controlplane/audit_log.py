"""Incremental reader of the API server's audit log.

It continues from its last position: reading the whole file each time would disturb the servers under test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class GrowingAuditLog:
    """One reader of an audit log.

    Args:
        path: The file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def events(self, containing: bytes = b"") -> list[dict[str, Any]]:
        """Return the events written since the last call, up to the last complete line.

        Args:
            containing: Skip lines without these bytes, which is much cheaper than to decode them.
        """
        with self._path.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])
        return [json.loads(line) for line in lines[:-1] if containing in line]
