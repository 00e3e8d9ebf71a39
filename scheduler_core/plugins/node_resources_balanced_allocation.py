"""NodeResourcesBalancedAllocation: prefers nodes where the pod evens out the use of different resources.

The formula is :func:`scheduler_core.kernels.resource_scores.balanced_allocation`. Unlike in NodeResourcesFit,
containers without requests count 0. A pod that requests none of the resources is not scored, because
its score would prefer the same node for all such pods.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scheduler_core.config.plugin_args import NodeResourcesBalancedAllocationArgs
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    Normalization,
    PodReads,
    PreScorePlugin,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, SUCCESS, Status
from scheduler_core.kernels.resource_scores import CachedBalance, balanced_allocation, balanced_allocation_row
from scheduler_core.plugins.resource_scoring import (
    Demand,
    DeviceUses,
    ScoreCache,
    is_served_by_devices,
    resource_uses,
    row_uses,
    scored_columns,
    scored_resource,
)
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_KEY: StateKey[Demand] = StateKey("NodeResourcesBalancedAllocation/preScore")
_UNMOVED = 75


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Compares how evenly resources are used with and without the pod."""

    name = "NodeResourcesBalancedAllocation"
    events = ()
    reuse = Reuse(score=Reads.NODE | Reads.PODS, pod=PodReads.RESOURCES)
    args_model = NodeResourcesBalancedAllocationArgs
    normalization = Normalization.NONE

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = tuple(scored_resource(name) for name in args.balanced_resources())
        self._score_cache = ScoreCache(lambda _: CachedBalance(), handle.nodes)
        self._device_uses = DeviceUses(handle.nodes)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that holds while the same classes serve extended resources; None if devices are counted."""
        demand = self._demand(pod)
        if is_served_by_devices(demand, nodes):
            return None
        if not any(amount and each.is_scalar for each, amount in zip(demand.resources, demand.amounts, strict=True)):
            return always
        devices = nodes.devices
        version = devices.classes_version
        return lambda: devices.classes_version == version

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Store the pod's requests; return Skip if it requests none of the resources."""
        demand = self._demand(pod)
        if not any(demand.amounts):
            return SKIP
        state.write(_KEY, demand)
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the change of balance, int64 per row, 50 to 100; 0 for a pod that requests none of the resources."""
        demand = state.get(_KEY) or self._demand(pod)
        if not any(demand.amounts):
            return _level(0, nodes, rows)
        if is_served_by_devices(demand, nodes):
            return balanced_allocation(self._device_uses.uses(demand, rows))
        scored = scored_columns(demand, nodes)
        found = self._score_cache.scores(scored, rows) if len(scored) == 2 else None
        if found is not None:
            return found
        uses = resource_uses(scored, nodes, rows)
        return balanced_allocation(uses) if uses else _level(_UNMOVED, nodes, rows)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Score one row without NumPy, for two resources that the node has."""
        demand = state.get(_KEY)
        uses = None if demand is None else row_uses(demand, nodes, row)
        found = balanced_allocation_row(uses) if uses else None
        return super().score_row(state, pod, nodes, row) if found is None else found

    def _demand(self, pod: PodInfo) -> Demand:
        accounted = pod.requests.accounted
        amounts = tuple(accounted.get(resource.name, 0) for resource in self._resources)
        return Demand(self._resources, amounts, nonzero=False)


def _level(score: int, nodes: NodeColumns, rows: Rows) -> Scores:
    return np.full(len(nodes.pod_count[rows]), score, dtype=np.int64)
