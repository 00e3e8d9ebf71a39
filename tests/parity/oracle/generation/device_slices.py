"""Generation of ResourceSlices of nodes and of the network, and of device classes."""

from __future__ import annotations

import copy
from dataclasses import replace

from tests.parity.oracle.generation.device_inventory import (
    GPU,
    NIC,
    TPU,
    DeviceInventory,
    Pool,
    make_device,
    properties,
    shared_device,
    taint,
)
from tests.parity.oracle.generation.device_selectors import device_selector
from tests.parity.oracle.generation.world import ARCH, ZONE, Json, World

ACCELERATOR = "example.com/accel"
_Properties = tuple[Json, Json]


def publish(w: World, inventory: DeviceInventory, theme: str) -> None:
    """Add the slices of the case."""
    drivers = [GPU]
    if w.p(0.5) or theme == "constraints":
        drivers.append(NIC)
    if w.p(0.15):
        drivers.append(TPU)
    base = properties(w, GPU, 0) if w.p(0.4) else None
    rich = 0.5 if theme == "errors" or w.p(0.25) else 1.0
    small = w.p(0.35) and theme != "constraints"
    for node in w.nodes:
        name = node["metadata"]["name"]
        for driver in drivers:
            if not w.p(0.85 if driver == GPU else 0.65):
                continue
            pool = Pool(driver, name if w.p(0.85) else f"pool-{driver.split('.')[0]}-{name}", name)
            if driver == GPU and theme == "partition" and w.p(0.85):
                _partitions(w, inventory, pool)
                continue
            devices = _node_devices(w, driver, theme, base=base, rich=rich, small=small)
            _node_slices(w, inventory, pool, devices, theme)
    if theme == "network" or w.p(0.12):
        for number in range(w.r.randint(1, 2)):
            _network_slices(w, inventory, number)


def _node_devices(
    w: World, driver: str, theme: str, *, base: _Properties | None, rich: float, small: bool
) -> list[Json]:
    r = w.r
    count = (r.randint(1, 4) if small else r.randint(3, 8)) if driver == GPU else r.randint(1, 4)
    like = base or (properties(w, driver, 0) if w.p(0.85 if theme == "constraints" else 0.5) else None)
    devices = [make_device(w, driver, i, like if driver == GPU else None, rich) for i in range(count)]
    if driver == GPU and theme == "shared" and w.p(0.85):
        shared = [shared_device(w, driver, i) for i in range(r.randint(1, 3))]
        devices = shared + (devices[:2] if w.p(0.4) else [])
    if w.p(0.15):
        r.shuffle(devices)
    if theme == "taints" or w.p(0.08):
        for device in devices:
            if w.p(0.45):
                taint(w, device)
    if theme == "binding" and driver == GPU:
        for device in devices:
            if w.p(0.4):
                device["bindingConditions"] = ["example.com/Attached"]
                device["bindingFailureConditions"] = ["example.com/Failed"]
                if w.p(0.5):
                    device["bindsToNode"] = True
    return devices


def _node_slices(w: World, inventory: DeviceInventory, pool: Pool, devices: list[Json], theme: str) -> None:
    """Add the slices of a node's pool, which may be incomplete, outdated or ambiguous."""
    generation = w.r.randint(0, 4)
    parts = [devices]
    if len(devices) > 1 and w.p(0.3):
        cut = w.r.randint(1, len(devices) - 1)
        parts = [devices[:cut], devices[cut:]]
    fate = ""
    if theme == "pools" and w.p(0.6):
        fate = w.pick(["", "", "missing", "older", "duplicate", "older"])
    count = len(parts) + (fate == "missing")
    pool = replace(pool, generation=generation, count=count)
    for part in parts:
        inventory.add_slice(replace(pool, generation=generation + (fate == "older")), part)
    if fate == "older":
        old = [make_device(w, pool.driver, 90 + i) for i in range(2)]
        inventory.add_slice(replace(pool, count=w.pick([1, count])), old, is_current=False)
    if fate == "duplicate":
        for current in w.resource_slices[-len(parts) :]:
            current["spec"]["pool"]["resourceSliceCount"] = count + 1
        inventory.add_slice(replace(pool, count=count + 1), [copy.deepcopy(devices[0])], is_current=False)


def _partitions(w: World, inventory: DeviceInventory, pool: Pool) -> None:
    """Add GPUs with partitions: counters in one slice, devices in other slices."""
    counters: list[Json] = []
    devices: list[Json] = []
    for gpu in range(w.r.randint(1, 2)):
        name = f"gpu-{gpu}-counters"
        counters.append({"name": name, "counters": {"memory": {"value": "80Gi"}, "slots": {"value": "7"}}})
        devices += _parts_of_gpu(w, gpu, name, len(devices))
    if w.p(0.15):
        devices[-1]["consumesCounters"][0]["counterSet"] = "no-such-counters"  # the pool is invalid
    is_split = w.p(0.3) and len(devices) > 4
    pool = replace(pool, generation=w.r.randint(1, 3), count=3 if is_split else 2)
    inventory.add_counters(pool, counters)
    for part in [devices[:4], devices[4:]] if is_split else [devices]:
        inventory.add_slice(pool, part)


def _parts_of_gpu(w: World, gpu: int, counters: str, first: int) -> list[Json]:
    base: Json = properties(w, GPU, gpu)[0]
    whole = [(f"gpu-{gpu}", "80Gi", 7, "full")]
    parts = [(f"gpu-{gpu}-half-{i}", "40Gi", 3, "half") for i in range(2)]
    parts += [(f"gpu-{gpu}-small-{i}", "10Gi", 1, "small") for i in range(w.r.randint(1, 4))]
    devices: list[Json] = []
    for index, (name, memory, slots, profile) in enumerate(whole + parts if w.p(0.6) else parts + whole, start=first):
        own: Json = {"index": {"int": index}, "profile": {"string": profile}, "gpu": {"int": gpu}}
        consumed = {"memory": {"value": memory}, "slots": {"value": str(slots)}}
        devices.append(
            {
                "name": name,
                "attributes": {**base, **own},
                "capacity": {"memory": {"value": memory}, "cores": {"value": str(slots * 15)}},
                "consumesCounters": [{"counterSet": counters, "counters": consumed}],
            }
        )
    return devices


def _network_slices(w: World, inventory: DeviceInventory, number: int) -> None:
    """Add a pool of devices that several nodes can access."""
    kind = w.pick(["all", "selector", "selector", "each", "each"])
    devices = [make_device(w, GPU, 20 + 10 * number + i) for i in range(w.r.randint(1, 4))]
    for device in devices:
        device["name"] = f"net-{number}-{device['attributes']['index']['int']}"
    key = w.pick([ZONE, "disk"])
    terms = [{"key": key, "operator": "In", "values": w.some(["zone-a", "zone-b", "ssd", "nvme"], 2, 3)}]
    if w.p(0.3):
        terms.append({"key": ARCH, "operator": "NotIn", "values": ["arm64"]})
    some_nodes = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    if kind == "all":
        where: Json = {"allNodes": True}
    elif kind == "selector":
        where = some_nodes
    else:
        where = {"perDeviceNodeSelection": True}
        for device in devices:
            device.update(w.pick([{"nodeName": w.pick(w.nodes)["metadata"]["name"]}, {"allNodes": True}, some_nodes]))
    pool = Pool(w.pick([GPU, GPU, TPU]), f"fabric-{number}", where=where)
    inventory.add_slice(pool, devices)
    if kind == "selector" and w.p(0.4):
        w.resource_slices[-1]["spec"]["pool"]["resourceSliceCount"] = 2
        others = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]}]
        elsewhere = {"nodeSelector": {"nodeSelectorTerms": others}}
        inventory.add_slice(replace(pool, where=elsewhere, count=2), [{"name": f"far-{number}"}])


def add_classes(w: World, inventory: DeviceInventory, theme: str) -> None:
    """Add device classes, of which two may serve the same extended resource."""
    config = GPU if w.p(0.4) else None
    extended = ACCELERATOR if theme == "extended" or w.p(0.1) else None
    inventory.add_class("gpu", f'device.driver == "{GPU}"', config=config, extended=extended)
    is_big = f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0'
    inventory.add_class("big-gpu", f'device.driver == "{GPU}" && {is_big}')
    selectors = [device_selector(w, GPU), *([f'device.driver != "{NIC}"'] if w.p(0.3) else [])]
    inventory.add_class("picked", *selectors, config=GPU if w.p(0.3) else None)
    inventory.add_class("nic", f'device.driver == "{NIC}"', config=NIC if w.p(0.3) else None)
    inventory.add_class("tpu", f'device.driver == "{TPU}"')
    inventory.add_class("anything")
    if theme == "extended" and w.p(0.3):
        created = w.pick(["2026-02-01T00:00:00Z", "2025-02-01T00:00:00Z", "2026-01-01T00:00:00Z"])
        expression = f'device.driver == "{GPU}" && device.attributes["{GPU}"].ecc'
        inventory.add_class("other-gpu", expression, extended=ACCELERATOR, created=created)
