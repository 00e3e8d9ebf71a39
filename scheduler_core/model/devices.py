"""Objects of Dynamic Resource Allocation as decoded: slices, classes, taint rules and claims.

Objects of ``resource.k8s.io/v1``; only the fields that scheduling reads, with the defaults that the API server sets.
Quantities keep the text of the API server. Parameters of drivers are opaque: they are copied as bytes. An
:class:`AllocationResult` is complete: its JSON is ``status.allocation`` in the form that the API server stores. Other
parts of a claim are not complete and are written by patches only. Follows ``k8s.io/api`` v0.37.1 ``resource/v1``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, field
from msgspec.structs import force_setattr, replace

from scheduler_core.model.affinity import NodeSelector
from scheduler_core.model.meta import AnnotatedMeta, ObjectCondition, ObjectMeta
from scheduler_core.model.taints import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration

Quantity = str | int | float

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
"""Feature that a node declares if its kubelet can skip operations of drivers."""


class DeviceAttribute(Struct, gc=False, frozen=True, omit_defaults=True):
    """Value of an attribute: exactly one field is set; lists are behind the gate DRAListTypeAttributes."""

    int_value: int | None = field(default=None, name="int")
    bool_value: bool | None = field(default=None, name="bool")
    string_value: str | None = field(default=None, name="string")
    version_value: str | None = field(default=None, name="version")
    int_values: tuple[int, ...] = field(default=(), name="ints")
    bool_values: tuple[bool, ...] = field(default=(), name="bools")
    string_values: tuple[str, ...] = field(default=(), name="strings")
    version_values: tuple[str, ...] = field(default=(), name="versions")

    @property
    def scalar(self) -> tuple[str, int | bool | str] | None:
        """Type and value of a single value, None for a list; versions are equal only if their text is."""
        if self.string_value is not None:
            return ("string", self.string_value)
        if self.int_value is not None:
            return ("int", self.int_value)
        if self.bool_value is not None:
            return ("bool", self.bool_value)
        if self.version_value is not None:
            return ("version", self.version_value)
        return None

    @property
    def elements(self) -> tuple[tuple[str, int | bool | str], ...]:
        """Type and value of each element of a list, or of the single value; none for an empty list."""
        if self.int_values:
            return tuple([("int", each) for each in self.int_values])
        if self.bool_values:
            return tuple([("bool", each) for each in self.bool_values])
        if self.string_values:
            return tuple([("string", each) for each in self.string_values])
        if self.version_values:
            return tuple([("version", each) for each in self.version_values])
        scalar = self.scalar
        return () if scalar is None else (scalar,)


class CapacityRange(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Range of valid amounts; None for no limit, and for no step."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """How requests for a capacity are rounded, and the amount that a share without a request consumes."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A capacity of a device; ``request_policy`` applies to devices that allow multiple allocations."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(Struct, gc=False, frozen=True, rename="camel"):
    value: Quantity


