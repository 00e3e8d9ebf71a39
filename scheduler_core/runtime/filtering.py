"""PreFilter and Filter over all candidate rows, and their updates while a dry run adds and removes pods.

Follows kube-scheduler v1.37.1 (``RunPreFilterPlugins``, ``RunFilterPlugins``, ``RunPreFilterExtensionAddPod``,
``RunPreFilterExtensionRemovePod``). kube-scheduler stops at a node's first rejection; here every vectorized plugin
filters all rows, and the first plugin in order that rejects a row provides its verdict, which is the same. Plugins
whose filter is expensive run only on rows that no earlier plugin rejects.

Filters that depend on the pods of a row only through their sums let a dry run filter rows on changed sums, without
changing the columns.

A node is feasible only if the pod fits both with and without the pods of the same or higher priority that are nominated
to it (``RunFilterPluginsWithNominatedPods``). Only nodes with nominations are filtered twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.errors import PluginError, UndecidedRowsError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import (
    FilterPlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    SumsFilter,
)
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner, as_plugin_error, checked
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.snapshot.row_cache import RowSums

_ADD_POD = "preFilterAddPod"
_REMOVE_POD = "preFilterRemovePod"


def extended(instance: FrameworkInstance, state: CycleState) -> Iterator[tuple[PreFilterPlugin, PreFilterExtensions]]:
    """Yield the plugins with AddPod and RemovePod, without those that PreFilter skipped."""
    for plugin in instance.pre_filter:
        if isinstance(plugin, PreFilterExtensions) and plugin.name not in state.skip_filter:
            yield plugin, plugin


def pod_added(instance: FrameworkInstance, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns) -> None:
    """Call AddPod of all plugins after ``added`` was added to its row. Raises PluginError: one failed."""
    for plugin, extension in extended(instance, state):
        try:
            status = checked(extension.add_pod(state, pod, added, nodes, added.row), Status, plugin.name, _ADD_POD)
        except Exception as fault:
            raise as_plugin_error(plugin.name, _ADD_POD, fault) from fault
        _expect_success(status, plugin.name, _ADD_POD)


def pod_removed(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    removal: tuple[PodInfo, int],
    nodes: NodeColumns,
) -> None:
    """Call RemovePod of all plugins after a pod was removed from a row of *nodes*. Raises PluginError: one failed."""
    removed, row = removal
    for plugin, extension in extended(instance, state):
        try:
            answer = extension.remove_pod(state, pod, removed, nodes, row)
            status = checked(answer, Status, plugin.name, _REMOVE_POD)
        except Exception as fault:
            raise as_plugin_error(plugin.name, _REMOVE_POD, fault) from fault
        _expect_success(status, plugin.name, _REMOVE_POD)


def _expect_success(status: Status, plugin: str, point: str) -> None:
    if not status.is_success:
        raise PluginError(plugin, point, status.message or f"returned {status.code_name}")


_CODE_BITS = 16
_CODE_MASK = 0xFFFF
_SUCCESS, _UNSCHEDULABLE = Code.SUCCESS, Code.UNSCHEDULABLE
_NONE: frozenset[str] = frozenset()
NARROWED = -1
"""Verdict of rows that PreFilter excluded by naming the only nodes to consider."""


class PreFilterOutcome(Struct):
    """Result of PreFilter.

    Attributes:
        status: Success, or the rejection of the pod as a whole with its plugin.
        node_names: The only nodes to consider; None for all.
    """

    status: Status = SUCCESS
    node_names: frozenset[str] | None = None
    narrowing: tuple[str, ...] = ()


def run_pre_filters(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    *,
    among: Sequence[PreFilterPlugin] | None = None,
) -> PreFilterOutcome:
    """Run PreFilter of the plugins in ``among``, or of all.

    After Unschedulable the remaining plugins still run, because preemption needs their state; after
    UnschedulableAndUnresolvable they do not.
    """
    outcome = PreFilterOutcome()
    narrowing: list[str] = []
    if among is None:
        for runner in instance.node_filters:
            runner.prepare(state)
    left, now, evaluated = state.recorder.plugin_left, state.recorder.now, state.evaluations.pre_filter
    idle = instance.not_for_resizes if pod.pod.has_deferred_resize else _NONE
    state.skip_filter |= idle
    for plugin in instance.pre_filter if among is None else among:
        if plugin.name in idle:
            continue
        try:
            result = plugin.pre_filter(state, pod, nodes)
            if type(result) is not PreFilterResult or type(result.status) is not Status:
                result = checked(result, PreFilterResult, plugin.name, "preFilter")
        except Exception as error:
            raise as_plugin_error(plugin.name, "preFilter", error) from error
        status = result.status
        left((plugin.name, status.code, now()))
        if status.is_skip:
            state.skip_filter.add(plugin.name)
            continue
        evaluated[plugin.name] += 1
        if not status.is_success:
            rejection = status.of(plugin.name)
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFilterOutcome(rejection)
            if status.code is not Code.UNSCHEDULABLE:
                raise PluginError(plugin.name, "preFilter", status.message or f"returned {status.code_name}")
            outcome.status = rejection
            continue
        names: object = result.node_names
        if names is not None:
            if not isinstance(names, frozenset):
                message = f"returned node_names {names!r}; return a frozenset of names, or None"
                raise PluginError(plugin.name, "preFilter", message)
            narrowing.append(plugin.name)
            outcome.node_names = names if outcome.node_names is None else outcome.node_names & names
            if not outcome.node_names:
                return PreFilterOutcome(_nothing_left(narrowing), frozenset(), tuple(narrowing))
    outcome.narrowing = tuple(narrowing)
    return outcome


def _nothing_left(narrowing: list[str]) -> Status:
    if len(narrowing) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {narrowing[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}] simultaneously")


def narrowed_status(narrowing: tuple[str, ...]) -> Status:
    """Return the status of rows that PreFilter excluded."""
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}]")


def run_filters(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    rows: Rows,
    *,
    among: Sequence[tuple[int, FilterRunner]] | None = None,
    beside: Verdicts | None = None,
) -> Verdicts:
    """Run the filters in ``among``, given with their positions, or all filters.

    Args:
        among: The filters to run; None for all.
        beside: int32 per row: the first verdicts of the filters that do not run; None if all run. For a row that an
            earlier filter rejects, filters that take one node at a time are not called, and row errors are not raised.

    Returns:
        int32 per requested row: 0 if every plugin accepts it, else the verdict of the first plugin that rejects it. A
        node that is held has a verdict below those of all plugins.
        Rows without a node have arbitrary values.
    """
    count = nodes.size if isinstance(rows, slice) else len(rows)
    verdicts: Verdicts = np.zeros(count, dtype=np.int32)
    untouched = True
    if not nodes.held.is_empty:
        verdicts = nodes.held.verdicts(nodes.size, nodes.version, nodes.row_of)[rows].copy()
        untouched = not verdicts.any()
    left, now, evaluated = state.recorder.plugin_left, state.recorder.now, state.evaluations.filter
    node_count = nodes.count if isinstance(rows, slice) else count
    for position, plugin in enumerate(instance.filters) if among is None else among:
        if plugin.name in state.skip_filter:
            continue
        if plugin.remaining_rows_only:
            remaining = _remaining(verdicts, position, beside)
            call = _FilterCall(state, pod, nodes, rows)
            changed, row_count = _filter_remaining(plugin, position, (verdicts, remaining), call)
            untouched = untouched and not changed
            evaluated[plugin.name] += row_count
            left((plugin.name, _UNSCHEDULABLE if changed else _SUCCESS, now()))
            continue
        evaluated[plugin.name] += node_count
        try:
            codes = _codes(plugin, _FilterCall(state, pod, nodes, rows), count)
        except UndecidedRowsError as undecided:
            _check_codes(plugin.name, undecided.codes, count)
            remaining = _remaining(verdicts, position, beside)
            _raise_if_reached(undecided, undecided.codes[remaining & nodes.alive[rows]])
            codes = undecided.codes
        if codes is not None:
            rejected = codes != 0
            if not untouched:
                np.logical_and(rejected, verdicts == 0, out=rejected)
            if rejected.any():
                np.copyto(verdicts, _verdicts(codes, position), where=rejected)
                untouched = False
                left((plugin.name, _UNSCHEDULABLE, now()))
                continue
        left((plugin.name, _SUCCESS, now()))
    return verdicts


class _FilterCall(Struct):
    state: CycleState
    pod: PodInfo
    nodes: NodeColumns
    rows: Rows


def _remaining(verdicts: Verdicts, position: int, beside: Verdicts | None) -> NDArray[np.bool_]:
    """Return which rows no filter before a position rejects, bool per row."""
    left: NDArray[np.bool_] = verdicts == 0
    return left if beside is None else left & ((beside == 0) | ((beside >> _CODE_BITS) > position + 1))


def verdicts_of(codes: NDArray[np.int16], position: int) -> Verdicts:
    """Return the verdicts, int32 each, for codes of the filter at a position; 0 for 0."""
    verdicts = _verdicts(codes, position)
    verdicts[codes == 0] = 0
    return verdicts


def first_verdicts(some: Verdicts, others: Verdicts) -> Verdicts:
    """Combine two verdicts per row: that of the earlier filter; 0 only where both are 0."""
    return np.where((some == 0) | (others == 0), some | others, np.minimum(some, others))


def _verdicts(codes: NDArray[np.int16], position: int) -> Verdicts:
    return (codes.astype(np.int32) & _CODE_MASK) | ((position + 1) << _CODE_BITS)


def _codes(plugin: FilterRunner, call: _FilterCall, count: int) -> NDArray[np.int16] | None:
    try:
        codes = plugin.filter(call.state, call.pod, call.nodes, call.rows)
    except Exception as error:
        raise as_plugin_error(plugin.name, "filter", error) from error
    if codes is not None:
        _check_codes(plugin.name, codes, count)
    return codes


def _raise_if_reached(undecided: UndecidedRowsError, reached: NDArray[np.int16]) -> None:
    """Raise the error of an undecided row that no earlier plugin rejected; kube-scheduler never reaches the others."""
    for code in np.unique(reached).tolist():
        if code in undecided.problems:
            raise PluginError(undecided.plugin, "filter", undecided.problems[code]) from undecided


def _check_codes(plugin: str, codes: object, count: int) -> None:
    if not isinstance(codes, np.ndarray) or codes.dtype != np.int16 or codes.shape != (count,):
        shape = getattr(codes, "shape", None)
        kind = getattr(codes, "dtype", type(codes).__name__)
        raise PluginError(plugin, "filter", f"returned {kind}{shape}; return int16[{count}] or None")


def _filter_remaining(
    plugin: FilterRunner, position: int, so_far: tuple[Verdicts, NDArray[np.bool_]], call: _FilterCall
) -> tuple[bool, int]:
    """Filter the rows that remain; return whether a row was rejected, and the number of rows."""
    verdicts, is_left = so_far
    left = np.flatnonzero(is_left)
    if isinstance(call.rows, slice):
        left = left[call.nodes.alive[left]]
        rows = left
    else:
        rows = call.rows[left]
    try:
        codes = _codes(plugin, _FilterCall(call.state, call.pod, call.nodes, rows), len(rows))
    except UndecidedRowsError as undecided:
        raise PluginError(plugin.name, "filter", next(iter(undecided.problems.values()))) from undecided
    if codes is None:
        return False, len(rows)
    rejected = codes != 0
    verdicts[left[rejected]] = _verdicts(codes[rejected], position)
    return bool(rejected.any()), len(rows)


def decode_verdict(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, verdict: int
) -> Status:
    """Return the status for a verdict of this attempt, with its plugin.

    Raises:
        PluginError: The plugin cannot explain its own code.
    """
    if verdict <= _CODE_MASK:
        # No plugin rejects the node: it accepts no pods at all.
        return unresolvable(nodes.held.text(verdict))
    plugin = instance.filters[(verdict >> _CODE_BITS) - 1]
    code = verdict & _CODE_MASK
    if code > np.iinfo(np.int16).max:
        code -= 1 << _CODE_BITS
    try:
        status = checked(plugin.decode(state, pod, code), Status, plugin.name, "filter")
    except Exception as error:
        raise as_plugin_error(plugin.name, "filter", error) from error
    if not status.is_rejected:
        reason = status.message or f"decoded its code {code} as {status.code_name}; return a rejection"
        raise PluginError(plugin.name, "filter", reason)
    return status.of(plugin.name)


class SumFilters(Struct, frozen=True):
    """The filters of an attempt.

    Attributes:
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
        """Return the verdicts on the rows, int32[k], for these sums."""
        verdicts = self.fixed
        for position, plugin in self.summing:
            codes = plugin.filter_sums(self.state, self.pod, sums)
            if codes is not None:
                verdicts = first_verdicts(verdicts, verdicts_of(codes, position))
        return verdicts


