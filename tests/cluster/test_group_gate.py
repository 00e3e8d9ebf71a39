"""No pod that names a group is bound before its PodGroup is read: three APIs, both modes, at every start."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from hack.controlplane.api_client import ApiClient, Manifest, condition_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.schedulers import await_definitions
from hack.controlplane.servers import Options
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.live_servers import SCHEDULER_PLUGINS_GROUPS, definitions, module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
GROUPS = native_groups()
BAYPLAN, PLUGINS, NATIVE = "bayplan.dev/v1alpha1", "scheduling.x-k8s.io/v1alpha1", GROUPS.api_version
LABELS = {BAYPLAN: "bayplan.dev/pod-group", PLUGINS: "scheduling.x-k8s.io/pod-group"}
NAMESPACE = "default"
ATTEMPTED_AS_A_GANG = "2 of the 3 members that must be placed together fit"

plane = module_plane(definitions(SCHEDULER_PLUGINS_GROUPS), options=GROUPS.options)
"""It serves PodGroups of all three APIs."""

plane_without_groups = module_plane(
    options=Options(
        kubernetes=GROUPS.kubernetes,
        feature_gates={"GenericWorkload": True},
        apiserver_args=[f"--disable-admission-plugins={','.join(GROUPS.needed_by)}"] if GROUPS.needed_by else [],
    )
)
"""It stores schedulingGroup of pods but serves only PodGroups of bayplan.dev."""


@dataclass
class World:
    """Nodes, gangs and the operator of one test, with a profile of its own in either mode."""

    plane: ControlPlane
    api: ApiClient
    directory: Path
    token: str

    def nodes(self, **racks: str) -> None:
        """Create nodes with room for one member each, by name and rack."""
        for name, rack in racks.items():
            labels = {"for": self.token, "rack": rack}
            self.api.create(node_manifest(f"{self.token}-{name}", {"cpu": "1", "labels": labels}))

    def group(self, name: str, version: str, least: int, rack: bool = False) -> None:
        """Create a PodGroup; *rack* requires all members in one rack."""
        spec: Manifest = {"minMember": least} | ({"topology": {"key": "rack"}} if rack else {})
        if version == NATIVE:
            spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
            spec |= {"schedulingConstraints": {"topology": [{"key": "rack"}]}} if rack else {}
        metadata = {"name": f"{self.token}-{name}", "namespace": NAMESPACE}
        self.api.create({"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec})

    def members(self, name: str, version: str, count: int) -> None:
        """Create pods of one CPU that name a group, or pods without a group if *version* is empty."""
        group = f"{self.token}-{name}"
        spec = {"schedulerName": self.token, "nodeSelector": {"for": self.token}}
        labels = {LABELS[version]: group} if version in LABELS else {}
        if version == NATIVE:
            spec["schedulingGroup"] = {"podGroupName": group}
        for number in range(count):
            fields = {"cpu": "1" if version else "0", "labels": labels, "spec": spec}
            self.api.create(pod_manifest(f"{group}-{number}", NAMESPACE, fields))

    def pod(self, name: str) -> Manifest:
        """Read a pod by its group and number."""
        return self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{self.token}-{name}")

    def node_of(self, name: str) -> str:
        """Return the node of a pod without the test's token, or "" if the pod is not bound."""
        return str(self.pod(name)["spec"].get("nodeName", "")).removeprefix(f"{self.token}-")

    def scheduled(self, name: str) -> Manifest:
        """Return the PodScheduled condition of a pod, or an empty one if it has none."""
        return condition_of(self.pod(name), "PodScheduled")

    def is_bound(self, name: str) -> bool:
        """Return whether a pod is bound."""
        return bool(self.node_of(name))

    def is_gated(self, name: str) -> bool:
        """Return whether the pod's condition reports that it is gated."""
        return self.scheduled(name).get("reason") == "SchedulingGated"

    def reports(self, name: str, text: str) -> bool:
        """Return whether the message of the pod's PodScheduled condition contains *text*."""
        return text in self.scheduled(name).get("message", "")

    def clear_conditions(self, name: str, count: int) -> None:
        """Remove the PodScheduled conditions of members."""
        for number in range(count):
            metadata = {"name": f"{self.token}-{name}-{number}", "namespace": NAMESPACE}
            self.api.patch({"kind": "Pod", "metadata": metadata}, {"status": {"conditions": []}}, "status")

    def notes(self, name: str) -> list[str]:
        """Return the notes of a pod's events."""
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
        return [each["note"] for each in events if each["regarding"]["name"] == f"{self.token}-{name}"]

    def operator(self, mode: str, name: str = "operator") -> OperatorProcess:
        """Create an operator without starting it; its profile is live as soon as it schedules."""
        flags = []
        if mode == "config":
            configuration = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(self.plane.kubeconfig)},
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": self.token}],
            }
            (self.directory / "kube.yaml").write_text(yaml.safe_dump(configuration))
            flags = [f"--config={self.directory / 'kube.yaml'}"]
        else:
            manifest = {"apiVersion": BAYPLAN, "kind": "SchedulerProfile", "metadata": {"name": self.token}, "spec": {}}
            self.api.create(manifest)
        return OperatorProcess(self.plane.kubeconfig, self.directory / f"{name}.log", flags)


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path) -> Iterator[World]:
    with ApiClient(plane) as api:
        yield World(plane, api, tmp_path, _token())


