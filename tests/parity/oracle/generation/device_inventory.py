"""Generation of ResourceSlices, device classes, and claims with or without an allocation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.parity.oracle.generation.world import Json, World

GPU, NIC, TPU = "gpu.example.com", "nic.vendor.io", "tpu.example.com"
PCIE = "resource.kubernetes.io/pcieRoot"
MODELS = [("l4", "24Gi", 58), ("a100", "80Gi", 108), ("h100", "96Gi", 132), ("b200", "192Gi", 148)]
_VERSIONS = ["535.104.5", "550.54.15", "570.86.10", "1.2.3", "2.0.0-rc.1", "2.0.0"]
_TAINTS = [
    ("example.com/broken", "yes", "NoExecute"),
    ("example.com/maintenance", "", "NoSchedule"),
    ("example.com/degraded", "thermal", "NoSchedule"),
    ("example.com/aging", "", "None"),
]
_PROTECTION = "resource.kubernetes.io/delete-protection"


@dataclass(slots=True)
class PublishedDevice:
    """Device of a current slice.

    Attributes:
        node: Node of the slice; None if the slice is for several nodes.
        free: Whether no claim of the case uses the device.
    """

    driver: str
    pool: str
    device: str
    node: str | None
    definition: Json
    free: bool = True

    @property
    def is_shared(self) -> bool:
        """Return whether several claims may use the device."""
        return bool(self.definition.get("allowMultipleAllocations"))

    def result(self, request: str, **more: Any) -> Json:
        """Return the allocation result of the device for a request."""
        return {"request": request, "driver": self.driver, "pool": self.pool, "device": self.device, **more}


@dataclass(frozen=True, slots=True)
class Pool:
    """Pool of slices.

    Attributes:
        node: Name of the node; None if ``where`` selects nodes.
        where: Fields of a slice that select nodes.
        count: Number of slices that the pool announces.
    """

    driver: str
    name: str
    node: str | None = None
    where: Json | None = None
    generation: int = 1
    count: int = 1


class DeviceInventory:
    """Slices, classes and claims of a case.

    Attributes:
        published: Devices of current slices in the order of their creation.
    """

    def __init__(self, w: World) -> None:
        self.w = w
        self.published: list[PublishedDevice] = []

    def add_slice(self, pool: Pool, devices: list[Json], *, is_current: bool = True) -> None:
        """Add a slice with devices; devices of a slice that is not current cannot be allocated."""
        if is_current:
            self.published += [
                PublishedDevice(pool.driver, pool.name, device["name"], pool.node, device) for device in devices
            ]
        self._write_slice(pool, {"devices": devices})

    def add_counters(self, pool: Pool, counters: list[Json]) -> None:
        """Add a slice with shared counters."""
        self._write_slice(pool, {"sharedCounters": counters})

    def _write_slice(self, pool: Pool, content: Json) -> None:
        spec: Json = {
            "driver": pool.driver,
            "pool": {"name": pool.name, "generation": pool.generation, "resourceSliceCount": pool.count},
            **(pool.where or {"nodeName": pool.node}),
            **content,
        }
        name = f"{pool.node or 'net'}-{pool.driver.split('.')[0]}-{self.w.r.getrandbits(20):05x}"
        self.w.resource_slices.append({"metadata": {"name": name}, "spec": spec})

    def add_class(
        self,
        name: str,
        *expressions: str,
        config: str | None = None,
        extended: str | None = None,
        created: str = "2026-01-01T00:00:00Z",
    ) -> None:
        """Add a device class.

        Args:
            expressions: CEL expressions of its selectors.
            config: Driver of its configuration.
            extended: Extended resource of the class.
            created: Creation time.
        """
        spec: Json = {}
        if expressions:
            spec["selectors"] = [{"cel": {"expression": each}} for each in expressions]
        if config:
            parameters = {"kind": f"{name}Config", "level": self.w.r.randint(1, 3)}
            spec["config"] = [{"opaque": {"driver": config, "parameters": parameters}}]
        if extended:
            spec["extendedResourceName"] = extended
        self.w.device_classes.append({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec})

    def add_claim(self, name: str, namespace: str, devices: Json, **meta: Any) -> Json:
        """Add a claim with requests, constraints and configuration."""
        claim = {
            "metadata": {"name": name, "namespace": namespace, "uid": self.w.uid("claim"), **meta},
            "spec": {"devices": devices},
        }
        self.w.resource_claims.append(claim)
        return claim


def allocate(
    claim: Json,
    results: list[Json],
    node: str | None = None,
    pods: Sequence[Json] = (),
    *,
    selector: Json | None = None,
    stamp: str | None = "2020-03-20T00:00:00Z",
) -> None:
    """Write an allocation of an earlier attempt to a claim.

    Args:
        results: Allocated devices.
        pods: Pods for which the claim is reserved.
        selector: Node selector if the allocation is not for one node.
        stamp: Time of the allocation; None if it is not recorded.
    """
    allocation: Json = {"devices": {"results": results}}
    if node:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    if selector:
        allocation["nodeSelector"] = selector
    if stamp:
        allocation["allocationTimestamp"] = stamp
    claim["metadata"].setdefault("finalizers", []).append(_PROTECTION)
    claim["status"] = {"allocation": allocation}
    if pods:
        claim["status"]["reservedFor"] = [
            {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in pods
        ]


def properties(w: World, driver: str, index: int, rich: float = 1.0) -> tuple[Json, Json]:
    """Generate the attributes and capacities of a device.

    Args:
        rich: Probability of the attribute ``numa``.
    """
    model, memory, cores = w.pick(MODELS)
    attributes: Json = {
        "model": {"string": model},
        "index": {"int": index},
        "ecc": {"bool": w.p(0.6)},
        "driverVersion": {"version": w.pick(_VERSIONS)},
    }
    if w.p(rich):
        attributes["numa"] = {"int": index % 2}
    if w.p(0.85):
        attributes[PCIE] = {"string": f"pci0000:{index // 2:02x}"}
    if w.p(0.3):
        attributes[f"{driver}/slot"] = {"string": f"s{index % 3}"}
    if w.p(0.2):
        attributes["example.com/rack"] = {"int": w.r.randint(1, 3)}
    amount = w.pick([memory, memory, str(int(memory[:-2]) << 30)])
    return attributes, {"memory": {"value": amount}, "cores": {"value": str(cores)}}


def make_device(w: World, driver: str, index: int, like: tuple[Json, Json] | None = None, rich: float = 1.0) -> Json:
    """Generate a device.

    Args:
        like: Attributes and capacities of other devices, of which those that depend on the number are replaced.
        rich: Probability of the attribute ``numa``.
    """
    if like:
        attributes, capacity = copy.deepcopy(like)
        attributes["index"] = {"int": index}
        if "numa" in attributes:
            attributes["numa"] = {"int": index % 2}
        if PCIE in attributes:
            attributes[PCIE] = {"string": f"pci0000:{index // 2:02x}"}
    else:
        attributes, capacity = properties(w, driver, index, rich)
    if driver == NIC:
        attributes = {key: each for key, each in attributes.items() if key not in ("model", "ecc", "driverVersion")}
        attributes["speed"] = {"int": w.pick([10, 25, 100])}
        attributes["sriov"] = {"bool": w.p(0.5)}
        attributes["firmware"] = {"version": w.pick(["1.0.0", "1.4.2", "2.1.0"])}
        capacity = {"bandwidth": {"value": w.pick(["10G", "25G", "100G"])}}
    return {"name": f"{driver.split('.', maxsplit=1)[0]}-{index}", "attributes": attributes, "capacity": capacity}


def shared_device(w: World, driver: str, index: int) -> Json:
    """Generate a device that several claims may use at the same time."""
    device = make_device(w, driver, index)
    device["name"] = f"shared-{index}"
    device["allowMultipleAllocations"] = True
    memory: Json = {"value": w.pick(["16Gi", "24Gi", "40Gi"])}
    policies: dict[str, Json] = {
        "values": {"default": "4Gi", "validValues": ["1Gi", "2Gi", "4Gi", "8Gi"]},
        "range": {"default": "2Gi", "validRange": {"min": "1Gi", "step": "512Mi"}},
        "rangemax": {"default": "3Gi", "validRange": {"min": "1Gi", "max": "9Gi", "step": "2Gi"}},
        "default": {"default": "6Gi"},
    }
    policy = w.pick([None, "values", "range", "range", "rangemax", "default"])
    if policy:
        memory["requestPolicy"] = policies[policy]
    cores: Json = {"value": w.pick(["8", "16"])}
    if w.p(0.7):
        cores["requestPolicy"] = {"default": "1", "validRange": {"min": "1"}}
    device["capacity"] = {"memory": memory, "cores": cores}
    return device


def taint(w: World, device: Json) -> None:
    """Add taints to a device."""
    device["taints"] = [
        {
            "key": key,
            "effect": effect,
            **({"value": value} if value else {}),
            "timeAdded": f"2026-03-0{w.r.randint(1, 9)}T00:00:00Z",
        }
        for key, value, effect in w.some(_TAINTS, 1, 2)
    ]
