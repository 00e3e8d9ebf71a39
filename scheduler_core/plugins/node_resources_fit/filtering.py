"""Filter of NodeResourcesFit: rows with enough free resources, and the layout of the result codes.

A code is a set of bits relative to the pod's own requests: bit 0 "too many pods", one bit per requested resource, and
the highest bit "even an empty node is too small". 13 resources fit. For pods that request more, each distinct bit set
gets a number that is valid for one attempt only, so the plugin is called for every such pod.

:class:`FreeColumns` caches the free amounts of nodes, with a lower bound of each column: while no node has less than a
pod requests, no row need be compared. A few selected rows are computed from the columns instead, which is cheaper than
updating the cache.

:class:`ResizeDemand` is for a running pod whose resize is deferred: on its own node it needs only what the node does
not count yet. A node counts the largest of what the pod requests, was granted and uses: mostly nothing is missing, and
the pod does not fit if its node has less than its pods count. It needs a further pod slot, although it has one.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/fit.go`` (``fitsRequest``,
``adjustDeltasToAccomodateCacheDiscrepancy``). The API rejects negative requests, so a node that is too small when empty
is always too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.framework.extension_points import Codes, Shortage
from scheduler_core.framework.status import Status, unresolvable, unschedulable
from scheduler_core.model.pod_requests import PODS
from scheduler_core.snapshot.interning import FIXED_RESOURCES, Interner
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.row_cache import RowCache, RowSums

PLACES = -1
"""Stands for pod slots among the numbers of resource columns."""

_MOST_COLUMNS = 16
_WORTH_CACHING = 16
"""The cache is used if the requested rows are at least one in this many."""


class FreeColumns(RowCache):
    """Free pod slots, and free amounts by resource column."""

    __slots__ = ("_free", "_least")

    def __init__(self, nodes: NodeColumns) -> None:
        super().__init__(nodes)
        self._free: dict[int, NDArray[np.int64]] = {}
        self._least: dict[int, int] = {}

    def short(self, column: int, amount: int, rows: Rows) -> NDArray[np.bool_] | None:
        """Return bool per row, True if less than *amount* of a column, or ``PLACES``, is free; None for none."""
        if not isinstance(rows, slice) and len(rows) * _WORTH_CACHING < self.nodes.size:
            free = self._difference(column, rows)
        else:
            self.refresh()
            free_amounts = self._column(column)
            if self._least[column] >= amount:
                return None
            free = free_amounts[rows]
        short: NDArray[np.bool_] = free < amount
        if short.any():
            return short
        if isinstance(rows, slice):
            self._least[column] = _least(free)
        return None

    def _column(self, column: int) -> NDArray[np.int64]:
        free = self._free.get(column)
        if free is None:
            if len(self._free) == _MOST_COLUMNS:
                del self._free[next(iter(self._free))]
            free = self._rebuild_column(column)
        return free

    def _rebuild_column(self, column: int) -> NDArray[np.int64]:
        free = self._difference(column, slice(None))
        # Together: a column without its least amount would make every later cycle raise.
        self._least[column], self._free[column] = _least(free), free
        return free

    def _difference(self, column: int, rows: Rows) -> NDArray[np.int64]:
        nodes = self.nodes
        if column == PLACES:
            return nodes.allowed_pods[rows] - nodes.pod_count[rows]
        return nodes.allocatable[column, rows] - nodes.requested[column, rows]

    def _rebuild(self) -> None:
        for column in self._free:
            self._rebuild_column(column)

    def _refresh_rows(self, rows: Iterable[int]) -> None:
        nodes, least = self.nodes, self._least
        for row in rows:
            for column, free in self._free.items():
                if column == PLACES:
                    left = nodes.allowed_pods.item(row) - nodes.pod_count.item(row)
                else:
                    left = nodes.allocatable.item(column, row) - nodes.requested.item(column, row)
                free[row] = left
                least[column] = min(least[column], left)


def _least(free: NDArray[np.int64]) -> int:
    return int(free.min()) if len(free) else 0


MAX_RESOURCES_IN_BITS = 13

_TOO_MANY_PODS = 1
_TOO_SMALL = 1 << (MAX_RESOURCES_IN_BITS + 1)
_TOO_MANY_PODS_REASON = "Too many pods"


class FitDemand:
    """Requests of one pod that must be free on a node.

    Attributes:
        amounts: (resource column, positive amount): CPU, memory, ephemeral storage, then the others by name, so that a
            code keeps its meaning when a resource gets another column.
        by_devices: Those that a device class serves: a node that offers none of one may provide it through devices, so
            that DynamicResources decides there.
    """

    __slots__ = ("_bit_sets", "amounts", "by_devices", "names")

    def __init__(
        self, amounts: Sequence[tuple[int, int]], names: Sequence[str], by_devices: frozenset[str] = frozenset()
    ) -> None:
        self.amounts = amounts
        self.names = names
        self.by_devices = by_devices
        self._bit_sets: Interner[bytes] | None = None
        if len(amounts) > MAX_RESOURCES_IN_BITS:
            self._bit_sets = Interner()

    def codes(self, free: FreeColumns, rows: Rows) -> Codes | None:
        """Return int16 per row, 0 where the requests are free; None if they are on every row."""
        if self._bit_sets is not None:
            return self._codes_in_bit_sets(free.nodes, rows, self._bit_sets)
        codes: Codes | None = None
        full = free.short(PLACES, 1, rows)
        if full is not None:
            codes = full.astype(np.int16)
        for bit, (column, amount) in enumerate(self.amounts, start=1):
            short = free.short(column, amount, rows)
            if short is not None and self.names[bit - 1] in self.by_devices:
                short &= free.nodes.allocatable[column, rows] > 0
            if short is None:
                continue
            marks = np.multiply(short, np.int16(1 << bit))
            codes = marks if codes is None else np.bitwise_or(codes, marks, out=codes)
            too_small = free.nodes.allocatable[column, rows] < amount
            if self.by_devices:
                too_small &= short
            if too_small.any():
                codes |= np.multiply(too_small, np.int16(_TOO_SMALL))
        return codes

    def code_of_row(self, nodes: NodeColumns, row: int) -> int | None:
        """Return the code of one row; None for a pod whose codes must be numbered."""
        if self._bit_sets is not None:
            return None
        code = _TOO_MANY_PODS if nodes.pod_count.item(row) >= nodes.allowed_pods.item(row) else 0
        allocatable, requested = nodes.allocatable, nodes.requested
        for bit, (column, amount) in enumerate(self.amounts, start=1):
            capacity = allocatable.item(column, row)
            if not capacity and self.names[bit - 1] in self.by_devices:
                continue
            if capacity - requested.item(column, row) < amount:
                code |= 1 << bit
                if capacity < amount:
                    code |= _TOO_SMALL
        return code

    def codes_of_sums(self, sums: RowSums) -> Codes | None:
        full = sums.pod_count >= sums.allowed_pods
        capacities = [sums.allocatable[column] for column, _ in self.amounts]
        free = [
            capacity - sums.requested(column) for capacity, (column, _) in zip(capacities, self.amounts, strict=True)
        ]
        self._spare_devices(capacities, free)
        if self._bit_sets is not None:
            return self._in_bit_sets(full, capacities, free, self._bit_sets)
        codes = full.astype(np.int16)
        for bit, (_, amount) in enumerate(self.amounts, start=1):
            codes |= np.multiply(free[bit - 1] < amount, np.int16(1 << bit))
            codes |= np.multiply(capacities[bit - 1] < amount, np.int16(_TOO_SMALL))
        return codes

    def code_of(self, short: Sequence[bool], *, too_many_pods: bool, too_small: bool) -> int:
        """Return the code of a row; *short* is whether too little of each resource is free, by ``names``."""
        marks = [too_many_pods, *short, too_small]
        if not any(marks):
            return 0
        if self._bit_sets is not None:
            return self._bit_sets.intern(np.packbits(marks).tobytes()) + 1
        code = sum(1 << bit for bit, mark in enumerate(marks[:-1]) if mark)
        return code | _TOO_SMALL if too_small else code

    def explain(self, code: int) -> Status:
        """Return the status of a code with all its reasons; unresolvable if even the empty node is too small."""
        if self._bit_sets is None:
            bits = [bool(code >> bit & 1) for bit in range(1, len(self.names) + 1)]
            too_many, too_small = bool(code & _TOO_MANY_PODS), bool(code & _TOO_SMALL)
        else:
            packed = np.frombuffer(self._bit_sets.keys[code - 1], dtype=np.uint8)
            too_many, *bits, too_small = np.unpackbits(packed, count=len(self.names) + 2).astype(bool).tolist()
        reasons = [_TOO_MANY_PODS_REASON] if too_many else []
        reasons += [f"Insufficient {name}" for name, short in zip(self.names, bits, strict=True) if short]
        return unresolvable(*reasons) if too_small else unschedulable(*reasons)

    def shortages(self, nodes: NodeColumns, row: int) -> tuple[Shortage, ...]:
        """Return the insufficient resources of one row, pod slots first, in the units of the columns."""
        places = int(nodes.allowed_pods[row] - nodes.pod_count[row])
        found = [] if places > 0 else [Shortage(PODS, 1, places)]
        for (column, amount), name in zip(self.amounts, self.names, strict=True):
            free = int(nodes.allocatable[column, row] - nodes.requested[column, row])
            if free < amount and (name not in self.by_devices or nodes.allocatable[column, row]):
                found.append(Shortage(name, amount, free))
        return tuple(found)

    def _codes_in_bit_sets(self, nodes: NodeColumns, rows: Rows, bit_sets: Interner[bytes]) -> Codes | None:
        full = nodes.pod_count[rows] >= nodes.allowed_pods[rows]
        capacities = [nodes.allocatable[column, rows] for column, _ in self.amounts]
        free = [
            capacity - nodes.requested[column, rows]
            for capacity, (column, _) in zip(capacities, self.amounts, strict=True)
        ]
        self._spare_devices(capacities, free)
        return self._in_bit_sets(full, capacities, free, bit_sets)

    def _spare_devices(self, capacities: list[NDArray[np.int64]], free: list[NDArray[np.int64]]) -> None:
        """Count a resource that a node may provide through devices as sufficient there."""
        for position, (name, (_, amount)) in enumerate(zip(self.names, self.amounts, strict=True)):
            if name in self.by_devices:
                is_by_devices = capacities[position] == 0
                free[position] = np.where(is_by_devices, amount, free[position])
                capacities[position] = np.where(is_by_devices, amount, capacities[position])

    def _in_bit_sets(
        self,
        full: NDArray[np.bool_],
        capacities: Sequence[NDArray[np.int64]],
        free: Sequence[NDArray[np.int64]],
        bit_sets: Interner[bytes],
    ) -> Codes | None:
        marks: NDArray[np.bool_] = np.zeros((len(self.amounts) + 2, len(full)), dtype=np.bool_)
        marks[0] = full
        for bit, (_, amount) in enumerate(self.amounts, start=1):
            np.less(free[bit - 1], amount, out=marks[bit])
            marks[-1] |= capacities[bit - 1] < amount
        rejected = np.flatnonzero(marks.any(axis=0))
        if not len(rejected):
            return None
        packed = np.packbits(marks[:, rejected], axis=0).T
        distinct, positions = np.unique(packed, axis=0, return_inverse=True)
        numbers = np.array([bit_sets.intern(bits.tobytes()) + 1 for bits in distinct], dtype=np.int16)
        codes: Codes = np.zeros(len(full), dtype=np.int16)
        codes[rejected] = numbers[positions.reshape(-1)]
        return codes


class OwnPlace(Struct, frozen=True):
    """Where a running pod counts, and with how much.

    Attributes:
        counted: What its node counts for it, by resource.
    """

    row: int
    counted: Mapping[str, int]


class ResizeDemand(FitDemand):
    """Requests of one running pod."""

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
