"""NodeReservations on a real API server, with the operator as a process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from hack.controlplane.api_client import ApiClient, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.live_devices import live_devices
from tests.support.live_world import LiveWorld
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
VERSION = "bayplan.dev/v1alpha1"
KIND = "NodeReservation"


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start an operator with the feature gate."""
    install_crds(control_plane)
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    flags = ("--feature-gates=NodeReservation=true",)
    with OperatorProcess(control_plane.kubeconfig, log, flags) as operator:
        operator.start()
        yield operator


class Reservations(LiveWorld):
    """:class:`LiveWorld` with NodeReservations for pods with the label ``app: train``."""

    def reserve(self, name: str, **spec: Any) -> None:
        """Create a reservation of one CPU for each pod, on the nodes of this world."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"nodeSelector": {"for": self.token}, "containers": [container]}}
        form = {} if "resources" in spec else {"template": template}
        own = {"owner": {"labels": {"app": "train"}}, "schedulerName": self.token, **form, **spec}
        self.namespaced_object(KIND, name, VERSION, spec=own)

    def status(self, name: str) -> dict[str, Any]:
        found = self.api.get(f"/apis/{VERSION}/namespaces/{self.namespace}/nodereservations/{name}")
        return dict(found.get("status") or {})

    def until_phase(self, name: str, phase: str) -> dict[str, Any]:
        """Wait for a phase, and return the status."""
        self.until(lambda: self.status(name).get("phase") == phase, f"{name} is {phase}")
        return self.status(name)


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[Reservations]:
    """Create a profile, and a node with room for two pods."""
    with ApiClient(control_plane) as api:
        world = Reservations(api, operator, namespace)
        world.profile({})
        world.node("a", cpu="2")
        yield world
        world.clean_up()


OWN = {"app": "train"}


def test_room_from_the_object_to_the_bind(world: Reservations, control_plane: ControlPlane) -> None:
    """Others wait, the selected pods get the room, also after a restart, and kubectl shows the phases."""
    world.reserve("room", count=2)
    status = world.until_phase("room", "Reserved")
    printed = control_plane.kubectl("get", "nodereservations", f"--namespace={world.namespace}")
    assert max(map(len, printed.splitlines())) <= 80
    assert (status["reserved"], [each["pods"] for each in status["nodes"]]) == (2, [2])
    world.pod("other", cpu="1")
    world.until_rejected("other", f"reserved for NodeReservation {world.namespace}/room")
    world.pod("own-0", cpu="1", labels=OWN)
    world.until(lambda: world.status("room").get("consumed") == 1, "one pod is counted")
    world.operator.kill()
    world.operator.start()
    world.until(lambda: "is held again" in world.operator.log, "the room is held again")
    world.pod("own-1", cpu="1", labels=OWN)
    assert world.until_phase("room", "Consumed")["consumed"] == 2
    printed = control_plane.kubectl("get", "nodereservations", f"--namespace={world.namespace}")
    assert printed.split()[:6] == ["NAME", "PHASE", "COUNT", "BOUND", "NODES", "REASON"]
    assert printed.splitlines()[1].split()[:5] == ["room", "Consumed", "2", "2", "Consumed"]


def test_devices(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> None:
    """Claims of a ResourceClaimTemplate are part of the search, and other pods get the devices that are left."""
    with live_devices(control_plane, operator, namespace) as world:
        world.profile({})
        node = world.machine("a", {"name": "0"}, {"name": "1"})
        claims = [{"name": "device", "resourceClaimTemplateName": "absent"}]
        container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "device"}]}}
        spec = {"owner": {"labels": OWN}, "schedulerName": world.token}
        template = {"spec": {"containers": [container], "resourceClaims": claims}}
        world.namespaced_object(KIND, "room", VERSION, spec={**spec, "template": template})
        path = f"/apis/{VERSION}/namespaces/{namespace}/nodereservations/room"

        def reserved() -> dict[str, Any]:
            return condition_of(world.api.get(path), "Reserved")

        world.until(lambda: reserved().get("reason") == "NotFound", "the missing template is reported")
        assert 'there is no ResourceClaimTemplate "absent"; create it' in reserved()["message"]
        world.template("absent")
        world.until(lambda: reserved().get("status") == "True", "room is reserved")
        others = "other-0", "other-1"
        for name in others:
            world.devices_claim(name)
            world.user(name, claim=name)
        # Its claim is allocated before it is bound.
        world.until(lambda: any(map(world.node_of, others)), "one of the pods gets a device")
        assert len(world.allocated()) == 1
        (refused,) = (name for name in others if not world.node_of(name))
        world.until_rejected(refused, "cannot allocate all claims")
        world.devices_claim("own")
        world.pod("own", labels=OWN, spec={"resourceClaims": [{"name": "device", "resourceClaimName": "own"}]})
        assert world.until_scheduled("own") == node
        world.until(lambda: status_of(world.api.get(path)).get("phase") == "Consumed", "the room is consumed")
        assert not world.node_of(refused)
        world.api.delete({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "room", "namespace": namespace}})


def test_the_command(world: Reservations, control_plane: ControlPlane) -> None:
    """The command creates a reservation for pods of a PodGroup or with labels, and lists it with its nodes."""
    where = [f"--namespace={world.namespace}", f"--kubeconfig={control_plane.kubeconfig}"]
    options = ["--cpu=1", "--count=2", "--owner=app=train", "--ttl=1h", f"--scheduler-name={world.token}"]

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(bayplan, ["reserve", *arguments, *where])

    try:
        created = run("room", *options)
        assert created.stdout == f'NodeReservation "room" created in namespace {world.namespace}\n', created.output
        world.until_phase("room", "Reserved")
        title, row = run().stdout.splitlines()
        assert title.split()[:7] == ["NAMESPACE", "NAME", "PHASE", "COUNT", "BOUND", "HELD", "NODES"]
        assert row.split()[:6] == [world.namespace, "room", "Reserved", "2", "0", "2"]
        until = world.status("room")["expirationTime"]
        assert (row.split()[-2:], f"{world.token}-a (2)" in row) == ([until, "RoomHeld"], True)
        again = run("room", *options)
        assert (again.exit_code, "there is a NodeReservation" in again.stderr) == (1, True)
    finally:
        control_plane.kubectl("delete", "nodereservations", "--all", f"--namespace={world.namespace}")


def test_room_expires(world: Reservations) -> None:
    """The pod that waited gets the room."""
    world.reserve("room", count=2, ttlSeconds=6)
    world.until_phase("room", "Reserved")
    world.pod("other", cpu="1")
    world.until_rejected("other", "reserved for NodeReservation")
    began = time.monotonic()
    world.until_phase("room", "Expired")
    assert time.monotonic() - began < 30
    world.until_scheduled("other")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"template": {"spec": {}}, "resources": {"cpu": 1}}, "exactly one of resources and template"),
        ({"resources": {"cpu": "much"}}, "must be an amount"),
        ({"owner": {}}, "at least one of labels"),
        ({"priority": 1, "priorityClassName": "a"}, "mutually exclusive"),
    ],
)
def test_the_api_server_refuses(control_plane: ControlPlane, spec: dict[str, Any], field: str) -> None:
    """The rules of the definition name the field."""
    own = {"owner": {"labels": OWN}, "count": 1, **({} if "template" in spec else {"resources": {"cpu": 1}})}
    body = {"apiVersion": VERSION, "kind": KIND, "metadata": {"name": "wrong"}, "spec": {**own, **spec}}
    with ApiClient(control_plane) as api:
        status, message = api.would_create(body)
    assert (status, field in message) == (422, True), message
