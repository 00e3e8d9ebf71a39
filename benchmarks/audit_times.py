"""Times at which pods were created and bound and events were written, from the API server's audit log."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from hack.controlplane.accounts import GrowingAuditLog

_CREATED = 201
_POLL_SECONDS = 0.1


class AuditTimes:
    """Times of the requests so far, in seconds since 1970.

    Attributes:
        created: When each pod was created, by name.
        bound: When each pod was bound, by name, in the order of the binds.
        events: When each event was written, by the event's name, in order.
    """

    def __init__(self, path: Path) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.events: dict[str, float] = {}
        self._log = GrowingAuditLog(path)

    @property
    def seconds(self) -> float:
        """Return the seconds from the first binding to the last."""
        return max(self.bound.values()) - min(self.bound.values())

    def read(self) -> int:
        """Read the lines written since the last call; return the number of pods bound so far."""
        for event in self._log.events(b'"verb":"create"'):
            self._note(event)
        return len(self.bound)

    def wait_for_bound(self, count: int, seconds: float, poll_seconds: float = _POLL_SECONDS) -> int:
        """Read until at least this many pods are bound; return their number.

        Raises:
            TimeoutError: They are not bound in time.
        """
        deadline = time.monotonic() + seconds
        while (bound := self.read()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{bound} of {count} pods were bound in {seconds:.0f} s")
            time.sleep(poll_seconds)
        return bound

    def _note(self, event: dict[str, Any]) -> None:
        if event["responseStatus"]["code"] != _CREATED:
            return
        reference = event["objectRef"]
        at = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        match reference["resource"], reference.get("subresource"):
            case "events", _:
                self.events[reference["name"]] = at
            case "pods", "binding":
                self.bound[reference["name"]] = at
            case "pods", None:
                self.created[reference["name"]] = at
