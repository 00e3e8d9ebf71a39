"""NodeResourcesFit: filters nodes by free resources (:mod:`.filtering`), and scores them by the profile's strategy.

A node that offers none of a resource which a device class serves is left to DynamicResources. The scored requests
differ from the filtered ones: containers without CPU or memory requests count with defaults, and pod-level requests and
resizes are ignored (kube-scheduler ignores them here, but not in NodeResourcesBalancedAllocation). The hints compare
objects, not columns, because the columns contain the change already and its difference counts.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/fit.go`` and ``resource_allocation.go``
(``calculatePodResourceRequest``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from scheduler_core.config.plugin_args import NodeResourcesFitArgs, ScoringStrategy
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource, hint_on
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    CONTINUE,
    MAX_NODE_SCORE,
    Codes,
    FilterPlugin,
    Normalization,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
    Shortage,
    SumsFilter,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import NodeChange, always
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.kernels.resource_scores import (
    CachedCapacityRatio,
    CachedLeastAllocated,
    CachedMostAllocated,
    ResourceUse,
    RowUse,
    least_allocated,
    least_allocated_row,
    most_allocated,
    most_allocated_row,
    requested_to_capacity_ratio,
    scores_by_percentage,
)
from scheduler_core.model.devices import DeviceClass
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodStatus
from scheduler_core.model.pod_requests import (
    CPU,
    MEMORY,
    PODS,
    PodRequests,
    in_units,
    is_extended_resource,
    nano,
    pod_requests,
    whole_units,
)
from scheduler_core.plugins.node_resources_fit.filtering import (
    MAX_RESOURCES_IN_BITS,
    FitDemand,
    FreeColumns,
    OwnPlace,
    ResizeDemand,
)
from scheduler_core.plugins.resource_scoring import (
    Demand,
    DeviceUses,
    Formula,
    ScoreCache,
    is_served_by_devices,
    resource_uses,
    row_uses,
    scored_columns,
    scored_resource,
)
from scheduler_core.snapshot.interning import FIXED_RESOURCES
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo, once_per_event, requests_of
from scheduler_core.snapshot.row_cache import RowSums


def after_pod_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a scheduled or nominated pod freed something that ``pod`` requests, or that is unknown."""
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if new is None:
        held = old.spec.node_name or old.status.nominated_node_name
        return Hint.QUEUE if held and not _is_elsewhere(old, pod) else Hint.SKIP
    if not isinstance(new, Pod):
        return Hint.QUEUE
    if not new.spec.node_name:
        return Hint.QUEUE if new.metadata.uid == pod.metadata.uid else Hint.SKIP
    if _is_elsewhere(new, pod):
        return Hint.SKIP
    before, after = requests_of(old).accounted, requests_of(new).accounted
    requested = requests_of(pod).accounted
    freed = any(amount and before.get(name, 0) > after.get(name, 0) for name, amount in requested.items())
    return Hint.QUEUE if freed else Hint.SKIP


