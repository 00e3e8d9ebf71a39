"""The room of NodeReservations after a restart: what is left of it, by the statuses and the pods that have nodes now.

A status may be older than the last binds. A pod that several reservations select has used the room of one of them, so
that all reservations of a namespace are compared with its pods at once. If the statuses and the pods allow several
readings, the one with the most room left is chosen: room is held too long rather than lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

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
    """

    nodes: tuple[str, ...]
    own: frozenset[str]


class _Share:
    """Room that is held again, and the pods that may have used it.

    Attributes:
        own: Placed pods that the reservation selects.
        late: Those that were created after the room was held, by UID.
        free: Number of pods that room is held for by node.
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
        }
        self.free = +Counter({each.name: each.pods for each in status.nodes})

    def take(self, node_name: str) -> None:
        """Give up a slot on a node, or else on any other one."""
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
    late = {uid: pod for share in shares.values() for uid, pod in share.late.items()}
    _leave_out_counted(reservations, shares, late, key_of)
    for elsewhere in (False, True):
        for share in shares.values():
            for uid, pod in share.late.items():
                name = pod.spec.node_name
                if uid in late and (share.free[name] or (elsewhere and share.free)):
                    share.take(name)
                    del late[uid]
    return {
        uid: RoomLeft(tuple(share.free.elements()), frozenset(pod.metadata.uid for pod in share.own))
        for uid, share in shares.items()
    }


def _leave_out_counted(
    reservations: Iterable[tuple[NodeReservation, NodeReservationStatus, bool]],
    shares: Mapping[str, _Share],
    late: dict[str, Pod],
    key_of: Callable[[Pod], GroupKey | None],
) -> None:
    """Remove from *late* the pods that the statuses of all reservations count already."""
    may_count = []
    for each, status, _ in reservations:
        if status.consumed and late:
            ended = find_condition(status.conditions, status.phase) if status.phase in ("Consumed", "Expired") else None
            until = None if ended is None else ended.last_transition_time
            own = [
                pod
                for pod in _selected(each, late.values(), key_of)
                if until is None or (created := pod.metadata.creation_timestamp) is None or created <= until
            ]
            may_count.append((len(own), each.metadata.uid, own, status.consumed))
    # A reservation that selects few pods is first, because one that selects more may count others.
    for _, uid, own, consumed in sorted(may_count, key=itemgetter(0, 1)):
        free = shares[uid].free if uid in shares else Counter[str]()
        counted = [pod for pod in own if pod.metadata.uid in late]
        # The slots of the pods that a status counts are not in its nodes any more.
        counted.sort(key=lambda pod: free[pod.spec.node_name] > 0)
        for pod in counted[:consumed]:
            del late[pod.metadata.uid]


def _selected(reservation: NodeReservation, pods: Iterable[Pod], key_of: Callable[[Pod], GroupKey | None]) -> list[Pod]:
    own = holder_of(reservation).pods
    return [pod for pod in pods if own.include(pod, None if own.group is None else key_of(pod))]
