"""What the pods on some nodes add up to, node by node: for questions that change it in thought.

Owns the sums of these rows while a question lasts. It must not know which plugin compares them with what. Why lists:
pods come and go one by one, which costs a tenth of what it would in an array; they become arrays when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_requests import LARGEST_REQUEST
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class RowSums:
    """A copy of the numbers of some rows.

    Args:
        nodes: The columns.
        rows: intp[k], ascending.

    Attributes:
        rows: As given.
        allocatable: int64[resource column, k], in the columns' units.
        allowed_pods: int64[k], how many pods each node takes.
    """

    __slots__ = ("_pod_count", "_requested", "allocatable", "allowed_pods", "rows")

    def __init__(self, nodes: NodeColumns, rows: NDArray[np.intp]) -> None:
        self.rows = rows
        self.allocatable: NDArray[np.int64] = nodes.allocatable[:, rows]
        self.allowed_pods: NDArray[np.integer] = nodes.allowed_pods[rows]
        self._requested: list[list[int]] = nodes.exact_requests(rows)
        self._pod_count: list[int] = nodes.pod_count[rows].tolist()

    def requested(self, column: int) -> NDArray[np.int64]:
        """Requests of one resource, int64[k], clamped as in :attr:`NodeColumns.requested`."""
        exact = self._requested[column]
        try:
            amounts = np.array(exact, dtype=np.int64)
        except OverflowError:
            amounts = np.array([min(amount, LARGEST_REQUEST) for amount in exact], dtype=np.int64)
        return np.minimum(amounts, LARGEST_REQUEST, out=amounts)

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """How many pods there are, int64[k]."""
        return np.array(self._pod_count, dtype=np.int64)

    def add(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Count pods in, each with the place of its row among ``rows``."""
        requested, count = self._requested, self._pod_count
        for place, info in pods:
            for column, amount in info.accounted:
                requested[column][place] += amount
            count[place] += 1

    def remove(self, pods: Iterable[tuple[int, PodInfo]]) -> None:
        """Count pods out, given as above."""
        requested, count = self._requested, self._pod_count
        for place, info in pods:
            for column, amount in info.accounted:
                requested[column][place] -= amount
            count[place] -= 1
