"""The custom resources on a real API server: validation, ``kubectl explain``, status and printed columns."""

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

from hack.controlplane.api_client import ApiClient, condition_of
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.schedulers import await_definitions
from tests.support.invalid_manifests import INVALID_MANIFESTS, InvalidManifest, Manifest
from tests.support.tables import table

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
NARROW = 80
EXPLAINED_SECONDS = 60.0


@dataclass
class Objects:
    """Custom resources of one test. Names end with a token of the test; all objects are deleted at its end."""

    plane: ControlPlane
    api: ApiClient
    namespace: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    created: list[str] = field(default_factory=list)

    def create(self, kind: str, spec: Manifest, name: str = "") -> str:
        """Create an object and return its name for kubectl, such as ``schedulerprofiles.bayplan.dev/batch-1f2e3d``."""
        name = name or f"batch-{self.token}"
        body: Manifest = {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        body["metadata"] |= {"namespace": self.namespace} if kind == "PodGroup" else {}
        self.api.create(body)
        reference = f"{kind.lower()}s.bayplan.dev/{name}"
        self.created.append(reference)
        return reference

    def kubectl(self, *args: str, manifest: Manifest | None = None) -> str:
        text = None if manifest is None else json.dumps(manifest)
        return self.plane.kubectl(*args, f"--namespace={self.namespace}", input=text)

    def get(self, reference: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.kubectl("get", reference, "--output=json"))
        return read

    def patch(self, reference: str, change: Manifest, *flags: str) -> None:
        self.kubectl("patch", reference, "--type=merge", f"--patch={json.dumps(change)}", *flags)

    def refusal(self, *args: str, manifest: Manifest | None = None) -> str:
        """Return the error message of a request that the API server must reject."""
        with pytest.raises(ControlPlaneError) as raised:
            self.kubectl(*args, manifest=manifest)
        return str(raised.value)


@pytest.fixture(scope="module")
def crds(control_plane: ControlPlane) -> ControlPlane:
    """Return a control plane that serves the custom resources."""
    # Server-side, since a client-side apply would keep a second copy of the large schema in an annotation.
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={ROOT / 'crds'}")
    await_definitions(control_plane)
    until_explained(control_plane)
    return control_plane


def until_explained(plane: ControlPlane) -> None:
    """Wait until the schemas are published, which happens after the definitions are established."""
    deadline = time.monotonic() + EXPLAINED_SECONDS
    for resource in ("schedulerprofiles", "pluginconfigs", "podgroups", "rebalanceplans"):
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
    """Create one namespace for all tests of this module: they create no pods, and their object names are unique."""
    name = f"crds-{uuid.uuid4().hex[:10]}"
    crds.kubectl("create", "namespace", name)
    return name


@pytest.fixture(scope="module")
def api(crds: ControlPlane) -> Iterator[ApiClient]:
    """Open a client of that control plane."""
    with ApiClient(crds) as api:
        yield api


@pytest.fixture
def objects(crds: ControlPlane, api: ApiClient, namespace: str) -> Iterator[Objects]:
    objects = Objects(crds, api, namespace)
    yield objects
    if objects.created:
        objects.kubectl("delete", "--ignore-not-found", *objects.created)


@pytest.mark.parametrize("plural", ["schedulerprofiles", "pluginconfigs", "podgroups", "rebalanceplans"])
def test_definitions_are_established(crds: ControlPlane, plural: str) -> None:
    """Each definition is established and structural, and its CEL rules are within the API server's cost limit."""
    read = json.loads(crds.kubectl("get", "crd", f"{plural}.bayplan.dev", "--output=json"))
    assert {condition_of(read, kind).get("status") for kind in ("Established", "NamesAccepted")} == {"True"}
    assert condition_of(read, "NonStructuralSchema") == {}


@pytest.mark.parametrize("name", ["schedulerprofiles", "pluginconfigs", "podgroups", "rebalanceplans"])
def test_client_side_apply(crds: ControlPlane, name: str) -> None:
    """A client-side ``kubectl apply``, which copies the manifest into an annotation, accepts the definitions."""
    size = len(json.dumps(yaml.safe_load((ROOT / "crds" / f"{name}.yaml").read_text(encoding="utf-8"))))
    assert size < 200 * 1024, "annotations are limited to 256 KiB"
    assert name in crds.kubectl("apply", "--dry-run=server", f"--filename={ROOT / 'crds' / f'{name}.yaml'}")


@table(
    "field, words",
    ("profile", "schedulerprofile", "without a restart"),
    ("plugins", "schedulerprofile.spec.plugins", "KubeSchedulerConfiguration"),
    ("weight", "schedulerprofile.spec.plugins.score.enabled.weight", "0 means 1"),
    ("scheduler-name", "schedulerprofile.spec.schedulerName", "Immutable"),
    ("timeout", "schedulerprofile.spec.extenders.httpTimeout", "such as 5s"),
    ("conditions", "schedulerprofile.status.conditions", "last good"),
    ("group", "podgroups.bayplan.dev", "bayplan.dev/pod-group"),
    ("min-member", "podgroups.bayplan.dev.spec.minMember", "placed together"),
    ("args", "pluginconfig.spec.args", "scoringStrategy: {type: MostAllocated}"),
)
def test_explain_describes_the_field(crds: ControlPlane, field: str, words: str) -> None:
    """``kubectl explain`` prints the fact that a user of this field needs."""
    assert words in " ".join(crds.kubectl("explain", field).split())


@pytest.mark.parametrize("refused", INVALID_MANIFESTS)
def test_invalid_manifests_are_rejected(api: ApiClient, refused: InvalidManifest) -> None:
    """The API server rejects an invalid manifest and names the field and what is wrong with it."""
    _, message = api.would_create(refused.manifest())
    path, words = refused.server
    assert path in message
    assert words in message


@table(
    "spec, changed",
    ("from-the-object's-name", {}, {"schedulerName": "other"}),
    ("from-one-to-another", {"schedulerName": "one"}, {"schedulerName": "other"}),
    ("to-the-object's-name", {"schedulerName": "one"}, {"schedulerName": None}),
)
def test_the_scheduler_name_is_immutable(objects: Objects, spec: Manifest, changed: Manifest) -> None:
    """The schedulerName of a profile cannot change, whether it is written or defaults to the object's name."""
    profile = objects.create("SchedulerProfile", spec)
    change = json.dumps({"spec": changed})
    message = objects.refusal("patch", profile, "--type=merge", f"--patch={change}")
    assert "spec.schedulerName: Invalid value: cannot change" in message


def test_the_default_scheduler_name_can_be_written(objects: Objects) -> None:
    """A patch that writes the default schedulerName into the spec is accepted, because the name does not change."""
    profile = objects.create("SchedulerProfile", {})
    name = profile.rpartition("/")[2]
    objects.patch(profile, {"spec": {"schedulerName": name}})
    assert objects.get(profile)["spec"] == {"schedulerName": name}


@table(
    "kind, spec",
    ("empty-profile", "SchedulerProfile", {}),
    ("weight-0", "SchedulerProfile", {"plugins": {"score": {"enabled": [{"name": "a", "weight": 0}]}}}),
    (
        "only-own-plugins",
        "SchedulerProfile",
        {"plugins": {"multiPoint": {"enabled": [{"name": "a"}], "disabled": [{"name": "*"}]}}},
    ),
    ("equal-backoffs", "SchedulerProfile", {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 5}),
    (
        "extenders",
        "SchedulerProfile",
        {
            "extenders": [
                {"urlPrefix": "https://a", "bindVerb": "b", "httpTimeout": "1m30.5s", "tlsConfig": {"certFile": ""}},
                {"urlPrefix": "http://b", "prioritizeVerb": "p", "weight": 5, "bindVerb": ""},
            ]
        },
    ),
    ("no-args", "PluginConfig", {"plugin": "a"}),
    ("free-args", "PluginConfig", {"plugin": "a", "args": {"deep": [{"er": {"x": 1.5}}]}}),
    ("smallest-group", "PodGroup", {"minMember": 1}),
    (
        "whole-group",
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
    ),
)
def test_valid_manifests_are_stored_as_written(objects: Objects, kind: str, spec: Manifest) -> None:
    """The spec is stored as written; only the two fields of a PodGroup with a default are added."""
    stored = objects.get(objects.create(kind, spec))["spec"]
    added = {"disruption": "Pod", "queueing": "BestEffort"} if kind == "PodGroup" else {}
    assert stored == {**added, **spec}


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_accepted(crds: ControlPlane, path: Path) -> None:
    """The API server accepts the example profiles without a change."""
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
    """The status is written only through its subresource, and that changes neither the spec nor its generation."""
    reference = objects.create(kind, SPECS[kind])
    before = objects.get(reference)
    objects.patch(reference, {"status": _statuses()[kind]})
    assert "status" not in objects.get(reference)
    objects.patch(
        reference, {"status": _statuses()[kind], "spec": {"plugin": "x", "minMember": 1}}, "--subresource=status"
    )
    after = objects.get(reference)
    assert after["status"] == _statuses()[kind]
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])


