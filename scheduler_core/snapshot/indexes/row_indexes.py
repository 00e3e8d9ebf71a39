"""Rows by value: host ports in use, container images, and priorities of pods.

Host ports are keyed by port, because a pod has few ports and needs all nodes where they are in use. The first reported
size of an image applies until no node has the image, as in kube-scheduler v1.37.1 (``backend/cache/cache.go``,
``addNodeImageStates``). There is one column per priority in use: an infeasible pod checks for every node whether a pod
of lower priority runs there, and usually there is none.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.node import ContainerImage
from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort

_Holders = dict[int, int]


class _PortUse:
    """Use of one protocol and port.

    Attributes:
        rows: Number of addresses in use by row.
        by_address: Number of pods by row, by address.
    """

    __slots__ = ("by_address", "rows")

    def __init__(self) -> None:
        self.rows: _Holders = {}
        self.by_address: dict[str, _Holders] = {}


class HostPortIndex:
    """Host ports in use by row."""

    __slots__ = ("_hidden", "_use")

    def __init__(self) -> None:
        self._use: dict[tuple[str, int], _PortUse] = {}
        self._hidden: set[tuple[int, HostPort]] = set()

    def add(self, row: int, ports: tuple[HostPort, ...]) -> None:
        for protocol, port, address in ports:
            use = self._use.setdefault((protocol, port), _PortUse())
            holders = use.by_address.setdefault(address, {})
            held = holders.get(row, 0)
            if not held:
                use.rows[row] = use.rows.get(row, 0) + 1
            holders[row] = held + 1

    def remove(self, row: int, ports: tuple[HostPort, ...]) -> None:
        for protocol, port, address in ports:
            use = self._use[protocol, port]
            holders = use.by_address[address]
            if holders[row] > 1:
                holders[row] -= 1
                continue
            del holders[row]
            if not holders:
                del use.by_address[address]
            if use.rows[row] > 1:
                use.rows[row] -= 1
                continue
            del use.rows[row]
            if not use.rows:
                del self._use[protocol, port]

    def clear_pods(self) -> None:
        self._use.clear()

    def hide(self, row: int, ports: Iterable[HostPort]) -> None:
        """Treat ports of a row as free although pods use them, during a dry run."""
        for port in ports:
            protocol, number, address = port
            use = self._use.get((protocol, number))
            if use is not None and row in use.by_address.get(address, {}):
                self._hidden.add((row, port))

    def reveal(self, row: int, ports: Iterable[HostPort]) -> tuple[HostPort, ...]:
        """Undo :meth:`hide` for ports of a row; return those that were hidden."""
        if not self._hidden:
            return ()
        found = tuple(port for port in ports if (row, port) in self._hidden)
        self._hidden.difference_update((row, port) for port in found)
        return found

    def conflicting_rows(self, ports: Iterable[HostPort]) -> NDArray[np.intp]:
        """Return the rows where one of ``ports`` is in use, intp[k] in no order, possibly with duplicates.

        The wildcard address conflicts with every address of the same protocol and port, any other with itself and the
        wildcard (kube-scheduler v1.37.1, ``HostPortInfo.CheckConflict``).
        """
        rows: list[int] = []
        for protocol, port, address in ports:
            use = self._use.get((protocol, port))
            if use is None:
                continue
            if address == WILDCARD_IP and not self._hidden:
                # Not by address: a pod may use one port at thousands of addresses.
                rows.extend(use.rows)
                continue
            for taken in use.by_address if address == WILDCARD_IP else {address, WILDCARD_IP}:
                holders, held = use.by_address.get(taken, {}), (protocol, port, taken)
                rows.extend(row for row in holders if (row, held) not in self._hidden)
        return np.array(rows, dtype=np.intp)


class ImageState:
    """One image name: ``size_bytes`` and the rows of the nodes that have it."""

    __slots__ = ("_array", "rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rows: set[int] = set()
        self._array: NDArray[np.intp] | None = None

    def row_array(self) -> NDArray[np.intp]:
        """Return the rows in ascending order, intp[k]."""
        if self._array is None:
            self._array = np.array(sorted(self.rows), dtype=np.intp)
            self._array.flags.writeable = False
        return self._array

    def add(self, row: int) -> None:
        self.rows.add(row)
        self._array = None

    def discard(self, row: int) -> None:
        self.rows.discard(row)
        self._array = None


class ImageIndex:
    """All images by name; every change increments ``version``."""

    __slots__ = ("_states", "version")

    def __init__(self) -> None:
        self._states: dict[str, ImageState] = {}
        self.version = 0

    def get(self, name: str) -> ImageState | None:
        """Return the image called ``name``, None if no node reports it."""
        return self._states.get(name)

    def add_node(self, row: int, images: Iterable[ContainerImage]) -> None:
        for image in images:
            self.version += 1
            for name in image.names:
                state = self._states.get(name)
                if state is None:
                    state = self._states[name] = ImageState(image.size_bytes)
                state.add(row)

    def clear(self) -> None:
        """Remove all nodes; the images keep their sizes until :meth:`drop_unused` is called."""
        for state in self._states.values():
            for row in list(state.rows):
                state.discard(row)

    def drop_unused(self) -> None:
        self._states = {name: state for name, state in self._states.items() if state.rows}
        self.version += 1

    def remove_node(self, row: int, images: Iterable[ContainerImage]) -> None:
        for image in images:
            self.version += 1
            for name in image.names:
                state = self._states.get(name)
                if state is not None:
                    state.discard(row)
                    if not state.rows:
                        del self._states[name]


class _Column:
    """One priority: pods per row, and the total."""

    __slots__ = ("rows", "total")

    def __init__(self, capacity: int) -> None:
        self.rows: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self.total = 0


class PriorityCounts:
    """Counts by priority and row."""

    __slots__ = ("_capacity", "_columns")

    def __init__(self) -> None:
        self._capacity = 0
        self._columns: dict[int, _Column] = {}

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        for column in self._columns.values():
            grown = np.zeros(capacity, dtype=np.int32)
            grown[: len(column.rows)] = column.rows
            column.rows = grown

    def add(self, row: int, priority: int) -> None:
        column = self._columns.get(priority)
        if column is None:
            column = self._columns[priority] = _Column(self._capacity)
        column.rows[row] += 1
        column.total += 1

    def remove(self, row: int, priority: int) -> None:
        column = self._columns[priority]
        column.rows[row] -= 1
        column.total -= 1
        if column.total == 0:
            del self._columns[priority]

    def clear_pods(self) -> None:
        self._columns.clear()

    def below(self, priority: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return whether a pod of a lower priority runs on each of ``rows``, bool per row."""
        found = np.zeros(len(rows), dtype=np.bool_)
        for other, column in self._columns.items():
            if other < priority:
                found |= column.rows[rows] != 0
        return found
