"""NodeResourcesFit: filters nodes by free resources, and scores them by the profile's strategy.

Each extension point has a module (``filtering``, ``scoring``, ``hints``). A node that offers none of a resource which a
device class serves is left to DynamicResources.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/fit.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    CONTINUE,
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
from scheduler_core.model.pod_requests import is_extended_resource
from scheduler_core.plugins.node_resources_fit.filtering import (
    MAX_RESOURCES_IN_BITS,
    FitDemand,
    FreeColumns,
    OwnPlace,
    ResizeDemand,
)
from scheduler_core.plugins.node_resources_fit.hints import FitHints
from scheduler_core.plugins.node_resources_fit.scoring import FitScorer
from scheduler_core.plugins.resource_scoring import Demand, row_uses
from scheduler_core.snapshot.interning import FIXED_RESOURCES
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.snapshot.row_cache import RowSums

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
        """Prepare the scoring strategy.

        Args:
            args: Ignored resources, and the scoring strategy.
            handle: Access to the scheduler.
        """
        super().__init__(args, handle)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._scorer = FitScorer(args.scoring_strategy)
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
        return FitHints(self.handle).registrations()

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Store the pod's requests. Never skips: a pod without requests still uses a pod slot."""
        del nodes
        state.write(_FIT_KEY, self._fit_demand(pod))
        return CONTINUE

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows without enough free resources; see :mod:`.filtering`."""
        del pod
        if self._free.nodes is not nodes:
            self._free = FreeColumns(nodes)
        return state.read(_FIT_KEY).codes(self._free, rows)

    def filter_sums(self, state: CycleState, pod: PodInfo, sums: RowSums) -> Codes | None:
        """Filter rows by sums."""
        del pod
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
        """Return all insufficient resources of a row, including pod slots."""
        del state
        return self._fit_demand(pod).shortages(nodes, row)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Store the pod's requests; never skips, because every pod counts."""
        del nodes, rows
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
            counted = [pair for pair in zip(amounts, names, strict=True) if not self._is_ignored(pair[1])]
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

    def _is_ignored(self, name: str) -> bool:
        if not is_extended_resource(name):
            return False
        return name in self._ignored or name.partition("/")[0] in self._ignored_groups
