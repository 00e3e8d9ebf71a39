"""The ResourceClaims of a pod, and the claim that stands for its extended resources on a node.

A node without an allocatable amount of an extended resource provides it through devices. The claim exists in memory
until PreBind creates it; its name is not a valid name of an object until then.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``foreachPodResourceClaim``,
``isClaimReadyForBinding``, ``isClaimTimeout``, ``allocationResultRequiresDRAOptionalNodeOperations``, which checks
allocations whether or not the gate is on) and ``extendeddynamicresources.go``; ``k8s.io/dynamic-resource-allocation``
v0.37.1, ``resourceclaim/resourceclaim.go``; KEP-5004 and KEP-5007.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.errors import DeviceBindingFailedError, DeviceError
from scheduler_core.framework.status import Status, error, unresolvable
from scheduler_core.model.devices import (
    DEVICE_CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    OPTIONAL_NODE_OPERATIONS,
    AllocatedDeviceStatus,
    AllocationResult,
    ClaimConsumer,
    ClaimMeta,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestResult,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Container, ExtendedResourceRequest, Pod, ResourceClaimReference
from scheduler_core.model.pod_group import GroupSource, PodGroup
from scheduler_core.model.pod_requests import is_extended_resource, nano, whole_units
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_PODGROUPS = "podgroups"


def claims_of_pod(pod: Pod, devices: DeviceIndex) -> list[ResourceClaim]:
    """Return the claims of a pod, in the order of ``spec.resourceClaims``.

    Raises:
        DeviceError: Claims are not known, or one does not exist yet, is being deleted, or belongs to another pod.
    """
    return [claim for _, claim in referenced_claims(pod, devices)]


def referenced_claims(pod: Pod, devices: DeviceIndex) -> list[tuple[ResourceClaimReference, ResourceClaim]]:
    """Return the claims of a pod, each with its entry of ``spec.resourceClaims``. Raises DeviceError."""
    if pod.spec.resource_claims:
        require_lists(devices)
    return [(reference, _usable_claim(pod, name, must_own, devices)) for reference, name, must_own in _claim_names(pod)]


def require_lists(devices: DeviceIndex) -> None:
    """Raise DeviceError unless all claims and slices are known: without them a device in use seems free."""
    if devices.withheld:
        raise DeviceError(f"resource claims cannot be allocated: {devices.withheld}")


def require_readable(claim_key: str, devices: DeviceIndex) -> None:
    """Check that a claim could be decoded. Raises DeviceError: it could not."""
    if claim_key in devices.unreadable_claims:
        raise DeviceError(f'ResourceClaim "{claim_key}" could not be decoded')


def _claim_names(pod: Pod) -> Iterator[tuple[ResourceClaimReference, str, bool]]:
    """Yield the name of each claim, and whether the pod must own it because it was created from a template."""
    created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for reference in pod.spec.resource_claims:
        if reference.resource_claim_name is not None:
            yield reference, reference.resource_claim_name, False
        elif reference.resource_claim_template_name is None:
            raise DeviceError(
                f'pod "{pod.key}", spec.resourceClaim "{reference.name}": none of the supported fields are set'
            )
        elif reference.name not in created:
            raise DeviceError(f'pod "{pod.key}": ResourceClaim not created yet')
        else:
            name = created[reference.name]
            if name is not None:
                yield reference, name, True


def _usable_claim(pod: Pod, name: str, must_own: bool, devices: DeviceIndex) -> ResourceClaim:
    key = f"{pod.metadata.namespace}/{name}"
    claim = devices.claims.get(key)
    require_readable(key, devices)
    if claim is None:
        raise DeviceError(f'could not find ResourceClaim "{key}"')
    if claim.metadata.deletion_timestamp is not None:
        raise DeviceError(f'resourceclaim "{name}" is being deleted')
    if must_own and not claim.metadata.is_controlled_by(pod.metadata.uid):
        group = _group_name(pod) if devices.group_claims else ""
        if not group:
            raise DeviceError(f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)")
        if not _is_of_group(claim, group):
            owners = f"neither Pod nor PodGroup {group} is the owner"
            raise DeviceError(f"ResourceClaim {key} was not created for Pod {pod.key} ({owners})")
    return claim


def _group_name(pod: Pod) -> str:
    """Return the PodGroup that ``spec.schedulingGroup`` names; "" for none."""
    group = pod.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def _is_of_group(claim: ResourceClaim, group: str) -> bool:
    """Return whether a claim was created for the PodGroup of this name; the version of the API does not matter."""
    return any(
        owner.controller
        and (owner.kind, owner.name) == ("PodGroup", group)
        and owner.api_version.startswith(f"{GroupSource.NATIVE}/")
        for owner in claim.metadata.owner_references
    )


def is_reserved_for(claim: ResourceClaim, pod: Pod, *, accepts_group: bool = False) -> bool:
    """Return whether a claim's ``status.reservedFor`` names the pod or, with *accepts_group*, its PodGroup."""
    group = _group_name(pod) if accepts_group else ""
    of_group = (GroupSource.NATIVE.value, _PODGROUPS, group)
    return any(
        each.uid == pod.metadata.uid or (bool(group) and (each.api_group, each.resource, each.name) == of_group)
        for each in claim.status.reserved_for
    )


