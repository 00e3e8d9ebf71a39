"""``bayplan history``, ``rollback`` and ``diff`` with the real operator."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from hack.controlplane.api_client import ApiClient, status_of
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.live_servers import operator_in_new_namespace
from tests.support.manifests import Manifest
from tests.support.tables import table

pytestmark = pytest.mark.cluster
CAUSE = "kubernetes.io/change-cause"
SECONDS = "--timeout=60s"
FIT = "NodeResourcesFit"


def packing(kind: str) -> Manifest:
    return {"scoringStrategy": {"type": kind}}


@dataclass
class Profile:
    """Profile of one test, with the commands that its user runs."""

    plane: ControlPlane
    namespace: str
    name: str = field(default_factory=lambda: f"p-{uuid.uuid4().hex[:8]}")

    def apply(self, spec: Manifest, cause: str = "", *, accepted: bool = True) -> None:
        """Apply a spec and wait until its condition is written."""
        annotations = {CAUSE: cause} if cause else {}
        self._put("SchedulerProfile", {"name": self.name, "annotations": annotations}, spec)
        self.wait("Accepted=True" if accepted else "Accepted=False")

    def apply_args(self, args: Manifest) -> None:
        """Apply the PluginConfig of the profile's name, and wait until it is valid."""
        self._put("PluginConfig", {"name": self.name}, {"plugin": FIT, "args": args})
        self._wait(f"plc/{self.name}", "condition=Valid")

    def wait(self, *conditions: str) -> None:
        self._wait(f"sp/{self.name}", *(f"condition={condition}" for condition in conditions))

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.plane.kubectl("get", "sp", self.name, "--output=json"))
        return found

    @property
    def spec(self) -> Manifest:
        spec: Manifest = self.get()["spec"]
        return spec

    def history(self) -> list[Manifest]:
        """Return the stored revisions, newest first."""
        revisions: list[Manifest] = json.loads(self.run("history", self.name, "-o", "json").stdout)["revisions"]
        return revisions

    def run(self, command: str, *args: str, code: int = 0) -> Result:
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig}"
        result = CliRunner().invoke(bayplan, [command, *args, kubeconfig, f"--revision-namespace={self.namespace}"])
        assert result.exit_code == code, result.output
        return result

    def clean_up(self) -> None:
        for kind in ("sp", "plc"):
            with suppress(ControlPlaneError):
                self.plane.kubectl("delete", "--ignore-not-found", kind, self.name)

    def _put(self, kind: str, metadata: Manifest, spec: Manifest) -> None:
        body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        self.plane.kubectl("apply", "-f", "-", input=json.dumps(body))

    def _wait(self, what: str, *conditions: str) -> None:
        generation = self.plane.kubectl("get", what, "--output=jsonpath={.metadata.generation}")
        for each in (f"jsonpath={{.status.observedGeneration}}={generation}", *conditions):
            self.plane.kubectl("wait", what, f"--for={each}", SECONDS)


