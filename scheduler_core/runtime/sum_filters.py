"""Filters that look at the pods on a row through their sums alone, and the others.

Owns when sums say all that the pods on a row mean to an attempt, and the verdict on sums. It must not know who changes
the sums, or why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, Reads, SumsFilter
from scheduler_core.framework.row_sums import RowSums
from scheduler_core.runtime.filtering import first_verdict, run_filters, verdict_of
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner
from scheduler_core.runtime.pre_filter_extensions import extended
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class SumFilters:
    """The filters of an attempt.

    Attributes:
        state: The attempt's state.
        pod: The pod to place.
        summing: Those that read sums, with their positions.
        fixed: By row, the verdict of all others, which do not look at pods.
    """

    state: CycleState
    pod: PodInfo
    summing: Sequence[tuple[int, SumsFilter]]
    fixed: Mapping[int, int]

    def verdict(self, row: int, sums: RowSums) -> int:
        """The verdict on a row if its pods summed up so.

        Raises:
            PluginError: A plugin raised.
        """
        verdict = self.fixed[row]
        for position, plugin in self.summing:
            code = plugin.filter_sums(self.state, self.pod, sums)
            if code:
                verdict = first_verdict(verdict, verdict_of(code, position))
        return verdict


def sum_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Sequence[int]
) -> SumFilters | None:
    """The filters of an attempt, if sums say all about rows in ascending order; else None.

    Raises:
        PluginError: A plugin raised, or answered what the point does not allow.
    """
    if any(True for _ in extended(instance, state)):
        return None
    summing: list[tuple[int, SumsFilter]] = []
    others: list[tuple[int, FilterRunner]] = []
    for position, plugin in enumerate(instance.filters):
        if plugin.name in state.skip_filter:
            continue
        if not isinstance(plugin, FilterPlugin) or plugin.filter_reads > Reads.NODES:
            return None
        if isinstance(plugin, SumsFilter):
            summing.append((position, plugin))
        elif plugin.filter_reads is Reads.ROW:
            return None
        else:
            others.append((position, plugin))
    verdicts = run_filters(instance, state, pod, nodes, np.array(rows, dtype=np.intp), among=others)
    return SumFilters(state, pod, summing, dict(zip(rows, verdicts.tolist(), strict=True)))
