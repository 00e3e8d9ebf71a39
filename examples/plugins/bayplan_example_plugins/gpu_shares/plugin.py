"""GpuShares: filters, scores and assigns GPUs, of which a pod requests a share of one or whole ones.

A node offers the extended resource ``<domain>/milli``, 1000 for each GPU; NodeResourcesFit checks the sum, this plugin
each GPU. Reserve chooses the GPUs, and the bind writes them to the pod as the annotation ``<domain>/devices``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayplan_example_plugins.gpu_shares.args import GPU_MILLI, GpuSharesArgs, Policy
from bayplan_example_plugins.gpu_shares.fragmentation import TargetWorkload
from bayplan_example_plugins.gpu_shares.gpu_columns import GpuColumns, reservations
from bayplan_example_plugins.gpu_shares.policies import Demand, cost_function
from bayplan_example_plugins.gpu_shares.row_costs import RowCosts, option_of
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource, hint_on
from scheduler_core.framework.cycle_state import CycleState, annotate_bind
from scheduler_core.framework.extension_points import (
    MAX_NODE_SCORE,
    Codes,
    FilterPlugin,
    Normalization,
    PodReads,
    Reads,
    ReservePlugin,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.object_reads import ObjectReads
from scheduler_core.framework.plugin import NodeChange
from scheduler_core.framework.status import SUCCESS, Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import pod_requests
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_NO_SHARE, _TOO_FEW_IDLE, _TOO_FEW, _UNKNOWN, _INVALID = 1, 2, 3, 4, 5


class GpuShares(FilterPlugin, ScorePlugin, ReservePlugin):
    """Gives pods shares of one GPU, or whole GPUs."""

    name = "GpuShares"
    args_model = GpuSharesArgs
    reads = ObjectReads(pod_annotations=True)
    # Scores depend on the largest node too.
    reuse = Reuse(filter=Reads.NODE | Reads.PODS, score=Reads.NODE | Reads.PODS | Reads.NODES, pod=PodReads.RESOURCES)
    normalization = Normalization.OWN
    hints_for = NodeChange.CAPACITY
    # A resize changes CPU and memory, and leaves a pod its GPUs.
    handles_resizes = False
    reasons = (
        unschedulable("node(s) had no GPU with enough free for the share"),
        unschedulable("node(s) had too few idle GPUs"),
        unresolvable("node(s) had too few GPUs"),
        unschedulable("node(s) had a pod whose GPUs are unknown"),
        unresolvable("node(s) cannot serve a GPU request that is neither a share of one GPU nor whole GPUs"),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._columns = GpuColumns(handle.nodes, args)
        self._function = cost_function(args.policy, TargetWorkload(args.workload))
        self._costs = RowCosts(self._columns, self._function)

    def _demand(self, pod: PodInfo) -> Demand:
        requests = pod.requests.fit
        return Demand(requests.get("cpu", 0), requests.get("memory", 0), requests.get(self.args.resource, 0))

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject nodes whose GPUs do not serve the request."""
        del state, nodes
        demand = self._demand(pod)
        if not demand.gpu_milli:
            return None
        columns = self._columns
        columns.refresh()
        free, count = columns.free[rows], columns.count[rows]
        codes: Codes = np.zeros(len(free), dtype=np.int16)
        if not demand.is_valid:
            codes[:] = _INVALID
            return codes
        wanted = max(1, demand.gpu_milli // GPU_MILLI)
        if demand.is_share:
            codes[(free >= demand.gpu_milli).sum(axis=1) < 1] = _NO_SHARE
        else:
            codes[(free == GPU_MILLI).sum(axis=1) < wanted] = _TOO_FEW_IDLE
        codes[~columns.is_known[rows]] = _UNKNOWN
        codes[count < wanted] = _TOO_FEW
        return codes

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return the negative costs of the best GPU of each row; 0 if the policy does not score nodes."""
        del state
        if not self.args.policy.scores_nodes:
            return np.zeros(len(nodes.alive[rows]), dtype=np.int64)
        return -self._costs.of(self._demand(pod), rows)

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        """Return 100 for the best rows only, and 0 to 99 for the others."""
        del state, pod
        if not len(raw):
            return raw
        best = raw.max()
        below = best - raw
        worst = int(below.max())
        if worst == 0:
            return np.full(raw.shape, MAX_NODE_SCORE, dtype=np.int64)
        scores: Scores = ((MAX_NODE_SCORE - 1) * (1.0 - below / worst)).astype(np.int64)
        scores[below == 0] = MAX_NODE_SCORE
        return scores

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Choose GPUs of the node.

        The pod is counted on the node already. The columns must not be refreshed before its GPUs are known.
        """
        demand = self._demand(pod)
        if not demand.gpu_milli:
            return SUCCESS
        row = self.handle.nodes.row_of(node_name)
        before = None if row < 0 else self._columns.state_without(pod, row)
        largest = self._costs.largest()
        choose = None
        if self.args.policy is Policy.RANDOM:
            choose = random.Random(f"{self.handle.seed}/{pod.uid}").choice
        devices = None if before is None else option_of(self._function, demand, before, largest, choose)
        if devices is None:
            return unschedulable(f"node {node_name} no longer has the GPUs")
        reservations[pod] = devices
        annotate_bind(state, self.args.devices_annotation, ",".join(map(str, devices)))
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Drop the choice."""
        del state, node_name
        reservations.pop(pod, None)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return the events that free GPUs: a pod with GPUs that is deleted, and a node that is added or grows."""
        grows = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE
        return (
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), hint_on(Pod)(self._freed)),
            EventRegistration(ClusterEvent(Resource.NODE, grows)),
        )

    def _freed(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        del pod, new
        has_gpus = old is not None and pod_requests(old).accounted.get(self.args.resource, 0)
        return Hint.QUEUE if has_gpus else Hint.SKIP
