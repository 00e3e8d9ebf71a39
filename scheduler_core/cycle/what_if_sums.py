"""Running pods taken off their rows in thought, where only the rows' sums matter.

Owns the quick form of :class:`scheduler_core.cycle.what_if.NodeWhatIf`: when every filter that looks at the pods on a
row looks at their sums alone, the sums are changed in a copy and the columns are left as they are. A preemption asks
about hundreds of rows and takes each pod there off and puts it back. Must give the verdicts of the other form, to the
bit; a law in the tests holds both equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.row_sums import RowSums
from scheduler_core.runtime.sum_filters import SumFilters
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class SumsWhatIf:
    """One question about some rows.

    Args:
        filters: The filters, and the rows.
        nodes: The columns.
        promised: By row, pods that count as if they ran there, besides.
    """

    def __init__(self, filters: SumFilters, nodes: NodeColumns, promised: Mapping[int, Sequence[PodInfo]]) -> None:
        self._filters = filters
        self._promised = promised
        self._sums = {row: RowSums(nodes, row) for row in filters.fixed}

    def remove(self, running: PodInfo) -> None:
        """Take a pod off the row that it runs on."""
        self._sums[running.row].remove(running)

    def restore(self, running: PodInfo) -> None:
        """Put a pod that was taken off back where it runs."""
        self._sums[running.row].add(running)

    def judge(self, rows: NDArray[np.intp]) -> Verdicts:
        """Ask the filters, with and without the pods that are promised these nodes.

        Raises:
            PluginError: A plugin raised.
        """
        return np.array([self._judge(row) for row in rows.tolist()], dtype=np.int32)

    def _judge(self, row: int) -> int:
        sums, others = self._sums[row], self._promised.get(row, ())
        if others:
            for other in others:
                sums.add(other)
            verdict = self._filters.verdict(row, sums)
            for other in others:
                sums.remove(other)
            if verdict:
                return verdict
        return self._filters.verdict(row, sums)
