"""RebalancePlans on a real API server with Deployments, budgets, and kwok in place of the kubelets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, Manifest, status_of
from hack.controlplane.launcher import ControlPlane
from tests.support.live_devices import LiveDevices
from tests.support.live_gangs import LABEL
from tests.support.live_servers import CONTROLLERS, module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE, OwnedGangs

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.controllers, pytest.mark.timeout(240)]
OPERATOR_FLAGS = ("--feature-gates=RebalancePlan=true",)
PLANS = "/apis/bayplan.dev/v1alpha1/rebalanceplans"

plane = module_plane(*CONTROLLERS)


class PlannedMoves(OwnedGangs):
    """Deployments and plans."""

    def deployment(self, name: str, replicas: int, node: str) -> None:
        """Create a Deployment whose first pods are on one node."""
        template = self.template(restartPolicy="Always")
        template["metadata"]["labels"] = {"app": name}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        self.cordon_all_but(node)
        self.namespaced_object("Deployment", name, "apps/v1", spec=spec)
        self.until(lambda: self.nodes_of_app(name) == [node] * replicas, f"the pods of {name} are on {node}")
        self.cordon_all_but("")

    def cordon_all_but(self, node: str) -> None:
        """Cordon all nodes of the test but one; "" uncordons all."""
        for each in self.api.items("/api/v1/nodes", labelSelector=f"for={self.token}"):
            name = each["metadata"]["name"]
            self.api.patch(
                {"kind": "Node", "metadata": {"name": name}}, {"spec": {"unschedulable": node not in ("", name)}}
            )

    def nodes_of_app(self, name: str) -> list[str]:
        """Return the nodes of the pods of a Deployment that are not being deleted."""
        pods = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"app={name}")
        running = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        return sorted(each["spec"].get("nodeName", "") for each in running)

    def plan(self, name: str, **spec: Any) -> None:
        """Create a plan."""
        spec.setdefault("scope", {"profiles": [self.token]})
        self.cluster_object("RebalancePlan", name, "bayplan.dev/v1alpha1", spec=spec)

    def until_phase(self, name: str, phase: str) -> Manifest:
        """Wait for a phase of a plan, and return its status."""
        path = f"{PLANS}/{self.token}-{name}"
        self.until(lambda: status_of(self.api.get(path)).get("phase") == phase, f"plan {name} is {phase}")
        return dict(status_of(self.api.get(path)))


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[PlannedMoves]:
    """Create a profile that spreads pods, and three nodes with room for four pods each."""
    with ApiClient(plane) as api:
        world = PlannedMoves(api, operator, NAMESPACE)
        world.profile({})
        world.nodes("a", "b", "c", cpu="4")
        yield world
        plane.kubectl("delete", "rebalanceplans,deployments,jobs,poddisruptionbudgets", "--all")
        world.clean_up()


def test_nodes_are_emptied(world: PlannedMoves, plane: ControlPlane) -> None:
    """A dry run lists the moves; then pods are evicted one by one, and each replacement gets its node."""
    a, b, c = (f"{world.token}-{name}" for name in "abc")
    world.deployment("one", 1, a)
    world.deployment("two", 2, b)
    world.plan("dry", objective="Consolidate")
    status = world.until_phase("dry", "Planned")
    assert [(each["source"], each["target"], each["state"]) for each in status["moves"]] == [(a, b, "Pending")]
    assert status["gain"] == "1 node would be empty after 1 move"
    assert status["effect"] == {"nodesEmptied": 1, "emptyNodes": [a]}
    assert world.nodes_of_app("one") == [a]
    world.plan("move", objective="Consolidate", dryRun=False)
    status = world.until_phase("move", "Completed")
    assert [(each["source"], each["target"], each["state"]) for each in status["moves"]] == [(a, b, "Moved")]
    # The profile itself would choose an empty node.
    assert world.nodes_of_app("one") == [b]
    header, row = plane.kubectl("get", "brp", f"{world.token}-move").splitlines()
    assert header.split()[:3] == ["NAME", "OBJECTIVE", "DRY"]
    assert row.split()[:4] == [f"{world.token}-move", "Consolidate", "false", "Completed"]
    world.plan("again", objective="Consolidate", dryRun=False)
    assert world.until_phase("again", "Completed").get("moves", []) == []
    assert c not in world.nodes_of_app("one") + world.nodes_of_app("two")


def test_a_budget_is_waited_for(world: PlannedMoves) -> None:
    """A pod whose budget allows no disruption is not moved; when the budget does, the next plan moves it."""
    a, b = (f"{world.token}-{name}" for name in "ab")
    world.deployment("web", 1, a)
    world.deployment("other", 2, b)
    budget = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0}
    world.namespaced_object("PodDisruptionBudget", "web", "policy/v1", spec=budget)
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/web"
    world.until(lambda: "disruptionsAllowed" in status_of(world.api.get(path)), "the budget is computed")
    drain = {"nodes": [a]}
    world.plan("held", objective="Drain", drain=drain, dryRun=False)
    status = world.until_phase("held", "Completed")
    assert status.get("moves", []) == []
    (left,) = status["leftAlone"]
    assert (left["reason"], left["count"]) == ("the PodDisruptionBudget web allows no disruption", 1)
    assert world.nodes_of_app("web") == [a]
    reference = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1"}
    metadata = {"name": "web", "namespace": NAMESPACE}
    world.api.patch({**reference, "metadata": metadata}, {"spec": {"maxUnavailable": 1}})
    world.until(lambda: status_of(world.api.get(path)).get("disruptionsAllowed") == 1, "the budget allows a disruption")
    world.plan("free", objective="Drain", drain=drain, dryRun=False)
    world.until_phase("free", "Completed")
    assert a not in world.nodes_of_app("web")


def test_the_room_for_a_gang_is_held(world: PlannedMoves, plane: ControlPlane) -> None:
    """The gang gets the room that is made for it, and not an older pod that waits for the same room."""
    a, b, c = (f"{world.token}-{name}" for name in "abc")
    world.deployment("one", 1, a)
    world.deployment("two", 2, b)
    world.deployment("three", 4, c)
    whole_node = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "4"}}}]}
    world.batch_job("rival", 1, template=world.template(**whole_node))
    world.group("train", 1)
    template = world.template(**whole_node)
    template["metadata"]["labels"] = {LABEL: "train"}
    world.batch_job("train", 1, template=template)
    world.until(lambda: world.reason("train") == "Unschedulable", "the gang waits")
    world.plan("room", objective="MakeRoom", gang={"namespace": NAMESPACE, "name": "train"}, dryRun=False)
    path, rooms = f"{PLANS}/{world.token}-room", list[list[str]]()

    def is_completed() -> bool:
        found = status_of(world.api.get(path))
        rooms.append([each["node"] for each in found.get("room", {}).get("members", ())])
        return bool(found.get("phase") == "Completed")

    world.until(is_completed, "plan room is Completed")
    status = status_of(world.api.get(path))
    assert [(each["source"], each["target"], each["state"]) for each in status["moves"]] == [(a, b, "Moved")]
    assert [a] in rooms
    world.until(lambda: world.nodes_of("train") == [a], "the gang is bound")
    world.until(lambda: "room" not in status_of(world.api.get(path)), "the status has no room that has ended")
    assert world.nodes_of("rival") == [""]
    events = plane.kubectl("get", "events", "--field-selector=involvedObject.kind=RebalancePlan")
    assert "GangBound" in events


class ClaimedMoves(PlannedMoves):
    """Deployments whose pods have a device each."""

    def template(self, **spec: Any) -> Manifest:
        container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "device"}]}}
        claims = [{"name": "device", "resourceClaimTemplateName": "gpu"}]
        return super().template(containers=[container], resourceClaims=claims, **spec)


def test_a_pod_with_a_claim_is_moved(plane: ControlPlane, operator: OperatorProcess) -> None:
    """The replacement has a new claim of the template, with a device of its node."""
    with ApiClient(plane) as api:
        world, devices = ClaimedMoves(api, operator, NAMESPACE), LiveDevices(api, operator, NAMESPACE)
        world.profile({})
        world.nodes("a", "b", cpu="4")
        a, b = (f"{world.token}-{name}" for name in "ab")
        for each in (a, b):
            devices.driver.publish(each, {"name": "d0"})
        devices.template("gpu")
        world.deployment("one", 1, a)
        plane.kubectl("cordon", a)
        world.plan("drain", objective="Drain", drain={"nodes": [a]}, dryRun=False)
        status = world.until_phase("drain", "Completed")
        assert [(each["source"], each["target"], each["state"]) for each in status["moves"]] == [(a, b, "Moved")]
        assert world.nodes_of_app("one") == [b]
        world.until(
            lambda: [pool for _, pool, _ in devices.allocated()] == [b], "the claim of the evicted pod is deleted"
        )
        plane.kubectl("delete", "rebalanceplans,deployments", "--all")
        world.clean_up()
        devices.clean_up()


def test_a_schedule(world: PlannedMoves, plane: ControlPlane) -> None:
    """A plan is made each minute, and kubectl shows the next time."""
    world.deployment("one", 1, f"{world.token}-a")
    world.plan("yearly", objective="Consolidate", schedule="0 2 1 jan *", timeZone="Europe/Berlin")
    following = world.until_phase("yearly", "Scheduled")["nextScheduleTime"]
    assert following.endswith("-01-01T01:00:00Z")
    _, row = plane.kubectl("get", "brp", f"{world.token}-yearly", "--output=wide").splitlines()
    assert following in row
    world.plan("each-minute", objective="Consolidate", schedule="* * * * *")
    status = world.until_phase("each-minute", "Planned")
    assert status["lastScheduleTime"] < status["nextScheduleTime"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"objective": "Drain"}, "spec.drain is required"),
        ({"schedule": "each night"}, "must be a schedule of cron"),
        ({"schedule": "0 0 2 * * *"}, "must be a schedule of cron"),
        ({"schedule": "@daily", "intervalSeconds": 60}, "exclude each other"),
        ({"timeZone": "Etc/UTC"}, "write a schedule, or remove it"),
    ],
)
def test_the_api_server_refuses(plane: ControlPlane, spec: Manifest, text: str) -> None:
    """An objective without its field and an invalid schedule are rejected."""
    body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "RebalancePlan", "metadata": {"name": "wrong"}}
    with ApiClient(plane) as api:
        status, message = api.would_create(body | {"spec": {"objective": "Consolidate", **spec}})
    assert (status, text in message) == (422, True), message