@pytest.fixture(scope="module")
def revisions(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an operator and return the namespace in which it stores revisions."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with operator_in_new_namespace(control_plane, log, "revisions") as (_, namespace):
        yield namespace


@pytest.fixture
def profile(control_plane: ControlPlane, revisions: str) -> Iterator[Profile]:
    profile = Profile(control_plane, revisions)
    yield profile
    profile.clean_up()


def test_the_history_of_edits(profile: Profile) -> None:
    """Each accepted spec is listed once, with its cause and its changes; a rejected edit is not listed."""
    profile.apply({"podMaxBackoffSeconds": 20}, "first")
    profile.apply({"podMaxBackoffSeconds": 40}, "longer")
    profile.apply({"podMaxBackoffSeconds": 40, "plugins": {"score": {"enabled": [{"name": "No"}]}}}, accepted=False)
    newest, first = profile.history()
    assert [each["revision"] for each in (newest, first)] == [2, 1]
    assert [each["changeCause"] for each in (newest, first)] == ["longer", "first"]
    assert (newest["live"], first["live"]) == (True, False)
    assert newest["changes"] == ["podMaxBackoffSeconds: 20 → 40"]
    assert newest["manager"] == "kubectl-client-side-apply"
    table = profile.run("history", profile.name).stdout.splitlines()
    assert table[0].split() == ["REVISION", "HASH", "AGE", "LIVE", "BY", "CHANGE-CAUSE", "CHANGES"]
    assert [line.split()[0] for line in table[1:]] == ["1", "2"]
    assert profile.run("history", profile.name, "--revision", "1").stdout == "podMaxBackoffSeconds: 20\n"
    diff = profile.run("history", profile.name, "--diff", "1", "2").stdout.splitlines()
    assert diff[-2:] == ["-podMaxBackoffSeconds: 20", "+podMaxBackoffSeconds: 40"]


def test_a_change_cause_can_be_added_later(profile: Profile) -> None:
    """The change-cause of ``kubectl annotate`` after the edit is copied to the revision, as for a Deployment."""
    profile.apply({"podMaxBackoffSeconds": 20})
    profile.plane.kubectl("annotate", f"sp/{profile.name}", f"{CAUSE}=to be kind")
    revision = profile.plane.kubectl(
        "get",
        "controllerrevisions",
        f"--namespace={profile.namespace}",
        f"--selector=bayplan.dev/profile={profile.name}",
        "--output=name",
    ).strip()
    path = r"--for=jsonpath={.metadata.annotations.kubernetes\.io/change-cause}=to be kind"
    profile.plane.kubectl("wait", revision, path, f"--namespace={profile.namespace}", SECONDS)
    assert profile.history()[0]["changeCause"] == "to be kind"


def test_a_rollback_of_a_rejected_edit(profile: Profile) -> None:
    """Without a number, rollback of a rejected edit restores the last good revision."""
    good = {"podMaxBackoffSeconds": 20}
    profile.apply(good)
    profile.apply({**good, "plugins": {"score": {"enabled": [{"name": "No"}]}}}, accepted=False)
    printed = profile.run("rollback", profile.name).stdout
    assert profile.spec == good
    assert "-      - name: 'No'" in printed or "-    - name: 'No'" in printed
    assert "rolled back to revision 1" in printed
    assert "Ready: Revision" in printed
    profile.wait("Accepted=True", "Ready=True")


def test_a_rollback_takes_a_new_number(profile: Profile) -> None:
    """Without a number, rollback of an accepted edit restores the previous revision under the newest number."""
    profile.apply({"podMaxBackoffSeconds": 20}, "first")
    profile.apply({"podMaxBackoffSeconds": 40}, "second")
    profile.run("rollback", profile.name)
    assert profile.spec == {"podMaxBackoffSeconds": 20}
    revisions = [(each["revision"], each["live"], each["changeCause"]) for each in profile.history()]
    assert revisions == [(3, True, "rollback to revision 1: first"), (2, False, "second")]


def test_a_dry_run_changes_nothing(profile: Profile) -> None:
    """A dry run prints the change and does not write the profile."""
    profile.apply({"podMaxBackoffSeconds": 20})
    profile.apply({"podMaxBackoffSeconds": 40})
    before = profile.get()["metadata"]["resourceVersion"], profile.spec
    printed = profile.run("rollback", profile.name, "--to-revision=1", "--dry-run").stdout
    assert "+podMaxBackoffSeconds: 20" in printed
    assert "nothing was changed" in printed
    assert profile.spec == before[1]


def test_diff_on_the_live_cluster(profile: Profile) -> None:
    """A stored revision spreads two running pods that the live one packs; ``bayplan diff`` writes nothing."""
    name = profile.name
    profile.apply({})
    nodes = [f"{name}-a", f"{name}-b"]
    pods = [f"{name}-{number}" for number in range(2)]
    labels = {"for": name}
    with ApiClient(profile.plane) as api:
        for node in nodes:
            api.create(node_manifest(node, {"labels": labels}))
        for pod in pods:
            spec = {"schedulerName": name, "nodeSelector": labels}
            api.create(pod_manifest(pod, "default", {"cpu": "1", "labels": labels, "spec": spec}))
        for pod in pods:
            profile.plane.kubectl("wait", f"pod/{pod}", "--for=condition=PodScheduled", SECONDS)
        packed = {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}
        profile.apply({"pluginConfig": [{"name": FIT, "args": packing("MostAllocated")}], "plugins": packed})
        profile.wait("Ready=True")
        found = differences(profile, f"{name}@1", name)
        api_pods = api.items("/api/v1/namespaces/default/pods", labelSelector=f"for={name}")
        running = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in api_pods}
        for kind, names in (("Pod", pods), ("Node", nodes)):
            for each in names:
                api.delete({"kind": kind, "metadata": {"name": each, "namespace": "default"}}, grace_seconds=0)
    (moved,) = found["differences"]
    assert (moved["change"], moved["runsOn"]) == ("Moves", running[moved["name"]])
    assert moved["before"]["node"] == running[moved["name"]]
    assert {moved["before"]["node"], moved["after"]["node"]} == set(nodes) == set(running.values())
    assert (found["summary"]["rescheduled"], found["before"]["movedRunningPods"]) == (2, 0)
    assert found["after"]["movedRunningPods"] == 1


