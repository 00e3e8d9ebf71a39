"""Room that preemption can free at most, to prove early that no preemption helps a gang."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.extension_points import SumsFilter
from scheduler_core.placement.victims import VictimRequest
from scheduler_core.snapshot.interning import FIXED_RESOURCES
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_ABOVE_ANY_AMOUNT = 2**61
"""Amounts are cut here, so that the sum of two fits into an int64."""


class EvictableRoom:
    """Free amounts of each node once all pods that a gang may evict are gone.

    Only resources that no plugin args exempt count, and nothing but amounts, pods and host ports. So a quorum for which
    there is too little of it is infeasible, and otherwise it may be infeasible all the same.
    """

    def __init__(self, nodes: NodeColumns, request: VictimRequest) -> None:
        members = [queued.info for queued in request.placing.members]
        self._needed = request.placing.needed
        self._counts_resources = any(isinstance(each, SumsFilter) for each in request.placing.instance.filters)
        columns = [column for name in FIXED_RESOURCES if (column := nodes.resources.find(name)) is not None]
        self._wants = Counter(
            tuple((column, min(amount, _ABOVE_ANY_AMOUNT)) for column, amount in info.fit if column in columns)
            for info in members
        )
        """Amounts by column that members request, with the number of these members."""
        amounts = {
            column: sorted(dict(want).get(column, 0) for want in self._wants.elements())
            for column in dict.fromkeys(column for want in self._wants for column, _ in want)
        }
        self._smallest = {column: requested[0] for column, requested in amounts.items()}
        self._least = {column: sum(requested[: self._needed]) for column, requested in amounts.items()}
        freed: dict[int, list[int]] = {column: [0] * nodes.size for column in amounts}
        counts = [0] * nodes.size
        for row in np.flatnonzero(nodes.alive).tolist():
            for info in nodes.pods[row].values():
                if _may_end(info, request):
                    counts[row] += 1
                    for column, amount in info.accounted:
                        if column in freed:
                            freed[column][row] += amount
        self._free = {
            column: np.minimum(nodes.allocatable[column] - nodes.requested[column], _ABOVE_ANY_AMOUNT)
            + np.array([min(amount, _ABOVE_ANY_AMOUNT) for amount in of_rows], dtype=np.int64)
            for column, of_rows in freed.items()
        }
        ports = [set(info.host_ports) for info in members]
        # Members that have a host port in common need a node each.
        most = 1 if ports and set.intersection(*ports) else len(members)
        left = nodes.allowed_pods - nodes.pod_count + np.array(counts, dtype=np.int64)
        self._slots: NDArray[np.int64] = np.where(nodes.alive, np.clip(left, 0, most), 0)

    def is_enough(self, rows: NDArray[np.intp], *, for_each: bool) -> bool:
        """Return whether the quorum may be feasible on some rows.

        Args:
            for_each: Whether to look also at each member on its own.
        """
        if not self._counts_resources:
            return True
        room, slots = self._slots[rows], self._slots[rows]
        free = {column: np.maximum(amounts[rows], 0) for column, amounts in self._free.items()}
        for column, amounts in free.items():
            if self._least[column] > sum(amounts.tolist()):
                return False
            if self._smallest[column]:
                room = np.minimum(room, amounts // self._smallest[column])
        if int(room.sum()) < self._needed:
            return False
        if not for_each:
            return True
        fitting = 0
        for want, count in self._wants.items():
            mask = slots > 0
            for column, amount in want:
                mask = mask & (free[column] >= amount)
            fitting += count if mask.any() else 0
        return fitting >= self._needed


def _may_end(info: PodInfo, request: VictimRequest) -> bool:
    if info.priority >= request.priority:
        return False
    return info.uid not in request.protected or info.pod.metadata.deletion_timestamp is not None
