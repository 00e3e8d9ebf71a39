"""The operator as a process on a real API server, from a manifest to a bound pod, with edits, crashes and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.accounts import bind_responses
from hack.controlplane.api_client import address, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from tests.support.live_world import LiveWorld
from tests.support.manifests import Manifest, most_allocated
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
CRDS = Path(__file__).resolve().parents[2] / "crds"
UNKNOWN: Manifest = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFitt"}]}}}
PACK: Manifest = {"pluginConfig": [{"name": "NodeResourcesFit", "args": most_allocated()}]}
GRACE_SECONDS = 30
"""The default of a pod's terminationGracePeriodSeconds."""


class Profiles(LiveWorld):
    """Nodes, pods and custom resources of one test; each name of a cluster-scoped object has the test's token."""

    def name(self, short: str) -> str:
        return f"{self.token}-{short}"

    def profile_of(self, short: str, spec: Manifest | None = None) -> str:
        """Apply a SchedulerProfile; return its name, which is the schedulerName unless the spec has another."""
        return self._apply("SchedulerProfile", short, spec or {})

    def plugin_config(self, short: str, args: Manifest) -> str:
        return self._apply("PluginConfig", short, {"plugin": "NodeResourcesFit", "args": args})

    def stored(self, name: str, kind: str = "SchedulerProfile") -> Manifest:
        return self.api.get(address(_custom(kind, name)))

    def delete_profile(self, name: str) -> None:
        self.api.delete(_custom("SchedulerProfile", name))

    def nodes(self, count: int, cpu: str = "8") -> None:
        """Create nodes that only the pods of this test select."""
        for index in range(count):
            self.node(f"node{index}", cpu=cpu, pods="500")

    def pods(self, scheduler_name: str, *names: str, cpu: str = "100m") -> None:
        self.api.create_all(self.manifest(name, cpu=cpu, spec={"schedulerName": scheduler_name}) for name in names)

    def placed(self, *names: str) -> list[str]:
        """Wait until pods are bound; return the node of each."""
        return [self.until_scheduled(name) for name in names]

    def bound(self) -> set[str]:
        """Return the names of the bound pods."""
        pods = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}

    def wait(self, profile: str, **conditions: str) -> Manifest:
        """Wait until conditions such as ``Ready="True"`` hold for the current generation; return the profile."""
        found: Manifest = {}

        def holds() -> bool:
            nonlocal found
            found = self.stored(profile)
            return status_of(found).get("observedGeneration") == found["metadata"]["generation"] and all(
                condition_of(found, kind).get("status") == status for kind, status in conditions.items()
            )

        self.until(holds, f"{profile} has {conditions}")
        return found

    def revision(self, profile: str, **conditions: str) -> str:
        """Wait until a profile is ready; return its live revision."""
        return str(status_of(self.wait(profile, Ready="True", **conditions))["activeRevision"])

    def _apply(self, kind: str, short: str, spec: Manifest) -> str:
        manifest = _custom(kind, self.name(short)) | {"spec": spec}
        self.api.apply(manifest)
        self._made.append(manifest)
        return self.name(short)


def _custom(kind: str, name: str) -> Manifest:
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}


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
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[Profiles]:
    """Create no objects."""
    with Profiles.opened(control_plane, operator, namespace) as world:
        yield world


def test_a_profile_schedules(world: Profiles) -> None:
    """A pod whose schedulerName a profile serves is bound, and the profile's status counts it."""
    world.nodes(1)
    profile = world.profile_of("batch")
    world.pods(profile, "p")
    assert world.placed("p") == [world.name("node0")]
    assert world.revision(profile, Accepted="True")
    world.until(lambda: status_of(world.stored(profile)).get("scheduledTotal") == 1, "the pod is counted")


def test_a_live_edit_takes_effect_without_a_restart(world: Profiles) -> None:
    """After an edit from spreading to packing, new pods are scheduled by the new revision."""
    world.nodes(3)
    profile = world.profile_of("live")
    first = world.revision(profile)
    world.pods(profile, "a", "b", "c", cpu="1")
    assert len(set(world.placed("a", "b", "c"))) == 3
    world.profile_of("live", PACK)
    assert world.revision(profile) != first
    world.pods(profile, "d", "e", "f", cpu="1")
    assert len(set(world.placed("d", "e", "f"))) == 1