def consumer_of(
    pod: Pod, reference: ResourceClaimReference | None = None, group: PodGroup | None = None
) -> ClaimConsumer:
    """Return the object that a claim is reserved for: the pod, or its PodGroup if that has an equal claim."""
    if group is not None and reference in group.resource_claims:
        return ClaimConsumer(_PODGROUPS, group.key.name, group.uid, GroupSource.NATIVE.value)
    return ClaimConsumer("pods", pod.metadata.name, pod.metadata.uid)


def class_rejection(claim: ResourceClaim, devices: DeviceIndex) -> Status | None:
    """Return why the device classes of a claim's requests cannot be used."""
    for request in claim.spec.devices.requests:
        names = _class_names(request)
        if not names:
            return unresolvable(f"resource claim {claim.key}, request {request.name}: unknown request type")
        for label, class_name in names.items():
            if not class_name:
                return error(f"request {label}: unsupported request type")
            if class_name not in devices.classes:
                return unresolvable(f"request {label}: device class {class_name} does not exist")
    return None


def _class_names(request: DeviceRequest) -> Mapping[str, str]:
    if request.exactly is not None:
        return {request.name: request.exactly.device_class_name}
    return {f"{request.name}/{each.name}": each.device_class_name for each in request.first_available}


NAME_IN_MEMORY = "<extended-resources>"
_SIDECAR = "Always"


class ExtendedClaim(Struct, frozen=True):
    """What stands for extended resources on nodes that provide the same ones through devices.

    Attributes:
        mappings: Which request of that claim provides each extended resource of each container.
    """

    claim: ResourceClaim
    mappings: tuple[ExtendedResourceRequest, ...]


def claim_in_memory(pod: Pod, new_uid: Callable[[], str]) -> ResourceClaim:
    """Return a claim without requests that exists in memory only, under a new UID."""
    owner = OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", controller=True)
    metadata = ClaimMeta(
        name=NAME_IN_MEMORY,
        namespace=pod.metadata.namespace,
        uid=new_uid(),
        owner_references=(owner,),
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
    )
    return ResourceClaim(metadata)


def is_in_memory(claim: ResourceClaim) -> bool:
    """Return whether the claim does not exist in the API server."""
    return claim.metadata.name == NAME_IN_MEMORY


def extended_claim_of(pod: Pod, claims: Iterable[ResourceClaim]) -> ResourceClaim | None:
    """Return the claim that was created for a pod's extended resources in an earlier attempt."""
    for claim in claims:
        meta = claim.metadata
        if meta.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
            is_named = any(owner.name == pod.metadata.name for owner in meta.owner_references)
            if is_named and meta.is_controlled_by(pod.metadata.uid):
                return claim
    return None


