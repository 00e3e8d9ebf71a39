"""Dry run of a preemption: the profile's filters with running pods removed from their nodes.

Follows kube-scheduler v1.37.1 (``plugins/defaultpreemption``, ``SelectVictimsOnNode``; ``framework/runtime``,
``RunFilterPluginsWithNominatedPods``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.handle import StoredRows
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.runtime.equivalence import RowResults
from scheduler_core.runtime.filtering import (
    SumFilters,
    extended,
    filter_with_nominated_pods,
    nominated_by_row,
    pod_added,
    pod_removed,
    run_filters,
    sum_filters,
)
from scheduler_core.runtime.framework_instance import FrameworkInstance, device_chooser
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import RowSums
from scheduler_core.step_counter import StepCounter

_STEPS_OF_POD = 2
_DEMANDS_PER_STEP = 32
_STEPS_OF_FILTERS = 20
_STEPS_OF_SUMS = 4
_ROWS_PER_STEP = 50
_SUMMED_AT_ONCE = 1000
_SUMMED_PER_STEP = 8


def steps_of_removal(info: PodInfo) -> int:
    """Return the steps of removing a pod from its row, or of putting it back."""
    return _STEPS_OF_POD + (info.demands + len(info.host_ports)) // _DEMANDS_PER_STEP


class NodeDryRun:
    """Dry run for one pod on the live columns; see :class:`scheduler_core.framework.handle.DryRun`.

    Its changes are undone when the ``with`` block ends. A method raises PluginError if a plugin raised, or returned
    what its point does not allow.
    """

    def __init__(
        self,
        instance: FrameworkInstance,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeColumns,
        nominator: NominatedPods,
        *,
        steps: StepCounter,
        frees_shared_ports: bool = True,
        held: HeldClaims | None = None,
    ) -> None:
        self._instance = instance
        self._state = state.clone()
        self._pod = pod
        self._nodes = nodes
        self._nominator = nominator
        self._steps = steps
        self._overlay = ColumnsOverlay(nodes, frees_shared_ports=frees_shared_ports, held=held)
        self._held = held
        self._is_local = held is None or held.is_local
        self._results: RowResults | None = None
        self._counts_pods = any(True for _ in extended(instance, self._state))

    def __enter__(self) -> Self:
        self._overlay.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._overlay.undo()
        if self._results is not None:
            self._results.pass_by_undone()

    @property
    def is_row_local(self) -> bool:
        if not self._is_local or self._counts_pods:
            return False
        return all(
            plugin.name in self._state.skip_filter or plugin.reuse.filter.is_row_local
            for plugin in self._instance.filters
        )

    def by_sums(self, rows: Sequence[int]) -> SumsDryRun | None:
        filters = sum_filters(self._instance, self._state, self._pod, self._nodes, sorted(rows))
        if filters is None:
            return None
        nominated = dict(nominated_by_row(self._pod, self._nodes, self._nominator, among=frozenset(rows)))
        return SumsDryRun(filters, self._nodes, nominated, self._steps)

    def results_by_row(self, owner: str, *versions: object) -> StoredRows | None:
        # The changes that dry runs make and undo until this one ends are no changes of the rows.
        instance, classes = self._instance, self._instance.pod_classes
        # The attempts of a preemptor that is nominated differ by its node.
        if classes is None or self._pod.pod.status.nominated_node_name:
            return None
        if self._held is None:
            found = classes.results_by_row(instance, self._pod, self._nodes, owner, *versions)
            return None if found is None else StoredRows(found.results)
        chooser = device_chooser(instance)
        search = None if chooser is None else chooser.search_key(self._state)
        if search is None:
            return None
        found = classes.results_by_row(instance, self._pod, self._nodes, owner, *versions, devices=search.key)
        if found is None:
            return None
        self._results = found
        return StoredRows(found.results, search.held_on)

    def remove(self, *running: PodInfo) -> None:
        for info in running:
            self._steps.spend(steps_of_removal(info))
            # Read before the removal, after which a pod has no row.
            row = info.row
            self._overlay.remove([info])
            if self._counts_pods:
                pod_removed(self._instance, self._state, self._pod, (info, row), self._nodes)

    def restore(self, *running: PodInfo) -> None:
        for info in running:
            self._steps.spend(steps_of_removal(info))
            self._overlay.restore([info])
            if self._counts_pods:
                pod_added(self._instance, self._state, self._pod, info, self._nodes)

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        self._steps.spend(_STEPS_OF_FILTERS + len(rows) // _ROWS_PER_STEP)
        verdicts = run_filters(self._instance, self._state, self._pod, self._nodes, rows)
        numbers = rows.tolist()
        nominated = filter_with_nominated_pods(
            self._instance, self._state, self._pod, self._nodes, self._nominator, among=frozenset(numbers)
        )
        if nominated:
            for position, row in enumerate(numbers):
                verdicts[position] = nominated.get(row, 0) or verdicts[position]
        return verdicts


class SumsDryRun:
    """Dry run on the sums of some rows, several times as fast as on the columns; a law holds both equal."""

    def __init__(
        self,
        filters: SumFilters,
        nodes: NodeColumns,
        nominated: Mapping[int, Sequence[PodInfo]],
        steps: StepCounter,
    ) -> None:
        self._filters = filters
        self._steps = steps
        self._sums = RowSums(nodes, filters.rows)
        self._places = {row: place for place, row in enumerate(filters.rows.tolist())}
        self._nominated = [(self._places[row], info) for row, others in nominated.items() for info in others]

    def remove(self, *running: PodInfo) -> None:
        places = self._places
        for pods in self._in_steps(running):
            self._sums.remove(zip([places[info.row] for info in pods], pods, strict=True))

    def restore(self, *running: PodInfo) -> None:
        places = self._places
        for pods in self._in_steps(running):
            self._sums.add(zip([places[info.row] for info in pods], pods, strict=True))

    def _in_steps(self, running: Sequence[PodInfo]) -> Iterator[Sequence[PodInfo]]:
        for start in range(0, len(running), _SUMMED_AT_ONCE):
            self._steps.spend(1 + len(running[start : start + _SUMMED_AT_ONCE]) // _SUMMED_PER_STEP)
            yield running[start : start + _SUMMED_AT_ONCE]

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        filters, sums = self._filters, self._sums
        self._steps.spend(_STEPS_OF_SUMS + len(filters.rows) // _ROWS_PER_STEP)
        verdicts = filters.verdicts(sums)
        if self._nominated:
            sums.add(self._nominated)
            with_them = filters.verdicts(sums)
            sums.remove(self._nominated)
            verdicts = np.where(with_them != 0, with_them, verdicts)
        if len(rows) == len(filters.rows):
            return verdicts
        return verdicts[np.searchsorted(filters.rows, rows)]
