"""Running pods taken off the live columns for the time of a question.

Owns the undoing: when the block ends, every pod is back on its row, and in its place among the row's pods, so that
nobody can tell. Must not know who asks or what follows. Why not on a copy: a cycle does not await, so nobody sees the
columns meanwhile, and a copy of 5,000 nodes costs more than all the questions of a preemption.

What it leaves are entries in the change log, which make readers look once more at rows that are as they were.

Follows kube-scheduler v1.36.3 (``plugins/defaultpreemption``, ``SelectVictimsOnNode``; ``framework/runtime``,
``RunFilterPluginsWithNominatedPods``).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.nominated import judge_with_nominated_pods, promised_pods
from scheduler_core.cycle.what_if_sums import SumsDryRun
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import FilterPlugin
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.filtering import run_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.pre_filter_extensions import extended, pod_added, pod_removed
from scheduler_core.runtime.sum_filters import sum_filters
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class NodeDryRun:
    """One question; see :class:`scheduler_core.framework.handle.DryRun`."""

    def __init__(
        self,
        instance: FrameworkInstance,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeColumns,
        nominator: NominatedPods,
    ) -> None:
        self._instance = instance
        self._state = state.clone()
        self._pod = pod
        self._nodes = nodes
        self._nominator = nominator
        self._taken: dict[str, tuple[PodInfo, int]] = {}
        self._orders: dict[int, dict[str, PodInfo]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for other, row in reversed(self._taken.values()):
            self._restore(other, row)
        self._taken.clear()
        for row, order in self._orders.items():
            pods = self._nodes.pods[row]
            pods.clear()
            pods.update(order)
        self._orders.clear()

    @property
    def is_row_local(self) -> bool:
        """Whether every filter that runs looks at its own row only, and no plugin keeps sums over rows."""
        if any(True for _ in extended(self._instance, self._state)):
            return False
        return all(
            plugin.name in self._state.skip_filter
            or (isinstance(plugin, FilterPlugin) and plugin.reuse.filter.is_row_local)
            for plugin in self._instance.filters
        )

    def in_sums(self, rows: Sequence[int]) -> SumsDryRun | None:
        """The same question about some rows from which nothing was taken yet, if sums say all; else None.

        Raises:
            PluginError: A plugin raised, or answered what the point does not allow.
        """
        filters = sum_filters(self._instance, self._state, self._pod, self._nodes, sorted(rows))
        if filters is None:
            return None
        promised = dict(promised_pods(self._pod, self._nodes, self._nominator, among=frozenset(rows)))
        return SumsDryRun(filters, self._nodes, promised)

    def remove(self, *running: PodInfo) -> None:
        """Take pods off the rows that they run on.

        Raises:
            PluginError: A plugin could not follow.
        """
        for info in running:
            self._remove(info)

    def _remove(self, running: PodInfo) -> None:
        row = running.row
        if row not in self._orders:
            self._orders[row] = dict(self._nodes.pods[row])
        self._nodes.remove_pod(running)
        self._taken[running.uid] = (running, row)
        if running.host_ports:
            # kube-scheduler knows a node's ports as a set: where two pods hold one, which a kubelet would not let run,
            # the going of either frees it. Victims are chosen by that; live columns count instead.
            self._nodes.host_ports.hide(row, running.host_ports)
        pod_removed(self._instance, self._state, self._pod, (running, row), self._nodes)

    def restore(self, *running: PodInfo) -> None:
        """Put pods that were taken off back where they ran.

        Raises:
            PluginError: A plugin could not follow.
        """
        for info in running:
            _, row = self._taken.pop(info.uid)
            self._restore(info, row)
            pod_added(self._instance, self._state, self._pod, info, self._nodes)

    def _restore(self, running: PodInfo, row: int) -> None:
        self._nodes.add_pod(running, row)
        if running.host_ports:
            self._nodes.host_ports.reveal(row, running.host_ports)

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        """Run the filters on rows, with and without the pods that are promised these nodes.

        Raises:
            PluginError: A plugin raised, or answered what the point does not allow.
        """
        verdicts = run_filters(self._instance, self._state, self._pod, self._nodes, rows)
        numbers = rows.tolist()
        promised = judge_with_nominated_pods(
            self._instance, self._state, self._pod, self._nodes, self._nominator, among=frozenset(numbers)
        )
        if promised:
            for position, row in enumerate(numbers):
                verdicts[position] = promised.get(row, 0) or verdicts[position]
        return verdicts