def test_a_bad_status_is_refused(objects: Objects) -> None:
    """The status has a schema: a condition without lastTransitionTime is rejected."""
    reference = objects.create("SchedulerProfile", {})
    change = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "Yes", "reason": "x"}]}})
    message = objects.refusal("patch", reference, "--subresource=status", "--type=merge", f"--patch={change}")
    assert "status.conditions[0].lastTransitionTime: Required value" in message
    assert 'status.conditions[0].status: Unsupported value: "Yes"' in message


COLUMNS = {
    "sp": ("SchedulerProfile", "NAME READY ACCEPTED REVISION PENDING UNSCHED AGE"),
    "plc": ("PluginConfig", "NAME PLUGIN VALID USED AGE"),
    "bpg": ("PodGroup", "NAME PHASE MIN PODS BOUND REASON AGE"),
}


@pytest.mark.parametrize("short", COLUMNS)
def test_columns(objects: Objects, short: str) -> None:
    """``kubectl get`` by the short name prints at most 80 columns, also with large numbers."""
    kind, headings = COLUMNS[short]
    reference = objects.create(kind, SPECS[kind])
    objects.patch(reference, {"status": _statuses()[kind]}, "--subresource=status")
    shown = objects.kubectl("get", short, reference.rpartition("/")[2])
    heading, row = shown.splitlines()
    assert heading.split() == headings.split()
    assert max(len(heading.rstrip()), len(row.rstrip())) <= NARROW
    assert "<none>" not in row


