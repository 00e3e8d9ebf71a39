"""Hypothetical device events that might requeue a pod with claims; see :mod:`scheduler_core.explain.candidate_events`.

Claims and classes created, claims deallocated, devices published that resemble those that lack the least.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from scheduler_core.cel.device_selector import Version
from scheduler_core.explain.candidate_events import Candidate
from scheduler_core.explain.device_findings import DeviceFindings, NearestDevice
from scheduler_core.explain.findings import NodeLacks
from scheduler_core.explain.unmet_conditions import ATTRIBUTES, CAPACITY, DRIVER, Constant
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.devices import (
    ClaimMeta,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_CLAIM_ADD = ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD)
_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE_OTHER)
_CLASS_ADD = ClusterEvent(Resource.DEVICE_CLASS, Action.ADD)
_SLICE_ADD = ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD)
_NEW = "new-devices"


def device_changes(
    info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks], findings: DeviceFindings | None
) -> Iterator[Candidate]:
    """Yield events of the pod's claims and their classes, and of the devices of the nearest nodes."""
    devices = columns.devices
    claims: list[ResourceClaim] = []
    for name in _claim_names(info.pod):
        key = f"{info.pod.metadata.namespace}/{name}"
        claim = devices.claims.get(key)
        if claim is None:
            made = ResourceClaim(ClaimMeta(name, info.pod.metadata.namespace, f"uid-of-{name}"))
            yield Candidate(_CLAIM_ADD, None, made, f"claim {key} created", is_complete=False)
        else:
            claims.append(claim)
    for class_name in _missing_classes(claims, devices):
        made_class = DeviceClass(ObjectMeta(class_name))
        yield Candidate(_CLASS_ADD, None, made_class, f"device class {class_name} created", is_complete=False)
    for claim in claims:
        in_flight = devices.in_flight(claim.metadata.uid)
        if in_flight is not None and claim.status.allocation is None:
            written = replace(claim, status=replace(claim.status, allocation=in_flight.allocation))
            yield Candidate(_CLAIM_UPDATE, claim, written, f"the allocation of claim {claim.key} written")
    if findings is not None:
        rows = [columns.row_of(miss.node) for miss in misses]
        for row in rows:
            if row >= 0:
                yield from _on_node(columns, row, findings)


def _claim_names(pod: Pod) -> Iterator[str]:
    created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for reference in pod.spec.resource_claims:
        name = reference.resource_claim_name or created.get(reference.name)
        if name is not None:
            yield name


def _missing_classes(claims: Sequence[ResourceClaim], devices: DeviceIndex) -> list[str]:
    names = [
        name
        for claim in claims
        if claim.status.allocation is None
        for request in claim.spec.devices.requests
        for name in _class_names(request)
    ]
    return [name for name in dict.fromkeys(names) if name and name not in devices.classes]


def _class_names(request: DeviceRequest) -> list[str]:
    alternatives = [each.device_class_name for each in request.first_available]
    return alternatives if request.exactly is None else [request.exactly.device_class_name]


# -- one node -------------------------------------------------------------------------------------------------------


def _on_node(columns: NodeColumns, row: int, findings: DeviceFindings) -> Iterator[Candidate]:
    node_name, claims = columns.node_name(row), columns.devices.claims
    for each in findings.claims_on(row).unavailable:
        yield _deallocated(each.claim, ())
    nearest = findings.nearest(row)
    for device in nearest:
        for holder in device.holders:
            claim = claims.get(holder.claim)
            if claim is not None and claim.status.allocation is not None:
                yield _deallocated(claim, holder.pods)
        yield _published(device, node_name)
    described = {each.request for each in nearest}
    for obstacle in findings.obstacles(row):
        if (obstacle.claim, obstacle.request) not in described and not findings.claims_on(row).unavailable:
            request = f"request {obstacle.request} of " if obstacle.request else ""
            words = f"devices for {request}claim {obstacle.claim} published on node {node_name}"
            yield Candidate(_SLICE_ADD, None, _slice(node_name, "", ()), words, is_complete=False)


def _deallocated(claim: ResourceClaim, pods: Sequence[str]) -> Candidate:
    after = ""
    if pods:
        after = f" after pod{'s' if len(pods) > 1 else ''} {', '.join(pods)} end{'' if len(pods) > 1 else 's'}"
    freed = replace(claim, status=replace(claim.status, allocation=None, reserved_for=()))
    return Candidate(_CLAIM_UPDATE, claim, freed, f"claim {claim.key} deallocated{after}")


def _published(device: NearestDevice, node_name: str) -> Candidate:
    """Return the event that devices like one of a node are published, without its problems as far as they are known."""
    facts = device.view.records[device.position].facts
    driver, changes, is_complete = facts.driver, list[str](), True
    attributes, capacity = dict(facts.attributes), dict(facts.capacity)
    for problem in device.problems:
        read, value = problem.read, problem.suitable
        if not problem.required_by:
            # A new device is not in use and has no taint; amounts that a request needs from the device stay too small.
            is_complete = is_complete and (problem.is_use or problem.is_taint)
            continue
        if read is None or value is None or read.kind not in (ATTRIBUTES, CAPACITY, DRIVER):
            is_complete = False
            continue
        changes.append(f"{read.label(facts.driver)} {_plain(value)}")
        if read.kind == DRIVER:
            driver = str(value)
            continue
        key = read.name if read.domain == facts.driver and read.name in attributes | capacity else ""
        key = key or f"{read.domain}/{read.name}"
        if read.kind == ATTRIBUTES:
            attributes[key] = _attribute(value)
        else:
            capacity[key] = DeviceCapacity(str(value))
    many = device.missing
    noun = "a device" if many == 1 else f"{many} devices"
    with_changes = f" with {' and '.join(changes)}" if changes else ""
    words = f"{noun} like {device.name}{with_changes} published on node {node_name}"
    if not is_complete:
        words = f"{noun} for request {device.terms.result_name} published on node {node_name}"
    made = tuple(
        Device(
            f"new-{number}",
            attributes,
            capacity,
            allow_multiple_allocations=facts.allow_multiple_allocations,
        )
        for number in range(many)
    )
    return Candidate(_SLICE_ADD, None, _slice(node_name, driver, made), words, is_complete=is_complete)


def _slice(node_name: str, driver: str, devices: tuple[Device, ...]) -> ResourceSlice:
    spec = ResourceSliceSpec(driver, ResourcePool(_NEW, 1, 1), node_name=node_name, devices=devices)
    return ResourceSlice(ObjectMeta(_NEW), spec)


def _attribute(value: Constant) -> DeviceAttribute:
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    if isinstance(value, Version):
        return DeviceAttribute(version_value=value.text)
    return DeviceAttribute(string_value=str(value))


def _plain(value: Constant) -> str:
    return value.text if isinstance(value, Version) else str(value)
