"""Tests of PodGroup: its defaults and fields; tests/support/invalid_manifests.py has what it rejects."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.resources.pod_group import PodGroup, PodGroupSpec

from tests.support.problems import problems_in


def group(name: str = "training", **spec: Any) -> PodGroup:
    return PodGroup.from_object({"metadata": {"name": name, "namespace": "ml"}, "spec": {"minMember": 4, **spec}})


def test_defaults() -> None:
    """Only minMember is required."""
    assert group().spec == PodGroupSpec(min_member=4, disruption="Pod", queueing="BestEffort")


def test_all_fields() -> None:
    """Every field is parsed and written back unchanged."""
    spec: dict[str, Any] = {
        "minMember": 4,
        "minResources": {"cpu": 64, "memory": "256Gi", "example.com/gpu": "500m", "pods": "+1e3"},
        "scheduleTimeoutSeconds": 600,
        "priorityClassName": "training.high",
        "topology": {"key": "zone", "levels": ["example.com/block", "example.com/rack"], "mode": "Preferred"},
        "disruption": "Group",
        "queueing": "Strict",
    }
    read = group(**spec)
    assert read.spec.document() == spec
    assert read.metadata.namespace == "ml"


@pytest.mark.parametrize(
    ("length", "expected"),
    [pytest.param(63, [], id="maximum-length-of-a-label"), pytest.param(64, ["metadata.name"], id="longer")],
)
def test_length_of_the_name(length: int, expected: list[str]) -> None:
    """A name longer than a label value is rejected, because no pod could belong to the group."""
    found = problems_in(lambda: group("g" * length))
    assert [problem.partition(": ")[0] for problem in found] == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("priorityClassName", "a\n", id="line-end"),
        pytest.param("topology", {"key": "k" * 10_000}, id="long-key"),
        pytest.param("topology", {"key": "k", "levels": ["l" * 10_000]}, id="long-level"),
        pytest.param("topology", {"key": "k", "levels": ["l"] * 10_000}, id="many-levels"),
        pytest.param("minResources", {"cpu": "9" * 10_000}, id="long-amount"),
        pytest.param("minResources", {"cpu": 10**5_000}, id="large-number"),
        pytest.param("minResources", {"cpu": "1e" + "9" * 100}, id="long-exponent"),
    ],
)
def test_hostile_texts(field: str, value: object) -> None:
    """A hostile string is rejected once and not quoted at length."""
    spec: dict[str, Any] = {field: value}
    (found,) = problems_in(lambda: group(**spec))
    assert found.startswith(f"spec.{field}")
    assert len(found) < 250
