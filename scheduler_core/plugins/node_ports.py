"""NodePorts: a host port is given out once on a node.

Owns the rejection and the hint. Must not know how ports in use are kept; that is
:mod:`scheduler_core.snapshot.host_ports`, which answers for all nodes at once. Follows kube-scheduler v1.36.3,
``pkg/scheduler/framework/plugins/nodeports/node_ports.go``; the ports are read of the compiled pod, so that Filter
works where a profile leaves PreFilter out (the reference fails such pods).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort, PodInfo, host_ports

_TAKEN = 1
_REJECTION = unschedulable("node(s) didn't have free ports for the requested pod ports")
_LOOK = PreFilterResult()
_NOTHING_TO_DO = PreFilterResult(SKIP)


class NodePorts(PreFilterPlugin, FilterPlugin):
    """Rules out nodes where a host port of the pod is taken."""

    name = "NodePorts"
    reuse = Reuse(filter=Reads.NODE | Reads.PODS, pod=PodReads.NOTHING)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """The host ports say it all."""
        del pod, nodes
        return always

    def events_to_register(self) -> Sequence[EventRegistration]:
        """The going of a pod that held a port, and a node's coming."""
        return (
            EventRegistration(ClusterEvent(Resource.POD, Action.DELETE), after_pod_deletion),
            EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),
        )

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Skip a pod without host ports."""
        del state, nodes
        return _LOOK if pod.host_ports else _NOTHING_TO_DO

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Rows where a port is taken are rejected; None when it is taken nowhere."""
        del state
        taken_rows = nodes.host_ports.conflicting_rows(pod.host_ports)
        if not len(taken_rows):
            return None
        codes: Codes = np.zeros(nodes.size, dtype=np.int16)
        codes[taken_rows] = _TAKEN
        return codes[rows]

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """The one rejection there is."""
        del state, pod, code
        return _REJECTION


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the deleted pod held, or was promised, a node and shares a port with this one."""
    del new
    if not isinstance(old, Pod):
        return Hint.QUEUE
    if not (old.spec.node_name or old.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if _conflict(host_ports(pod), host_ports(old)) else Hint.SKIP


def _conflict(wanted: Iterable[HostPort], taken: Sequence[HostPort]) -> bool:
    return any(
        protocol == other_protocol and port == other_port and (address == other or WILDCARD_IP in (address, other))
        for protocol, port, address in wanted
        for other_protocol, other_port, other in taken
    )