@pytest.fixture
def world_without_groups(plane_without_groups: ControlPlane, tmp_path: Path) -> Iterator[World]:
    with ApiClient(plane_without_groups) as api:
        yield World(plane_without_groups, api, tmp_path, _token())


def _token() -> str:
    return f"gate-{uuid.uuid4().hex[:8]}"


@table(
    "mode, version",
    ("run, bayplan.dev", "run", BAYPLAN),
    ("run, scheduling.x-k8s.io", "run", PLUGINS),
    ("run, scheduling.k8s.io", "run", NATIVE),
    ("run --config, scheduling.x-k8s.io", "config", PLUGINS),
    ("run --config, scheduling.k8s.io", "config", NATIVE),
)
def test_members_that_wait_when_the_operator_starts(world: World, mode: str, version: str) -> None:
    """A gang of three with room for two is rejected as a whole at every start, while a pod without a group is bound."""
    world.nodes(a="r1", b="r2")
    world.group("wide", version, 3)
    world.members("wide", version, 3)
    operator = world.operator(mode)
    for start in range(2):
        world.members(f"plain{start}", "", 1)
        with operator:
            operator.start()
            operator.until(partial(world.is_bound, f"plain{start}-0"), "the pod without a group is bound")
            operator.until(partial(world.reports, "wide-0", ATTEMPTED_AS_A_GANG), "the gang is attempted")
            operator.terminate()
        assert [world.node_of(f"wide-{number}") for number in range(3)] == ["", "", ""]
        # Without this the next start could pass with the message of this one.
        world.clear_conditions("wide", 3)


@pytest.mark.parametrize(
    ("mode", "version"),
    [("run", BAYPLAN), ("run", NATIVE), ("config", NATIVE)],
    ids=["run, bayplan.dev", "run, scheduling.k8s.io", "run --config, scheduling.k8s.io"],
)
def test_the_rack_of_a_gang_that_waits_when_the_operator_starts(world: World, mode: str, version: str) -> None:
    """The topology constraint of the group holds for members that exist before the operator starts."""
    world.nodes(a="r1", b="r2", c="r2")
    world.group("tight", version, 2, rack=True)
    world.members("tight", version, 2)
    with world.operator(mode) as operator:
        operator.start()
        operator.until(lambda: all(world.is_bound(f"tight-{number}") for number in range(2)), "both are bound")
    assert {world.node_of(f"tight-{number}") for number in range(2)} == {"b", "c"}


