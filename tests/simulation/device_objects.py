"""Generates slices, classes and claims of the simulated cluster.

The properties of a device depend only on its name, so that checks need no slice: drivers replace and delete slices
while claims hold their devices.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.model.devices import ClaimMeta, DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceSlice
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod, ResourceClaimReference
from tests.simulation.api_server import NAMESPACE
from tests.simulation.cluster_objects import happens, one_of

API = "/apis/resource.k8s.io/v1"
RESOURCE_CLAIMS = f"{API}/resourceclaims"
SLICES = f"{API}/resourceslices"
DEVICE_CLASSES = f"{API}/deviceclasses"
TAINT_RULES = f"{API}/devicetaintrules"
DRIVER = "gpu.example.com"
PARTITIONED_MEMORY = 40
"""Value of the counter of each pool, which the partitions of its card consume."""
SHARED_MEMORY = 16
"""Capacity of each device that several claims may share."""

EXTENDED_RESOURCE = "example.com/gpu"
"""Extended resource of the class of plain devices; no node offers it without devices."""

_PLAIN, _PART, _SHARED = "plain", "part", "shared"
_KINDS = {"gpu-0": _PLAIN, "gpu-1": _PLAIN, "half-0": _PART, "half-1": _PART, "whole": _PART, "shared": _SHARED}
_CLASSES = {_PLAIN: _PLAIN, _PART: _PART, _SHARED: _SHARED, "any": ""}
Body = dict[str, Any]


def counters_of(device: str) -> int:
    """Return how much of its pool's counter a device consumes."""
    return {"half-0": 20, "half-1": 20, "whole": PARTITIONED_MEMORY}.get(device, 0)


def is_shared(device: str) -> bool:
    """Return whether several claims may hold a device."""
    return _KINDS[device] == _SHARED


def slices(
    rng: random.Random, node_name: str, generation: int, *, prepared: bool = False
) -> tuple[ResourceSlice, ResourceSlice]:
    """Return the two slices of a node's pool: its counters, and a random part of its devices.

    Args:
        rng: Random generator.
        prepared: Whether the driver has to prepare plain devices before a bind.
    """
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": 2}
    common = {"driver": DRIVER, "pool": pool, "nodeName": node_name}
    counter_set = {"name": "card", "counters": {"memory": {"value": str(PARTITIONED_MEMORY)}}}
    # Partitions are always published, because an allocated device without a slice consumes no counters.
    devices = [
        _device(rng, name, prepared=prepared) for name, kind in _KINDS.items() if kind == _PART or happens(rng, 0.7)
    ]
    return (
        _slice(f"{node_name}-counters", common | {"sharedCounters": [counter_set]}),
        _slice(f"{node_name}-devices", common | {"devices": devices}),
    )


def _slice(name: str, spec: Body) -> ResourceSlice:
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, ResourceSlice)


def _device(rng: random.Random, name: str, *, prepared: bool) -> Body:
    kind = _KINDS[name]
    device: Body = {"name": name, "attributes": {"kind": {"string": kind}}}
    consumed = counters_of(name)
    if consumed:
        counters = {"memory": {"value": str(consumed)}}
        device["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
    if kind == _SHARED:
        device["allowMultipleAllocations"] = True
        policy = {"default": "4", "validRange": {"min": "2", "step": "2"}}
        device["capacity"] = {"memory": {"value": str(SHARED_MEMORY), "requestPolicy": policy}}
    if prepared and kind == _PLAIN:
        device |= {"bindingConditions": ["prepared"], "bindingFailureConditions": ["broken"]}
    if happens(rng, 0.08):
        device["taints"] = [{"key": "broken", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
    return device


def device_classes() -> tuple[DeviceClass, ...]:
    """Return one class for each kind of device, and one for all devices."""
    classes = []
    for name, kind in _CLASSES.items():
        expression = f'device.attributes["{DRIVER}"].kind == "{kind}"' if kind else "true"
        spec: Body = {"selectors": [{"cel": {"expression": expression}}]}
        if kind == _PLAIN:
            spec["extendedResourceName"] = EXTENDED_RESOURCE
        classes.append(msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, DeviceClass))
    return tuple(classes)


def claim_spec(rng: random.Random) -> ResourceClaimSpec:
    """Return a claim spec with random requests."""
    requests = [_request(rng, f"r{number}") for number in range(1 if happens(rng, 0.75) else 2)]
    return msgspec.convert({"devices": {"requests": requests}}, ResourceClaimSpec)


def card_spec(halves: int) -> ResourceClaimSpec:
    """Return a claim spec for halves of one card; two halves are the whole card."""
    request = {"name": "card", "exactly": {"deviceClassName": _PART, "count": halves}}
    return msgspec.convert({"devices": {"requests": [request]}}, ResourceClaimSpec)


def _request(rng: random.Random, name: str) -> Body:
    if happens(rng, 0.2):
        alternatives = [{"name": kind, "deviceClassName": kind, "count": 1} for kind in (_PART, _PLAIN)]
        return {"name": name, "firstAvailable": alternatives}
    class_name = one_of(rng, (_PLAIN, _PLAIN, _PART, _PART, _SHARED, _SHARED, "any"))
    exactly: Body = {"deviceClassName": class_name, "count": 2 if happens(rng, 0.15) else 1}
    if class_name == _SHARED:
        exactly |= {"count": 1, "capacity": {"requests": {"memory": str(one_of(rng, (2, 6, 10)))}}}
    if happens(rng, 0.1):
        exactly |= {"allocationMode": "All", "count": 0}
    return {"name": name, "exactly": exactly}


def claim(name: str, uid: str, spec: ResourceClaimSpec, owner: Pod | None = None) -> ResourceClaim:
    """Return a claim; with an owner if it was created from a pod's template."""
    owners: tuple[OwnerReference, ...] = ()
    if owner is not None:
        owners = (OwnerReference("Pod", owner.metadata.name, owner.metadata.uid, "v1", controller=True),)
    namespace = NAMESPACE if owner is None else owner.metadata.namespace
    return ResourceClaim(ClaimMeta(name, namespace, uid=uid, owner_references=owners), spec)


def with_claims(pod: Pod, named: tuple[str, ...], templates: tuple[str, ...]) -> Pod:
    """Return the pod without volumes, with claims by name and from templates."""
    references = [ResourceClaimReference(name=each, resource_claim_name=each) for each in named]
    references += [ResourceClaimReference(name=each, resource_claim_template_name=each) for each in templates]
    return replace(pod, spec=replace(pod.spec, resource_claims=tuple(references), volumes=()))


def with_extended_resource(pod: Pod, amount: int) -> Pod:
    """Return the pod without volumes, with a request for an extended resource in its only container."""
    (container,) = pod.spec.containers
    requests = {**container.resources.requests, EXTENDED_RESOURCE: str(amount)}
    resources = replace(container.resources, requests=requests, limits={EXTENDED_RESOURCE: str(amount)})
    return replace(pod, spec=replace(pod.spec, containers=(replace(container, resources=resources),), volumes=()))


def extended_amount(pod: Pod) -> int:
    """Return how many devices a pod requests as an extended resource."""
    return sum(int(str(each.resources.requests.get(EXTENDED_RESOURCE, 0))) for each in pod.spec.containers)


def claim_names(pod: Pod) -> list[str | None]:
    """Return the names of a pod's claims, also for its extended resource; None for a claim that does not exist."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    names = [each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims]
    if extended_amount(pod):
        status = pod.status.extended_resource_claim_status
        names.append(None if status is None else status.resource_claim_name)
    return names
