"""The claims of a pod as PreBind would leave them on a node, for comparisons with kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from scheduler_core.model.devices import (
    DELETE_PROTECTION,
    AllocationResult,
    ClaimConsumer,
    DeviceRequest,
    ResourceClaim,
)
from scheduler_core.model.node import Node
from scheduler_core.plugins.dynamic_resources.extended_resources import NAME_IN_MEMORY
from scheduler_core.plugins.dynamic_resources.node_allocation import PodDevices
from scheduler_core.plugins.dynamic_resources.pod_claims import is_reserved_for

_ENCODER = msgspec.json.Encoder()


def planned_claims(attempt: PodDevices, node: Node) -> dict[str, dict[str, Any]]:
    """Return the claims by name, in plain JSON types, as they would be stored if the pod were bound to a feasible node.

    Raises:
        AllocationError: A slice has a node selector that cannot be written into a claim.
    """
    new = iter(attempt.allocations(node) or ())
    extended = attempt.extended_on(node)
    planned = {}
    for index, claim in enumerate(attempt.claims):
        consumer = attempt.consumer(index)
        if claim is attempt.extended_claim:
            if extended is None:
                continue
            requests = {
                "requests": [_request(each) for each in extended.claim.spec.devices.requests],
                "requestMappings": extended.mappings,
            }
            planned[NAME_IN_MEMORY] = _plain(_claim(attempt, extended.claim, new, consumer) | requests)
        else:
            planned[claim.metadata.name] = _plain(_claim(attempt, claim, new, consumer))
    return planned


def _claim(
    attempt: PodDevices, claim: ResourceClaim, new: Iterator[AllocationResult], consumer: ClaimConsumer
) -> dict[str, Any]:
    pod = attempt.pod.pod
    is_new = claim.status.allocation is None
    allocation = claim.status.allocation or next(new)
    consumers = claim.status.reserved_for
    if not is_reserved_for(claim, pod, accepts_group=attempt.nodes.devices.group_claims):
        consumers = (*consumers, consumer)
    return {
        "new": is_new,
        "devices": allocation.devices.results,
        "config": allocation.devices.config,
        "nodeSelector": allocation.node_selector,
        "reservedFor": consumers,
        "finalizers": sorted({*claim.metadata.finalizers, *((DELETE_PROTECTION,) if is_new else ())}),
    }


def _request(request: DeviceRequest) -> dict[str, Any]:
    """Return a request with the defaults that the API server sets."""
    exactly = request.exactly
    if exactly is None:
        return {"name": request.name}
    return {
        "name": request.name,
        "exactly": {
            "deviceClassName": exactly.device_class_name,
            "allocationMode": exactly.allocation_mode,
            "count": exactly.count,
        },
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(_ENCODER.encode(fields))
    return plain
