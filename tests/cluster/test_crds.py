"""The custom resources on the real API server: what it takes, refuses, explains and shows."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.schedulers import await_definitions
from tests.support.refused_manifests import REFUSED, Manifest, Refused

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
NARROW = 80
EXPLAINED_SECONDS = 60.0


@dataclass
class Objects:
    """Custom resources of one test, by names that are its own, deleted at its end."""

    plane: ControlPlane
    namespace: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    made: list[str] = field(default_factory=list)

    def create(self, kind: str, spec: Manifest, name: str = "") -> str:
        """Create an object; what kubectl calls it, such as ``sp/batch-1f2e3d``."""
        name = name or f"batch-{self.token}"
        body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kubectl("create", "--filename=-", manifest=body)
        called = f"{kind.lower()}s.bayplan.dev/{name}"
        self.made.append(called)
        return called

    def kubectl(self, *args: str, manifest: Manifest | None = None) -> str:
        text = None if manifest is None else json.dumps(manifest)
        return self.plane.kubectl(*args, f"--namespace={self.namespace}", input=text)

    def get(self, called: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.kubectl("get", called, "--output=json"))
        return read

    def patch(self, called: str, change: Manifest, *flags: str) -> None:
        self.kubectl("patch", called, "--type=merge", f"--patch={json.dumps(change)}", *flags)

    def refusal(self, *args: str, manifest: Manifest | None = None) -> str:
        """What the API server says to something that it must refuse."""
        with pytest.raises(ControlPlaneError) as raised:
            self.kubectl(*args, manifest=manifest)
        return str(raised.value)


@pytest.fixture(scope="module")
def crds(control_plane: ControlPlane) -> ControlPlane:
    """A control plane that serves the custom resources."""
    # Server-side, since a client-side apply would keep a second copy of the large schema in an annotation.
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={ROOT / 'crds'}")
    await_definitions(control_plane)
    until_explained(control_plane)
    return control_plane


def until_explained(plane: ControlPlane) -> None:
    """Wait until the schemas are published, which is later than the definitions are established."""
    deadline = time.monotonic() + EXPLAINED_SECONDS
    for resource in ("schedulerprofiles", "pluginconfigs", "podgroups"):
        while True:
            try:
                plane.kubectl("explain", f"{resource}.bayplan.dev.spec")
            except ControlPlaneError:
                if time.monotonic() > deadline:
                    raise
            else:
                break


@pytest.fixture(scope="module")
def namespace(crds: ControlPlane) -> str:
    """A namespace for all tests here, which create no pods and name their objects by a token."""
    name = f"crds-{uuid.uuid4().hex[:10]}"
    crds.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def objects(crds: ControlPlane, namespace: str) -> Iterator[Objects]:
    made = Objects(crds, namespace)
    yield made
    if made.made:
        made.kubectl("delete", "--ignore-not-found", *made.made)


@pytest.mark.parametrize("plural", ["schedulerprofiles", "pluginconfigs", "podgroups"])
def test_definitions_are_accepted_whole(crds: ControlPlane, plural: str) -> None:
    """Each definition is established and structural, its rules are within the cost that the API server allows."""
    read = json.loads(crds.kubectl("get", "crd", f"{plural}.bayplan.dev", "--output=json"))
    conditions = {each["type"]: each["status"] for each in read["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize("name", ["schedulerprofiles", "pluginconfigs", "podgroups"])
def test_client_side_apply(crds: ControlPlane, name: str) -> None:
    """A plain ``kubectl apply``, which copies the manifest into an annotation, takes the definitions as well."""
    size = len(json.dumps(yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text(encoding="utf-8"))))
    assert size < 200 * 1024, "annotations end at 256 KiB"
    assert name in crds.kubectl("apply", "--dry-run=server", f"--filename={ROOT / 'crds' / f'{name}.yaml'}")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        pytest.param("schedulerprofile", "without a restart", id="profile"),
        pytest.param("schedulerprofile.spec.plugins", "KubeSchedulerConfiguration", id="plugins"),
        pytest.param("schedulerprofile.spec.plugins.score.enabled.weight", "0 means 1", id="weight"),
        pytest.param("schedulerprofile.spec.schedulerName", "Immutable", id="scheduler-name"),
        pytest.param("schedulerprofile.spec.extenders.httpTimeout", "such as 5s", id="timeout"),
        pytest.param("schedulerprofile.status.conditions", "last good", id="conditions"),
        pytest.param("podgroups.bayplan.dev", "bayplan.dev/pod-group", id="group"),
        pytest.param("podgroups.bayplan.dev.spec.minMember", "placed together", id="min-member"),
        pytest.param("pluginconfig.spec.args", "scoringStrategy: {type: MostAllocated}", id="args"),
    ],
)
def test_explain_teaches(crds: ControlPlane, field: str, words: str) -> None:
    """``kubectl explain`` answers the question that a user has at this field."""
    assert words in " ".join(crds.kubectl("explain", field).split())


@pytest.mark.parametrize("refused", REFUSED)
def test_bad_manifests_are_refused(objects: Objects, refused: Refused) -> None:
    """The API server refuses it at once and names the field and what is wrong with it."""
    said = objects.refusal("apply", "--dry-run=server", "--filename=-", manifest=refused.manifest())
    path, words = refused.server
    assert path in said
    assert words in said


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        pytest.param({}, {"schedulerName": "other"}, id="from-the-object's-name"),
        pytest.param({"schedulerName": "one"}, {"schedulerName": "other"}, id="from-one-to-another"),
        pytest.param({"schedulerName": "one"}, {"schedulerName": None}, id="to-the-object's-name"),
    ],
)
def test_the_scheduler_name_stays(objects: Objects, spec: Manifest, changed: Manifest) -> None:
    """A profile keeps the schedulerName that it was created with, written or not."""
    profile = objects.create("SchedulerProfile", spec)
    change = json.dumps({"spec": changed})
    said = objects.refusal("patch", profile, "--type=merge", f"--patch={change}")
    assert "spec.schedulerName: Invalid value: cannot change" in said


def test_a_scheduler_name_may_be_spelt_out(objects: Objects) -> None:
    """To write down the name that holds already changes nothing, and is taken."""
    profile = objects.create("SchedulerProfile", {})
    name = profile.rpartition("/")[2]
    objects.patch(profile, {"spec": {"schedulerName": name}})
    assert objects.get(profile)["spec"] == {"schedulerName": name}


GOOD = [
    pytest.param("SchedulerProfile", {}, id="empty-profile"),
    pytest.param("SchedulerProfile", {"plugins": {"score": {"enabled": [{"name": "a", "weight": 0}]}}}, id="weight-0"),
    pytest.param(
        "SchedulerProfile",
        {"plugins": {"multiPoint": {"enabled": [{"name": "a"}], "disabled": [{"name": "*"}]}}},
        id="only-own-plugins",
    ),
    pytest.param("SchedulerProfile", {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 5}, id="equal-backoffs"),
    pytest.param(
        "SchedulerProfile",
        {
            "extenders": [
                {"urlPrefix": "https://a", "bindVerb": "b", "httpTimeout": "1m30.5s", "tlsConfig": {"certFile": ""}},
                {"urlPrefix": "http://b", "prioritizeVerb": "p", "weight": 5, "bindVerb": ""},
            ]
        },
        id="extenders",
    ),
    pytest.param("PluginConfig", {"plugin": "a"}, id="no-args"),
    pytest.param("PluginConfig", {"plugin": "a", "args": {"deep": [{"er": {"x": 1.5}}]}}, id="free-args"),
    pytest.param("PodGroup", {"minMember": 1}, id="smallest-group"),
    pytest.param(
        "PodGroup",
        {
            "minMember": 64,
            "minResources": {"cpu": 64, "memory": "256Gi", "example.com/gpu": "8", "ephemeral-storage": "1e9"},
            "scheduleTimeoutSeconds": 600,
            "priorityClassName": "training.high",
            "topology": {"key": "topology.kubernetes.io/zone", "mode": "Preferred"},
            "disruption": "Group",
            "queueing": "Strict",
        },
        id="whole-group",
    ),
]


@pytest.mark.parametrize(("kind", "spec"), GOOD)
def test_good_manifests_are_kept_as_written(objects: Objects, kind: str, spec: Manifest) -> None:
    """What is written is stored; only a group's choices that have a default are added."""
    kept = objects.get(objects.create(kind, spec))["spec"]
    added = {"disruption": "Pod", "queueing": "BestEffort"} if kind == "PodGroup" else {}
    assert kept == {**added, **spec}


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_accepted(crds: ControlPlane, path: Path) -> None:
    """The profiles that the documentation shows are taken as they are."""
    shown = crds.kubectl("apply", "--dry-run=server", f"--filename={path}")
    assert f"schedulerprofile.bayplan.dev/{path.stem}" in shown


