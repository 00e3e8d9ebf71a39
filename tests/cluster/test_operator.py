"""The operator as a process on a real API server, from a manifest to a bound pod, with edits, crashes and restarts."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.accounts import bind_responses
from hack.controlplane.api_client import condition_of, status_of
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.support.manifests import Manifest, most_allocated
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
CRDS = Path(__file__).resolve().parents[2] / "crds"
UNKNOWN: Manifest = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFitt"}]}}}
PACK: Manifest = {"pluginConfig": [{"name": "NodeResourcesFit", "args": most_allocated()}]}
GRACE_SECONDS = 30
"""The default of a pod's terminationGracePeriodSeconds."""
SECONDS = "--timeout=60s"


@dataclass
class Cluster:
    """Objects of one test, whose names have the test's token.

    Attributes:
        token: Part of every name.
        created: Cluster-scoped objects to be deleted at the end.
    """

    plane: ControlPlane
    operator: OperatorProcess
    namespace: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    created: set[str] = field(default_factory=set)

    def name(self, short: str) -> str:
        return f"{short}-{self.token}"

    def profile(self, short: str, spec: Manifest | None = None) -> str:
        """Apply a SchedulerProfile; return its name, which is the schedulerName unless the spec has another."""
        return self._apply("SchedulerProfile", short, spec or {})

    def plugin_config(self, short: str, args: Manifest) -> str:
        return self._apply("PluginConfig", short, {"plugin": "NodeResourcesFit", "args": args})

    def delete(self, kind: str, name: str) -> None:
        self.plane.kubectl("delete", kind, name)
        self.created.discard(f"{kind}/{name}")

    def nodes(self, count: int, cpu: str = "8") -> None:
        """Create nodes that only the pods of this test select."""
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "500"}
        for index in range(count):
            name = self.name(f"node{index}")
            metadata = {"name": name, "labels": {"for": self.token}}
            status = {"allocatable": amounts, "capacity": amounts}
            self._create([{"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}])
            self.created.add(f"node/{name}")

    def pods(self, scheduler_name: str, *names: str, cpu: str = "100m") -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
        spec = {"schedulerName": scheduler_name, "nodeSelector": {"for": self.token}, "containers": [container]}
        self._create(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": self.namespace},
                    "spec": spec,
                }
                for name in names
            ]
        )

    def placed(self, *names: str) -> list[str]:
        """Wait until pods are bound; return the node of each."""
        pods = [f"pod/{name}" for name in names]
        self.plane.kubectl("wait", "--for=condition=PodScheduled", SECONDS, f"--namespace={self.namespace}", *pods)
        nodes = self.bound()
        return [nodes[name] for name in names]

    def bound(self) -> dict[str, str]:
        """Return every bound pod of the test's namespace, with its node."""
        listed = self.plane.kubectl("get", "pods", f"--namespace={self.namespace}", "--output=json")
        pods = json.loads(listed)["items"]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    def wait(self, profile: str, *conditions: str) -> dict[str, Any]:
        """Wait until conditions such as ``Ready=True`` hold for the current generation; return the status."""
        generation = self._get(profile)["metadata"]["generation"]
        fields = [f"jsonpath={{.status.observedGeneration}}={generation}"]
        fields += [f"condition={condition}" for condition in conditions]
        for each in fields:
            self.plane.kubectl("wait", f"sp/{profile}", f"--for={each}", SECONDS)
        status: dict[str, Any] = status_of(self._get(profile))
        return status

    def accepted_message(self, profile: str) -> str:
        return str(condition_of(self._get(profile), "Accepted")["message"])

    def bindings(self) -> Counter[str]:
        """Return how often each pod was bound successfully, from the API server's audit log."""
        return bind_responses(self.plane.audit_events(), self.namespace)[201]

    def clean_up(self) -> None:
        for name in self.created:
            with suppress(ControlPlaneError):
                self.plane.kubectl("delete", name)

    def _apply(self, kind: str, short: str, spec: Manifest) -> str:
        name = self.name(short)
        manifest = {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
        self.created.add(f"{kind}/{name}")
        return name

    def _create(self, items: list[Manifest]) -> None:
        self.plane.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def _get(self, profile: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.plane.kubectl("get", "sp", profile, "--output=json"))
        return found


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start the only operator of the cluster before its CRDs are installed, as in a careless installation."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(control_plane.kubeconfig, log) as operator:
        operator.start(wait=False)
        operator.until(lambda: operator.get("/livez")[0] == 200, "the operator is alive")
        control_plane.kubectl("apply", "-f", str(CRDS))
        operator.wait_until_ready()
        yield operator


@pytest.fixture
def cluster(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[Cluster]:
    cluster = Cluster(control_plane, operator, namespace)
    yield cluster
    cluster.clean_up()


def test_a_profile_schedules(cluster: Cluster) -> None:
    """A pod whose schedulerName a profile serves is bound, and the profile's status counts it."""
    cluster.nodes(1)
    profile = cluster.profile("batch")
    cluster.pods(profile, "p")
    assert cluster.placed("p") == [cluster.name("node0")]
    status = cluster.wait(profile, "Ready=True", "Accepted=True")
    assert status["activeRevision"]
    cluster.plane.kubectl("wait", f"sp/{profile}", "--for=jsonpath={.status.scheduledTotal}=1", SECONDS)


def test_a_live_edit_takes_effect_without_a_restart(cluster: Cluster) -> None:
    """After an edit from spreading to packing, new pods are scheduled by the new revision."""
    cluster.nodes(3)
    profile = cluster.profile("live")
    first = cluster.wait(profile, "Ready=True")["activeRevision"]
    cluster.pods(profile, "a", "b", "c", cpu="1")
    assert len(set(cluster.placed("a", "b", "c"))) == 3
    cluster.profile("live", PACK)
    assert cluster.wait(profile, "Ready=True")["activeRevision"] != first
    cluster.pods(profile, "d", "e", "f", cpu="1")
    assert len(set(cluster.placed("d", "e", "f"))) == 1


def test_a_broken_edit_keeps_the_last_good_revision(cluster: Cluster) -> None:
    """Every problem of a broken spec is reported with its field path, and pods are still bound."""
    cluster.nodes(1)
    profile = cluster.profile("broken")
    good = cluster.wait(profile, "Ready=True")["activeRevision"]
    bad_args = {"name": "NodeAffinity", "args": {"addedAffinity": 7}}
    cluster.profile("broken", {**UNKNOWN, "pluginConfig": [bad_args], "pluginConfigRefs": [{"name": "missing"}]})
    assert cluster.wait(profile, "Accepted=False", "Ready=True")["activeRevision"] == good
    message = cluster.accepted_message(profile)
    for path in (
        "spec.plugins.score.enabled[0].name",
        "spec.pluginConfig[0].args.addedAffinity",
        "spec.pluginConfigRefs[0].name",
    ):
        assert path in message
    cluster.pods(profile, "p")
    assert cluster.placed("p") == [cluster.name("node0")]


def test_a_plugin_config_edit_activates_a_revision(cluster: Cluster) -> None:
    """An edit of a referenced PluginConfig activates a new revision of the profile."""
    config = cluster.plugin_config("shared", {})
    profile = cluster.profile("refers", {"pluginConfigRefs": [{"name": config}]})
    first = cluster.wait(profile, "Ready=True")["activeRevision"]
    cluster.plugin_config("shared", most_allocated())
    changed = f"--for=jsonpath={{.status.activeRevision}}!={first}"
    cluster.operator.until(
        lambda: cluster.operator.metric("bayplan_profile_revision_info", profile=profile, revision=first) == 0, changed
    )
    cluster.plane.kubectl("wait", f"plc/{config}", "--for=condition=Valid", SECONDS)
    referenced = ("get", "plc", config, "--output=jsonpath={.status.referencedBy}")
    cluster.operator.until(
        lambda: cluster.plane.kubectl(*referenced) == json.dumps([profile]), "the config is referenced"
    )


def test_the_older_profile_holds_a_scheduler_name(cluster: Cluster) -> None:
    """The later profile's condition names the holder; the later profile is accepted when the holder is deleted."""
    name = cluster.name("claimed")
    holder = cluster.profile("a", {"schedulerName": name})
    cluster.wait(holder, "Ready=True")
    loser = cluster.profile("b", {"schedulerName": name})
    cluster.wait(loser, "Accepted=False", "Ready=False")
    assert f'held by SchedulerProfile "{holder}"' in cluster.accepted_message(loser)
    cluster.delete("SchedulerProfile", holder)
    cluster.wait(loser, "Accepted=True", "Ready=True")


def test_deleting_a_profile_leaves_its_pods_pending(cluster: Cluster) -> None:
    """Pods of a deleted profile are scheduled when the profile is created again."""
    cluster.nodes(1)
    gone, stays = cluster.profile("gone"), cluster.profile("stays")
    revision = cluster.wait(gone, "Ready=True")["activeRevision"]
    cluster.delete("SchedulerProfile", gone)
    cluster.operator.until(
        lambda: cluster.operator.metric("bayplan_profile_revision_info", profile=gone, revision=revision) == 0,
        "the profile is removed",
    )
    cluster.pods(gone, "waits")
    cluster.pods(stays, "goes")
    cluster.placed("goes")
    assert set(cluster.bound()) == {"goes"}
    cluster.profile("gone")
    assert cluster.placed("waits") == [cluster.name("node0")]


def test_the_last_good_revision_survives_a_crash(cluster: Cluster) -> None:
    """An operator that starts with a broken spec schedules by the revision that was live before."""
    cluster.nodes(3)
    profile = cluster.profile("restarted", PACK)
    good = cluster.wait(profile, "Ready=True")["activeRevision"]
    cluster.profile("restarted", UNKNOWN)
    cluster.wait(profile, "Accepted=False", "Ready=True")
    cluster.operator.kill()
    cluster.operator.start()
    assert cluster.wait(profile, "Accepted=False", "Ready=True")["activeRevision"] == good
    cluster.pods(profile, "a", "b", "c")
    assert len(set(cluster.placed("a", "b", "c"))) == 1


@table("crash", ("crash", True), ("sigterm", False))
def test_a_restart_binds_no_pod_twice(cluster: Cluster, crash: bool) -> None:
    """Of 300 pods none is bound twice after a crash or SIGTERM; SIGTERM ends the operator in its grace period."""
    names = [f"p{index}" for index in range(300)]
    cluster.nodes(5, cpu="100")
    cluster.operator.kill()
    cluster.operator.start("--bind-concurrency=1", "--client-qps=50", "--client-burst=10")
    scheduler_name = cluster.name("drain")
    cluster.pods(scheduler_name, *names)
    cluster.profile("drain")
    labels = {"profile": scheduler_name, "result": "scheduled"}
    cluster.operator.until(
        lambda: cluster.operator.metric("scheduler_schedule_attempts_total", **labels) >= 30, "some pods are bound"
    )
    if crash:
        cluster.operator.kill()
    else:
        code, seconds = cluster.operator.terminate()
        assert code == 0
        assert seconds < GRACE_SECONDS
    assert 30 <= len(cluster.bound()) < 300
    cluster.operator.start()
    cluster.operator.until(lambda: len(cluster.bound()) == 300, "every pod is bound")
    # For the one bind in progress when the process was killed, the audit log may have no success.
    cluster.operator.until(lambda: len(cluster.bindings()) >= 300 - crash, "every bind is logged")
    assert set(cluster.bindings().values()) == {1}
