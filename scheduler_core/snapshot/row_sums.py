"""Sums of pod requests per node, for dry runs that add and remove pods.

The sums are lists, which cost a tenth of an array when pods change one by one; readers get arrays.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_requests import LARGEST_REQUEST
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class RowSums:
    """Copy of the sums of some rows.

    Attributes:
        allocatable: int64[resource column, k], in the columns' units.
        allowed_pods: int64[k], the pod limit of each node.
    """

    __slots__ = ("_pod_count", "_requested", "allocatable", "allowed_pods")

    def __init__(self, nodes: NodeColumns, rows: NDArray[np.intp]) -> None:
        self.allocatable: NDArray[np.int64] = nodes.allocatable[:, rows]
        self.allowed_pods: NDArray[np.integer] = nodes.allowed_pods[rows]
        self._requested: list[list[int]] = nodes.exact_requests(rows)
        self._pod_count: list[int] = nodes.pod_count[rows].tolist()

    def requested(self, column: int) -> NDArray[np.int64]:
        """Return the requests of one resource, int64[k], clamped as in :attr:`NodeColumns.requested`."""
        exact = self._requested[column]
        try:
            amounts = np.array(exact, dtype=np.int64)
        except OverflowError:
            amounts = np.array([min(amount, LARGEST_REQUEST) for amount in exact], dtype=np.int64)
        return np.minimum(amounts, LARGEST_REQUEST, out=amounts)

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """Number of pods, int64[k]."""
        return np.array(self._pod_count, dtype=np.int64)

    def add(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Add pods, each with the index of its row in ``rows``."""
        requested, count = self._requested, self._pod_count
        for place, info in pods:
            for column, amount in info.accounted:
                requested[column][place] += amount
            count[place] += 1

    def remove(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Remove pods, given as for :meth:`add`."""
        requested, count = self._requested, self._pod_count
        for place, info in pods:
            for column, amount in info.accounted:
                requested[column][place] -= amount
            count[place] -= 1
