"""The nearest nodes for an unschedulable pod, with everything that each of them lacks.

A cycle stores only the rejection of the first plugin for each node. To fix a node, a user needs all of them, so every
plugin's Filter is called for every node by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.explain.findings import Lack, NodeLacks
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, Shortage
from scheduler_core.framework.status import GANG_SCHEDULING, Code, Status
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_RANKED = 200
"""Nodes with the fewest rejections for which all reasons are computed before they are ranked."""


class RowFindings(Protocol):
    """What nodes lack according to one plugin, in more detail than its reasons."""

    @property
    def plugin_name(self) -> str:
        """The plugin."""

    def gap(self, row: int) -> float:
        """Return how far a row is from being feasible; larger is farther."""

    def details(self, row: int) -> tuple[str, ...]:
        """Return what a row lacks."""


class _Verdicts(Struct):
    """Verdicts of each plugin by itself, int32 per row."""

    state: CycleState
    by_plugin: dict[str, NDArray[np.int32]] = field(default_factory=dict)


def near_misses(
    columns: NodeColumns,
    instance: FrameworkInstance,
    found: Examination,
    limit: int,
    devices: RowFindings | None = None,
) -> tuple[NodeLacks, ...]:
    """Return the nodes with the fewest reasons against a pod.

    Args:
        devices: What nodes lack for the claims of the pod; None for a pod without claims.

    Returns:
        The nodes by number of reasons, then by reasons that removing pods cannot resolve, then by missing share, then
        by name. Empty if the pod was rejected before any node was evaluated.

    Raises:
        PluginError: A plugin raised, or returned what its point does not allow.
    """
    if not found.rejected:
        return ()
    state = CycleState()
    narrowing = run_pre_filters(instance, state, found.pod, columns).narrowing
    verdicts = _every_verdict(columns, instance, found.pod, state)
    failures = np.zeros(columns.size, dtype=np.int64)
    for rejected in verdicts.by_plugin.values():
        failures += rejected != 0
    gaps: dict[int, float] = {}
    if devices is not None:
        by_devices = verdicts.by_plugin.get(devices.plugin_name)
        lacking = () if by_devices is None else np.flatnonzero((by_devices != 0) & columns.alive).tolist()
        gaps = {row: devices.gap(row) for row in lacking}
    rows = sorted(
        (columns.row_of(name) for name in found.rejected),
        key=lambda row: (failures[row], gaps.get(row, 0.0), columns.names[row]),
    )
    misses: list[tuple[tuple[int, int, float], NodeLacks]] = []
    for row in rows[: max(limit, _MAX_RANKED)]:
        name = columns.node_name(row)
        lacks = _lacks(columns, instance, found.pod, verdicts, row)
        if devices is not None and row in gaps:
            # Preemption frees no devices: a claim has them until it is deallocated, which follows the end of its pods.
            lacks = [
                replace(lack, details=devices.details(row), preemption_may_help=False)
                if lack.plugin == devices.plugin_name
                else lack
                for lack in lacks
            ]
        first = found.rejected[name]
        is_excluded = not first.plugin
        if is_excluded:
            # The Filter of a plugin that narrowed the nodes has its own reason.
            silent = [each for each in narrowing if all(lack.plugin != each for lack in lacks)]
            if silent or not lacks:
                lacks.insert(0, _lack(first, ", ".join(silent)))
        elif first.plugin == GANG_SCHEDULING or not lacks:
            # Reserved for another gang, outside the domain of the pod's own, or infeasible only beside the pods that
            # are nominated to the node: no plugin alone rejects it.
            lacks.append(_lack(first, first.plugin))
        by_devices_gap = {} if devices is None or row not in gaps else {devices.plugin_name: gaps[row]}
        misses.append((_distance(lacks, by_devices_gap, is_excluded=is_excluded), NodeLacks(name, tuple(lacks))))
    misses.sort(key=lambda each: (each[0], each[1].node))
    return tuple(miss for _, miss in misses[:limit])


def _every_verdict(columns: NodeColumns, instance: FrameworkInstance, pod: PodInfo, state: CycleState) -> _Verdicts:
    verdicts = _Verdicts(state)
    skipped = frozenset(state.skip_filter)
    names = {plugin.name for plugin in instance.filters}
    for plugin in instance.filters:
        if plugin.name in skipped:
            continue
        state.skip_filter = (names - {plugin.name}) | skipped
        try:
            rejected = run_filters(instance, state, pod, columns, ALL_ROWS)
        except PluginError:
            # In a cycle it is called only for nodes that earlier plugins accepted; ignore its error on the others.
            continue
        verdicts.by_plugin[plugin.name] = rejected
    state.skip_filter = set(skipped)
    return verdicts


def _lacks(
    columns: NodeColumns, instance: FrameworkInstance, pod: PodInfo, verdicts: _Verdicts, row: int
) -> list[Lack]:
    lacks: list[Lack] = []
    if columns.held.reason(columns.node_name(row)):
        return lacks  # No plugin rejects it: the attempt has the reason.
    for plugin in instance.filters:
        rejected = verdicts.by_plugin.get(plugin.name)
        verdict = 0 if rejected is None else int(rejected[row])
        if not verdict:
            continue
        status = decode_verdict(instance, verdicts.state, pod, columns, verdict)
        shortages: tuple[Shortage, ...] = ()
        details: tuple[str, ...] = ()
        if isinstance(plugin, FilterPlugin):
            shortages = plugin.shortages(verdicts.state, pod, columns, row)
            details = plugin.details(verdicts.state, pod, columns, row)
        lacks.append(_lack(status, plugin.name, shortages, details))
    return lacks


def _lack(status: Status, plugin: str, shortages: tuple[Shortage, ...] = (), details: tuple[str, ...] = ()) -> Lack:
    return Lack(plugin, status.reasons, status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE, shortages, details)


def _distance(lacks: list[Lack], gaps: Mapping[str, float], *, is_excluded: bool) -> tuple[int, int, float]:
    """Return how far a node is from being feasible: reasons, reasons that stay without pods, missing share.

    Args:
        gaps: Distance of what a plugin lacks that states no amounts, 1 by default.
        is_excluded: Whether PreFilter named other nodes as the only ones to consider.
    """
    count = sum(max(1, len(lack.reasons)) for lack in lacks) + is_excluded
    final = sum(not lack.preemption_may_help for lack in lacks) + is_excluded
    return count, final, sum(_missing_share(lack, gaps) for lack in lacks)


def _missing_share(lack: Lack, gaps: Mapping[str, float]) -> float:
    if not lack.amounts:
        return gaps.get(lack.plugin, 1.0)
    return sum((each.needed - each.free) / max(1, each.needed) for each in lack.amounts)
