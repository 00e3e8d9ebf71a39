"""When pods were created, bound and told of, read off the API server's audit log as it grows.

Owns the reading: a log that is read whole at each look would disturb what is measured. It must not know schedulers.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

_CREATED, _CONFLICT = 201, 409


class AuditTimes:
    """What was answered so far, in seconds since 1970.

    Attributes:
        created: When each pod was created, by name.
        bound: When each pod was bound, by name.
        told: When each event was written, in order.
        conflicts: Binds that were refused, since another had been faster.
    """

    def __init__(self, path: Path) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.told: list[float] = []
        self.conflicts = 0
        self._path = path
        self._offset = 0

    def read(self) -> None:
        """Read on, as far as whole lines go."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])
        for line in lines[:-1]:
            self._note(json.loads(line))

    def _note(self, entry: dict[str, Any]) -> None:
        reference, code = entry["objectRef"], entry["responseStatus"]["code"]
        at = datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
        if reference["resource"] == "events":
            if code == _CREATED:
                self.told.append(at)
        elif reference.get("subresource") == "binding":
            if code == _CREATED:
                self.bound[reference["name"]] = at
            self.conflicts += code == _CONFLICT
        elif code == _CREATED:
            # The name of a pod that is being created stands in its body only, unless the answer names it.
            self.created[reference.get("name", "")] = at
