"""Reports freed room on a node as an AssignedPodDelete event.

Follows kube-scheduler v1.37.1 (``handleBindingCycleError``).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from scheduler_core.cycle.gang_constraints import NodeReservations
from scheduler_core.cycle.nominated_devices import CLAIM_UPDATE, FREED, NominatedDevices
from scheduler_core.framework.cluster_events import ASSIGNED_POD_DELETE
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class FreedCapacity:
    """Reports freed room to the queue and to the gangs that wait for it."""

    queue: SchedulingQueue
    reservations: NodeReservations
    devices: NominatedDevices | None = None

    def report(self, pod: Pod, node_name: str, exclude: str = "") -> None:
        """Requeue pods that may fit where ``pod`` was on ``node_name``, except the pod whose UID is ``exclude``."""
        # Queueing hints read the node from the pod's spec, where an assumed pod has none.
        gone = pod if pod.spec.node_name else on_node(node_name, pod)
        self.queue.on_event(ASSIGNED_POD_DELETE, gone, None, exclude=exclude)
        if self.reservations.by_gang:
            self.reservations.room_freed(node_name or pod.spec.node_name)

    def node_changed(self, node_name: str) -> None:
        """Report a node that was changed or deleted to the gang for which it is reserved."""
        self.reservations.node_changed(node_name)

    def nomination_unused(self, info: PodInfo, nominated: str, node_name: str) -> None:
        """Report that a pod got another node than its nominated one, whose room is free again."""
        self.nominated_devices_freed(info.uid)
        if nominated != node_name:
            # kube-scheduler reports nothing here, so there pods that fit now wait for another event.
            self.nomination_ended(info, nominated)

    def nomination_ended(self, info: PodInfo, node_name: str, exclude: str = "") -> None:
        """Report that the nomination of a waiting pod has ended, so that its nominated node has more room.

        Args:
            exclude: UID of what is not requeued: the entry of the gang whose member it was; "" for the pod itself.
        """
        exclude = exclude or info.uid
        self.nominated_devices_freed(info.uid, exclude)
        gone = on_node(node_name, info.pod)
        # The nomination rejected no pods of higher priority.
        self.queue.on_event(ASSIGNED_POD_DELETE, gone, None, exclude=exclude, max_priority=info.priority)

    def devices_freed(self, allocated: ResourceClaim, claim: ResourceClaim) -> None:
        """Report devices of an allocation that was given up before it was written, as if the claim had lost them."""
        # kube-scheduler reports nothing here, so there pods that need the devices wait for another event.
        self.queue.on_event(CLAIM_UPDATE, allocated, claim)

    def nominated_devices_freed(self, uid: str, exclude: str = "") -> None:
        """Report devices that were held for a pod whose nomination has ended or changed; the pod may have got others.

        Args:
            exclude: UID of what is not requeued, see :meth:`nomination_ended`.
        """
        highest = None if self.devices is None else self.devices.end(uid)
        if highest is not None:
            self.queue.on_event(CLAIM_UPDATE, *FREED, exclude=exclude or uid, max_priority=highest)


def on_node(node_name: str, pod: Pod) -> Pod:
    """Return a copy of the pod with the node in its spec."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node_name))
