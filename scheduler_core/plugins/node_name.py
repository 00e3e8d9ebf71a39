"""NodeName: a pod that names a node runs only on that node.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/nodename/node_name.go``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PodReads,
    Reads,
    Reuse,
)
from scheduler_core.framework.status import Status, unresolvable
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_OTHER_NODE = 1
_REJECTION = unresolvable("node(s) didn't match the requested node name")


class NodeName(FilterPlugin):
    """Rules out every node except the one that the pod's spec names."""

    name = "NodeName"
    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return additions of nodes; the name of a node never changes."""
        return (EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject all rows except that of the named node; None if the pod names none."""
        del state
        name = pod.pod.spec.node_name
        if not name:
            return None
        row = nodes.row_of(name)
        codes: Codes
        if not isinstance(rows, slice):
            codes = (rows != row).astype(np.int16)
            return codes
        codes = np.full(nodes.size, _OTHER_NODE, dtype=np.int16)
        if row != NO_ROW:
            codes[row] = 0
        return codes[rows]

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Return the only rejection."""
        del state, pod, code
        return _REJECTION