def with_requests(claim: ResourceClaim, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
    return replace(claim, spec=ResourceClaimSpec(DeviceClaim(requests)))


def extended_claim(claim: ResourceClaim, pod: Pod, classes: Mapping[str, str]) -> ExtendedClaim:
    """Return a claim with requests for the resources that a node provides through devices, and their mappings.

    Init containers run before the others, so that they use the devices of later containers, and only the largest
    number beyond those is requested for all of them together.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first_regular = len(pod.spec.init_containers)
    is_short_lived = [
        index < first_regular and container.restart_policy != _SIDECAR for index, container in enumerate(containers)
    ]
    requests: list[DeviceRequest] = []
    mappings: list[ExtendedResourceRequest] = []
    for resource in sorted(classes):
        demand = _Demand(containers, resource, classes[resource])
        lasting: list[DeviceRequest | None] = [None] * len(containers)
        for index in range(len(containers)):
            if not is_short_lived[index]:
                lasting[index], found = demand.of_container(index, ())
                mappings += found
        largest, short_lived = demand.of_init_containers(
            [index for index in range(len(containers)) if is_short_lived[index]], lasting
        )
        requests += [largest] if largest is not None else []
        requests += [request for request in lasting if request is not None]
        mappings += short_lived
    ordered = tuple(sorted(requests, key=lambda request: request.name))
    return ExtendedClaim(with_requests(claim, ordered), tuple(mappings))


class _Demand(Struct, frozen=True):
    """Requests of a pod's containers for one extended resource, served by one device class."""

    containers: Sequence[Container]
    resource: str
    class_name: str

    def of_container(
        self, index: int, reusable: Sequence[DeviceRequest | None]
    ) -> tuple[DeviceRequest | None, list[ExtendedResourceRequest]]:
        """Return the request of a container beyond the requests that it can reuse, and its mappings."""
        container = self.containers[index]
        quantities = container.resources.requests
        mappings: list[ExtendedResourceRequest] = []
        if self.resource not in quantities:
            return None, mappings
        amount = whole_units(nano(quantities[self.resource]))
        if not amount:
            return None, mappings
        provided = 0
        for request in reusable:
            if request is not None and request.exactly is not None:
                provided += request.exactly.count
                mappings.append(self._mapping(container, request.name))
                if provided >= amount:
                    return None, mappings
        name = f"container-{index}-request-{sorted(quantities).index(self.resource)}"
        mappings.append(self._mapping(container, name))
        exactly = ExactDeviceRequest(device_class_name=self.class_name, count=amount - provided)
        return DeviceRequest(name, exactly), mappings

    def of_init_containers(
        self, indices: Sequence[int], lasting: Sequence[DeviceRequest | None]
    ) -> tuple[DeviceRequest | None, list[ExtendedResourceRequest]]:
        """Return the largest request of the init containers, and their mappings, which all name that request."""
        largest: DeviceRequest | None = None
        most = 0
        names: set[str] = set()
        mappings: list[ExtendedResourceRequest] = []
        for index in indices:
            request, found = self.of_container(index, lasting[index:])
            mappings += found
            if request is not None and request.exactly is not None:
                names.add(request.name)
                if request.exactly.count > most:
                    largest, most = request, request.exactly.count
        if largest is not None:
            name = largest.name
            mappings = [replace(each, request_name=name) if each.request_name in names else each for each in mappings]
        return largest, mappings

    def _mapping(self, container: Container, request: str) -> ExtendedResourceRequest:
        return ExtendedResourceRequest(container.name, self.resource, request)


def extended_names(pod: PodInfo) -> list[str]:
    """Return the extended resources that the pod requests, those named after device classes included."""
    return [name for name in pod.scalars if is_extended_resource(name) or name.startswith(DEVICE_CLASS_PREFIX)]


def lacks_offers(pod: PodInfo, nodes: NodeColumns) -> bool:
    return any(nodes.resources.find(name) is None for name in extended_names(pod))


def served_amounts(pod: PodInfo, devices: DeviceIndex) -> dict[str, int]:
    """Return the amounts of the pod's extended resources; empty unless a class serves one of them."""
    if not pod.scalars or not devices.classes:
        return {}
    amounts = {name: pod.requests.fit.get(name, 0) for name in extended_names(pod)}
    is_served = any(amount and devices.class_of_resource(name) is not None for name, amount in amounts.items())
    return amounts if is_served else {}


def has_binding_conditions(claim: ResourceClaim) -> bool:
    return any(result.binding_conditions for result in _results(claim))


def is_ready_for_binding(claim: ResourceClaim) -> bool:
    """Return whether all devices of an allocated claim are ready; a claim without an allocation is not.

    Raises:
        DeviceBindingFailedError: The driver reports that it failed to prepare a device.
    """
    if claim.status.allocation is None:
        return False
    for result in _results(claim):
        if not result.binding_conditions:
            continue
        status = _device_status(claim, result)
        if status is None:
            return False
        true = {condition.type: condition for condition in status.conditions if condition.status == "True"}
        for name in result.binding_failure_conditions:
            if name in true:
                raise DeviceBindingFailedError(
                    f"device binding failed: claim={claim.metadata.name}, reason={true[name].reason}, "
                    f'message="{true[name].message}"'
                )
        if not true.keys() >= set(result.binding_conditions):
            return False
    return True


def is_past_binding_timeout(claim: ResourceClaim, timeout_seconds: float, now: datetime) -> bool:
    """Return whether the devices of a claim with binding conditions were allocated too long ago."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not has_binding_conditions(claim):
        return False
    return (now - allocation.allocation_timestamp).total_seconds() > timeout_seconds


def _results(claim: ResourceClaim) -> Sequence[DeviceRequestResult]:
    allocation = claim.status.allocation
    return () if allocation is None else allocation.devices.results


def _device_status(claim: ResourceClaim, result: DeviceRequestResult) -> AllocatedDeviceStatus | None:
    device = (result.driver, result.pool, result.device)
    return next((each for each in claim.status.devices if (each.driver, each.pool, each.device) == device), None)


def skips_operations(allocation: AllocationResult) -> bool:
    for result in allocation.devices.results:  # noqa: SIM110 - called for every allocated claim of every attempt
        if result.skip_node_operations:
            return True
    return False


def supports_skipping(node: Node) -> bool:
    """Return whether the kubelet of a node can skip operations."""
    return OPTIONAL_NODE_OPERATIONS in node.status.declared_features


def unsupporting_rows(nodes: NodeColumns, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which rows have a node that cannot skip operations, bool per row."""
    found = (node is not None and not supports_skipping(node) for node in map(nodes.nodes.__getitem__, rows.tolist()))
    return np.fromiter(found, dtype=np.bool_, count=len(rows))


def unsupported(claim: ResourceClaim) -> Status:
    """Return the rejection of a node that cannot skip operations of a claim whose allocation is not written yet."""
    return unresolvable(
        f"resource claim {claim.key} allocation requires {OPTIONAL_NODE_OPERATIONS} feature on the node"
    )
