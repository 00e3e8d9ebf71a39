"""The pods of a NodeReservation: those that room is searched for, and those that may use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from bayplan.resources.node_reservation import NodeReservation
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
