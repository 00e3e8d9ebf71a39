"""The API server's audit log, read as it grows.

Owns where a reader stands in the file. Why not read it whole at each look: that would disturb what is watched. It must
not know what the events are read for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class GrowingAuditLog:
    """One reader of an audit log.

    Args:
        path: The file; it need not have been begun.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def events(self, containing: bytes = b"") -> list[dict[str, Any]]:
        """Events that were written since the last call, as far as their lines are whole.

        Args:
            containing: Lines without these bytes are passed over, which is much cheaper than to decode them.
        """
        with self._path.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])
        return [json.loads(line) for line in lines[:-1] if containing in line]
