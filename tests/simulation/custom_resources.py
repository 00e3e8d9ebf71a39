"""Custom resources of the simulated cluster whose controller is the operator's own: their store and their delivery.

They do not pass through an informer: each process receives the list before its first cycle, and later changes late and
in order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from tests.simulation.api_server import Response, replaced_status
from tests.simulation.network import Network
from tests.simulation.virtual_loop import LoopClock

_MAXIMUM_EVENT_SECONDS = 0.6
_TICK_SECONDS = 1e-6


class CustomResources:
    """Objects of one kind.

    Attributes:
        bodies: Objects by name.
        listeners: Called with each changed object, and whether it is deleted.
    """

    def __init__(self, network: Network) -> None:
        self._server, self._network = network.server, network
        self.bodies: dict[str, dict[str, Any]] = {}
        self.listeners: list[Callable[[dict[str, Any], bool], None]] = []

    @property
    def version(self) -> str:
        """Version of the API server."""
        return str(self._server.version)

    def respond(self, method: str, path: str, document: Any, client: str) -> Response:
        """Respond to a read, or to a write of a status."""
        body = replaced_status(method, path, self.bodies, document)
        if not isinstance(body, dict):
            return body
        self.status_written(body)
        self.put(body)
        return 200, msgspec.json.encode(body)

    def status_written(self, body: dict[str, Any]) -> None:
        """Count or check a new status."""

    def put(self, body: dict[str, Any]) -> None:
        """Create or replace an object."""
        self._server.version += 1
        metadata = {**body["metadata"], "resourceVersion": self.version}
        self.bodies[metadata["name"]] = body = {**body, "metadata": metadata}
        self._notify(body, is_deleted=False)

    def remove(self, name: str) -> None:
        """Delete an object."""
        body = self.bodies.pop(name)
        self._server.version += 1
        self._notify({**body, "metadata": {**body["metadata"], "resourceVersion": self.version}}, is_deleted=True)

    def _notify(self, body: dict[str, Any], *, is_deleted: bool) -> None:
        for listener in list(self.listeners):
            listener(body, is_deleted)


class LateEvents:
    """Delivery of changes to one process, late and in order."""

    def __init__(self, clock: LoopClock, seed: str) -> None:
        self._clock = clock
        self._rng = random.Random(seed)
        self._due = 0.0

    def deliver(self, handle: Callable[[Any], None], change: Any) -> None:
        """Call a function with a change later, and after all earlier ones."""
        now = self._clock.now()
        self._due = max(self._due + _TICK_SECONDS, now + _MAXIMUM_EVENT_SECONDS * self._rng.random())
        self._clock.call_later(self._due - now, partial(handle, change))
