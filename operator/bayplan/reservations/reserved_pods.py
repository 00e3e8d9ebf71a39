"""The pods of a NodeReservation: those that room is searched for, and those that may use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.pod_group import POD_GROUP_LABEL
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import SEARCHED_FOR_LABEL, Holder, OwnPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource

KIND = NodeReservation.definition.kind
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
    # The PodGroup that the pods will join may have other members that wait.
    labels.pop(POD_GROUP_LABEL, None)
    objects: list[dict[str, Any]] = []
    if spec.topology is not None:
        name = group_name(reservation)
        labels[POD_GROUP_LABEL] = name
        group = {"minMember": count, "topology": spec.topology.model_dump(by_alias=True, mode="json")}
        metadata = {"name": name, "namespace": meta.namespace}
        objects.append({"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": group})
    pod_spec = dict(template["spec"])
    if spec.scheduler_name is not None:
        pod_spec["schedulerName"] = spec.scheduler_name
    if spec.priority is not None or spec.priority_class_name is not None:
        pod_spec.pop("priority", None)
        pod_spec.pop("priorityClassName", None)
    if spec.priority_class_name is not None:
        pod_spec["priorityClassName"] = spec.priority_class_name
    annotations = {"annotations": own["annotations"]} if own.get("annotations") else {}
    objects += (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{meta.name}-{number}", "namespace": meta.namespace, "labels": labels, **annotations},
            "spec": pod_spec,
        }
        for number in range(count)
    )
    return objects


def group_name(reservation: NodeReservation) -> str:
    """Return the name of the PodGroup, which exists only in the search."""
    return f"{reservation.metadata.name}-{reservation.metadata.uid}"[:63]


def without_searched_names(reservation: NodeReservation, message: str) -> str:
    """Return a message of a search without the names of its PodGroup and pods, which exist only in the search."""
    meta = reservation.metadata
    message = message.replace(f"PodGroup {meta.namespace}/{group_name(reservation)}: ", "")
    pod = rf"{re.escape(f'{meta.namespace}/{meta.name}')}-\d+"
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
