"""Decoding of the objects of Dynamic Resource Allocation, and encoding of allocations."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scheduler_core.model.devices import (
    AllocationResult,
    Device,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
)
from tests.support.tables import table

ALLOCATION = {
    "devices": {
        "results": [
            {
                "request": "r0/small",
                "driver": "gpu.example.com",
                "pool": "n00",
                "device": "gpu-0",
                "adminAccess": True,
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
                "bindingConditions": ["attached"],
                "bindingFailureConditions": ["broken"],
                "shareID": "8b6a8d2c-5f5e-4f5b-9d3e-000000000001",
                "consumedCapacity": {"memory": "10Gi"},
            }
        ],
        "config": [
            {"source": "FromClass", "opaque": {"driver": "gpu.example.com", "parameters": {"z": 1, "a": [1.50, None]}}},
            {"source": "FromClaim", "requests": ["r0"]},
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n00"]}]}]
    },
    "allocationTimestamp": "2026-11-22T19:00:00Z",
}


def test_encoded_allocation_equals_the_decoded_one() -> None:
    allocation = msgspec.json.decode(json.dumps(ALLOCATION), type=AllocationResult)
    assert json.loads(msgspec.json.encode(allocation)) == ALLOCATION


def test_parameters_keep_their_bytes() -> None:
    text = b'{"opaque":{"driver":"d","parameters":{"z" : 1.50,"a":9007199254740993}}}'
    spec = b'{"metadata":{"name":"c"},"spec":{"config":[' + text + b"]}}"
    config = msgspec.json.decode(spec, type=DeviceClass).spec.config[0]
    assert config.opaque is not None
    assert bytes(config.opaque.parameters) == b'{"z" : 1.50,"a":9007199254740993}'


@table(
    "requests, expected",
    ("null, as an extended resource claim without requests", None, []),
    ("defaults", [{"name": "r", "exactly": {"deviceClassName": "c"}}], [("r", "ExactCount", 1)]),
    ("all", [{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}], [("r", "All", 1)]),
)
def test_requests(requests: list[dict[str, Any]] | None, expected: list[tuple[str, str, int]]) -> None:
    text = json.dumps({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    claim = msgspec.json.decode(text, type=ResourceClaim)
    found = [(one.name, one.exactly) for one in claim.spec.devices.requests]
    assert [(name, one.allocation_mode, one.count) for name, one in found if one is not None] == expected


def test_alternatives() -> None:
    alternatives = [{"name": "a", "deviceClassName": "c", "count": 2}]
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}}
    request = msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, ResourceClaim).spec.devices.requests[0]
    assert [(one.name, one.count) for one in request.first_available] == [("a", 2)]


@pytest.mark.parametrize(
    ("value", "scalar"),
    [
        ({"int": 0}, ("int", 0)),
        ({"bool": False}, ("bool", False)),
        ({"string": ""}, ("string", "")),
        ({"version": "1.0.0"}, ("version", "1.0.0")),
        ({"strings": ["a"]}, None),
        ({}, None),
    ],
)
def test_attribute_values(value: dict[str, Any], scalar: tuple[str, Any] | None) -> None:
    device = msgspec.convert({"name": "d", "attributes": {"a": value}}, Device)
    assert device.attributes["a"].scalar == scalar


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "operator": "In", "value": "v"}, False),
        ({"key": "k", "operator": "Exists", "tolerationSeconds": 0}, True),
    ],
)
def test_tolerations(toleration: dict[str, Any], tolerated: bool) -> None:
    taint = DeviceTaint(key="k", value="v", effect="NoSchedule")
    assert msgspec.convert(toleration, DeviceToleration).tolerates(taint) is tolerated


@table(
    "selector, matches",
    ("no selector matches nothing", None, False),
    ("an empty selector matches all", {}, True),
    ("driver", {"driver": "d"}, True),
    ("other pool", {"driver": "d", "pool": "q"}, False),
    ("pool and device", {"pool": "p", "device": "x"}, True),
    ("other device", {"device": "y"}, False),
)
def test_taint_rules(selector: dict[str, str] | None, matches: bool) -> None:
    rule = msgspec.convert(
        {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": {"effect": "None"}}}, DeviceTaintRule
    )
    assert rule.matches("d", "p", "x") is matches
