"""PodGroup: its defaults and its whole grammar; what it refuses stands in the table of refused manifests."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.resources.pod_group import PodGroup, PodGroupSpec

from tests.support.problems import problems_in


def group(name: str = "training", **spec: Any) -> PodGroup:
    return PodGroup.from_object({"metadata": {"name": name, "namespace": "ml"}, "spec": {"minMember": 4, **spec}})


def test_defaults() -> None:
    """Only the number of members must be said: members are taken one by one, and smaller pods pass."""
    assert group().spec == PodGroupSpec(min_member=4, disruption="Pod", queueing="BestEffort")


def test_whole_grammar() -> None:
    """Every field is read, and written as it was."""
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
    ("length", "told"),
    [pytest.param(63, [], id="as-long-as-a-label"), pytest.param(64, ["metadata.name"], id="longer")],
)
def test_length_of_the_name(length: int, told: list[str]) -> None:
    """A name that no label can hold is refused, since no pod could ever join."""
    found = problems_in(lambda: group("g" * length))
    assert [problem.partition(": ")[0] for problem in found] == told


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
    """A hostile text is refused, once, and not repeated at length."""
    spec: dict[str, Any] = {field: value}
    (told,) = problems_in(lambda: group(**spec))
    assert told.startswith(f"spec.{field}")
    assert len(told) < 250
