"""NodePorts: a host port is used only once per node.

The ports in use are stored in :mod:`scheduler_core.snapshot.indexes.row_indexes`. Follows kube-scheduler v1.37.1,
``pkg/scheduler/framework/plugins/nodeports/node_ports.go``. Filter reads the ports from the compiled pod, so it works
in profiles that do not enable PreFilter, where kube-scheduler fails the pod.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    PodReads,
    PortsFilter,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.status import SKIP, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, host_ports_of, ports_conflict

_TAKEN = 1
_PORTS_AT_ONCE = 1_000
_PORTS_OF_STEP = 100
"""Ports and rows that are looked up in one step: a range of ports, as of a media server, has thousands."""
_SKIPPED = PreFilterResult(SKIP)


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the deleted pod was scheduled or nominated to a node and shares a port with this one."""
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if not (old.spec.node_name or old.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if ports_conflict(host_ports_of(pod), host_ports_of(old)) else Hint.SKIP


class NodePorts(PreFilterPlugin, FilterPlugin, PortsFilter):
    """Rules out nodes where a host port of the pod is in use."""

    name = "NodePorts"
    handles_resizes = False
    reasons = (unschedulable("node(s) didn't have free ports for the requested pod ports"),)
    reuse = Reuse(filter=Reads.NODE | Reads.PODS, pod=PodReads.NOTHING, prepares_once=True)
    events = (
        EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), after_pod_deletion),
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),
    )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Return Skip for a pod without host ports."""
        return CONTINUE if pod.host_ports else _SKIPPED

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows where a port is in use; None if there is none."""
        codes: Codes | None = None
        for start in range(0, len(pod.host_ports), _PORTS_AT_ONCE):
            ports = pod.host_ports[start : start + _PORTS_AT_ONCE]
            taken_rows = nodes.host_ports.conflicting_rows(ports)
            nodes.steps.spend((len(ports) + len(taken_rows)) // _PORTS_OF_STEP)
            if len(taken_rows):
                if codes is None:
                    codes = np.zeros(nodes.size, dtype=np.int16)
                codes[taken_rows] = _TAKEN
        return None if codes is None else codes[rows]