@table(
    "short, heading",
    ("profiles", "sp", "BACKOFF GATED BOUND SHADOWS AGREE DIFFER CONTESTED SCHEDULER MESSAGE LAST ERROR ERROR AGE"),
    ("plugin-configs", "plc", "USED BY MESSAGE"),
    ("groups", "bpg", "RUNNING GATED SUCCEEDED FAILED OWNER DOMAIN HEALING MESSAGE"),
)
def test_wide_columns(objects: Objects, short: str, heading: str) -> None:
    """``-o wide`` adds the less important columns after the age."""
    kind, narrow = COLUMNS[short]
    objects.create(kind, SPECS[kind])
    first = objects.kubectl("get", short, "--output=wide").splitlines()[0]
    assert first.split() == [*narrow.split(), *heading.split()]


def test_the_category(objects: Objects) -> None:
    """``kubectl get bayplan`` lists all custom resources of Bayplan."""
    created = [objects.create(kind, spec) for kind, spec in SPECS.items()]
    shown = objects.kubectl("get", "bayplan", "--output=name")
    assert set(shown.split()) >= {name.replace("s.bayplan.dev/", ".bayplan.dev/", 1) for name in created}


def test_wait_for_a_condition(objects: Objects) -> None:
    """``kubectl wait`` works with the conditions."""
    reference = objects.create("SchedulerProfile", {})
    objects.patch(reference, {"status": _statuses()["SchedulerProfile"]}, "--subresource=status")
    assert "condition met" in objects.kubectl("wait", "--for=condition=Ready", reference, "--timeout=60s")


def test_appliers_share_a_profile(objects: Objects) -> None:
    """With server-side apply, two field managers own separate entries of one pluginConfig list."""
    name = f"shared-{objects.token}"
    objects.created.append(f"schedulerprofiles.bayplan.dev/{name}")
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


@table(
    "kind, spec, status, selector",
    ("scheduler", "SchedulerProfile", {"schedulerName": "night"}, {}, "spec.schedulerName=night"),
    ("shadow", "SchedulerProfile", {"shadowOf": "live"}, {}, "spec.shadowOf=live"),
    ("revision in use", "SchedulerProfile", {}, {"activeRevision": "4f2a"}, "status.activeRevision=4f2a"),
    ("plugin", "PluginConfig", {"plugin": "NodePorts"}, {}, "spec.plugin=NodePorts"),
    ("phase", "PodGroup", {"minMember": 1}, {"phase": "Pending"}, "status.phase=Pending"),
    ("priority", "PodGroup", {"minMember": 1, "priorityClassName": "high"}, {}, "spec.priorityClassName=high"),
)
def test_objects_are_selected_by_fields(
    objects: Objects, kind: str, spec: Manifest, status: Manifest, selector: str
) -> None:
    """A field selector finds the object with the value, and not another one."""
    other = {"plugin": "NodeName"} if kind == "PluginConfig" else {"minMember": 1} if kind == "PodGroup" else {}
    wanted = objects.create(kind, spec)
    objects.create(kind, other, f"other-{objects.token}")
    if status:
        objects.patch(wanted, {"status": status}, "--subresource=status")
    found = objects.kubectl("get", wanted.partition("/")[0], f"--field-selector={selector}", "--output=name").split()
    assert [name for name in found if objects.token in name] == [wanted.replace("s.bayplan.dev/", ".bayplan.dev/")]
