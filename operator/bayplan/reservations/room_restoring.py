"""The room of NodeReservations after a restart: what is left of it, by the statuses and the pods that have nodes now.

A status may be older than the last binds, but names the pods that need no room. A pod that several reservations select
has used the room of one of them, so that all reservations of a namespace are compared with its pods at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bayplan.reservations.reserved_pods import holder_of
from bayplan.resources.conditions import find_condition
from bayplan.resources.node_reservation import NodeReservation, NodeReservationStatus
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey


@dataclass(frozen=True, slots=True)
class RoomLeft:
    """Room that is held again.

    Attributes:
        nodes: Name of the node of each slot that no pod has used.
        own: UIDs of the placed pods that the reservation selects.
        counted: UIDs of those that have used its room since the status was written.
    """

    nodes: tuple[str, ...]
    own: frozenset[str]
    counted: frozenset[str]


class _Share:
    """Room that is held again, and the pods that may have used it.

    Attributes:
        own: Placed pods that the reservation selects.
        late: Those that were created after the room was held, by UID.
        free: Number of pods that room is held for by node.
        counted: UIDs of late pods that have used it.
    """

    def __init__(
        self,
        reservation: NodeReservation,
        status: NodeReservationStatus,
        pods: Iterable[Pod],
        key_of: Callable[[Pod], GroupKey | None],
    ) -> None:
        since = status.reserved_since
        self.own = _selected(reservation, pods, key_of)
        self.late = {
            pod.metadata.uid: pod
            for pod in self.own
            if (created := pod.metadata.creation_timestamp) is not None and since is not None and created >= since
            if pod.metadata.uid not in status.other_pods
        }
        self.counted: set[str] = set()
        self.free = +Counter({each.name: each.pods for each in status.nodes})

    def take(self, uid: str, node_name: str) -> None:
        """Give up a slot on a node, or else on any other one, for a pod."""
        self.counted.add(uid)
        name = node_name if self.free[node_name] else next(iter(self.free))
        self.free = self.free - Counter([name])


def rooms_left(
    reservations: Sequence[tuple[NodeReservation, NodeReservationStatus, bool]],
    pods: Sequence[Pod],
    key_of: Callable[[Pod], GroupKey | None],
) -> dict[str, RoomLeft]:
    """Return what is left of the room that is held again, by UID of the reservation.

    Args:
        reservations: All of a namespace, in the order in which pods use their room, each with its last status and
            whether its room is held again.
        pods: Those of the namespace that have nodes.
        key_of: Returns the group of a pod.
    """
    shares = {
        each.metadata.uid: _Share(each, status, pods, key_of) for each, status, is_held in reservations if is_held
    }
    counted = {uid for _, status, _ in reservations for uid in status.counted_pods}
    late = {uid: pod for share in shares.values() for uid, pod in share.late.items() if uid not in counted}
    for each, status, _ in reservations:
        if status.consumed and "counted_pods" not in status.model_fields_set:
            share = shares.get(each.metadata.uid)
            free = Counter[str]() if share is None else share.free
            for pod in _counted_by_number(_selected(each, late.values(), key_of), status, free):
                del late[pod.metadata.uid]
    for elsewhere in (False, True):
        for share in shares.values():
            for uid, pod in share.late.items():
                name = pod.spec.node_name
                if uid in late and (share.free[name] or (elsewhere and share.free)):
                    share.take(uid, name)
                    del late[uid]
    return {
        uid: RoomLeft(
            tuple(share.free.elements()),
            frozenset(pod.metadata.uid for pod in share.own),
            frozenset(share.counted),
        )
        for uid, share in shares.items()
    }


def _counted_by_number(own: list[Pod], status: NodeReservationStatus, free: Counter[str]) -> list[Pod]:
    """Return the pods that the status of an earlier release counts, which has their number and no UIDs.

    If several readings are possible, the one with the most room left is chosen.
    """
    ended = find_condition(status.conditions, status.phase) if status.phase in ("Consumed", "Expired") else None
    until = None if ended is None else ended.last_transition_time
    # The slots of the pods that the status counts are not in its nodes any more.
    own = sorted(own, key=lambda pod: free[pod.spec.node_name] > 0)
    created = ((pod, pod.metadata.creation_timestamp) for pod in own)
    return [pod for pod, time in created if until is None or time is None or time <= until][: status.consumed]


def _selected(reservation: NodeReservation, pods: Iterable[Pod], key_of: Callable[[Pod], GroupKey | None]) -> list[Pod]:
    own = holder_of(reservation).pods
    return [pod for pod in pods if own.include(pod, None if own.group is None else key_of(pod))]
