"""Which host ports are taken on which nodes.

Owns, per (protocol, port) and host IP, the rows and how many pods hold it there. Kept by port and not by node, because
a pod asks for a port or two and wants all nodes where they are taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort

_Holders = dict[int, int]


class HostPortIndex:
    """Host ports in use by row."""

    __slots__ = ("_use",)

    def __init__(self) -> None:
        self._use: dict[tuple[str, int], dict[str, _Holders]] = {}

    def add(self, row: int, ports: tuple[HostPort, ...]) -> None:
        """Note the ports of a pod that came to ``row``."""
        for protocol, port, address in ports:
            holders = self._use.setdefault((protocol, port), {}).setdefault(address, {})
            holders[row] = holders.get(row, 0) + 1

    def remove(self, row: int, ports: tuple[HostPort, ...]) -> None:
        """Note that a pod with these ports left ``row``."""
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

    def conflicting_rows(self, ports: tuple[HostPort, ...]) -> NDArray[np.intp]:
        """Rows where one of ``ports`` is taken, intp[k] in no order, a row perhaps more than once.

        The wildcard address conflicts with every address of the same protocol and port, any other with itself and the
        wildcard (kube-scheduler v1.36.3, ``HostPortInfo.CheckConflict``).
        """
        rows: list[int] = []
        for protocol, port, address in ports:
            by_address = self._use.get((protocol, port))
            if by_address is None:
                continue
            for taken, holders in by_address.items():
                if address in (WILDCARD_IP, taken) or taken == WILDCARD_IP:
                    rows.extend(holders)
        return np.array(rows, dtype=np.intp)
