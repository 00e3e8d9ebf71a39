"""Builders of devices, slices, classes and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from scheduler_core.devices.allocator import Allocator, ClusterDevices, NodeAllocation
from scheduler_core.devices.behaviours import KnowledgeBounds
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.devices.search import SearchLimits
from scheduler_core.model.devices import (
    AllocationResult,
    ClaimConsumer,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from scheduler_core.model.pod import Pod, PodResourceClaimStatus, ResourceClaimReference

DRIVER = "gpu.example.com"
Body = dict[str, Any]
T = TypeVar("T")
NO_LIMITS = SearchLimits(clock=lambda: 0.0)


def decoded(body: Body, kind: type[T]) -> T:
    """Decode an object from the API server's JSON."""
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def cel(*expressions: str) -> list[Body]:
    """Return selectors."""
    return [{"cel": {"expression": expression}} for expression in expressions]


def device(name: str, model: str = "", **fields: Any) -> Body:
    """Return a device of a slice; ``model`` is an attribute."""
    attributes = dict(fields.pop("attributes", {}))
    if model:
        attributes["model"] = {"string": model}
    return {"name": name, "attributes": attributes, **fields}


def slice_of(
    devices: Sequence[Body] = (), *, name: str = "", node: str = "n0", pool: str = "", driver: str = DRIVER, **spec: Any
) -> ResourceSlice:
    """Return a ResourceSlice of a node, or without node name if ``node`` is empty."""
    pool_fields = {"generation": spec.pop("generation", 1), "resourceSliceCount": spec.pop("count", 1)}
    body = {"driver": driver, "pool": {"name": pool or node, **pool_fields}, "devices": list(devices), **spec}
    if node:
        body["nodeName"] = node
    return decoded({"metadata": {"name": name or f"{node}-{driver}"}, "spec": body}, ResourceSlice)


def device_class(name: str = "gpu", *expressions: str, config: Sequence[Body] = ()) -> DeviceClass:
    """Return a DeviceClass."""
    return decoded(
        {"metadata": {"name": name}, "spec": {"selectors": cel(*expressions), "config": list(config)}}, DeviceClass
    )


def exactly(name: str, *expressions: str, device_class_name: str = "gpu", **fields: Any) -> Body:
    """Return a request."""
    return {
        "name": name,
        "exactly": {"deviceClassName": device_class_name, "selectors": cel(*expressions), **fields},
    }


def alternative(name: str, *expressions: str, device_class_name: str = "gpu", **fields: Any) -> Body:
    """Return an alternative of a request."""
    return {"name": name, "deviceClassName": device_class_name, "selectors": cel(*expressions), **fields}


def first_available(name: str, *alternatives: Body) -> Body:
    """Return a prioritized list."""
    return {"name": name, "firstAvailable": list(alternatives)}


def claim(*requests: Body, name: str = "c0", allocation: Body | None = None, **devices: Any) -> ResourceClaim:
    """Return a claim of namespace ``ns`` whose UID is its name."""
    return decoded(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"devices": {"requests": list(requests), **devices}},
            "status": {} if allocation is None else {"allocation": allocation},
        },
        ResourceClaim,
    )


def allocated_claim(*results: Body, name: str = "held") -> ResourceClaim:
    """Return an allocated claim; results have request ``r``, :data:`DRIVER` and pool ``n0`` by default."""
    defaults = {"request": "r", "driver": DRIVER, "pool": "n0"}
    return claim(name=name, allocation={"devices": {"results": [{**defaults, **result} for result in results]}})


def with_reserved(of: ResourceClaim, *pods: str) -> ResourceClaim:
    """Return a claim that is reserved for pods, whose UIDs are their names."""
    consumers = tuple(ClaimConsumer("pods", each, each) for each in pods)
    return replace(of, status=replace(of.status, reserved_for=consumers))


def group_consumer(name: str) -> ClaimConsumer:
    """Return what a claim of a PodGroup is reserved for."""
    return ClaimConsumer("podgroups", name, f"uid-of-{name}", "scheduling.k8s.io")


def with_group(of: ResourceClaim, name: str) -> ResourceClaim:
    """Return a claim that is reserved for a PodGroup."""
    return replace(of, status=replace(of.status, reserved_for=(group_consumer(name),)))


def taint_rule(name: str, taint: Body, selector: Body | None) -> DeviceTaintRule:
    """Return a taint rule."""
    return decoded({"metadata": {"name": name}, "spec": {"taint": taint, "deviceSelector": selector}}, DeviceTaintRule)


def cluster(
    *objects: ResourceSlice | ResourceClaim | DeviceTaintRule,
    features: DeviceFeatures | None = None,
    bounds: KnowledgeBounds | None = None,
) -> ClusterDevices:
    """Return the devices of a cluster with slices, taint rules and claims."""
    devices = ClusterDevices.empty(features, bounds)
    for one in objects:
        if isinstance(one, ResourceSlice):
            devices.inventory.put_slice(one)
        elif isinstance(one, DeviceTaintRule):
            devices.inventory.put_taint_rule(one)
        else:
            devices.allocated.put_claim(one)
    return devices


def allocator(
    devices: ClusterDevices,
    claims: Sequence[ResourceClaim],
    classes: Sequence[DeviceClass] = (),
    limits: SearchLimits = NO_LIMITS,
    *,
    best_fit: bool = False,
) -> Allocator:
    """Return an allocator; the default class is ``gpu`` without selectors."""
    classes_by_name = {one.metadata.name: one for one in classes or (device_class(),)}
    return Allocator(claims, classes_by_name, devices, limits, best_fit=best_fit)


def allocate(
    devices: ClusterDevices,
    claims: Sequence[ResourceClaim],
    classes: Sequence[DeviceClass] = (),
    node: str = "n0",
    labels: Mapping[str, str] | None = None,
) -> list[AllocationResult] | None:
    """Allocate claims on a node."""
    return claim_results(allocator(devices, claims, classes).find(node, labels or {}))


def claim_results(found: NodeAllocation | None) -> list[AllocationResult] | None:
    """Return the allocation of each claim, with the share ID ``share``; None for no allocation."""
    return None if found is None else found.results(lambda: "share")


def names(results: Sequence[AllocationResult] | None) -> list[str] | None:
    """Return ``request=device`` of all results, in order; None for no allocation."""
    if results is None:
        return None
    return [f"{one.request}={one.device}" for result in results for one in result.devices.results]


def using(user: Pod, *claims: str, templates: Mapping[str, str | None] | None = None) -> Pod:
    """Return the pod with references to claims and templates; *templates* has the created claim of each template."""
    created = dict(templates or {})
    references = [ResourceClaimReference(name=each, resource_claim_name=each) for each in claims]
    references += [ResourceClaimReference(name=each, resource_claim_template_name=each) for each in created]
    statuses = tuple(PodResourceClaimStatus(name, claim_name) for name, claim_name in created.items())
    spec = replace(user.spec, resource_claims=tuple(references))
    return replace(user, spec=spec, status=replace(user.status, resource_claim_statuses=statuses))


def with_meta(of: ResourceClaim, **fields: Any) -> ResourceClaim:
    """Return a claim with other metadata."""
    return replace(of, metadata=replace(of.metadata, **fields))
