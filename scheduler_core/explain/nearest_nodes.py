"""The nearest nodes for an unschedulable pod or member of a gang, with everything that each of them lacks.

A cycle stores only the rejection of the first plugin for each node. To fix a node, a user needs all of them, so every
plugin's Filter is called for every node by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.errors import PluginError, SchedulerCoreError
from scheduler_core.explain.device_findings import DeviceFindings
from scheduler_core.explain.findings import Lack, NodeLacks
from scheduler_core.explain.pod_dry_run import Examination, Examiner, GangContext
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, Shortage
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING, Code, Status
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.model.pod_requests import BINARY_SI, CPU, NANO, canonical_text, cpu_text
from scheduler_core.placement.engine import Observer
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_RANKED = 200
"""Nodes with the fewest rejections for which all reasons are computed before they are ranked."""


def near_misses(
    columns: NodeColumns,
    instance: FrameworkInstance,
    found: Examination,
    limit: int,
    devices: DeviceFindings | None = None,
) -> tuple[NodeLacks, ...]:
    """Return the nodes with the fewest reasons against a pod.

    Args:
        devices: What nodes lack for the claims of the pod; None for a pod without claims.

    Returns:
        The nodes by number of reasons, then by reasons that removing pods cannot resolve, then by missing share, then
        by name. A resource of which an empty node has too little counts twice: a taint is removed more easily than a
        node is enlarged. Empty if the pod was rejected before any node was evaluated.
    """
    if not found.rejected:
        return ()
    state = CycleState()
    narrowing = run_pre_filters(instance, state, found.pod, columns).narrowing
    verdicts = _every_verdict(columns, instance, found.pod, state)
    failures = _too_small(columns, found.pod).astype(np.int64)
    for rejected in verdicts.values():
        failures += rejected != 0
    gaps: dict[int, float] = {}
    if devices is not None and devices.plugin_name in verdicts:
        lacking = np.flatnonzero((verdicts[devices.plugin_name] != 0) & columns.alive).tolist()
        gaps = {row: devices.gap(row) for row in lacking}
    rows = sorted(
        (columns.row_of(name) for name in found.rejected),
        key=lambda row: (failures[row], gaps.get(row, 0.0), columns.names[row]),
    )
    misses: list[tuple[tuple[int, int, float], NodeLacks]] = []
    for row in rows[: max(limit, _MAX_RANKED)]:
        name = columns.node_name(row)
        lacks, gap_of = _lacks(columns, instance, found.pod, state, verdicts, row=row), dict[str, float]()
        if devices is not None and row in gaps:
            gap_of[devices.plugin_name] = gaps[row]
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
        misses.append((_distance(lacks, gap_of, is_excluded=is_excluded), NodeLacks(name, tuple(lacks))))
    misses.sort(key=lambda each: (each[0], each[1].node))
    return tuple(miss for _, miss in misses[:limit])


def _too_small(columns: NodeColumns, pod: PodInfo) -> NDArray[np.bool_]:
    """Return bool[row], whether the pod requests more than the node has when it is empty."""
    small = np.zeros(columns.size, dtype=np.bool_)
    for name, amount in pod.requests.fit.items():
        column = columns.resources.find(name)
        if amount and column is not None:
            small |= columns.allocatable[column] < amount
    return small


def _every_verdict(
    columns: NodeColumns, instance: FrameworkInstance, pod: PodInfo, state: CycleState
) -> dict[str, NDArray[np.int32]]:
    found = {}
    for position, plugin in enumerate(instance.filters):
        if plugin.name in state.skip_filter:
            continue
        # In a cycle it is called only for nodes that earlier plugins accepted; ignore its error on the others.
        with suppress(PluginError):
            found[plugin.name] = run_filters(instance, state, pod, columns, ALL_ROWS, among=[(position, plugin)])
    return found


def _lacks(
    columns: NodeColumns,
    instance: FrameworkInstance,
    pod: PodInfo,
    state: CycleState,
    verdicts: Mapping[str, NDArray[np.int32]],
    *,
    row: int,
) -> list[Lack]:
    lacks: list[Lack] = []
    if columns.held.reason(columns.node_name(row)):
        return lacks  # No plugin rejects it: the attempt has the reason.
    for plugin in instance.filters:
        verdict = int(verdicts[plugin.name][row]) if plugin.name in verdicts else 0
        if not verdict:
            continue
        status = decode_verdict(instance, state, pod, columns, verdict)
        shortages: tuple[Shortage, ...] = ()
        details: tuple[str, ...] = ()
        if isinstance(plugin, FilterPlugin):
            shortages = plugin.shortages(state, pod, columns, row)
            details = plugin.details(state, pod, columns, row)
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
    too_small = any(lack.amounts and not lack.preemption_may_help for lack in lacks)
    count = sum(max(1, len(lack.reasons)) for lack in lacks) + is_excluded + too_small
    final = sum(not lack.preemption_may_help for lack in lacks) + is_excluded
    return count, final, sum(_missing_share(lack, gaps) for lack in lacks)


def _missing_share(lack: Lack, gaps: Mapping[str, float]) -> float:
    if not lack.amounts:
        return gaps.get(lack.plugin, 1.0)
    return sum((each.needed - each.free) / max(1, each.needed) for each in lack.amounts)


# -- the status of a PodGroup -----------------------------------------------------------------------------------------


_MAX_NODES = 3
_OLDEST_SECONDS = 30.0
_TIMES_APART = 10.0
_KIBI = 1024


def labels_of(nodes: NodeColumns, topology: GroupTopology | None, where: Where) -> dict[str, str]:
    """Return the labels of a domain; none for all nodes."""
    rows = where.rows
    if topology is None or rows is None or not len(rows):
        return {}
    node = nodes.nodes[int(rows[0])]
    labels = {} if node is None else node.metadata.labels
    level = where.name.partition("=")[0]
    return {key: labels[key] for key in dict.fromkeys((topology.key, level)) if key in labels}


def examine_again(examiner: Examiner, gang: Gang, where: Where, attempt: Attempt) -> Examination | None:
    """Examine an infeasible member while those before it are assumed in a domain; None if no node lacks anything."""
    topology = None if gang.group is None else gang.group.topology
    context = GangContext(frozenset(gang.pods), labels_of(examiner.nodes, topology, where))
    found = examiner.examine_member(attempt.instance, attempt.queued, context)
    # A feasible member was rejected after its node was chosen.
    return None if found.feasible or found.error else found


_NODES_PER_STEP = 5
"""Nodes that are described in a step."""


@dataclass(slots=True)
class NearestNodesOfGangs(Observer):
    """Describes the nearest nodes of rejected gangs."""

    examiner: Examiner
    _not_before: float = field(default=0.0, init=False)

    def failed(
        self, request: PlacementRequest, found: Placement, order: Sequence[QueuedPod], tries: Sequence[Placement]
    ) -> None:
        """Describe the nearest nodes of a placement that reaches more members than those before it."""
        del order
        if found.failed and not found.is_error and all(found.reached > each.reached for each in tries):
            found.nearest = self.describe(request.gang, found)

    def describe(self, gang: Gang, found: Placement) -> str:
        """Describe the nearest nodes for the next member of a failed placement; "" if there are none, or not now."""
        attempt, failure = found.failed[0]
        nodes, clock = self.examiner.nodes, self.examiner.clock
        key, now = f"{found.where.name}/{found.reached}/{failure.message}", clock.now()
        if gang.nearest is not None and gang.nearest[0] == key:
            is_fresh = now < gang.nearest[2] + _OLDEST_SECONDS
            if is_fresh or now < self._not_before:
                return gang.nearest[1]
        if now < self._not_before:
            return ""
        text = self._compute(gang, found, attempt)
        nodes.steps.pass_by(nodes.size // _NODES_PER_STEP)
        took = clock.now() - now
        self._not_before = now + took * (1 + _TIMES_APART)
        gang.nearest = (key, text, now)
        return text

    def _compute(self, gang: Gang, found: Placement, attempt: Attempt) -> str:
        again = examine_again(self.examiner, gang, found.where, attempt)
        try:
            nodes = self.examiner.nodes
            return "" if again is None else _sentence(near_misses(nodes, attempt.instance, again, _MAX_NODES))
        except SchedulerCoreError:
            return ""


def _sentence(misses: tuple[NodeLacks, ...]) -> str:
    if not misses:
        return ""
    first, nodes = misses[0], ", ".join(f"{miss.node} ({'; '.join(map(_lack_text, miss.lacks))})" for miss in misses)
    shortages = [each for lack in first.lacks for each in lack.amounts]
    if all(lack.amounts for lack in first.lacks):
        more = " and ".join(_amount(each, each.needed - each.free) for each in shortages)
        return f"Nearest: {nodes}; it would fit on {first.node} with {more} more"
    return f"Nearest: {nodes}; no other reason excludes {first.node}"


def _lack_text(lack: Lack) -> str:
    if not lack.amounts:
        return ", ".join(lack.reasons) or lack.plugin
    return ", ".join(
        f"needs {_amount(each, each.needed)}, has {_quantity(each.resource, max(0, each.free))}"
        for each in lack.amounts
    )


def _amount(shortage: Shortage, value: int) -> str:
    return f"{_quantity(shortage.resource, value)} {shortage.resource}"


def _quantity(resource: str, value: int) -> str:
    if resource == CPU:
        return cpu_text(value)
    return canonical_text(value * NANO, BINARY_SI) if value >= _KIBI else str(value)
