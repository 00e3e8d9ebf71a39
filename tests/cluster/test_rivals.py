"""Beside other schedulers on the real API server: their pods count at once, and nobody fights over a pod."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hack.controlplane.accounts import bind_responses
from hack.controlplane.api_client import Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.approval_plugin import install
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

APPROVAL: Manifest = {"plugins": {"permit": {"enabled": [{"name": "Approval"}]}}}
PROFILES = "/apis/bayplan.dev/v1alpha1/schedulerprofiles"
NODES = 6
PODS = 240


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """The operator, with a plugin that lets pods wait."""
    install_crds(control_plane)
    directory = tmp_path_factory.mktemp("operator")
    installed = install(tmp_path_factory.mktemp("installed"))
    with OperatorProcess(control_plane.kubeconfig, directory / "operator.log", installed=installed) as operator:
        operator.start()
        yield operator


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    with live_world(control_plane, operator, namespace) as world:
        yield world


def bind(world: LiveWorld, pod: str, node: str) -> None:
    """Bind a pod as another scheduler does."""
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    world.api.request("POST", f"/api/v1/namespaces/{world.namespace}/pods/{pod}/binding", body)


def condition(world: LiveWorld, kind: str, profile: str = "") -> Manifest:
    """A condition of a profile; empty where it has none."""
    status = world.api.get(f"{PROFILES}/{profile or world.token}").get("status", {})
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})


def events_of(world: LiveWorld, profile: str) -> Counter[str]:
    """Reasons of the events of a profile."""
    events = world.api.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return Counter(one["reason"] for one in events if one["regarding"].get("name") == profile)


@pytest.mark.parametrize("how", ["by a binding", "by its own spec"])
def test_a_pod_bound_by_others_counts_at_once(world: LiveWorld, how: str) -> None:
    """The very next decision knows that the node is full, however the pod came to it."""
    world.profile({})
    node = world.node("n", cpu="1")
    if how == "by a binding":
        world.pod("other", cpu="800m", spec={"schedulerName": "nobody"})
        bind(world, "other", node)
    else:
        world.pod("other", cpu="800m", spec={"schedulerName": "nobody", "nodeName": node})
    world.pod("ours", cpu="500m")
    world.refused("ours", "Insufficient cpu")
    assert world.node_of("ours") == ""


def test_a_pod_that_a_rival_takes_is_let_go(world: LiveWorld) -> None:
    """Condition, event and count report it; no bind is sent, and the node that was assumed for it is free."""
    world.profile(APPROVAL)
    theirs = world.node("theirs", cpu="1", taints=[{"key": "for-others", "effect": "NoSchedule"}])
    ours = world.node("ours", cpu="1")
    world.pod("taken", cpu="1", labels={"approval": "needed"})
    world.until(lambda: world.read("taken")["status"].get("nominatedNodeName") == ours, "it waits at Permit")
    bind(world, "taken", theirs)
    world.until(lambda: condition(world, "Contested").get("status") == "True", "the profile is contested")
    contested = condition(world, "Contested")
    assert contested["reason"] == "BindsLostToRival"
    for words in (f"{world.namespace}/taken", theirs, ours, "stop the other scheduler"):
        assert words in contested["message"]
    assert world.operator.metric("bayplan_binds_lost_total", profile=world.token) == 1
    world.until(lambda: events_of(world, world.token)["BindLost"] == 1, "an event reports it")
    assert world.condition("taken")["status"] == "True"
    assert world.notes("taken", "FailedScheduling") == []
    world.pod("next", cpu="1")
    assert world.placed("next") == ours


def test_two_schedulers_of_one_name(world: LiveWorld, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Every pod is bound, once; who comes second is refused once and lets go, and both count right."""
    for number in range(NODES):
        world.node(f"n{number}", cpu="64", pods="200")
    configuration = tmp_path / "rival.yaml"
    profile = {"schedulerName": world.token}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    configuration.write_text(json.dumps({**kind, "leaderElection": {"leaderElect": False}, "profiles": [profile]}))
    flags = [f"--config={configuration}", "--seed=7"]
    names = [f"p{number}" for number in range(PODS)]
    world.profile({})
    with OperatorProcess(control_plane.kubeconfig, tmp_path / "rival.log", flags) as rival:
        rival.start()
        for name in names:
            world.pod(name, cpu="10m")
        pods = f"/api/v1/namespaces/{world.namespace}/pods"
        world.until(lambda: all(pod["spec"].get("nodeName") for pod in world.api.items(pods)), "all are bound")
        world.until(lambda: answers(control_plane, world)[201].total() == PODS, "the audit log is written")
        lost_by_rival = binds_lost(rival, world)
    responses = answers(control_plane, world)
    assert set(responses[201].values()) == {1}
    assert max(responses[409].values(), default=0) <= 1, "nobody asks again for a pod that he was refused"
    # Of those refused, some had been bound where they should be; of those lost, some were seen before they were asked.
    assert lost_by_rival + binds_lost(world.operator, world) > 0
    world.until(lambda: world.operator.metric("scheduler_pending_pods", queue="active") == 0, "no pod is queued")
    assert world.api.items(pods, fieldSelector="spec.nodeName=") == []
    world.until(
        lambda: (condition(world, "Contested").get("status") == "True") is (binds_lost(world.operator, world) > 0),
        "it is reported",
    )


def binds_lost(operator: OperatorProcess, world: LiveWorld) -> float:
    """How many binds of the test's profile a scheduler has lost."""
    return operator.metric("bayplan_binds_lost_total", profile=world.token)


def answers(plane: ControlPlane, world: LiveWorld) -> dict[int, Counter[str]]:
    """How often a bind of each pod of the test was answered by a code."""
    return bind_responses(plane.audit_events(), world.namespace)


def is_logged(world: LiveWorld, words: str) -> bool:
    """Whether the operator has logged some words."""
    return words in world.operator.log


def test_the_default_schedulers_name(world: LiveWorld) -> None:
    """A profile for it is refused in words, on the object, by an event and in the log, unless a flag allows it."""
    profile = world.wide("SchedulerProfile", "d", "bayplan.dev/v1alpha1", spec={"schedulerName": "default-scheduler"})
    world.until(lambda: condition(world, "Accepted", profile).get("status") == "False", "it is refused")
    refused = condition(world, "Accepted", profile)
    assert refused["reason"] == "SchedulerNameReserved"
    for words in ("belongs to kube-scheduler", "choose another name", "--allow-default-scheduler"):
        assert words in refused["message"]
        world.until(partial(is_logged, world, words), "the log says it")
    assert condition(world, "Ready", profile)["status"] == "False"
    world.until(lambda: events_of(world, profile)["SchedulerNameReserved"] == 1, "an event reports it")
    world.node("n")
    world.pod("left", spec={"schedulerName": "default-scheduler"})
    world.operator.terminate()
    world.operator.start("--allow-default-scheduler")
    world.until(lambda: condition(world, "Ready", profile).get("status") == "True", "it is allowed")
    assert world.placed("left")
    world.operator.terminate()
    world.operator.start()
    world.until(lambda: condition(world, "Accepted", profile).get("status") == "False", "it is refused again")
    world.pod("waits", spec={"schedulerName": "default-scheduler"})
    world.profile({})
    world.pod("goes")
    world.placed("goes")
    assert world.node_of("waits") == ""