@pytest.mark.parametrize("version", [BAYPLAN, PLUGINS, NATIVE])
def test_a_group_that_is_missing(world: World, version: str) -> None:
    """The pod of a missing group is gated and reported everywhere; it is bound when the group is created."""
    world.nodes(a="r1")
    with world.operator("run") as operator:
        operator.start()
        world.members("late", version, 1)
        operator.until(partial(world.is_gated, "late-0"), "the pod is reported as gated")
        name = f"{world.token}-late"
        message = world.scheduled("late-0")["message"]
        begins = f'waiting for pods\'s pod group "{name}" to appear in scheduling queue: no valid PodGroup'
        assert message.startswith(begins)
        operator.until(lambda: world.notes("late-0") == [message], "an event has the same message")
        assert message in operator.log
        status, explained = operator.get(f"/debug/explain?namespace={NAMESPACE}&pod={name}-0")
        assert status == 200
        assert message in json.loads(explained)["headline"]
        world.group("late", version, 1)
        operator.until(partial(world.is_bound, "late-0"), "the pod is bound")


def test_bayplan_groups_without_custom_resources(world: World) -> None:
    """``run --config`` reads no PodGroups of bayplan.dev: the pod is gated, and its message names the remedy."""
    world.nodes(a="r1")
    world.group("own", BAYPLAN, 1)
    world.members("own", BAYPLAN, 1)
    with world.operator("config") as operator:
        operator.start()
        operator.until(partial(world.is_gated, "own-0"), "the pod is reported as gated")
        assert "`bayplan run --config` reads no custom resources" in world.scheduled("own-0")["message"]
        assert world.node_of("own-0") == ""


@pytest.mark.parametrize("mode", ["run", "config"])
@pytest.mark.parametrize("version", [PLUGINS, NATIVE])
def test_an_api_that_is_not_served(world_without_groups: World, mode: str, version: str) -> None:
    """Members of a group whose API is not served are gated with the remedy, in one log line; other pods are bound."""
    world = world_without_groups
    world.nodes(a="r1", b="r1")
    world.members("absent", version, 2)
    world.members("plain", "", 1)
    with world.operator(mode) as operator:
        operator.start()
        operator.until(partial(world.is_bound, "plain-0"), "the pod without a group is bound")
        for number in range(2):
            operator.until(partial(world.is_gated, f"absent-{number}"), "the pod is reported as gated")
            message = world.scheduled(f"absent-{number}")["message"]
            read = "v1beta1 or v1alpha3 or v1alpha2" if version == NATIVE else "v1alpha1"
            served = f"cannot be read: the API server serves no PodGroups of {version.partition('/')[0]}/{read}; "
            assert served in message
            assert world.node_of(f"absent-{number}") == ""
        group = version.partition("/")[0]
        assert operator.log.count(f"pods that name a PodGroup of {group} are not scheduled, such as pod") == 1


def test_a_version_that_is_not_read(world_without_groups: World) -> None:
    """If the API server serves the groups only in an unsupported version, no member is bound.

    The test uses the API of scheduler-plugins because a definition cannot add a version to scheduling.k8s.io.
    """
    world = world_without_groups
    definition = yaml.safe_load(SCHEDULER_PLUGINS_GROUPS.read_text())
    definition["spec"]["versions"][0]["name"] = "v1beta1"
    world.plane.kubectl("create", "--filename=-", input=json.dumps(definition))
    name = f"crd/{definition['metadata']['name']}"
    await_definitions(world.plane)
    world.nodes(a="r1", b="r1")
    world.members("newer", PLUGINS, 3)
    with world.operator("run") as operator:
        operator.start()
        operator.until(partial(world.reports, "newer-0", "in v1beta1"), "the pod is reported as gated")
        assert "this version of Bayplan reads v1alpha1 only; upgrade Bayplan" in world.scheduled("newer-0")["message"]
        assert [world.node_of(f"newer-{number}") for number in range(3)] == ["", "", ""]
    world.plane.kubectl("delete", name)
