"""Claims of Dynamic Resource Allocation: requests for devices, and what was allocated to them.

Objects of ``resource.k8s.io/v1``; only the fields that scheduling reads. An :class:`AllocationResult` is complete: its
JSON is ``status.allocation`` in the form that the API server stores. Other parts of a claim are not complete and are
written by patches only.

Defaults are those that the API server sets. Follows ``k8s.io/api`` v0.37.1 ``resource/v1``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from scheduler_core.model.affinity import NodeSelector
from scheduler_core.model.devices import DeviceSelector, DeviceToleration, OpaqueConfiguration, Quantity
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta

DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"

EXACT_COUNT = "ExactCount"
ALL = "All"
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"
NO_DATA = Raw(b"null")
MAX_RESULTS = 32
"""Largest number of devices of a claim."""
MAX_CONSUMERS = 256
"""Largest number of entries of ``status.reservedFor``."""


class CapacityRequirements(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Amounts that each device must provide, by the name of the capacity."""

    requests: dict[str, Quantity] = {}


class DerivedAttribute(Struct, gc=False, frozen=True, rename="camel"):
    """An attribute that an expression computes for constraints; behind the gate DRADerivedAttributes."""

    name: str
    expression: str = ""


class ExactDeviceRequest(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """What each device of a request must satisfy, and how many devices.

    Attributes:
        device_class_name: The class, whose selectors come first.
        selectors: Further selectors; all must match.
        allocation_mode: ExactCount, or All for every matching device of the node.
        count: Number of devices for ExactCount.
        admin_access: Whether devices in use are allocated too, for an administrator.
        tolerations: Taints that are accepted.
        capacity: Amounts that each device must provide.
        derived_attributes: Attributes that constraints read instead of those of the devices.
    """

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(ExactDeviceRequest, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An alternative of a prioritized list; the API has no ``adminAccess`` here."""

    name: str = ""


class DeviceRequest(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A request: either ``exactly`` or a list of alternatives of which the first that is available is taken."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A constraint over the devices of ``requests`` (empty: of all requests) of a claim."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimConfiguration(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Configuration of the devices of ``requests`` (empty: of all requests) as the claim states it."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(Struct, gc=False, frozen=True, omit_defaults=True, rename={"request_list": "requests"}):
    """``spec.devices`` of a claim; ``request_list`` is None, null on the wire, for a claim without requests."""

    request_list: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[ClaimConfiguration, ...] = ()

    @property
    def requests(self) -> tuple[DeviceRequest, ...]:
        """The requests, in order."""
        return self.request_list or ()


class ResourceClaimSpec(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec`` of a claim."""

    devices: DeviceClaim = DeviceClaim()


_RESULT_NAMES = {
    "admin_access": "adminAccess",
    "binding_conditions": "bindingConditions",
    "binding_failure_conditions": "bindingFailureConditions",
    "share_id": "shareID",
    "consumed_capacity": "consumedCapacity",
    "skip_node_operations": "skipNodeOperations",
}


class DeviceRequestResult(Struct, gc=False, frozen=True, omit_defaults=True, rename=_RESULT_NAMES):
    """An allocated device.

    Attributes:
        request: Name of the request, or ``request/alternative``.
        pool: The pool of the driver.
        device: The device of the pool.
        admin_access: True for admin access, which does not count as use of the device; else None.
        tolerations: Tolerations of the request.
        binding_conditions: Conditions that must be True before the pod is bound.
        binding_failure_conditions: Conditions of which none may be True.
        share_id: Identity of a share of a device that allows multiple allocations; else None.
        consumed_capacity: Capacity that a share consumes.
        skip_node_operations: Operations of the driver that the kubelet skips for the device.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = None
    consumed_capacity: dict[str, Quantity] = {}
    skip_node_operations: tuple[str, ...] = ()


UNKNOWN_DEVICE = DeviceRequestResult("", "", "", "")
"""Any device: what a claim has allocated cannot be read."""


class AllocatedConfiguration(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Configuration of allocated devices; ``source`` is FromClass or FromClaim; no ``requests`` means all."""

    source: str
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceAllocation(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Allocated devices of a claim, in the order of its requests, and their configuration."""

    results: tuple[DeviceRequestResult, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class AllocationResult(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``status.allocation`` of a claim; ``node_selector`` None means that all nodes reach the devices."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class ClaimConsumer(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An object that may use the claim; for a pod, ``resource`` is ``pods`` and ``api_group`` is empty."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class DeviceCondition(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A condition of an allocated device as its driver reports it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: datetime | None = None


_STATUS_NAMES = {"share_id": "shareID", "condition_list": "conditions", "network_data": "networkData"}


class AllocatedDeviceStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename=_STATUS_NAMES):
    """State of an allocated device as its driver reports it; ``condition_list`` may be null on the wire.

    ``data`` and ``network_data`` are only compared: a change of them requeues the pods that wait for the claim.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None = None
    condition_list: tuple[DeviceCondition, ...] | None = None
    data: Raw = NO_DATA
    network_data: Raw = NO_DATA

    def __post_init__(self) -> None:
        # A decoded Raw is a view that keeps the whole message of the watch in memory.
        for name in ("data", "network_data"):
            value: Raw = getattr(self, name)
            if value is not NO_DATA:
                force_setattr(self, name, value.copy())

    @property
    def conditions(self) -> tuple[DeviceCondition, ...]:
        """The conditions of the device."""
        return self.condition_list or ()


class ResourceClaimStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``status`` of a claim; ``allocation`` None means that no devices are allocated."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ClaimMeta(AnnotatedMeta, gc=False, frozen=True, rename="camel"):
    """Metadata of a claim, with its finalizers."""

    finalizers: tuple[str, ...] = ()


class ResourceClaim(Struct, gc=False, frozen=True, rename="camel"):
    """A ResourceClaim."""

    metadata: ClaimMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def restored(self, content: dict[str, Any]) -> ResourceClaim:
        """Return the readable part of a claim with the devices that its JSON may allocate; "" is an unreadable name."""
        results = _results_in(content)
        allocation = AllocationResult(DeviceAllocation(results)) if results else None
        return replace(self, status=replace(self.status, allocation=allocation))


def _results_in(content: Any) -> tuple[DeviceRequestResult, ...]:
    for name in ("status", "allocation", "devices", "results"):
        if not isinstance(content, dict):
            return (UNKNOWN_DEVICE,)
        content = content.get(name)
        if content is None:
            return ()
    if not isinstance(content, list):
        return (UNKNOWN_DEVICE,)
    found = []
    for each in content:
        entry = each if isinstance(each, dict) else {}
        request, driver, pool, device = (_text(entry.get(name)) for name in ("request", "driver", "pool", "device"))
        if entry.get("adminAccess") is not True:
            found.append(DeviceRequestResult(request, driver, pool, device))
    return tuple(found)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class ClaimTemplateMeta(Struct, gc=False, frozen=True, rename="camel"):
    """Labels and annotations that claims of a template receive."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceClaimTemplateSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a template: the claim that is created for each pod."""

    spec: ResourceClaimSpec
    metadata: ClaimTemplateMeta = ClaimTemplateMeta()


class ResourceClaimTemplate(Struct, gc=False, frozen=True, rename="camel"):
    """A ResourceClaimTemplate."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec
