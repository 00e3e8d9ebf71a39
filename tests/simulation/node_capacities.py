"""Records the capacity of each node over time.

A node may be resized or replaced between a decision and its bind, and the decision is still correct.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.api_server import NODES, ApiServer, Change
from tests.simulation.plain_fit import capacity_of

Capacity = tuple[int, int, int]
"""Milli-CPU, MiB and number of pods."""


class NodeCapacities:
    """Capacities by node and time."""

    def __init__(self, server: ApiServer, now: Callable[[], float]) -> None:
        self._server = server
        self._now = now
        self._since: dict[str, list[tuple[float, Capacity]]] = {}
        server.collection(NODES).listeners.append(self._changed)

    def _changed(self, change: Change) -> None:
        for name, node in self._server.collection(NODES).objects.items():
            capacities = self._since.setdefault(name, [])
            capacity = capacity_of(node)
            if not capacities or capacities[-1][1] != capacity:
                capacities.append((self._now(), capacity))

    def largest(self, name: str, since: float) -> Capacity:
        """Return the maximum of each resource that a node had at any moment since a time."""
        capacities = self._since[name]
        ends = [*(start for start, _ in capacities[1:]), float("inf")]
        recent = [capacity for (_, capacity), end in zip(capacities, ends, strict=True) if end >= since]
        cpu, memory, pods = (max(each) for each in zip(*recent, strict=True))
        return cpu, memory, pods
