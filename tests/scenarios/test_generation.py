"""Random scenarios are reproducible, valid, and cover all kinds of objects and events."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.scenarios.generation.scenarios import generate_scenario
from tests.scenarios.generation.scene import MOST_NODES
from tests.scenarios.scenario import Scenario, scenario_of

_COUNT = 300


@cache
def generated() -> tuple[Scenario, ...]:
    """Return a number of decoded random scenarios."""
    return tuple(scenario_of(*generate_scenario(1, index)) for index in range(_COUNT))


def pods() -> list[dict[str, Any]]:
    """Return all pods of the scenarios."""
    steps = (step for scenario in generated() for step in scenario.steps)
    return [manifest for step in steps for manifest in step.creates if manifest["kind"] == "Pod"]


def test_a_scenario_is_reproducible() -> None:
    """The same seed and index give the same scenario; another seed or index gives another one."""
    assert generate_scenario(1, 2) == generate_scenario(1, 2)
    assert generate_scenario(1, 2)[1] != generate_scenario(1, 3)[1]
    assert generate_scenario(1, 2)[1] != generate_scenario(2, 2)[1]


def test_later_events_do_not_change_what_was_created() -> None:
    """A gate, finalizer or cordon that a later event removes is present in the created object."""
    gates = [pod["spec"]["schedulingGates"] for pod in pods() if "schedulingGates" in pod["spec"]]
    assert gates
    assert all(gates)
    changes = [change.patch for scenario in generated() for step in scenario.steps for change in step.changes]
    assert {"metadata": {"finalizers": None}} in changes
    cordoned = [
        one["metadata"]["name"]
        for scenario in generated()
        for step in scenario.steps
        for one in step.creates
        if one["kind"] == "Node" and one["spec"].get("unschedulable")
    ]
    assert cordoned


@pytest.mark.parametrize(
    "field",
    [
        *("affinity", "hostNetwork", "initContainers", "nodeName", "nodeSelector", "priorityClassName", "resources"),
        *("schedulingGates", "tolerations", "topologySpreadConstraints", "volumes"),
    ],
)
def test_every_field_of_pods_occurs(field: str) -> None:
    """Each field is set in at least one percent of the pods, and not in most."""
    share = sum(field in pod["spec"] for pod in pods()) / len(pods())
    assert 0.01 <= share <= (0.9 if field in ("affinity", "priorityClassName") else 0.5)


@pytest.mark.parametrize(
    "kind",
    [
        *("CSINode", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget"),
        *("PriorityClass", "StorageClass"),
    ],
)
def test_every_kind_of_object_occurs(kind: str) -> None:
    """Each kind occurs in at least one scenario of twenty."""
    having = sum(any(one["kind"] == kind for step in each.steps for one in step.creates) for each in generated())
    assert having >= _COUNT / 20


def test_every_kind_of_change_occurs() -> None:
    """Each kind of change occurs in at least one scenario of fifty."""
    seen: Counter[str] = Counter()
    for scenario in generated():
        variants = set()
        for step in scenario.steps:
            variants |= {f"{each.reference['kind']} {each.subresource} {sorted(each.patch)}" for each in step.changes}
            variants |= {f"delete {each['kind']}" for each in step.deletes} | ({"bind"} if step.binds else set())
        seen.update(variants)
    expected = {
        *("Node  ['metadata']", "Node  ['spec']", "Node status ['status']", "Pod  ['metadata']", "Pod  ['spec']"),
        *("Pod resize ['spec']", "Pod status ['status']", "bind", "delete Node", "delete PersistentVolume"),
        *("delete PersistentVolumeClaim", "delete Pod"),
    }
    assert expected <= set(seen)
    assert min(seen[each] for each in expected) >= _COUNT / 50


def test_scenarios_stay_small() -> None:
    """A scenario has at least one node, at most as many as preferences can distinguish, and 5 to 25 steps."""
    for scenario in generated():
        nodes = [one for step in scenario.steps for one in step.creates if one["kind"] == "Node"]
        assert 1 <= len(nodes) <= MOST_NODES
        assert 5 <= len(scenario.steps) <= 25
