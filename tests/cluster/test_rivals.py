"""Other schedulers on the same API server: their binds are counted at once, and lost binds are not retried."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hack.controlplane.accounts import bind_responses
from hack.controlplane.api_client import Manifest, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.approval_plugin import install
from tests.support.dashboard import assert_has_series
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
APPROVAL: Manifest = {"plugins": {"permit": {"enabled": [{"name": "Approval"}]}}}
PROFILES = "/apis/bayplan.dev/v1alpha1/schedulerprofiles"
NODES = 6
PODS = 240


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start the operator with a plugin that makes pods wait at Permit."""
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
    """Bind a pod as another scheduler would."""
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    world.api.request("POST", f"/api/v1/namespaces/{world.namespace}/pods/{pod}/binding", body)


def condition(world: LiveWorld, kind: str, profile: str = "") -> Manifest:
    """Return a condition of a profile, or an empty one if it has none."""
    return condition_of(world.api.get(f"{PROFILES}/{profile or world.token}"), kind)


def events_of(world: LiveWorld, profile: str) -> Counter[str]:
    """Count the events of a profile by reason."""
    events = world.api.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return Counter(one["reason"] for one in events if one["regarding"].get("name") == profile)


@pytest.mark.parametrize("how", ["by a binding", "by its own spec"])
def test_a_pod_bound_by_another_scheduler_counts_at_once(world: LiveWorld, how: str) -> None:
    """The next decision counts a pod that another client bound, by a Binding or by its spec."""
    world.profile({})
    node = world.node("n", cpu="1")
    if how == "by a binding":
        world.pod("other", cpu="800m", spec={"schedulerName": "unserved"})
        bind(world, "other", node)
    else:
        world.pod("other", cpu="800m", spec={"schedulerName": "unserved", "nodeName": node})
    world.pod("ours", cpu="500m")
    world.until_rejected("ours", "Insufficient cpu")
    assert world.node_of("ours") == ""


def test_a_pod_that_a_rival_binds_is_released(world: LiveWorld) -> None:
    """Condition, event and metric report the lost bind; no bind is sent, and the assumed node is free again."""
    world.profile(APPROVAL)
    theirs = world.node("theirs", cpu="1", taints=[{"key": "for-others", "effect": "NoSchedule"}])
    ours = world.node("ours", cpu="1")
    world.pod("taken", cpu="1", labels={"approval": "needed"})
    world.until(lambda: status_of(world.read("taken")).get("nominatedNodeName") == ours, "the pod waits at Permit")
    bind(world, "taken", theirs)
    world.until(lambda: condition(world, "Contested").get("status") == "True", "the profile is contested")
    contested = condition(world, "Contested")
    assert contested["reason"] == "BindsLostToRival"
    for words in (f"{world.namespace}/taken", theirs, ours, "stop the other scheduler"):
        assert words in contested["message"]
    assert world.operator.metric("bayplan_binds_lost_total", profile=world.token) == 1
    world.until(lambda: events_of(world, world.token)["BindLost"] == 1, "an event is recorded")
    assert world.condition("taken")["status"] == "True"
    assert world.event_notes("taken", "FailedScheduling") == []
    world.pod("next", cpu="1")
    assert world.until_scheduled("next") == ours


def test_two_schedulers_of_one_name(world: LiveWorld, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Every pod is bound once; the scheduler that loses a bind does not retry it, and both count lost binds."""
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
        world.until(lambda: answers(control_plane, world)[201].total() == PODS, "the audit log is complete")
        lost_by_rival = binds_lost(rival, world)
    responses = answers(control_plane, world)
    assert set(responses[201].values()) == {1}
    assert max(responses[409].values(), default=0) <= 1, "a bind is retried after a conflict"
    # Conflicts on the same node are not lost binds, and some lost binds were noticed before a request was sent.
    assert lost_by_rival + binds_lost(world.operator, world) > 0
    world.until(lambda: world.operator.metric("scheduler_pending_pods", queue="active") == 0, "no pod is queued")
    assert world.api.items(pods, fieldSelector="spec.nodeName=") == []
    world.until(
        lambda: (condition(world, "Contested").get("status") == "True") is (binds_lost(world.operator, world) > 0),
        "the condition agrees with the metric",
    )


def test_a_node_that_a_rival_overcommits_is_reported(world: LiveWorld) -> None:
    """Condition, event and metrics name the node, the rival and its pod, and the dashboard shows both metrics."""
    world.profile({})
    node = world.node("full", cpu="1")
    world.pod("ours", cpu="1")
    assert world.until_scheduled("ours") == node
    rival = f"rival-{world.token}"
    world.pod("theirs", cpu="1", spec={"schedulerName": rival})
    bind(world, "theirs", node)
    world.until(lambda: condition(world, "Contested").get("status") == "True", "the profile is contested")
    contested = condition(world, "Contested")
    assert contested["reason"] == "NodesOvercommitted"
    for words in (f"Scheduler {rival} ", f"node {node} ", f"pod {world.namespace}/theirs"):
        assert words in contested["message"]
    assert world.operator.metric("bayplan_contested_nodes", rival=rival) == 1
    assert world.operator.metric("bayplan_rival_overcommits_total", rival=rival) == 1
    scrape = world.operator.get("/metrics")[1]
    for prefix in ("bayplan_contested_", "bayplan_rival_"):
        assert_has_series(scrape, prefix)
    world.until(lambda: events_of(world, world.token)["NodesContested"] == 1, "an event is recorded")
    assert binds_lost(world.operator, world) == 0


def binds_lost(operator: OperatorProcess, world: LiveWorld) -> float:
    """Return the number of binds of the test's profile that a scheduler has lost."""
    return operator.metric("bayplan_binds_lost_total", profile=world.token)


def answers(plane: ControlPlane, world: LiveWorld) -> dict[int, Counter[str]]:
    """Return how often bind requests of each pod of the test got each response code."""
    return bind_responses(plane.audit_events(), world.namespace)


def is_logged(world: LiveWorld, words: str) -> bool:
    """Return whether the operator's log contains *words*."""
    return words in world.operator.log


def test_the_default_schedulers_name(world: LiveWorld) -> None:
    """A profile for default-scheduler is rejected by condition, event and log, unless a flag allows it."""
    profile = world.cluster_object(
        "SchedulerProfile", "d", "bayplan.dev/v1alpha1", spec={"schedulerName": "default-scheduler"}
    )
    world.until(lambda: condition(world, "Accepted", profile).get("status") == "False", "the profile is rejected")
    refused = condition(world, "Accepted", profile)
    assert refused["reason"] == "SchedulerNameReserved"
    for words in ("belongs to kube-scheduler", "choose another name", "--allow-default-scheduler"):
        assert words in refused["message"]
        world.until(partial(is_logged, world, words), "the message is logged")
    assert condition(world, "Ready", profile)["status"] == "False"
    world.until(lambda: events_of(world, profile)["SchedulerNameReserved"] == 1, "an event is recorded")
    world.node("n")
    world.pod("left", spec={"schedulerName": "default-scheduler"})
    world.operator.terminate()
    world.operator.start("--allow-default-scheduler")
    world.until(lambda: condition(world, "Ready", profile).get("status") == "True", "the profile is ready")
    assert world.until_scheduled("left")
    world.operator.terminate()
    world.operator.start()
    world.until(lambda: condition(world, "Accepted", profile).get("status") == "False", "the profile is rejected again")
    world.pod("waits", spec={"schedulerName": "default-scheduler"})
    world.profile({})
    world.pod("goes")
    world.until_scheduled("goes")
    assert world.node_of("waits") == ""
