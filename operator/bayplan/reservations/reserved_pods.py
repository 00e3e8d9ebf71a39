"""The pods of a NodeReservation: those that room is searched for, those that may use it, and those that have used it.

After a restart, what is left of the room follows from the statuses and the pods that have nodes now. A status may be
older than the last binds, but names the pods that need no room. A pod that several reservations select has used the
room of one of them, so that all reservations of a namespace are compared with its pods at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from bayplan.resources.conditions import find_condition
from bayplan.resources.node_reservation import NodeReservation, NodeReservationStatus
from bayplan.resources.pod_group import POD_GROUP_LABEL
from bayplan.resources.resource_model import API_VERSION, MAX_NAME_LENGTH
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import SEARCHED_FOR_LABEL, Holder, OwnPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource

KIND = NodeReservation.definition.kind
_NOT_SEARCHED_FOR = frozenset(("schedulingGates", "schedulingGroup"))
"""Fields of a pod that decide when it is scheduled and not where."""
_MAX_PREFIX = MAX_NAME_LENGTH - len("-1000")
HIGHEST_PRIORITY = 1_000_000_000
"""Highest priority of PriorityClasses that users define; those of Kubernetes' critical pods are above it."""


def holder_of(reservation: NodeReservation) -> Holder:
    """Return the holder of the room; the pods that ``spec.owner`` selects use it."""
    meta, owner = reservation.metadata, reservation.spec.owner
    reference = owner.owner_reference
    own = OwnPods(
        namespace=meta.namespace,
        labels=tuple(sorted((owner.labels or {}).items())),
        owner_uid="" if reference is None else reference.uid or "",
        group=None if owner.pod_group is None else GroupKey(GroupSource.BAYPLAN, meta.namespace, owner.pod_group),
        owner=None if reference is None else (reference.kind, reference.name),
    )
    return Holder(KIND, meta.namespace, meta.name, meta.uid, own)


def manifests_of(reservation: NodeReservation, count: int) -> list[dict[str, Any]]:
    """Return the pods that room is searched for, as manifests, and the PodGroup that keeps them in one domain."""
    meta, spec = reservation.metadata, reservation.spec
    template: Mapping[str, Any] = spec.template or {"spec": _pod_spec(spec.resources or {})}
    own = template.get("metadata") or {}
    # Other reservations may select the same pods, and each needs room of its own.
    labels = {**(own.get("labels") or {}), **(spec.owner.labels or {}), SEARCHED_FOR_LABEL: meta.uid}
    # The PodGroup that the pods will join may have other members that wait, and may not exist yet.
    for label in POD_GROUP_LABELS.values():
        labels.pop(label, None)
    objects: list[dict[str, Any]] = []
    if spec.topology is not None:
        labels[POD_GROUP_LABEL] = group_name(reservation)
        group = {"minMember": count, "topology": spec.topology.model_dump(by_alias=True, mode="json")}
        of_group = {"name": labels[POD_GROUP_LABEL], "namespace": meta.namespace}
        objects.append({"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": of_group, "spec": group})
    # Gates of the pods end before they use the room.
    pod_spec = {name: value for name, value in template["spec"].items() if name not in _NOT_SEARCHED_FOR}
    if spec.scheduler_name is not None:
        pod_spec["schedulerName"] = spec.scheduler_name
    if spec.priority is not None or spec.priority_class_name is not None:
        pod_spec.pop("priority", None)
        pod_spec.pop("priorityClassName", None)
    if spec.priority_class_name is not None:
        pod_spec["priorityClassName"] = spec.priority_class_name
    annotations = {"annotations": own["annotations"]} if own.get("annotations") else {}
    metadata, name = {"namespace": meta.namespace, "labels": labels, **annotations}, _pod_name(meta.name)
    objects += (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", **metadata},
            "spec": pod_spec,
        }
        for number in range(count)
    )
    return objects


def group_name(reservation: NodeReservation) -> str:
    """Return the name of the PodGroup, which exists only in the search, and which labels of pods have as value."""
    return reservation.metadata.uid


def pods_prefix(reservation: NodeReservation) -> str:
    """Return namespace and name of the pods of the search, without the number of each."""
    return f"{reservation.metadata.namespace}/{_pod_name(reservation.metadata.name)}-"


def _pod_name(name: str) -> str:
    # Shorter names are those of the reservation; the longest ones leave no space for a number.
    return name[:_MAX_PREFIX].rstrip("-.")


def without_searched_names(reservation: NodeReservation, message: str) -> str:
    """Return a message of a search without the names of its PodGroup and pods, which exist only in the search."""
    group = re.escape(f"{reservation.metadata.namespace}/{group_name(reservation)}")
    pod = rf"{re.escape(pods_prefix(reservation))}\d+"
    message = re.sub(rf"(PodGroup )?{group}: ", "", message)
    message = re.sub(rf"in place, for {pod}: ", "in place, for another one: ", message)
    message = re.sub(rf"\bfor {pod}: ", "for one of them: ", message)
    return re.sub(rf"{pod}: ", "", re.sub(rf"\bpod {pod} ", "a pod ", message))


def _pod_spec(resources: Mapping[str, str | int]) -> dict[str, Any]:
    requests = {name: str(amount) for name, amount in resources.items()}
    # The API server requires that extended resources have equal limits.
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    return {
        "containers": [
            {"name": "main", "image": "reserved", "resources": {"requests": requests, "limits": limits}},
        ]
    }


def prioritized(reservation: NodeReservation, request: FitRequest) -> FitRequest:
    """Return the request with the priority of the reservation, which critical pods of the system always exceed."""
    given = reservation.spec.priority

    def capped(pod: Pod) -> Pod:
        priority = pod.spec.priority or 0 if given is None else given
        return structs.replace(pod, spec=structs.replace(pod.spec, priority=min(priority, HIGHEST_PRIORITY)))

    return replace(request, pods=tuple(map(capped, request.pods)))


# -- after a restart --------------------------------------------------------------------------------------------------


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
