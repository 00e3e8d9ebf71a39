"""Devices of Dynamic Resource Allocation as drivers and administrators publish them: slices, classes and taint rules.

Objects of ``resource.k8s.io/v1``; only the fields that scheduling reads. Quantities keep the text of the API server.
Parameters of drivers are opaque: they are copied as bytes and never interpreted.
:mod:`scheduler_core.model.device_claims` has the claims.

Follows ``k8s.io/api`` v0.37.1 ``resource/v1``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import force_setattr

from scheduler_core.model.affinity import NodeSelector
from scheduler_core.model.meta import ObjectMeta

Quantity = str | int | float

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
EXISTS = "Exists"
EQUAL = "Equal"
NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
"""Feature that a node declares if its kubelet can skip operations of drivers."""


class DeviceAttribute(
    Struct,
    gc=False,
    frozen=True,
    omit_defaults=True,
    rename={
        "int_value": "int",
        "bool_value": "bool",
        "string_value": "string",
        "version_value": "version",
        "int_values": "ints",
        "bool_values": "bools",
        "string_values": "strings",
        "version_values": "versions",
    },
):
    """Value of an attribute: exactly one field is set; lists are behind the gate DRAListTypeAttributes."""

    int_value: int | None = None
    bool_value: bool | None = None
    string_value: str | None = None
    version_value: str | None = None
    int_values: tuple[int, ...] = ()
    bool_values: tuple[bool, ...] = ()
    string_values: tuple[str, ...] = ()
    version_values: tuple[str, ...] = ()

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
    """Amount of a counter."""

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


class DeviceTaint(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A taint of a device; effects other than NoSchedule and NoExecute do not affect scheduling."""

    key: str = ""
    effect: str = ""
    value: str = ""
    time_added: datetime | None = None

    @property
    def prevents_allocation(self) -> bool:
        """Whether requests need a toleration."""
        return self.effect in (NO_SCHEDULE, NO_EXECUTE)


class DeviceToleration(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A toleration of a request; it is copied to the allocation result, where the eviction controller reads it."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Return whether the toleration matches ``taint``; an empty effect or key matches all."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", EQUAL):
            return self.value == taint.value
        return self.operator == EXISTS


class Device(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A device of a slice.

    Attributes:
        name: Unique in its pool.
        attributes: By name; a name without a domain belongs to the domain of the driver.
        consumes_counters: Counters of the pool that its allocation consumes.
        node_name: The node of the device, if the slice has ``perDeviceNodeSelection``.
        node_selector: The nodes that reach the device, if the slice has ``perDeviceNodeSelection``.
        all_nodes: Whether all nodes reach the device, if the slice has ``perDeviceNodeSelection``.
        taints: Taints of the driver; those of DeviceTaintRules are not included.
        binds_to_node: Whether an allocation is usable only on the node for which it was made.
        binding_conditions: Conditions that must be True before the pod is bound.
        binding_failure_conditions: Conditions of which none may be True.
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
        """Whether a consumption of counters has compatibility groups."""
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
        """Driver and name of the pool."""
        return (self.spec.driver, self.spec.pool.name)


class CelSelector(Struct, gc=False, frozen=True, rename="camel"):
    """An expression over a device."""

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
    """A DeviceClass."""

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
        """Return whether the rule taints the device."""
        selector = self.spec.device_selector
        return (
            selector is not None
            and selector.driver in (None, driver)
            and selector.pool in (None, pool)
            and selector.device in (None, device)
        )