def after_pod_growth(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Return whether a pod that was scaled up concerns ``pod``: a resize that fitted on their node may fit no more."""
    if not isinstance(new, Pod):
        return Hint.QUEUE
    return Hint.QUEUE if pod.has_deferred_resize and not _is_elsewhere(new, pod) else Hint.SKIP


def _is_elsewhere(other: Pod, pod: Pod) -> bool:
    """Return whether a pod is not on the node on which ``pod`` waits for its resize."""
    return pod.has_deferred_resize and other.spec.node_name != pod.spec.node_name


@hint_on(DeviceClass)
def after_class_change(pod: Pod, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
    """Return whether a device class that was added or changed may serve an extended resource of the pod."""
    if new is None:
        return Hint.SKIP
    requested, resource = requests_of(pod).fit, new.spec.extended_resource_name
    if old is not None and (old.spec.extended_resource_name or "") == (resource or ""):
        return Hint.SKIP
    if old is None and new.implicit_resource_name in requested:
        return Hint.QUEUE
    return Hint.QUEUE if resource is not None and resource in requested else Hint.SKIP


_FREED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)


@once_per_event
def _room(node: Node) -> tuple[Mapping[str, int], int]:
    quantities = {name: nano(quantity) for name, quantity in node.status.allocatable.items()}
    return in_units(quantities), whole_units(quantities.get(PODS, 0))


_MAX_SHAPE_SCORE = 10
_Kernel = Callable[[Sequence[ResourceUse]], Scores]
_ROW_KERNELS: Mapping[str, Callable[[Sequence[RowUse]], int]] = {
    "LeastAllocated": least_allocated_row,
    "MostAllocated": most_allocated_row,
}


class FitScorer:
    """A scoring strategy."""

    __slots__ = ("_device_uses", "_kernel", "_resources", "_score_cache", "row_kernel")

    def __init__(self, strategy: ScoringStrategy, nodes: NodeColumns) -> None:
        self._resources = tuple(scored_resource(each.name, each.weight) for each in strategy.scored_resources())
        self._kernel, formula = _kernels(strategy)
        self.row_kernel = _ROW_KERNELS.get(strategy.type)
        self._score_cache = ScoreCache(formula, nodes)
        self._device_uses = DeviceUses(nodes)

    def demand(self, pod: PodInfo) -> Demand:
        requests = _scored_requests(pod)
        amounts = tuple(_amount(requests, resource.name) for resource in self._resources)
        return Demand(self._resources, amounts, nonzero=True)

    def counts_devices(self, pod: PodInfo, nodes: NodeColumns) -> bool:
        return bool(nodes.devices.classes) and is_served_by_devices(self.demand(pod), nodes)

    def score(self, demand: Demand, nodes: NodeColumns, rows: Rows) -> Scores:
        """Score rows, int64 each, 0 to 100."""
        if is_served_by_devices(demand, nodes):
            return self._kernel(self._device_uses.uses(demand, rows))
        scored = scored_columns(demand, nodes)
        if not scored:
            return np.zeros(len(nodes.pod_count[rows]), dtype=np.int64)
        found = self._score_cache.scores(scored, rows)
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


_FIT_KEY: StateKey[FitDemand] = StateKey("NodeResourcesFit/preFilter")
_SCORE_KEY: StateKey[Demand] = StateKey("NodeResourcesFit/preScore")


class NodeResourcesFit(PreFilterPlugin, FilterPlugin, SumsFilter, PreScorePlugin, ScorePlugin):
    """Compares the pod's requests with the free resources of nodes, and scores nodes by utilization."""

    name = "NodeResourcesFit"
    reuse = Reuse(filter=Reads.NODE | Reads.PODS, score=Reads.NODE | Reads.PODS, pod=PodReads.RESOURCES)
    hints_for = NodeChange.CAPACITY
    args_model = NodeResourcesFitArgs
    normalization = Normalization.NONE

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._scorer = FitScorer(args.scoring_strategy, handle.nodes)
        self._free = FreeColumns(handle.nodes)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that holds while resources keep their columns; None if results are valid for one attempt."""
        if len(pod.fit_names) > MAX_RESOURCES_IN_BITS:
            return None
        if not pod.fit_names or pod.fit_names[-1] in FIXED_RESOURCES:
            return always
        if self._scorer.counts_devices(pod, nodes):
            return None
        resources, devices = nodes.resources, nodes.devices
        versions = resources.version, devices.classes_version
        return lambda: (resources.version, devices.classes_version) == versions

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return deletions and scale-downs of pods, additions and allocatable changes of nodes, and device classes."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        device_class = ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE)
        return (
            EventRegistration(_FREED, after_pod_change),
            EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN), after_pod_change),
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_UP), after_pod_growth),
            EventRegistration(node, self.after_node_change),
            EventRegistration(device_class, after_class_change),
        )

    def after_node_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Return whether a node that was added or changed may have enough resources.

        Returns:
            Queue if the empty node is large enough and something that ``pod`` requests has grown, or may be provided
            through devices.
        """
        if not isinstance(new, Node):
            return Hint.SKIP if new is None else Hint.QUEUE
        if pod.has_deferred_resize and new.metadata.name != pod.spec.node_name:
            return Hint.SKIP
        requested = {name: amount for name, amount in requests_of(pod).fit.items() if amount}
        room, places = _room(new)
        resolve = self.handle.nodes.devices.class_of_resource
        by_devices = {name for name in requested if not room.get(name, 0) and resolve(name) is not None}
        if places < 1 or any(
            amount > room.get(name, 0) for name, amount in requested.items() if name not in by_devices
        ):
            return Hint.SKIP
        if not isinstance(old, Node) or by_devices:
            return Hint.QUEUE
        old_room, old_places = _room(old)
        grown = places > old_places or any(room.get(name, 0) > old_room.get(name, 0) for name in requested)
        return Hint.QUEUE if grown else Hint.SKIP

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Store the pod's requests. Never skips: a pod without requests still uses a pod slot."""
        state.write(_FIT_KEY, self._fit_demand(pod))
        return CONTINUE

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows without enough free resources; see :mod:`.filtering`."""
        return state.read(_FIT_KEY).codes(self._free, rows)

    def filter_sums(self, state: CycleState, pod: PodInfo, sums: RowSums) -> Codes | None:
        return state.read(_FIT_KEY).codes_of_sums(sums)

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Filter one row without NumPy."""
        code = state.read(_FIT_KEY).code_of_row(nodes, row)
        return super().filter_row(state, pod, nodes, row) if code is None else code

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Return all insufficient resources, and whether an empty node would be large enough."""
        demand = state.get(_FIT_KEY)
        if demand is None:
            demand = self._fit_demand(pod)
        return demand.explain(code)

    def shortages(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[Shortage, ...]:
        return self._fit_demand(pod).shortages(nodes, row)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Store the pod's requests; never skips, because every pod counts."""
        state.write(_SCORE_KEY, self._scorer.demand(pod))
        return SUCCESS

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Score by the profile's strategy, int64 per row, 0 to 100."""
        demand = state.get(_SCORE_KEY)
        return self._scorer.score(self._scorer.demand(pod) if demand is None else demand, nodes, rows)

    def score_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        """Score one row without NumPy, if the strategy and the node allow it."""
        demand, kernel = state.get(_SCORE_KEY), self._scorer.row_kernel
        uses = None if demand is None or kernel is None else row_uses(demand, nodes, row)
        if uses is None or kernel is None:
            return super().score_row(state, pod, nodes, row)
        return kernel(uses)

    def _fit_demand(self, pod: PodInfo) -> FitDemand:
        amounts: Sequence[tuple[int, int]] = pod.fit
        names: Sequence[str] = pod.fit_names
        if self._ignored or self._ignored_groups:
            counted = [pair for pair in zip(amounts, names, strict=True) if not self.exempts(pair[1])]
            amounts, names = [amount for amount, _ in counted], [name for _, name in counted]
        devices = self.handle.nodes.devices
        by_devices = frozenset[str]()
        if devices.classes and names and names[-1] not in FIXED_RESOURCES:
            by_devices = frozenset(name for name in names if devices.class_of_resource(name))
        if pod.pod.has_deferred_resize:
            return ResizeDemand(amounts, names, by_devices, self._own_place(pod))
        return FitDemand(amounts, names, by_devices)

    def _own_place(self, pod: PodInfo) -> OwnPlace:
        """Return where a running pod counts already, and with how much."""
        nodes = self.handle.nodes
        row = nodes.row_of(pod.pod.spec.node_name)
        counted = nodes.pods[row].get(pod.uid) if row != NO_ROW else None
        return OwnPlace(row, {} if counted is None else counted.requests.accounted)

    @property
    def exempts_resources(self) -> bool:
        """Whether extended resources are ignored."""
        return bool(self._ignored or self._ignored_groups)

    def exempts(self, name: str) -> bool:
        """Return whether a resource is an extended one that is ignored."""
        if not is_extended_resource(name):
            return False
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups
