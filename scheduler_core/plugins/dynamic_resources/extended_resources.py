"""Extended resources that device classes serve: the claim that stands for a pod's requests on one node.

A node without an allocatable amount of such a resource provides it through devices. The claim exists in memory until
PreBind creates it; its name is not a valid name of an object until then.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/extendeddynamicresources.go``, and KEP-5004.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.model.devices import (
    DEVICE_CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    ClaimMeta,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Container, ExtendedResourceRequest, Pod
from scheduler_core.model.pod_requests import is_extended_resource
from scheduler_core.model.quantity import nano, whole_units
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

NAME_IN_MEMORY = "<extended-resources>"
_SIDECAR = "Always"


class NodeRequests(Struct, frozen=True):
    """Device requests that stand for a pod's extended resources.

    Attributes:
        requests: Device requests, sorted by name.
        mappings: Which request provides each extended resource of each container.
    """

    requests: tuple[DeviceRequest, ...]
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
    """Return the claim with the requests for one node."""
    return replace(claim, spec=ResourceClaimSpec(DeviceClaim(requests)))


def node_requests(pod: Pod, classes: Mapping[str, str]) -> NodeRequests:
    """Return the requests for the resources that a node provides through devices.

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
    return NodeRequests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


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
    """Return whether the pod requests an extended resource that no node offers."""
    return any(nodes.resources.find(name) is None for name in extended_names(pod))


def served_amounts(pod: PodInfo, devices: DeviceIndex) -> dict[str, int]:
    """Return the amounts of the pod's extended resources; empty unless a class serves one of them."""
    if not pod.scalars or not devices.classes:
        return {}
    amounts = {name: pod.requests.fit.get(name, 0) for name in extended_names(pod)}
    is_served = any(amount and devices.class_of_resource(name) is not None for name, amount in amounts.items())
    return amounts if is_served else {}