def _statuses() -> Manifest:
    condition = {"status": "True", "reason": "Live", "message": "is live", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    return {
        "SchedulerProfile": {
            "observedGeneration": 1,
            "activeRevision": "3db7d32c",
            "conditions": [{"type": "Accepted", **condition}, {"type": "Ready", **condition}],
            "pending": 12345,
            "scheduledTotal": 1234567,
            "queue": {"active": 1, "backoff": 2, "unschedulable": 12342, "gated": 0},
        },
        "PluginConfig": {"conditions": [{"type": "Valid", **condition}], "referencedBy": ["pack", "spread"]},
        "PodGroup": {
            "phase": "Scheduling",
            "members": 128,
            "scheduled": 0,
            "running": 0,
            "conditions": [{"type": "Scheduled", **condition, "status": "False", "reason": "NodesFull"}],
        },
    }


SPECS: Manifest = {
    "SchedulerProfile": {},
    "PluginConfig": {"plugin": "NodeResourcesFit"},
    "PodGroup": {"minMember": 128},
}


@pytest.mark.parametrize("kind", SPECS)
def test_status_is_a_subresource(objects: Objects, kind: str) -> None:
    """The status is written through its own subresource only, which leaves the spec and its generation alone."""
    called = objects.create(kind, SPECS[kind])
    before = objects.get(called)
    objects.patch(called, {"status": _statuses()[kind]})
    assert "status" not in objects.get(called)
    objects.patch(
        called, {"status": _statuses()[kind], "spec": {"plugin": "x", "minMember": 1}}, "--subresource=status"
    )
    after = objects.get(called)
    assert after["status"] == _statuses()[kind]
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])


