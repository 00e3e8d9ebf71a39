"""Index of host ports in use.

It stores, per (protocol, port) and host IP, the rows and the number of pods. It is keyed by port, because a pod has few
ports and needs all nodes where they are in use.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort

_Holders = dict[int, int]


class HostPortIndex:
    """Host ports in use by row."""

    __slots__ = ("_hidden", "_use")

    def __init__(self) -> None:
        self._use: dict[tuple[str, int], dict[str, _Holders]] = {}
        self._hidden: set[tuple[int, HostPort]] = set()

    def add(self, row: int, ports: tuple[HostPort, ...]) -> None:
        """Add the ports of a pod that was added to ``row``."""
        for protocol, port, address in ports:
            holders = self._use.setdefault((protocol, port), {}).setdefault(address, {})
            holders[row] = holders.get(row, 0) + 1

    def remove(self, row: int, ports: tuple[HostPort, ...]) -> None:
        """Remove the ports of a pod that was removed from ``row``."""
        for protocol, port, address in ports:
            by_address = self._use[protocol, port]
            holders = by_address[address]
            if holders[row] == 1:
                del holders[row]
                if not holders:
                    del by_address[address]
                    if not by_address:
                        del self._use[protocol, port]
            else:
                holders[row] -= 1

    def clear_pods(self) -> None:
        """Remove the ports of all pods."""
        self._use.clear()

    def hide(self, row: int, ports: Iterable[HostPort]) -> None:
        """Treat ports of a row as free although pods use them, during a dry run."""
        for port in ports:
            protocol, number, address = port
            if row in self._use.get((protocol, number), {}).get(address, {}):
                self._hidden.add((row, port))

    def reveal(self, row: int, ports: Iterable[HostPort]) -> tuple[HostPort, ...]:
        """Undo :meth:`hide` for ports of a row.

        Returns:
            Those of ``ports`` that were hidden.
        """
        if not self._hidden:
            return ()
        found = tuple(port for port in ports if (row, port) in self._hidden)
        self._hidden.difference_update((row, port) for port in found)
        return found

    def conflicting_rows(self, ports: tuple[HostPort, ...]) -> NDArray[np.intp]:
        """Return the rows where one of ``ports`` is in use, intp[k] in no order, possibly with duplicates.

        The wildcard address conflicts with every address of the same protocol and port, any other with itself and the
        wildcard (kube-scheduler v1.37.1, ``HostPortInfo.CheckConflict``).
        """
        rows: list[int] = []
        for protocol, port, address in ports:
            by_address = self._use.get((protocol, port))
            if by_address is None:
                continue
            for taken, holders in by_address.items():
                if address not in (WILDCARD_IP, taken) and taken != WILDCARD_IP:
                    continue
                if self._hidden:
                    held = (protocol, port, taken)
                    rows.extend(row for row in holders if (row, held) not in self._hidden)
                else:
                    rows.extend(holders)
        return np.array(rows, dtype=np.intp)