def sum_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Sequence[int]
) -> SumFilters | None:
    """Return the filters of an attempt for rows in ascending order; None if they do not depend on sums alone."""
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


# -- nominated pods ---------------------------------------------------------------------------------------------------

_MANY = 3
"""Number of rows from which a copy of the sums is faster than adding pods to the columns."""


def filter_with_nominated_pods(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    nominator: NominatedPods,
    *,
    among: AbstractSet[int] | None = None,
    find_cached: Callable[[str], object | None] | None = None,
) -> dict[int, int]:
    """Filter the nodes to which pods of the same or higher priority are nominated, as if these ran there.

    Args:
        among: The only rows to filter; None for all.
        find_cached: Returns the assumed or bound pod of a UID, None for none.

    Returns:
        Verdicts by row, for rows with nominations that count.
    """
    if not nominator.node_by_uid:
        return {}
    nominations = dict(nominated_by_row(pod, nodes, nominator, among=among, find_cached=find_cached))
    filters = None
    if len(nominations) >= _MANY:
        filters = sum_filters(instance, state, pod, nodes, sorted(nominations))
    if filters is None:
        verdicts = {}
        for row, others in nominations.items():
            # Plugins count added pods in the cycle state, which the next row must not see.
            dry_run = state.clone()
            with ColumnsOverlay(nodes) as overlay:
                for other in others:
                    overlay.add(other, row)
                    pod_added(instance, dry_run, pod, other, nodes)
                verdicts[row] = int(run_filters(instance, dry_run, pod, nodes, np.array([row], dtype=np.intp))[0])
        return verdicts
    # On several rows, sums are faster than adding the pods to the columns.
    sums, rows = RowSums(nodes, filters.rows), filters.rows.tolist()
    sums.add((place, other) for place, row in enumerate(rows) for other in nominations[row])
    return dict(zip(rows, filters.verdicts(sums).tolist(), strict=True))


def nominated_by_row(
    pod: PodInfo,
    nodes: NodeColumns,
    nominator: NominatedPods,
    *,
    among: AbstractSet[int] | None = None,
    find_cached: Callable[[str], object | None] | None = None,
) -> Iterator[tuple[int, list[PodInfo]]]:
    """Yield the rows with nominations that count for ``pod``, with the nominated pods; arguments as above."""
    if among is not None and len(among) < len(nominator):
        named: Iterable[tuple[int, str | None]] = [(row, nodes.names[row]) for row in sorted(among)]
    else:
        named = [(nodes.row_of(name), name) for name in nominator.nodes()]
    for row, node_name in named:
        if node_name is None or row == NO_ROW or (among is not None and row not in among):
            continue
        # Members of a gang are assumed while they are nominated, sometimes as copies with another priority, and count
        # already.
        nominated = [
            other
            for other in nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid and other.row == NO_ROW
            if find_cached is None or find_cached(other.uid) is None
        ]
        if nominated:
            yield row, nominated
