"""SchedulingGates: a pod with scheduling gates waits until all of them are removed.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/schedulinggates/scheduling_gates.go``.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.status import SUCCESS, Status, unresolvable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo


def after_gates_eliminated(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the gates of this pod were removed."""
    if isinstance(new, Pod) and new.metadata.uid != pod.metadata.uid:
        return Hint.SKIP
    return Hint.QUEUE


class SchedulingGates(PreEnqueuePlugin):
    """Keeps gated pods out of the active queue."""

    name = "SchedulingGates"
    events = (
        EventRegistration(
            ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED), after_gates_eliminated
        ),
    )

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return Success without gates, else the remaining gates, in the order of the pod's spec."""
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]")
