"""Generation of CEL expressions that select devices."""

from __future__ import annotations

from tests.parity.oracle.generation.device_inventory import GPU, MODELS, NIC
from tests.parity.oracle.generation.world import World

_AT = f'device.attributes["{GPU}"]'
BROKEN_SELECTORS = [
    f"{_AT}.numa == 0",
    f'{_AT}.absent == "x"',
    'device.attributes["absent.example.com"].x == 1',
    f'device.capacity["{GPU}"].absent.isInteger()',
    f"{_AT}.model > 5",
    f"{_AT}.model",
    f'{_AT}.model.isGreaterThan(semver("1.0.0"))',
    f"{_AT}.index / ({_AT}.index - 1) > 0",
]
"""Expressions that fail for some devices or are invalid."""

_RACK = 'device.attributes["example.com"].rack'
_ROOT = 'device.attributes["resource.kubernetes.io"].pcieRoot'


def device_selector(w: World, driver: str) -> str:
    """Generate an expression that is true only for devices of a driver."""
    at, capacity = f'device.attributes["{driver}"]', f'device.capacity["{driver}"]'
    expressions = _network_card(at, capacity) if driver == NIC else _accelerator(w, at, capacity)
    return f'device.driver == "{driver}" && ({w.pick(expressions)})'


def _network_card(at: str, capacity: str) -> list[str]:
    return [
        f"{at}.speed >= 25",
        f"{at}.speed == 100 || {at}.sriov",
        f"!{at}.sriov",
        f"{at}.sriov",
        f'{capacity}.bandwidth.compareTo(quantity("25G")) >= 0',
        f'{at}.firmware.compareTo(semver("1.4.0")) >= 0',
        f"cel.bind(n, {at}, n.sriov && n.speed > 10)",
        f"{at}.speed in [25, 100]",
        f'{capacity}["bandwidth"].isLessThan(quantity("50G"))',
    ]


def _accelerator(w: World, at: str, capacity: str) -> list[str]:
    return [
        f'{at}.model == "{w.pick(MODELS)[0]}"',
        f'{at}.model in ["a100", "h100"]',
        f'{at}.model != "l4"',
        f'{at}["model"].startsWith("{w.pick("abhl")}")',
        f'{at}.model.matches("^[ah]100$")',
        f'{at}.model.lowerAscii().contains("100")',
        f"{at}.index >= {w.r.randint(0, 4)}",
        f"{at}.index % 2 == 0",
        f"{at}.index in [0, 1, 5]",
        f"{at}.ecc",
        f"!{at}.ecc",
        f"{at}.ecc == true && {at}.index < 4",
        f"{at}.ecc ? {at}.index < 2 : {at}.index >= 2",
        f'{capacity}.memory.compareTo(quantity("{w.pick(["24Gi", "40Gi", "80Gi", "100Gi", "85899345920"])}")) >= 0',
        f'{capacity}.memory.isGreaterThan(quantity("40Gi"))',
        f'{capacity}.cores.isLessThan(quantity("130"))',
        f'{capacity}.memory == quantity("80Gi")',
        f'quantity("1Ti").sub({capacity}.memory).isGreaterThan(quantity("950Gi"))',
        f"{capacity}.cores.asInteger() > 100",
        f'{at}.driverVersion.isGreaterThan(semver("{w.pick(["2.0.0", "535.200.0", "550.0.0"])}"))',
        f"{at}.driverVersion.major() >= {w.pick([2, 540, 560])}",
        f'{at}.driverVersion.compareTo(semver("550.54.15")) >= 0',
        f'{at}.driverVersion == semver("2.0.0") || {at}.driverVersion.minor() > 50',
        f'"numa" in {at} && {at}.numa == {w.r.randint(0, 1)}',
        f"has({at}.numa) && {at}.numa < 1",
        f"!has({at}.numa) || {at}.numa == 1",
        f"cel.bind(g, {at}, g.ecc && g.index < 6)",
        f'cel.bind(m, {capacity}.memory, m.isGreaterThan(quantity("20Gi")) && m.isLessThan(quantity("100Gi")))',
        f'has({_ROOT}) && {_ROOT} == "pci0000:00"',
        f'has({at}.slot) ? {at}.slot in ["s0", "s2"] : true',
        'has(device.attributes["absent.example.com"].x) || true',
        '!("absent.example.com" in device.attributes)',
        f"!has({_RACK}) || {_RACK} > 1",
        f"size({at}.model) == 4",
        f"[0, 2, 4].exists(i, i == {at}.index)",
        f'{at}.exists(k, k == "numa")',
        "!device.allowMultipleAllocations",
        f'"cores" in {capacity}',
        f"int({at}.index) + 1 > 2",
        f"{at}.?numa.orValue(7) < 2",
        f'string({at}.index) == "1" || {at}.model == "h100"',
    ]
