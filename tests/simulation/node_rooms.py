"""Records how large each node has been lately.

Seconds pass between a decision and its bind. A node may shrink meanwhile, or be replaced by a smaller one of its name;
the decision was still right.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.api_server import NODES, ApiServer, Change
from tests.simulation.plain_fit import room_of

Room = tuple[int, int, int]
"""Milli-CPU, MiB and number of pods."""


class NodeRooms:
    """Node sizes by node and time."""

    def __init__(self, server: ApiServer, now: Callable[[], float]) -> None:
        self._server = server
        self._now = now
        self._since: dict[str, list[tuple[float, Room]]] = {}
        server.collection(NODES).listeners.append(self._changed)

    def _changed(self, change: Change) -> None:
        del change
        for name, node in self._server.collection(NODES).objects.items():
            rooms = self._since.setdefault(name, [])
            room = room_of(node)
            if not rooms or rooms[-1][1] != room:
                rooms.append((self._now(), room))

    def largest(self, name: str, since: float) -> Room:
        """Return the maximum of each resource that a node had at any moment since a time."""
        rooms = self._since[name]
        ends = [*(start for start, _ in rooms[1:]), float("inf")]
        recent = [room for (_, room), end in zip(rooms, ends, strict=True) if end >= since]
        cpu, memory, pods = (max(each) for each in zip(*recent, strict=True))
        return cpu, memory, pods
