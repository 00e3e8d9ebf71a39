"""Filters of an attempt that depend on the pods of a row only through their sums.

With them a dry run filters rows on changed sums, without changing the columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import FilterPlugin, Reads, SumsFilter
from scheduler_core.runtime.filtering import first_verdicts, run_filters, verdicts_of
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner
from scheduler_core.runtime.pre_filter_extensions import extended
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import RowSums


class SumFilters(Struct, frozen=True):
    """The filters of an attempt.

    Attributes:
        pod: The pod to schedule.
        summing: The filters that read sums, with their positions.
        rows: intp[k], ascending.
        fixed: int32[k], the verdicts of the other filters, which do not depend on pods.
    """

    state: CycleState
    pod: PodInfo
    summing: Sequence[tuple[int, SumsFilter]]
    rows: NDArray[np.intp]
    fixed: Verdicts

    def verdicts(self, sums: RowSums) -> Verdicts:
        """Return the verdicts on the rows, int32[k], for these sums.

        Raises:
            PluginError: A plugin raised.
        """
        verdicts = self.fixed
        for position, plugin in self.summing:
            codes = plugin.filter_sums(self.state, self.pod, sums)
            if codes is not None:
                verdicts = first_verdicts(verdicts, verdicts_of(codes, position))
        return verdicts


def sum_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Sequence[int]
) -> SumFilters | None:
    """Return the filters of an attempt for rows in ascending order; None if they do not depend on sums alone.

    Raises:
        PluginError: A plugin raised, or returned a value that its extension point does not allow.
    """
    if pod.pod.has_deferred_resize or any(True for _ in extended(instance, state)):
        # The sums do not show how much of them is the running pod's own.
        return None
    summing: list[tuple[int, SumsFilter]] = []
    others: list[tuple[int, FilterRunner]] = []
    for position, plugin in enumerate(instance.filters):
        if plugin.name in state.skip_filter:
            continue
        if not isinstance(plugin, FilterPlugin) or not plugin.reuse.filter.is_row_local:
            return None
        if plugin.remaining_rows_only:
            # Which rows remain depends on the sums.
            return None
        if isinstance(plugin, SumsFilter):
            summing.append((position, plugin))
        elif Reads.PODS in plugin.reuse.filter:
            return None
        else:
            others.append((position, plugin))
    row_array = np.array(rows, dtype=np.intp)
    verdicts = run_filters(instance, state, pod, nodes, row_array, among=others)
    return SumFilters(state, pod, summing, row_array, verdicts)
