"""CompositePodGroups of Kubernetes 1.37 on a real API server: all groups of a hierarchy are bound, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import Manifest, condition_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import NATIVE_GROUPS
from tests.cluster.test_native_gangs import condition as native_condition
from tests.cluster.test_native_gangs import members
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]
GROUPS = NATIVE_GROUPS["1.37"]
NAMESPACE = "default"
GATE = "--feature-gates=CompositePodGroups=true"
WORKLOAD = {"workloadName": "jobs", "templateName": "any"}

plane = module_plane(ControlPlane.start_kwok, options=GROUPS.options)


@pytest.fixture
def process(plane: ControlPlane, tmp_path: Any) -> Iterator[OperatorProcess]:
    """Create an operator process without starting it."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "operator.log") as process:
        yield process


@pytest.fixture
def world(plane: ControlPlane, process: OperatorProcess) -> Iterator[LiveGangs]:
    """Create a profile."""
    with live_gangs(plane, process, NAMESPACE) as world:
        yield world


def start(world: LiveGangs, process: OperatorProcess, *flags: str) -> None:
    process.start(*flags)
    world.profile({})


def composite(world: LiveGangs, name: str, least: int, parent: str = "") -> None:
    """Create a CompositePodGroup with a quorum of groups."""
    spec: Manifest = {"schedulingPolicy": {"gang": {"minGroupCount": least}}, "workloadRef": WORKLOAD}
    world.namespaced_object("CompositePodGroup", name, GROUPS.composite_version, spec={**spec, **_below(parent)})


def gang(world: LiveGangs, name: str, least: int, parent: str) -> None:
    """Create a gang whose parent is a CompositePodGroup."""
    policy = {"gang": {"minCount": least}}
    world.group(name, 0, GROUPS.api_version, schedulingPolicy=policy, workloadRef=WORKLOAD, **_below(parent))


def _below(parent: str) -> Manifest:
    return {"parentCompositePodGroupName": parent} if parent else {}


def condition(world: LiveGangs, name: str) -> tuple[str, str, str]:
    """Return status, reason and message of a gang's condition, or empty strings if it has none."""
    found = native_condition(world, name)
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def why(world: LiveGangs, of: str) -> str:
    """Return the message of the PodScheduled condition of a gang's first member, or "" if it has none."""
    return str(condition_of(world.pods(of).get(f"{of}-0", {}), "PodScheduled").get("message", ""))


def test_a_gang_of_gangs(world: LiveGangs, process: OperatorProcess) -> None:
    """No pod is bound while one group is infeasible; all groups are bound when a node is added."""
    start(world, process, GATE)
    world.nodes("a", cpu="4")
    composite(world, "root", 2)
    composite(world, "workers", 1, "root")
    gang(world, "driver", 2, "root")
    gang(world, "worker", 3, "workers")
    members(world, "driver", 2)
    members(world, "worker", 3)
    world.until(lambda: condition(world, "worker")[2].startswith("minCount ("), "the worker gang is unschedulable")
    status, reason, message = condition(world, "worker")
    assert (status, reason) == ("False", "Unschedulable")
    assert " cannot be satisfied: " in message
    world.until(
        lambda: condition(world, "driver")[:2] == ("False", "Unschedulable"), "the driver gang is unschedulable"
    )
    assert (world.bound("driver"), world.bound("worker")) == ({}, {})
    world.nodes("b", cpu="1")
    world.until_bound("worker", 3)
    world.until_bound("driver", 2)
    world.until(lambda: condition(world, "worker")[:2] == ("True", "Scheduled"), "the worker gang is reported")
    world.until(lambda: condition(world, "driver")[:2] == ("True", "Scheduled"), "the driver gang is reported")


def test_a_missing_parent(world: LiveGangs, process: OperatorProcess) -> None:
    """Pods whose group has a missing parent are gated, and their condition names the parent, until it is created."""
    start(world, process, GATE)
    world.nodes("a", cpu="4")
    gang(world, "early", 2, "late")
    members(world, "early", 2)

    waits = 'waiting for composite pod group "late" to appear in scheduling queue: '
    world.until(lambda: why(world, "early").startswith(waits), "the pod names the missing group")
    assert world.bound("early") == {}
    composite(world, "late", 1)
    world.until_bound("early", 2)


def test_without_the_feature_gate(world: LiveGangs, process: OperatorProcess) -> None:
    """Without the feature gate, pods of a child group are gated and their condition names the field and the gate."""
    start(world, process)
    world.nodes("a", cpu="4")
    composite(world, "ignored", 1)
    gang(world, "child", 1, "ignored")
    members(world, "child", 1)

    world.until(lambda: "feature gate CompositePodGroups: turn it on" in why(world, "child"), "the pod names the gate")
    assert "spec.parentCompositePodGroupName" in why(world, "child")
    assert world.bound("child") == {}