def test_a_bad_status_is_refused(objects: Objects) -> None:
    """The status has a schema as well: a condition without a time is an error of the operator, found here."""
    called = objects.create("SchedulerProfile", {})
    change = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "Yes", "reason": "x"}]}})
    said = objects.refusal("patch", called, "--subresource=status", "--type=merge", f"--patch={change}")
    assert "status.conditions[0].lastTransitionTime: Required value" in said
    assert 'status.conditions[0].status: Unsupported value: "Yes"' in said


COLUMNS = {
    "sp": ("SchedulerProfile", "NAME READY ACCEPTED REVISION PENDING UNSCHED AGE"),
    "plc": ("PluginConfig", "NAME PLUGIN VALID USED AGE"),
    "bpg": ("PodGroup", "NAME PHASE MIN PODS BOUND REASON AGE"),
}


@pytest.mark.parametrize("short", COLUMNS)
def test_columns(objects: Objects, short: str) -> None:
    """``kubectl get`` by the short name fits into 80 columns when it is full of numbers."""
    kind, headings = COLUMNS[short]
    called = objects.create(kind, SPECS[kind])
    objects.patch(called, {"status": _statuses()[kind]}, "--subresource=status")
    shown = objects.kubectl("get", short, called.rpartition("/")[2])
    heading, row = shown.splitlines()
    assert heading.split() == headings.split()
    assert max(len(heading.rstrip()), len(row.rstrip())) <= NARROW
    assert "<none>" not in row


@pytest.mark.parametrize(
    ("short", "heading"),
    [
        pytest.param(
            "sp", "BACKOFF GATED BOUND SHADOWS AGREE DIFFER CONTESTED SCHEDULER MESSAGE LAST ERROR", id="profiles"
        ),
        pytest.param("plc", "USED BY MESSAGE", id="plugin-configs"),
        pytest.param("bpg", "RUNNING GATED SUCCEEDED FAILED DOMAIN MESSAGE", id="groups"),
    ],
)
def test_wide_columns(objects: Objects, short: str, heading: str) -> None:
    """``-o wide`` adds what is looked at less often after the age."""
    kind, narrow = COLUMNS[short]
    objects.create(kind, SPECS[kind])
    first = objects.kubectl("get", short, "--output=wide").splitlines()[0]
    assert first.split() == [*narrow.split(), *heading.split()]


def test_the_category(objects: Objects) -> None:
    """One word shows all of Bayplan's objects."""
    made = [objects.create(kind, spec) for kind, spec in SPECS.items()]
    shown = objects.kubectl("get", "bayplan", "--output=name")
    assert set(shown.split()) >= {name.replace("s.bayplan.dev/", ".bayplan.dev/", 1) for name in made}


def test_wait_for_a_condition(objects: Objects) -> None:
    """``kubectl wait`` understands the conditions."""
    called = objects.create("SchedulerProfile", {})
    objects.patch(called, {"status": _statuses()["SchedulerProfile"]}, "--subresource=status")
    assert "condition met" in objects.kubectl("wait", "--for=condition=Ready", called, "--timeout=60s")


def test_appliers_share_a_profile(objects: Objects) -> None:
    """By server-side apply, two owners keep entries of their own in one list of args."""
    name = f"shared-{objects.token}"
    objects.made.append(f"schedulerprofiles.bayplan.dev/{name}")
    for owner, plugin in (("team-a", "NodeResourcesFit"), ("team-b", "InterPodAffinity")):
        body = {
            "apiVersion": "bayplan.dev/v1alpha1",
            "kind": "SchedulerProfile",
            "metadata": {"name": name},
            "spec": {"pluginConfig": [{"name": plugin, "args": {"x": owner}}]},
        }
        objects.kubectl("apply", "--server-side", f"--field-manager={owner}", "--filename=-", manifest=body)
    entries = objects.get(f"sp/{name}")["spec"]["pluginConfig"]
    assert [entry["args"]["x"] for entry in entries] == ["team-a", "team-b"]
