"""Descriptions of the parts of selectors that a device does not meet."""

from __future__ import annotations

import pytest

from scheduler_core.cel.device_selector import DeviceFacts, Version, compile_selector
from scheduler_core.devices.selector_cache import SelectorCache
from scheduler_core.explain.device_problems import unmet_conditions

GPU = DeviceFacts(
    driver="gpu.example.com",
    attributes={"model": "l4", "index": 3, "mig": False, "firmware": Version("1.2.0"), "pci.example.com/slot": "0a"},
    capacity={"memory": "24Gi"},
)
OWN = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        (f'{OWN}.model == "h100"', ["model is l4, must be h100"]),
        (f'"h100" == {OWN}["model"]', ["model is l4, must be h100"]),
        (f'{OWN}.model != "l4"', ["model is l4, must not be l4"]),
        (f'!({OWN}.model == "l4")', ["model is l4, must not be l4"]),
        (f'{OWN}.model in ["a100", "h100"]', ["model is l4, must be one of a100, h100"]),
        (f'{OWN}.model.startsWith("h")', ["model is l4, must start with h"]),
        (f'{OWN}.model.matches("^h")', ["model is l4, must match ^h"]),
        (f"{OWN}.index > 3", ["index is 3, must be more than 3"]),
        (f"10 <= {OWN}.index", ["index is 3, must be at least 10"]),
        (f"{OWN}.mig", ["mig is false, must be true"]),
        (f"!({OWN}.?mig.orValue(false) == false)", ["mig is false, must not be false"]),
        (f'{MEMORY}.compareTo(quantity("40Gi")) >= 0', ["memory is 24Gi, must be at least 40Gi"]),
        (f'{MEMORY}.isGreaterThan(quantity("40Gi"))', ["memory is 24Gi, must be more than 40Gi"]),
        (f'{OWN}.firmware.compareTo(semver("2.0.0")) >= 0', ["firmware is 1.2.0, must be at least 2.0.0"]),
        ('device.driver == "nic.example.com"', ["driver is gpu.example.com, must be nic.example.com"]),
        ("device.allowMultipleAllocations", ["allowMultipleAllocations is false, must be true"]),
        ('device.attributes["pci.example.com"].slot == "0b"', ["pci.example.com/slot is 0a, must be 0b"]),
        (f"has({OWN}.uuid)", ["uuid is not set"]),
        ('"uuid" in device.attributes["gpu.example.com"]', ["uuid is not set"]),
        (f'{OWN}.uuid == "7"', ["uuid is not set, must be 7"]),
        (f'{OWN}.model == "a100" || {OWN}.index == 7', ["index is 3, model is l4"]),
        ("false", ["the selector does not match"]),
        (f"{OWN}.model > 3", ["the selector fails: no such overload"]),
        (
            f'{OWN}.index == 3 && {OWN}.model == "a100" && {MEMORY}.compareTo(quantity("40Gi")) >= 0',
            ["model is l4, must be a100", "memory is 24Gi, must be at least 40Gi"],
        ),
    ],
)  # fmt: skip
def test_parts_are_described_by_their_values(expression: str, texts: list[str]) -> None:
    """Each unmet part has its own text; a part that is met has none."""
    assert [each.text for each in unmet_conditions(expression, GPU)] == texts


def test_an_expression_that_does_not_compile_is_described_by_its_error() -> None:
    """The text starts like the API server's message."""
    (unmet,) = unmet_conditions("device.driver ==", GPU)
    assert unmet.text.startswith("the selector does not compile: compilation failed: ERROR: <input>:1:17: Syntax error")


@pytest.mark.parametrize(
    ("expression", "suitable"),
    [
        (f'{OWN}.model == "h100"', "h100"),
        (f'{OWN}.model in ["a100", "h100"]', "a100"),
        (f'{MEMORY}.compareTo(quantity("40Gi")) >= 0', "40Gi"),
        (f'{OWN}.firmware.compareTo(semver("2.0.0")) >= 0', Version("2.0.0")),
        (f"{OWN}.mig", True),
        (f"{OWN}.index > 3", None),
        (f'{OWN}.model != "l4"', None),
    ],
)
def test_a_suitable_value_meets_the_part(expression: str, suitable: object) -> None:
    """A value is proposed only if the comparison states one, and a device with that value matches."""
    (unmet,) = unmet_conditions(expression, GPU)
    assert unmet.suitable == suitable
    if suitable is not None and unmet.read is not None:
        changed = {**GPU.attributes, **GPU.capacity, unmet.read.name: suitable}
        facts = DeviceFacts(
            GPU.driver,
            attributes={name: changed[name] for name in GPU.attributes},
            capacity={name: str(changed[name]) for name in GPU.capacity},
        )
        assert compile_selector(expression).matches(facts)


def test_reads_of_several_selectors_are_combined() -> None:
    """One selector with unknown reads makes all reads unknown; a selector that does not compile reads nothing."""
    known = SelectorCache().reads((f"{OWN}.mig", f"{OWN}.index > 3", "1 +"))
    assert known == frozenset({("gpu.example.com", "mig"), ("gpu.example.com", "index")})
    assert SelectorCache().reads((f"{OWN}.mig", "device.attributes.exists(domain, domain == 'x')")) is None