def test_a_broken_edit_keeps_the_last_good_revision(world: Profiles) -> None:
    """Every problem of a broken spec is reported with its field path, and pods are still bound."""
    world.nodes(1)
    profile = world.profile_of("broken")
    good = world.revision(profile)
    bad_args = {"name": "NodeAffinity", "args": {"addedAffinity": 7}}
    world.profile_of("broken", {**UNKNOWN, "pluginConfig": [bad_args], "pluginConfigRefs": [{"name": "missing"}]})
    assert world.revision(profile, Accepted="False") == good
    message = condition_of(world.stored(profile), "Accepted")["message"]
    for path in (
        "spec.plugins.score.enabled[0].name",
        "spec.pluginConfig[0].args.addedAffinity",
        "spec.pluginConfigRefs[0].name",
    ):
        assert path in message
    world.pods(profile, "p")
    assert world.placed("p") == [world.name("node0")]


def test_a_plugin_config_edit_activates_a_revision(world: Profiles) -> None:
    """An edit of a referenced PluginConfig activates a new revision of the profile."""
    config = world.plugin_config("shared", {})
    profile = world.profile_of("refers", {"pluginConfigRefs": [{"name": config}]})
    first = world.revision(profile)
    world.plugin_config("shared", most_allocated())
    world.until(lambda: world.revision(profile) != first, "another revision is live")

    def is_referenced() -> bool:
        stored = world.stored(config, "PluginConfig")
        is_valid = condition_of(stored, "Valid").get("status") == "True"
        return is_valid and bool(status_of(stored).get("referencedBy") == [profile])

    world.until(is_referenced, "the config is referenced")


def test_the_older_profile_holds_a_scheduler_name(world: Profiles) -> None:
    """The later profile's condition names the holder; the later profile is accepted when the holder is deleted."""
    name = world.name("claimed")
    holder = world.profile_of("a", {"schedulerName": name})
    world.wait(holder, Ready="True")
    loser = world.profile_of("b", {"schedulerName": name})
    refused = world.wait(loser, Accepted="False", Ready="False")
    assert f'held by SchedulerProfile "{holder}"' in condition_of(refused, "Accepted")["message"]
    world.delete_profile(holder)
    world.wait(loser, Accepted="True", Ready="True")


def test_deleting_a_profile_leaves_its_pods_pending(world: Profiles) -> None:
    """Pods of a deleted profile are scheduled when the profile is created again."""
    world.nodes(1)
    gone, stays = world.profile_of("gone"), world.profile_of("stays")
    revision = world.revision(gone)
    world.delete_profile(gone)
    world.until(
        lambda: world.operator.metric("bayplan_profile_revision_info", profile=gone, revision=revision) == 0,
        "the profile is removed",
    )
    world.pods(gone, "waits")
    world.pods(stays, "goes")
    world.placed("goes")
    assert world.bound() == {"goes"}
    world.profile_of("gone")
    assert world.placed("waits") == [world.name("node0")]


def test_the_last_good_revision_survives_a_crash(world: Profiles) -> None:
    """An operator that starts with a broken spec schedules by the revision that was live before."""
    world.nodes(3)
    profile = world.profile_of("restarted", PACK)
    good = world.revision(profile)
    world.profile_of("restarted", UNKNOWN)
    world.revision(profile, Accepted="False")
    world.operator.kill()
    world.operator.start()
    assert world.revision(profile, Accepted="False") == good
    world.pods(profile, "a", "b", "c")
    assert len(set(world.placed("a", "b", "c"))) == 1


@table("crash", ("crash", True), ("sigterm", False))
def test_a_restart_binds_no_pod_twice(world: Profiles, control_plane: ControlPlane, crash: bool) -> None:
    """Of 300 pods none is bound twice after a crash or SIGTERM; SIGTERM ends the operator in its grace period."""
    names, operator = [f"p{index}" for index in range(300)], world.operator
    world.nodes(5, cpu="100")
    operator.kill()
    operator.start("--bind-concurrency=1", "--client-qps=50", "--client-burst=10")
    scheduler_name = world.name("drain")
    world.pods(scheduler_name, *names)
    world.profile_of("drain")
    labels = {"profile": scheduler_name, "result": "scheduled"}
    world.until(lambda: operator.metric("scheduler_schedule_attempts_total", **labels) >= 30, "some pods are bound")
    if crash:
        operator.kill()
    else:
        code, seconds = operator.terminate()
        assert code == 0
        assert seconds < GRACE_SECONDS
    assert 30 <= len(world.bound()) < 300
    operator.start()
    world.until(lambda: len(world.bound()) == 300, "every pod is bound")

    def bindings() -> Counter[str]:
        return bind_responses(control_plane.audit_events(), world.namespace)[201]

    # For the one bind in progress when the process was killed, the audit log may have no success.
    world.until(lambda: len(bindings()) >= 300 - crash, "every bind is logged")
    assert set(bindings().values()) == {1}