class CounterSet(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Counters that the devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class CounterConsumption(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Counters of one set that an allocated device consumes.

    ``compatibility_groups`` are behind the gate DRADeviceCompatibilityGroups: all allocated devices that consume
    counters of the set have a group in common, or all have none.
    """

    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Taint, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A taint of a device; effects other than NoSchedule and NoExecute do not affect scheduling."""

    key: str = ""
    effect: str = ""
    time_added: datetime | None = None

    @property
    def prevents_allocation(self) -> bool:
        return self.effect in (NO_SCHEDULE, NO_EXECUTE)


class DeviceToleration(Toleration, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A toleration of a request; it is copied to the allocation result, where the eviction controller reads it."""

    toleration_seconds: int | None = None


class Device(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A device of a slice.

    Attributes:
        attributes: By name; a name without a domain belongs to the domain of the driver.
        node_name: The node of the device, if the slice has ``perDeviceNodeSelection``.
        node_selector: The nodes that reach the device, if the slice has ``perDeviceNodeSelection``.
        all_nodes: Whether all nodes reach the device, if the slice has ``perDeviceNodeSelection``.
        taints: Taints of the driver; those of DeviceTaintRules are not included.
        binds_to_node: Whether an allocation is usable only on the node for which it was made.
        allow_multiple_allocations: Whether several requests can share the device.
        node_allocatable_resources: Resources of the node that an allocation consumes, by name.
    """

    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, Any] = {}

    @property
    def has_compatibility_groups(self) -> bool:
        return any(consumption.compatibility_groups for consumption in self.consumes_counters)


class ResourcePool(Struct, gc=False, frozen=True, rename="camel"):
    """The pool of a slice; slices of an older generation are obsolete."""

    name: str
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec`` of a slice; ``devices`` and ``shared_counters`` exclude each other.

    ``skip_node_operations`` are the operations of the driver that the kubelet skips for the devices; a node that can
    skip them declares the feature :data:`OPTIONAL_NODE_OPERATIONS`. Behind the gate of that name.
    """

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Struct, gc=False, frozen=True, rename="camel"):
    """A ResourceSlice: devices, or shared counters, of one pool of a driver."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec

    @property
    def pool_key(self) -> tuple[str, str]:
        return (self.spec.driver, self.spec.pool.name)


class CelSelector(Struct, gc=False, frozen=True, rename="camel"):
    expression: str


class DeviceSelector(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A selector of devices; None in ``cel`` is a kind of selector that this version does not implement."""

    cel: CelSelector | None = None


class OpaqueConfiguration(Struct, gc=False, frozen=True, rename="camel"):
    """Configuration for a driver; ``parameters`` is JSON that only the driver interprets."""

    driver: str
    parameters: Raw = Raw(b"null")

    def __post_init__(self) -> None:
        # A decoded Raw is a view that keeps the whole message of the watch in memory.
        force_setattr(self, "parameters", self.parameters.copy())


class DeviceConfiguration(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Configuration of devices as a class states it."""

    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec`` of a class: selectors and configuration of each request that names it."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def implicit_resource_name(self) -> str:
        """The extended resource that every class serves, whether or not it names another one."""
        return DEVICE_CLASS_PREFIX + self.metadata.name


class DeviceTaintSelector(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Devices that a rule taints: all fields that are set must be equal."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec`` of a rule; without a selector it matches no device."""

    taint: DeviceTaint = DeviceTaint()
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(Struct, gc=False, frozen=True, rename="camel"):
    """A DeviceTaintRule: a taint that an administrator adds to devices of any driver."""

    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()

    def matches(self, driver: str, pool: str, device: str) -> bool:
        selector = self.spec.device_selector
        return (
            selector is not None
            and selector.driver in (None, driver)
            and selector.pool in (None, pool)
            and selector.device in (None, device)
        )


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


class DeviceClaim(Struct, gc=False, frozen=True, omit_defaults=True):
    """``spec.devices`` of a claim; ``request_list`` is None, null on the wire, for a claim without requests."""

    request_list: tuple[DeviceRequest, ...] | None = field(default=None, name="requests")
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[ClaimConfiguration, ...] = ()

    @property
    def requests(self) -> tuple[DeviceRequest, ...]:
        """The requests, in order."""
        return self.request_list or ()


class ResourceClaimSpec(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestResult(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An allocated device.

    Attributes:
        request: Name of the request, or ``request/alternative``.
        admin_access: True for admin access, which does not count as use of the device; else None.
        share_id: Identity of a share of a device that allows multiple allocations; else None.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
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


class AllocatedDeviceStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """State of an allocated device as its driver reports it; ``condition_list`` may be null on the wire.

    ``data`` and ``network_data`` are only compared: a change of them requeues the pods that wait for the claim.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, name="shareID")
    condition_list: tuple[ObjectCondition, ...] | None = field(default=None, name="conditions")
    data: Raw = NO_DATA
    network_data: Raw = NO_DATA

    def __post_init__(self) -> None:
        # A decoded Raw is a view that keeps the whole message of the watch in memory.
        for name in ("data", "network_data"):
            value: Raw = getattr(self, name)
            if value is not NO_DATA:
                force_setattr(self, name, value.copy())

    @property
    def conditions(self) -> tuple[ObjectCondition, ...]:
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
    metadata: ClaimMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
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
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ResourceClaimTemplateSpec(Struct, gc=False, frozen=True, rename="camel"):
    """``spec`` of a template: the claim that is created for each pod."""

    spec: ResourceClaimSpec
    metadata: ClaimTemplateMeta = ClaimTemplateMeta()


class ResourceClaimTemplate(Struct, gc=False, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec
