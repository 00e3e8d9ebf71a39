"""Generation of requests, constraints and configuration of ResourceClaims, and a bound on the allocator's search."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.parity.oracle.generation.device_inventory import GPU, NIC, PCIE, TPU, DeviceInventory
from tests.parity.oracle.generation.device_selectors import device_selector
from tests.parity.oracle.generation.world import Json, World

_MAX_SEARCH = 3000


def request_body(
    w: World, device_class: str, count: int = 1, *, every: bool = False, selectors: Sequence[str] = (), **more: Any
) -> Json:
    """Return the body of a request.

    Args:
        count: Number of devices.
        every: Whether all matching devices are requested.
        selectors: CEL expressions.
        more: Further fields.
    """
    body: Json = {"deviceClassName": device_class}
    if every:
        body["allocationMode"] = "All"
    elif count != 1 or w.p(0.7):
        body |= {"allocationMode": "ExactCount", "count": count}
    if selectors:
        body["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return body | more


def exactly(w: World, name: str, device_class: str, count: int = 1, **more: Any) -> Json:
    """Return a request without alternatives."""
    return {"name": name, "exactly": request_body(w, device_class, count, **more)}


def _tolerations(w: World) -> list[Json]:
    broken = {"key": "example.com/broken", "effect": "NoExecute"}
    degraded = {"key": "example.com/degraded"}
    maintenance = {"key": "example.com/maintenance", "operator": "Exists"}
    choices: list[list[Json]] = [
        [{"operator": "Exists"}],
        [{**broken, "operator": "Equal", "value": "yes"}],
        [maintenance],
        [{**degraded, "value": "thermal"}, {**maintenance, "effect": "NoSchedule"}],
        [{"operator": "Exists", "effect": "NoSchedule"}],
        [{**broken, "operator": "Exists", "tolerationSeconds": 60}],
        [{**degraded, "value": "dust"}],
    ]
    chosen: list[Json] = w.pick(choices)
    return chosen


def _with_alternatives(w: World, name: str, theme: str) -> Json:
    """Return a request with alternatives in the order of preference."""
    alternatives = []
    for number in range(w.r.randint(2, 4)):
        device_class = w.pick(["big-gpu", "gpu", "gpu", "picked", "tpu"])
        more: Json = {}
        if theme == "taints" and w.p(0.4):
            more["tolerations"] = _tolerations(w)
        count, every = w.pick([1, 1, 2, 2, 3, 4]), w.p(0.08)
        selectors = [device_selector(w, TPU if device_class == "tpu" else GPU)] if w.p(0.6) else []
        body = request_body(w, device_class, count, every=every, selectors=selectors, **more)
        alternatives.append({"name": f"alt{number}", **body})
    return {"name": name, "firstAvailable": alternatives}


def claimed_devices(
    w: World, inventory: DeviceInventory, theme: str, *, may_use_admin_access: bool, among_several: bool
) -> Json:
    """Return the devices of a claim: its requests, constraints and configuration.

    Args:
        may_use_admin_access: Whether the namespace permits admin access.
        among_several: Whether the pod has several claims.
    """
    counts = [2, 2, 2, 3] if theme == "constraints" else [1, 1, 1, 1, 2, 2, 3]
    has_nics = any(each.driver == NIC for each in inventory.published)
    requests = []
    for number in range(w.pick([1] if among_several and w.p(0.6) else counts)):
        name = f"r{number}"
        if (theme == "list" and (number == 0 or w.p(0.4))) or w.p(0.06):
            requests.append(_with_alternatives(w, name, theme))
        else:
            requests.append(_plain_request(w, name, number, theme, (has_nics, may_use_admin_access)))
    devices: Json = {"requests": requests}
    constraints = _constraints(w, requests, theme)
    if constraints:
        devices["constraints"] = constraints
    if w.p(0.2):
        config: Json = {"opaque": {"driver": GPU, "parameters": {"mode": w.pick(["fast", "exclusive"])}}}
        if w.p(0.7):
            request = w.pick(requests)
            has_alternatives = "firstAvailable" in request and w.p(0.6)
            config["requests"] = [_alternative(w, request) if has_alternatives else request["name"]]
        devices["config"] = [config]
    return devices


def _plain_request(w: World, name: str, number: int, theme: str, allowed: tuple[bool, bool]) -> Json:
    has_nics, may_use_admin_access = allowed
    offers_nic = has_nics and (theme in ("constraints", "basic") or w.p(0.3))
    usual = ["gpu", "gpu", "gpu", "gpu", "gpu", "big-gpu", "picked", "nic" if offers_nic else "gpu"]
    device_class = w.pick([*usual, "anything" if w.p(0.3) else "gpu"])
    if theme == "constraints":
        device_class = w.pick(["gpu", "gpu", "nic" if has_nics else "gpu"])
    is_nic = device_class == "nic"
    count = w.pick([1, 1, 2] if is_nic else [1, 1, 1, 1, 2, 2, 3] if number == 0 else [1, 1, 1, 2])
    selectors: list[str] = []
    if device_class != "anything":
        many = w.pick([0, 0, 0, 1, 1, 1, 2] if number == 0 else [0, 0, 0, 0, 1])
        selectors = [device_selector(w, NIC if is_nic else GPU) for _ in range(many)]
    more: Json = {}
    if theme == "taints" and w.p(0.6):
        more["tolerations"] = _tolerations(w)
    if theme == "admin" and may_use_admin_access and w.p(0.7):
        more["adminAccess"] = True
    if theme == "shared":
        return _capacity_request(w, name, more)
    if theme == "partition":
        selectors = [_partition_selector(w)] if w.p(0.85) else []
        device_class, count = "gpu", w.pick([1, 1, 2, 3])
    every = theme == "everything" and w.p(0.8)
    return exactly(w, name, device_class, count, every=every, selectors=selectors, **more)


def _partition_selector(w: World) -> str:
    at = f'device.attributes["{GPU}"]'
    profile = w.pick(["full", "half", "half", "small", "small"])
    return f'device.driver == "{GPU}" && "profile" in {at} && {at}.profile == "{profile}"'


def _capacity_request(w: World, name: str, more: Json) -> Json:
    """Return a request for a share of a device that several claims may use."""
    device_class = w.pick(["gpu", "gpu", "anything"])
    capacity = {}
    if w.p(0.85):
        capacity["memory"] = w.pick(["500Mi", "1Gi", "1500Mi", "3Gi", "3000000000", "5Gi", "7Gi", "12Gi"])
    if w.p(0.4):
        capacity["cores"] = w.pick(["1", "2", "5", "12"])
    if w.p(0.04):
        capacity["bandwidth"] = "1G"
    if capacity:
        more["capacity"] = {"requests": capacity}
    selectors = []
    if w.p(0.2):
        selectors = [w.pick(["device.allowMultipleAllocations", "!device.allowMultipleAllocations"])]
    return exactly(w, name, device_class, w.pick([1, 1, 1, 2]), selectors=selectors, **more)


def _constraints(w: World, requests: list[Json], theme: str) -> list[Json]:
    if theme != "constraints" and not w.p(0.06):
        return []
    by_name = {each["name"]: each for each in requests}
    constraints = []
    for _ in range(w.pick([1, 1, 2])):
        gpus = [
            each["name"]
            for each in requests
            if each.get("exactly", {}).get("deviceClassName") not in ("nic", "anything")
        ]
        attribute = PCIE
        if gpus and w.p(0.6):
            own = ["numa", "numa", None, "model", "ecc", "driverVersion", "index", "slot"]
            attribute = w.pick([f"{GPU}/{each}" if each else PCIE for each in own])
        kind = "distinctAttribute"
        if not attribute.endswith("index"):
            kind = w.pick(["matchAttribute", "matchAttribute", "distinctAttribute"])
        constraint: Json = {kind: attribute}
        if attribute != PCIE and w.p(0.9):
            constraint["requests"] = w.some(gpus, 1, 3)
        if theme == "shared":
            constraint = {"distinctAttribute": f"{GPU}/index"}
        if "requests" in constraint or w.p(0.3):
            names = constraint.setdefault("requests", w.some(by_name, 1, len(by_name)))
            constraint["requests"] = [
                _alternative(w, by_name[each]) if "firstAvailable" in by_name[each] and w.p(0.4) else each
                for each in names
            ]
        constraints.append(constraint)
    return constraints


def _alternative(w: World, request: Json) -> str:
    return f"{request['name']}/{w.pick(request['firstAvailable'])['name']}"


def bound_search(inventory: DeviceInventory, claims: Sequence[Json]) -> None:
    """Reduce requests until an exhaustive search over their devices is short.

    Args:
        claims: Claims without an allocation.
    """
    published = inventory.published
    on_a_node = max(Counter((each.node, each.driver) for each in published).values(), default=1)
    reachable = on_a_node + sum(1 for each in published if not each.node)
    shared = 2 if any(each.is_shared for each in published) else 0

    def ways(body: Json) -> int:
        if body.get("allocationMode") == "All":
            return 1
        several_drivers = 4 if body["deviceClassName"] == "anything" else 0
        return max(1, math.comb(reachable + several_drivers + shared, body.get("count", 1)))

    while True:
        sizes = [
            (sum(ways(body) for body in bodies(request)), claim, request)
            for claim in claims
            for request in claim["spec"]["devices"]["requests"]
        ]
        if math.prod(size for size, _, _ in sizes) <= _MAX_SEARCH:
            return
        _, claim, request = max(sizes, key=lambda each: each[0])
        _reduce(claim, request, max(bodies(request), key=ways))


def bodies(request: Json) -> list[Json]:
    """Return the bodies of a request: one, or its alternatives."""
    found: list[Json] = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    return found


def _reduce(claim: Json, request: Json, largest: Json) -> None:
    requests: list[Json] = claim["spec"]["devices"]["requests"]
    if largest.get("count", 1) > 1:
        largest["count"] -= 1
    elif len(bodies(request)) > 2:
        request["firstAvailable"].remove(largest)
        _drop_references(claim, f"{request['name']}/{largest['name']}")
    elif len(requests) > 1:
        requests.remove(request)
        _drop_references(claim, request["name"])
    else:
        requests[0] = {"name": request["name"], "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
        _drop_references(claim, request["name"] + "/")


def _drop_references(claim: Json, gone: str) -> None:
    """Remove a request from constraints and configuration; a name with a trailing slash removes its alternatives."""
    devices = claim["spec"]["devices"]
    below = gone if gone.endswith("/") else gone + "/"
    for key in ("constraints", "config"):
        kept = []
        for each in devices.pop(key, []):
            if "requests" in each:
                each["requests"] = [name for name in each["requests"] if name != gone and not name.startswith(below)]
                if not each["requests"]:
                    continue
            kept.append(each)
        if kept:
            devices[key] = kept
