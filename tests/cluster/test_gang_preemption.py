"""Gangs that preempt, on the real API server: after the evictions the whole quorum fits."""

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
    """Four nodes of two processors, and PriorityClasses ``low`` and ``high``."""
    with live_gangs(control_plane, operator, namespace) as world:
        world.profile({})
        world.nodes("a", "b", "c", "d", cpu="2")
        for value, name in enumerate(("low", "high"), start=1):
            world.wide("PriorityClass", name, PRIORITIES, value=value)
        yield world


def priority(world: LiveGangs, name: str, node: str = "") -> Manifest:
    """The spec of pods of a class, on one node if one is named."""
    where = {"nodeSelector": {"kubernetes.io/hostname": f"{world.token}-{node}"}} if node else {}
    return {"priorityClassName": f"{world.token}-{name}", **where}


def runs_on(world: LiveGangs, nodes: str, name: str = "low", job: str = "plain", **fields: Any) -> None:
    """Fill nodes with a pod each, of a class and without a gang; wait until they run."""
    for node in nodes:
        spec = priority(world, name, node)
        world.api.create(world.member(f"on-{node}", job, **{"group": "", "cpu": "2", "spec": spec, **fields}))
    for node in nodes:
        world.placed(f"on-{node}")


def gang(world: LiveGangs, count: int) -> str:
    """A gang of high priority whose members fill a node each; the UID of its group."""
    uid = world.group("train", count)
    world.job("train", count, cpu="2", spec=priority(world, "high"))
    return uid


def evicted(world: LiveGangs) -> set[str]:
    """Pods that filled nodes and are gone, or going."""
    kept = {name for name, pod in world.pods().items() if "deletionTimestamp" not in pod["metadata"]}
    return {f"on-{node}" for node in "abcd"} - kept


def budget(world: LiveGangs, job: str, allowed: int) -> None:
    """A PodDisruptionBudget over a Job's pods; its controller's part is played too."""
    metadata = {"name": f"budget-of-{job}", "namespace": world.namespace}
    status = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
    manifest = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
    manifest["spec"] = {"minAvailable": 2, "selector": {"matchLabels": {"job": job}}}
    world.api.create(manifest | {"status": {**status, "observedGeneration": 1}})


def test_pods_of_a_budget_are_spared(world: LiveGangs) -> None:
    """Of four candidates, the two are evicted that violate no budget; victims and preemptor are reported."""
    budget(world, "guarded", 0)
    runs_on(world, "ab", job="guarded")
    runs_on(world, "cd", **SLOW)
    uid = gang(world, 2)
    message = world.until_reason("train", "Preempting")
    assert "2 pods would go on 2 nodes so that all 2 members that must be placed together fit" in message
    victims = [{"namespace": world.namespace, "name": name} for name in ("on-c", "on-d")]
    assert sorted(world.status("train")["victims"], key=lambda each: str(each["name"])) == victims
    world.until(lambda: evicted(world) == {"on-c", "on-d"}, "both are being deleted")
    world.until(lambda: world.notes("train", "Preempting"), "the group has its event")
    assert world.bound("train") == {}
    for node in "cd":
        assert world.condition(f"on-{node}", "DisruptionTarget")["reason"] == "PreemptionByScheduler"
        note = f"Preempted by podgroup {uid} on node {world.token}-{node}"
        world.until(lambda: world.notes(f"on-{node}", "Preempted") == [note], "the victim has its event")  # noqa: B023 - called at once
        world.change(f"on-{node}", {"metadata": {"finalizers": None}})
    nodes = world.until_bound("train", 2)
    assert set(nodes.values()) == {f"{world.token}-{node}" for node in "cd"}
    world.until(lambda: not world.status("train").get("victims"), "no victims are listed any more")
    assert evicted(world) == {"on-c", "on-d"}


def test_nobody_is_evicted_for_a_part_of_a_gang(world: LiveGangs) -> None:
    """Room for two of three could be made, so none is made; as soon as there is room for the third, both go."""
    runs_on(world, "ab")
    runs_on(world, "cd", "high")
    gang(world, 3)
    assert "none of the 3 members" in world.until_reason("train", "Unschedulable")
    # A pod that comes later is decided after the gang was.
    world.job("later", 1, group="", cpu="2", spec=priority(world, "low"))
    world.refused("later-0", "Insufficient cpu")
    assert evicted(world) == set()
    world.delete("later-0", "on-d")
    world.until_bound("train", 3)
    assert evicted(world) == {"on-a", "on-b", "on-d"}


def test_a_gang_that_is_disrupted_as_a_group_goes_whole_or_not_at_all(world: LiveGangs) -> None:
    """One node is wanted: a single pod goes rather than a gang of three, which goes whole when two are wanted."""
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


def test_a_gang_that_must_not_preempt_waits(world: LiveGangs) -> None:
    """By preemptionPolicy of its members' class: nobody is evicted, and who goes by itself makes room."""
    never = world.wide("PriorityClass", "never", PRIORITIES, value=3, preemptionPolicy="Never")
    runs_on(world, "abcd")
    world.group("train", 2)
    world.job("train", 2, cpu="2", spec={"priorityClassName": never})
    world.until_reason("train", "Unschedulable")
    world.delete("on-a", "on-b")
    world.until_bound("train", 2)
    assert evicted(world) == {"on-a", "on-b"}
