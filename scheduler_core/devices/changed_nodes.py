"""Log of the nodes whose devices, or devices in use, changed: results by node are refreshed where they are stale.

Bounded: a reader that is too far behind computes everything again, as it does after a change of a device that several
nodes can reach.
"""

from __future__ import annotations

_LIMIT = 4096


class ChangedNodes:
    """Names of nodes in the order of their changes; positions are absolute and never reused.

    Attributes:
        shared: Number of changes of the use of devices that several nodes reach; these are not in the log.
    """

    __slots__ = ("_limit", "_names", "_start", "shared")

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._names: list[str] = []
        self._start = 0
        self.shared = 0

    @property
    def position(self) -> int:
        """Position of the next change."""
        return self._start + len(self._names)

    def append(self, name: str) -> None:
        """Record a change of one node."""
        self._names.append(name)
        if len(self._names) >= 2 * self._limit:
            self._start += self._limit
            del self._names[: self._limit]

    def append_all(self) -> None:
        """Record a change that may concern every node."""
        self._start = self.position + 1
        self._names.clear()

    def since(self, position: int) -> list[str] | None:
        """Return the nodes that changed from ``position`` on; None if that may be any node."""
        offset = position - self._start
        return None if offset < 0 else self._names[offset:]
