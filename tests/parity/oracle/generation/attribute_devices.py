"""Family ``draattributes``: cases of family ``dra`` with list and derived attributes, alpha in Kubernetes v1.37."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.parity.oracle.generation.device_inventory import GPU, PCIE
from tests.parity.oracle.generation.device_requests import bodies
from tests.parity.oracle.generation.dynamic_resources import device_case
from tests.parity.oracle.generation.world import Json, World

ATTRIBUTE_GATES = {"DRADerivedAttributes": True, "DRAListTypeAttributes": True}
"""Feature gates of these cases."""
_THEMES = ["constraints"] * 8 + ["basic"] * 4 + ["list"] * 3 + ["partition", "shared", "network", "pools", "taints"]
_THEMES += ["allocated", "binding", "everything", "admin", "errors"]
_LINKS, _LANES, _FIRMWARE, _FLAGS = "links", "lanes", "example.com/firmware", "flags"
_NEW = (_LINKS, _LANES, _FIRMWARE, _FLAGS)
_AT = f'device.attributes["{GPU}"]'
_OTHER = 'device.attributes["example.com"]'
_SELECTORS = [
    f'has({_AT}.links) && {_AT}.links.includes("l0")',
    f'has({_AT}.links) && !{_AT}.links.includes("l2")',
    f"has({_AT}.lanes) && {_AT}.lanes.includes(1)",
    f"!has({_AT}.lanes) || {_AT}.lanes.includes(2)",
    f'{_AT}.model.includes("l4")',
    f'has({_AT}.links) && "l1" in {_AT}.links',
    f'has({_AT}.links) && {_AT}.links.exists(each, each == "l0")',
    f'{_AT}.ecc || (has({_AT}.links) && {_AT}.links.includes("l1"))',
    f'has({_OTHER}.firmware) && {_OTHER}.firmware.includes(semver("1.0.0"))',
    f"{_AT}.index.includes(1) || {_AT}.index.includes(2)",
]
_DERIVED = [
    f"{_AT}.model",
    f"{_AT}.index % 2",
    f"{_AT}.index / 2",
    f"{_AT}.ecc",
    f"{_AT}.driverVersion",
    f"{_AT}.driverVersion.major()",
    f'{_AT}.model.startsWith("a") ? "big" : "small"',
    f"{_AT}.?links.orValue([])",
    f'{_AT}.?links.orValue(["l0"])',
    f"{_AT}.links",
    f"has({_AT}.lanes) ? {_AT}.lanes : [0, 1]",
    f"[int({_AT}.index), {_AT}.index + 1]",
    f"[7, int({_AT}.index) % 2]",
    f'[{_AT}.model, dyn("a100")]',
    f"has({_AT}.links) ? {_AT}.links : {_AT}.model",
    "device.driver",
    f'device.capacity["{GPU}"].memory.asInteger()',
    f'device.capacity["{GPU}"].memory.isGreaterThan(quantity("40Gi"))',
    "[1, 2].filter(each, each > 2)",
    f"[{_AT}.driverVersion]",
    f"[dyn({_AT}.index), dyn({_AT}.model)]",
    "device.allowMultipleAllocations",
    f"{_AT}.absent",
]


def fam_draattributes(w: World) -> None:
    """Generate a case of the family ``draattributes``."""
    w.feature_gates = dict(ATTRIBUTE_GATES)
    device_case(w, w.pick(_THEMES))
    _add_lists(w)
    for claim in w.resource_claims:
        if "status" not in claim:
            _constrain(w, claim["spec"]["devices"])


def _values(w: World, name: str) -> Json:
    """Generate the value of an attribute, which may be a list or a scalar."""
    choices: dict[str, tuple[str, list[Any]]] = {
        _LINKS: ("string", ["l0", "l1", "l2", "l3"]),
        _LANES: ("int", [0, 1, 2, 3]),
        _FIRMWARE: ("version", ["1.0.0", "1.2.0", "2.0.0"]),
        _FLAGS: ("bool", [True, False]),
    }
    kind, values = choices[name]
    if w.p(0.2):
        return {kind: w.pick(values)}
    return {f"{kind}s": w.some(values, 1, len(values) - (name == _FLAGS))}


def _add_lists(w: World) -> None:
    share = w.pick([0.7, 0.9, 1.0])
    as_lists = [name for name in ("model", "numa", PCIE, "driverVersion") if w.p(0.15)]
    equal: Json = {}
    for each in w.resource_slices:
        for device in each["spec"].get("devices", ()):
            attributes = device.setdefault("attributes", {})
            for name in _NEW:
                if not w.p(share):
                    continue
                # Some devices have equal values, so that constraints can match.
                value = equal[name] if name in equal and w.p(0.3) else _values(w, name)
                equal[name] = value
                attributes[name] = dict(value)
            for name in as_lists:
                if name in attributes and w.p(0.8):
                    ((kind, value),) = attributes[name].items()
                    if not kind.endswith("s"):
                        attributes[name] = {f"{kind}s": [value]}


def _constrain(w: World, devices: Json) -> None:
    """Add constraints over lists, selectors that read them, and derived attributes."""
    requests: list[Json] = devices["requests"]
    if w.p(0.75):
        constraints = devices.setdefault("constraints", [])
        for _ in range(w.pick([1, 1, 2])):
            name = w.pick(
                [f"{GPU}/{_LINKS}", f"{GPU}/{_LINKS}", f"{GPU}/{_LANES}", _FIRMWARE, f"{GPU}/{_FLAGS}", "x.io/y"]
            )
            constraint: Json = {w.pick(["matchAttribute", "matchAttribute", "distinctAttribute"]): name}
            if w.p(0.4):
                constraint["requests"] = [each["name"] for each in w.some(requests, 1, len(requests))]
            constraints.append(constraint)
    for request in requests:
        alternatives = "firstAvailable" in request
        for body in bodies(request):
            names = [request["name"], f"{request['name']}/{body['name']}"] if alternatives else [request["name"]]
            _derive(w, devices.get("constraints", ()), names, body)
            if w.p(0.2) and body["deviceClassName"] not in ("nic", "anything", "tpu"):
                expression = f'device.driver == "{GPU}" && ({w.pick(_SELECTORS)})'
                body.setdefault("selectors", []).append({"cel": {"expression": expression}})


def _derive(w: World, constraints: Sequence[Json], names: Sequence[str], body: Json) -> None:
    read = {
        each.get("matchAttribute") or each["distinctAttribute"]
        for each in constraints
        if "requests" not in each or any(name in each["requests"] for name in names)
    }
    derived = [
        {"name": name, "expression": w.pick(_DERIVED)}
        for name in sorted(read)
        if w.p(0.95 if name == "x.io/y" else 0.25)
    ]
    if derived:
        body["derivedAttributes"] = derived
