"""Requests of a running pod whose resize is deferred: on its own node, only what it does not count there yet.

A node counts the largest of what the pod requests, was granted and uses, so mostly nothing is missing, and the pod does
not fit if its node has less than its pods count. The pod needs a further pod slot, although it has one.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/fit.go``
(``adjustDeltasToAccomodateCacheDiscrepancy``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from scheduler_core.framework.extension_points import Codes, Shortage
from scheduler_core.model.pod_requests import PODS
from scheduler_core.plugins.node_resources_fit.filtering import FitDemand
from scheduler_core.plugins.node_resources_fit.free_columns import FreeColumns
from scheduler_core.snapshot.interning import FIXED_RESOURCES
from scheduler_core.snapshot.node_columns import NodeColumns, Rows


class OwnPlace(Struct, frozen=True):
    """Where a running pod counts, and with how much.

    Attributes:
        row: The row of its node, -1 if the node is not known.
        counted: What its node counts for it, by resource.
    """

    row: int
    counted: Mapping[str, int]


class ResizeDemand(FitDemand):
    """Requests of one running pod.

    Args:
        amounts, names, by_devices: As of :class:`FitDemand`.
        own: Where the pod counts.
    """

    __slots__ = ("_own",)

    def __init__(
        self, amounts: Sequence[tuple[int, int]], names: Sequence[str], by_devices: frozenset[str], own: OwnPlace
    ) -> None:
        super().__init__(amounts, names, by_devices)
        self._own = own

    def codes(self, free: FreeColumns, rows: Rows) -> Codes | None:
        """Compare the requests with the free amounts, as :meth:`FitDemand.codes` does for other pods."""
        codes = super().codes(free, rows)
        places = np.flatnonzero(np.arange(free.nodes.size)[rows] == self._own.row)
        if not len(places):
            return codes
        if codes is None:
            codes = np.zeros(free.nodes.size if isinstance(rows, slice) else len(rows), dtype=np.int16)
        codes[places] = self._own_code(free.nodes)
        return codes

    def code_of_row(self, nodes: NodeColumns, row: int) -> int | None:
        """Return the code of one row, as :meth:`FitDemand.code_of_row` does."""
        return self._own_code(nodes) if row == self._own.row else super().code_of_row(nodes, row)

    def shortages(self, nodes: NodeColumns, row: int) -> tuple[Shortage, ...]:
        """Return the insufficient resources of one row, with the amounts that the node does not count yet."""
        if row != self._own.row:
            return super().shortages(nodes, row)
        places = int(nodes.allowed_pods[row] - nodes.pod_count[row])
        found = [] if places > 0 else [Shortage(PODS, 1, places)]
        for position, (amount, free, is_short) in enumerate(self._missing(nodes)):
            if is_short:
                found.append(Shortage(self.names[position], amount, free))
        return tuple(found)

    def _own_code(self, nodes: NodeColumns) -> int:
        row = self._own.row
        capacities = [int(nodes.allocatable[column, row]) for column, _ in self.amounts]
        missing = self._missing(nodes)
        short = [is_short for _, _, is_short in missing]
        # An empty node is compared with all that the pod requests, but for other resources with what is missing.
        needed = [
            amount if name in FIXED_RESOURCES else lacking
            for name, (_, amount), (lacking, _, _) in zip(self.names, self.amounts, missing, strict=True)
        ]
        too_small = any(
            is_short and capacity < amount for is_short, capacity, amount in zip(short, capacities, needed, strict=True)
        )
        full = bool(nodes.pod_count[row] >= nodes.allowed_pods[row])
        return self.code_of(short, too_many_pods=full, too_small=too_small)

    def _missing(self, nodes: NodeColumns) -> list[tuple[int, int, bool]]:
        """Return for each resource what the node does not count yet, what is free, and whether that is too little."""
        found, row = [], self._own.row
        for name, (column, amount) in zip(self.names, self.amounts, strict=True):
            lacking = max(0, amount - self._own.counted.get(name, 0))
            capacity = int(nodes.allocatable[column, row])
            free = capacity - int(nodes.requested[column, row])
            # kube-scheduler skips resources other than CPU, memory and ephemeral storage of which nothing is missing.
            is_checked = name in FIXED_RESOURCES or (lacking > 0 and (capacity > 0 or name not in self.by_devices))
            found.append((lacking, free, is_checked and free < lacking))
        return found