def differences(profile: Profile, before: str, after: str) -> dict[str, Any]:
    """Run ``bayplan diff`` on the live cluster, with the running pods of the profile's label rescheduled."""
    chosen = ["--reschedule=present", "--namespace=default", f"--selector=for={profile.name}"]
    where = [f"--kubeconfig={profile.plane.kubeconfig}", f"--revision-namespace={profile.namespace}"]
    result = CliRunner().invoke(bayplan, ["diff", before, after, "--output=json", *chosen, *where])
    assert result.exit_code == 1, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@table("gone", ("changed", False), ("gone", True))
def test_a_rollback_with_a_changed_reference(profile: Profile, gone: bool) -> None:
    """A changed or deleted PluginConfig is reported; --resolved restores the live content with its args."""
    profile.apply_args(packing("MostAllocated"))
    profile.apply({"pluginConfigRefs": [{"name": profile.name}]})
    was_live = status_of(profile.get())["activeRevision"]
    if gone:
        profile.apply({})
        profile.plane.kubectl("delete", "plc", profile.name)
        problem = "no longer exists"
    else:
        profile.apply_args(packing("LeastAllocated"))
        profile.apply({"pluginConfigRefs": [{"name": profile.name}], "podMaxBackoffSeconds": 60})
        problem = "has changed since"
    refused = profile.run("rollback", profile.name, "--to-revision=1", code=1).stderr
    assert f'PluginConfig "{profile.name}" {problem}' in refused
    assert "--resolved" in refused
    profile.run("rollback", profile.name, "--to-revision=1", "--resolved")
    assert profile.spec == {"pluginConfig": [{"name": FIT, "args": packing("MostAllocated")}]}
    assert status_of(profile.get())["activeRevision"] == was_live


def test_a_revision_of_an_earlier_version(profile: Profile) -> None:
    """A revision in the earlier format, which has only the content, is listed and can be restored."""
    profile.apply({"podMaxBackoffSeconds": 20})
    owner = profile.get()["metadata"]
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{profile.name}-old",
            "namespace": profile.namespace,
            "labels": {"app.kubernetes.io/managed-by": "bayplan", "bayplan.dev/profile": profile.name},
            "ownerReferences": [
                {
                    "apiVersion": "bayplan.dev/v1alpha1",
                    "kind": "SchedulerProfile",
                    "name": profile.name,
                    "uid": owner["uid"],
                }
            ],
        },
        "revision": 0,
        "data": {"revision": "0ld", "profile": {"schedulerName": profile.name, "podMaxBackoffSeconds": 30}},
    }
    profile.plane.kubectl("create", "-f", "-", input=json.dumps(body))
    assert profile.history()[1]["spec"] == {"podMaxBackoffSeconds": 30}
    profile.run("rollback", profile.name)
    assert profile.spec == {"podMaxBackoffSeconds": 30}


@table(
    "command, message",
    ("no-profile", ["history", "{name}-none"], 'there is no SchedulerProfile "{name}-none"'),
    ("no-revision", ["rollback", "{name}", "--to-revision=7"], "has no revision 7; existing: 1 ("),
    ("nothing-earlier", ["rollback", "{name}"], "has no earlier revision to go back to"),
    ("the-same", ["rollback", "{name}", "--to-revision=1"], "has the spec of revision 1 already"),
)
def test_commands_that_fail(profile: Profile, command: list[str], message: str) -> None:
    """A failed command reports the reason with exit code 1 and changes nothing."""
    profile.apply({"podMaxBackoffSeconds": 20})
    before = profile.get()["metadata"]["generation"]
    result = profile.run(*(part.format(name=profile.name) for part in command), code=1)
    assert message.format(name=profile.name) in result.stderr
    assert profile.get()["metadata"]["generation"] == before
