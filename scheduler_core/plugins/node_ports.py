"""NodePorts: a host port is used only once per node.

The ports in use are stored in :mod:`scheduler_core.snapshot.indexes.row_indexes`. Follows kube-scheduler v1.37.1,
``pkg/scheduler/framework/plugins/nodeports/node_ports.go``. Filter reads the ports from the compiled pod, so it works
in profiles that do not enable PreFilter, where kube-scheduler fails the pod.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.status import SKIP, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort, PodInfo, host_ports_of

_TAKEN = 1
_SKIPPED = PreFilterResult(SKIP)


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the deleted pod was scheduled or nominated to a node and shares a port with this one."""
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if not (old.spec.node_name or old.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if _conflict(host_ports_of(pod), host_ports_of(old)) else Hint.SKIP


class NodePorts(PreFilterPlugin, FilterPlugin):
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
        taken_rows = nodes.host_ports.conflicting_rows(pod.host_ports)
        if not len(taken_rows):
            return None
        codes: Codes = np.zeros(nodes.size, dtype=np.int16)
        codes[taken_rows] = _TAKEN
        return codes[rows]


def _conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    addresses: dict[tuple[str, int], set[str]] = {}
    for protocol, port, address in taken:
        addresses.setdefault((protocol, port), set()).add(address)
    for protocol, port, address in wanted:
        others = addresses.get((protocol, port))
        if others and (address == WILDCARD_IP or address in others or WILDCARD_IP in others):
            return True
    return False
