"""Gangs that preempt, on a real API server: pods are evicted only if the whole quorum fits afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import Manifest
from hack.controlplane.launcher import ControlPlane
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("kwok"), pytest.mark.timeout(300)]
PRIORITIES = "scheduling.k8s.io/v1"
SLOW: dict[str, Any] = {"finalizers": ["example.com/slow"]}


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveGangs]:
    """Create four nodes of two CPUs, and PriorityClasses ``low`` and ``high``."""
    with live_gangs(control_plane, operator, namespace) as world:
        world.profile({})
        world.nodes("a", "b", "c", "d", cpu="2")
        for value, name in enumerate(("low", "high"), start=1):
            world.cluster_object("PriorityClass", name, PRIORITIES, value=value)
        yield world


def priority(world: LiveGangs, name: str, node: str = "") -> Manifest:
    """Return the spec of pods of a PriorityClass, with a node selector if a node is named."""
    where = {"nodeSelector": {"kubernetes.io/hostname": f"{world.token}-{node}"}} if node else {}
    return {"priorityClassName": f"{world.token}-{name}", **where}


def runs_on(world: LiveGangs, nodes: str, name: str = "low", job: str = "plain", **fields: Any) -> None:
    """Fill each of the nodes with one pod of a PriorityClass, and wait until the pods are bound."""
    for node in nodes:
        spec = priority(world, name, node)
        world.api.create(world.member(f"on-{node}", job, **{"group": "", "cpu": "2", "spec": spec, **fields}))
    for node in nodes:
        world.until_scheduled(f"on-{node}")


def gang(world: LiveGangs, count: int) -> str:
    """Create a gang of high priority whose members fill one node each; return the UID of its group."""
    uid = world.group("train", count)
    world.job("train", count, cpu="2", spec=priority(world, "high"))
    return uid


def evicted(world: LiveGangs) -> set[str]:
    """Return the pods of ``runs_on`` that are deleted or being deleted."""
    left = {name for name, pod in world.pods().items() if "deletionTimestamp" not in pod["metadata"]}
    return {f"on-{node}" for node in "abcd"} - left


def budget(world: LiveGangs, job: str, allowed: int) -> None:
    """Create a PodDisruptionBudget for a Job's pods, with the status that its controller would write."""
    metadata = {"name": f"budget-of-{job}", "namespace": world.namespace}
    status = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
    manifest = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
    manifest["spec"] = {"minAvailable": 2, "selector": {"matchLabels": {"job": job}}}
    world.api.create(manifest | {"status": {**status, "observedGeneration": 1}})


def test_pods_of_a_budget_are_spared(world: LiveGangs) -> None:
    """Of four candidates, the two that violate no budget are evicted; victims and preemptor are reported."""
    budget(world, "guarded", 0)
    runs_on(world, "ab", job="guarded")
    runs_on(world, "cd", **SLOW)
    uid = gang(world, 2)
    message = world.until_reason("train", "Preempting")
    assert "2 pods would go on 2 nodes so that all 2 members that must be placed together fit" in message
    victims = [{"namespace": world.namespace, "name": name} for name in ("on-c", "on-d")]
    assert sorted(world.status("train")["victims"], key=lambda each: str(each["name"])) == victims
    world.until(lambda: evicted(world) == {"on-c", "on-d"}, "both victims are being deleted")
    world.until(lambda: world.event_notes("train", "Preempting"), "the group has its event")
    assert world.bound("train") == {}
    for node in "cd":
        assert world.condition(f"on-{node}", "DisruptionTarget")["reason"] == "PreemptionByScheduler"
        note = f"Preempted by podgroup {uid} ({world.namespace}/train) on node {world.token}-{node}"
        world.until(lambda: world.event_notes(f"on-{node}", "Preempted") == [note], "the victim has its event")  # noqa: B023 - called at once
        world.change(f"on-{node}", {"metadata": {"finalizers": None}})
    nodes = world.until_bound("train", 2)
    assert set(nodes.values()) == {f"{world.token}-{node}" for node in "cd"}
    world.until(lambda: not world.status("train").get("victims"), "no victims are listed any more")
    assert evicted(world) == {"on-c", "on-d"}


def test_no_pod_is_evicted_for_a_part_of_a_gang(world: LiveGangs) -> None:
    """Preemption helps two of three members, so no pod is evicted; when the third one fits, both victims are."""
    runs_on(world, "ab")
    runs_on(world, "cd", "high")
    gang(world, 3)
    assert "none of the 3 members" in world.until_reason("train", "Unschedulable")
    # The attempt of a later pod follows the gang's.
    world.job("later", 1, group="", cpu="2", spec=priority(world, "low"))
    world.until_rejected("later-0", "Insufficient cpu")
    assert evicted(world) == set()
    world.delete("later-0", "on-d")
    world.until_bound("train", 3)
    assert evicted(world) == {"on-a", "on-b", "on-d"}


def test_a_gang_with_disruption_group_is_evicted_whole(world: LiveGangs) -> None:
    """For one node a single pod is evicted rather than a gang of three; for two nodes the whole gang is evicted."""
    world.group("whole", 3, disruption="Group")
    runs_on(world, "abc", job="whole", group="whole")
    runs_on(world, "d")
    gang(world, 1)
    assert set(world.until_bound("train", 1).values()) == {f"{world.token}-d"}
    assert evicted(world) == {"on-d"}
    world.group("more", 2)
    world.job("more", 2, cpu="2", spec=priority(world, "high"))
    world.until_bound("more", 2)
    assert evicted(world) == {"on-a", "on-b", "on-c", "on-d"}


def test_a_gang_with_preemption_policy_never_waits(world: LiveGangs) -> None:
    """No pod is evicted for a gang whose class has preemptionPolicy Never; the gang is bound when pods are deleted."""
    never = world.cluster_object("PriorityClass", "never", PRIORITIES, value=3, preemptionPolicy="Never")
    runs_on(world, "abcd")
    world.group("train", 2)
    world.job("train", 2, cpu="2", spec={"priorityClassName": never})
    world.until_reason("train", "Unschedulable")
    world.delete("on-a", "on-b")
    world.until_bound("train", 2)
    assert evicted(world) == {"on-a", "on-b"}


_NODES, _MEMBERS = 12, 60
_METRIC = "bayplan_background_searches_total"


def test_a_gang_that_preempts_is_searched_in_a_copy(
    control_plane: ControlPlane, operator: OperatorProcess, namespace: str
) -> None:
    """The members of a gang differ, so that its searches are long; the victims go, all members are bound."""
    with live_gangs(control_plane, operator, namespace) as world:
        world.profile({})
        names = [f"w{number}" for number in range(_NODES)]
        world.nodes(*names, cpu="4")
        for value, name in enumerate(("low", "high"), start=1):
            world.cluster_object("PriorityClass", name, PRIORITIES, value=value)
        low, high = ({"priorityClassName": f"{world.token}-{name}"} for name in ("low", "high"))
        for number in range(_NODES):
            world.api.create(world.member(f"low-{number}", "plain", group="", cpu="3500m", spec=low))
        for number in range(_NODES):
            world.until_scheduled(f"low-{number}")
        before = operator.metric(_METRIC, result="used")
        world.group("train", _MEMBERS)
        for number in range(_MEMBERS):
            cpu = f"{700 + number}m"
            world.api.create(world.member(f"train-{number}", "train", cpu=cpu, spec=high))
        world.until_bound("train", _MEMBERS)
        assert operator.metric(_METRIC, result="used") > before
        assert operator.metric(_METRIC, result="lost") == 0
