"""Resources without a fixed column: the nodes that offer them and the pods on nodes that request them.

A resource has a column while a node offers it, regardless of requests. When the first node offers a resource, the
requests of pods that are on nodes already are counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from scheduler_core.snapshot.interning import ResourceNames
from scheduler_core.snapshot.pod_info import PodInfo


class ColumnChange(Struct, frozen=True):
    """Columns that a change of a node's resources frees and assigns.

    Attributes:
        closed: Columns that are free, or that have another resource now.
        opened: Resources that got a column.
    """

    closed: tuple[int, ...] = ()
    opened: tuple[str, ...] = ()


_NO_CHANGE = ColumnChange()


class ScalarResources:
    """Offers of nodes and requests of pods."""

    __slots__ = ("_names", "_offered", "_users")

    def __init__(self, names: ResourceNames) -> None:
        self._names = names
        self._offered: dict[int, tuple[str, ...]] = {}
        self._users: dict[str, dict[str, PodInfo]] = {}

    def offer(self, row: int, names: tuple[str, ...]) -> ColumnChange:
        """Set what the node of a row offers; nothing for a removed node."""
        before = self._offered.get(row, ())
        if names == before:
            return _NO_CHANGE
        if names:
            self._offered[row] = names
        else:
            del self._offered[row]
        freed = [self._names.withdraw(name) for name in before if name not in names]
        opened = [name for name in names if name not in before and self._names.offer(name)]
        while (adopted := self._names.adopt()) is not None:
            opened.append(adopted)
        return ColumnChange(tuple([column for column in freed if column is not None]), tuple(opened))

    def rows_with(self, name: str) -> Iterable[int]:
        """Return the rows of the nodes that offer a resource."""
        return [row for row, names in self._offered.items() if name in names]

    def clear(self) -> None:
        """Remove all nodes and pods, and with the nodes the columns."""
        self._offered.clear()
        self._names.clear()
        self.clear_pods()

    def clear_pods(self) -> None:
        """Remove all pods."""
        self._users.clear()

    def add_pod(self, info: PodInfo) -> None:
        """Add a pod that was added to a node."""
        for name in info.scalars:
            self._users.setdefault(name, {})[info.uid] = info

    def remove_pod(self, info: PodInfo) -> None:
        """Remove a pod that was removed from a node."""
        for name in info.scalars:
            users = self._users[name]
            del users[info.uid]
            if not users:
                del self._users[name]

    def taken(self, name: str) -> Iterable[tuple[int, int]]:
        """Return row and amount of each pod on a node that requests a resource."""
        return [(info.row, info.requests.accounted[name]) for info in self._users.get(name, {}).values()]
