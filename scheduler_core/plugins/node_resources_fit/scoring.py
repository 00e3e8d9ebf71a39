"""Score of NodeResourcesFit, by the strategy of the profile.

The scored requests differ from the filtered ones: containers without CPU or memory requests count with defaults, and
pod-level requests and resizes are ignored (kube-scheduler ignores them here, but not in
NodeResourcesBalancedAllocation).

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/fit.go`` (``NewFit``, ``Score``) and
``resource_allocation.go`` (``calculatePodResourceRequest``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from scheduler_core.config.plugin_args import ScoringStrategy
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Scores
from scheduler_core.kernels.cached_resource_scores import CachedCapacityRatio, CachedLeastAllocated, CachedMostAllocated
from scheduler_core.kernels.resource_scores import (
    ResourceUse,
    RowUse,
    least_allocated,
    least_allocated_row,
    most_allocated,
    most_allocated_row,
    requested_to_capacity_ratio,
    scores_by_percentage,
)
from scheduler_core.model.pod import PodStatus
from scheduler_core.model.pod_requests import CPU, MEMORY, PodRequests, pod_requests
from scheduler_core.plugins.device_uses import DeviceUses
from scheduler_core.plugins.resource_scoring import (
    Demand,
    Formula,
    ScoreCache,
    is_served_by_devices,
    resource_uses,
    scored_columns,
    scored_resource,
)
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_SHAPE_SCORE = 10
_Kernel = Callable[[Sequence[ResourceUse]], Scores]
_ROW_KERNELS: Mapping[str, Callable[[Sequence[RowUse]], int]] = {
    "LeastAllocated": least_allocated_row,
    "MostAllocated": most_allocated_row,
}


class FitScorer:
    """A scoring strategy.

    Attributes:
        row_kernel: Scores one row; None if only the array form supports the strategy.
    """

    __slots__ = ("_device_uses", "_kernel", "_resources", "_score_cache", "row_kernel")

    def __init__(self, strategy: ScoringStrategy) -> None:
        self._resources = tuple(scored_resource(each.name, each.weight) for each in strategy.scored_resources())
        self._kernel, formula = _kernels(strategy)
        self.row_kernel = _ROW_KERNELS.get(strategy.type)
        self._score_cache = ScoreCache(formula)
        self._device_uses = DeviceUses()

    def demand(self, pod: PodInfo) -> Demand:
        """Return the scored requests of a pod, per resource."""
        requests = _scored_requests(pod)
        amounts = tuple(_amount(requests, resource.name) for resource in self._resources)
        return Demand(self._resources, amounts, nonzero=True)

    def counts_devices(self, pod: PodInfo, nodes: NodeColumns) -> bool:
        """Return whether scores of a pod depend on devices."""
        return bool(nodes.devices.classes) and is_served_by_devices(self.demand(pod), nodes)

    def score(self, demand: Demand, nodes: NodeColumns, rows: Rows) -> Scores:
        """Score rows.

        Args:
            demand: The scored requests of the pod.
            nodes: The columns.
            rows: The rows to score.

        Returns:
            int64 per row, 0 to 100.
        """
        if is_served_by_devices(demand, nodes):
            return self._kernel(self._device_uses.uses(demand, nodes, rows))
        scored = scored_columns(demand, nodes)
        if not scored:
            return np.zeros(len(nodes.pod_count[rows]), dtype=np.int64)
        found = self._score_cache.scores(scored, nodes, rows)
        return self._kernel(resource_uses(scored, nodes, rows)) if found is None else found


def _kernels(strategy: ScoringStrategy) -> tuple[_Kernel, Formula]:
    """Return the formula for any numbers and rows, and the constructor of its cached form."""
    match strategy.type:
        case "LeastAllocated":
            return least_allocated, CachedLeastAllocated
        case "MostAllocated":
            return most_allocated, CachedMostAllocated
        case "RequestedToCapacityRatio":
            assert strategy.requested_to_capacity_ratio is not None, "the configuration was validated"
            shape = strategy.requested_to_capacity_ratio.shape
            scale = MAX_NODE_SCORE // _MAX_SHAPE_SCORE
            table = scores_by_percentage([(point.utilization, point.score * scale) for point in shape])
            return (
                lambda uses: requested_to_capacity_ratio(uses, table),
                lambda weights: CachedCapacityRatio(weights, table),
            )


def _scored_requests(pod: PodInfo) -> PodRequests:
    spec, status = pod.pod.spec, pod.pod.status
    has_status = status.container_statuses or status.init_container_statuses or status.resources
    if spec.resources is None and not has_status:
        return pod.requests
    # Rare enough to compute the requests again without the parts that must not be scored.
    bare_spec = msgspec.structs.replace(spec, resources=None)
    return pod_requests(msgspec.structs.replace(pod.pod, spec=bare_spec, status=PodStatus()))


def _amount(requests: PodRequests, name: str) -> int:
    if name == CPU:
        return requests.scored_cpu_milli
    if name == MEMORY:
        return requests.scored_memory
    return requests.fit.get(name, 0)
