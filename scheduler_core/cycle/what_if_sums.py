"""Running pods taken off their rows in thought, where only the rows' sums matter.

Owns the quick form of :class:`scheduler_core.cycle.what_if.NodeDryRun`: when every filter that looks at the pods on a
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


class SumsDryRun:
    """One question about some rows.

    Args:
        filters: The filters, and the rows.
        nodes: The columns.
        promised: By row, pods that count as if they ran there, besides.
    """

    def __init__(self, filters: SumFilters, nodes: NodeColumns, promised: Mapping[int, Sequence[PodInfo]]) -> None:
        self._filters = filters
        self._sums = RowSums(nodes, filters.rows)
        self._places = {row: place for place, row in enumerate(filters.rows.tolist())}
        self._promised = [(self._places[row], info) for row, others in promised.items() for info in others]

    def remove(self, *running: PodInfo) -> None:
        """Take pods off the rows that they run on."""
        places = self._places
        self._sums.remove((places[info.row], info) for info in running)

    def restore(self, *running: PodInfo) -> None:
        """Put pods that were taken off back where they run."""
        places = self._places
        self._sums.add((places[info.row], info) for info in running)

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        """Ask the filters, with and without the pods that are promised these nodes.

        Raises:
            PluginError: A plugin raised.
        """
        filters, sums = self._filters, self._sums
        verdicts = filters.verdicts(sums)
        if self._promised:
            sums.add(self._promised)
            with_them = filters.verdicts(sums)
            sums.remove(self._promised)
            verdicts = np.where(with_them != 0, with_them, verdicts)
        if len(rows) == len(filters.rows):
            return verdicts
        return verdicts[np.searchsorted(filters.rows, rows)]
