"""Statuses on a real API server: columns, conditions, events, and field ownership."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, Manifest, address, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from tests.support.manifests import most_allocated
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
VERSION = "bayplan.dev/v1alpha1"
NARROW = 80
UNKNOWN: Manifest = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFitt"}]}}}
PACK: Manifest = {"pluginConfig": [{"name": "NodeResourcesFit", "args": most_allocated()}]}
GITOPS = ("--server-side", "--field-manager=gitops")


class StatusReader:
    """Reader of the statuses and events that the operator writes for the objects of a test."""

    def __init__(self, plane: ControlPlane, api: ApiClient, operator: OperatorProcess, namespace: str) -> None:
        self.plane = plane
        self.api = api
        self.operator = operator
        self.namespace = namespace
        self._created: set[tuple[str, str]] = set()

    def name(self, short: str) -> str:
        """Return a name of 20 characters that is unique to the test."""
        return f"{short}-{self.namespace[-8:]}".rjust(20, "x")

    def apply(self, kind: str, name: str, spec: Manifest, *flags: str) -> str:
        """Apply an object; return kubectl's output."""
        manifest = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._created.add((kind, name))
        return self.plane.kubectl(
            "apply", *flags, f"--namespace={self.namespace}", "--filename=-", input=json.dumps(manifest)
        )

    def get(self, kind: str, name: str) -> Manifest:
        """Return the object with its managedFields."""
        return self.api.get(address(self._named(kind, name)))

    def _named(self, kind: str, name: str) -> Manifest:
        return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}}

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of a cluster-scoped object's events, in order of time."""
        events = self.api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        selected = [one for one in events if one["regarding"].get("name") == name]
        return [one["reason"] for one in sorted(selected, key=lambda one: str(one["eventTime"]))]

    def until_condition(self, name: str, kind: str, status: str = "True", of: str = "SchedulerProfile") -> None:
        """Wait for a condition of the present generation."""

        def holds() -> bool:
            found = self.get(of, name)
            written = condition_of(found, kind)
            is_current = written.get("observedGeneration") == found["metadata"]["generation"]
            return is_current and bool(written["status"] == status)

        self.until(holds, f"{name} has {kind}={status}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.operator.until(condition, what)

    def clean_up(self) -> None:
        for created in self._created:
            self.api.delete(self._named(*created))


@pytest.fixture
def shown(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[StatusReader]:
    with ApiClient(control_plane) as api:
        shown = StatusReader(control_plane, api, operator, namespace)
        yield shown
        shown.clean_up()


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in status.get("conditions", ())}


def test_narrow_columns(shown: StatusReader) -> None:
    """Every line of ``kubectl get`` has at most 80 columns with names of 20 characters, in every state."""
    good, bad, late = shown.name("good"), shown.name("bad"), shown.name("late")
    shown.apply("SchedulerProfile", good, {})
    shown.apply("SchedulerProfile", bad, UNKNOWN)
    shown.until_condition(good, "Ready")
    shown.apply("SchedulerProfile", late, {"schedulerName": good})
    shown.until_condition(late, "Accepted", "False")
    for name, plugin in ((good, "NodeResourcesFit"), (bad, "NodeResourcesBalancedAllocation")):
        shown.apply("PluginConfig", name, {"plugin": plugin, "args": {} if name == good else {"no": 1}})
        shown.until_condition(name, "Valid", str(name == good), "PluginConfig")
        shown.apply("PodGroup", name, {"minMember": 100})
    shown.until(lambda: "phase" in status_of(shown.get("PodGroup", bad)), "the groups have a status")
    headings = {
        "sp": "NAME READY ACCEPTED REVISION PENDING UNSCHED AGE",
        "plc": "NAME PLUGIN VALID USED AGE",
        "podgroups.bayplan.dev": "NAME PHASE MIN PODS BOUND REASON AGE",
    }
    for kind, heading in headings.items():
        # By name: another test may have left a profile with a longer name.
        names = (good, bad, late) if kind == "sp" else (good, bad)
        lines = shown.plane.kubectl("get", kind, *names, f"--namespace={shown.namespace}").splitlines()
        assert lines[0].split() == heading.split()
        assert len(lines) == 1 + len(names)
        assert max(len(line.rstrip()) for line in lines) <= NARROW, "\n".join(lines)


def test_wide_columns_show_the_rest(shown: StatusReader) -> None:
    """``kubectl get -o wide`` shows the message of a rejected profile."""
    name = shown.name("wide")
    shown.apply("SchedulerProfile", name, UNKNOWN)
    shown.until_condition(name, "Accepted", "False")
    heading, row = shown.plane.kubectl("get", "sp", name, "--output=wide").splitlines()
    columns = re.split(r"\s{2,}", heading.strip())
    shadow = ["SHADOWS", "AGREE", "DIFFER"]
    errors = ["LAST ERROR", "ERROR AGE"]
    assert columns[7:] == ["BACKOFF", "GATED", "BOUND", *shadow, "CONTESTED", "SCHEDULER", "MESSAGE", *errors]
    assert "spec.plugins.score.enabled[0].name" in row


def test_conditions_and_events_over_edits(shown: StatusReader) -> None:
    """Valid, invalid and corrected specs change the conditions, and each change is recorded once as an event."""
    name = shown.name("edited")
    shown.apply("SchedulerProfile", name, {})
    shown.until_condition(name, "Ready")
    first = status_of(shown.get("SchedulerProfile", name))["activeRevision"]
    shown.apply("SchedulerProfile", name, UNKNOWN)
    shown.until_condition(name, "Accepted", "False")
    shown.until_condition(name, "Stalled")
    shown.until_condition(name, "Ready")
    shown.apply("SchedulerProfile", name, PACK)
    shown.until_condition(name, "Accepted")
    second = status_of(shown.get("SchedulerProfile", name))["activeRevision"]
    assert set(conditions(status_of(shown.get("SchedulerProfile", name)))) == {"Accepted", "Ready", "Contested"}
    expected = ["Accepted", "Activated", "Rejected", "Accepted", "Activated"]
    shown.until(lambda: sorted(shown.reasons(name)) == sorted(expected), "events are recorded")
    described = shown.plane.kubectl("describe", "sp", name)
    events = described.partition("Events:")[2]
    assert f"Revision {second} is live, {first} before." in events
    assert re.search(r"Warning\s+Rejected\s+.*bayplan.*did you mean", events), events
    assert "No other client has bound a pod of this profile" in described


def test_a_plugin_config_in_events(shown: StatusReader) -> None:
    """Validity of a PluginConfig is reported by condition and events, as for a profile."""
    name = shown.name("args")
    shown.apply("PluginConfig", name, {"plugin": "NodeResourcesFit", "args": {"no": 1}})
    shown.until_condition(name, "Valid", "False", "PluginConfig")
    shown.apply("PluginConfig", name, {"plugin": "NodeResourcesFit", "args": {}})
    shown.until_condition(name, "Valid", of="PluginConfig")
    shown.until(lambda: sorted(shown.reasons(name)) == ["Invalid", "Valid"], "events are recorded")
    assert "Generation 2 of the args is valid." in shown.plane.kubectl("describe", "plc", name)


@table(
    "kind, spec",
    ("profile", "SchedulerProfile", PACK),
    ("plugin-config", "PluginConfig", {"plugin": "NodeResourcesFit", "args": most_allocated()}),
    ("group", "PodGroup", {"minMember": 2}),
)
def test_the_operator_owns_only_the_status(shown: StatusReader, kind: str, spec: Manifest) -> None:
    """The operator writes no spec, label, annotation or finalizer, and never conflicts with another applier."""
    name = shown.name("applied")
    resource = f"{kind.lower()}s.bayplan.dev"
    shown.apply(kind, name, spec, *GITOPS)
    shown.until(lambda: "conditions" in status_of(shown.get(kind, name)), "the object has conditions")
    before, after = shown.get(kind, name), {}

    def is_left_alone() -> bool:
        nonlocal before, after
        before = shown.get(kind, name)
        applied = shown.apply(kind, name, spec, *GITOPS).strip()
        assert applied == f"{resource.replace('s.', '.', 1)}/{name} serverside-applied"
        after = shown.get(kind, name)
        return bool(after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"])

    # The operator may still write parts of the status meanwhile.
    shown.until(is_left_alone, "the same manifest changes nothing")
    assert after["metadata"]["generation"] == 1
    assert not {"annotations", "finalizers", "labels", "ownerReferences"} & after["metadata"].keys()
    owners = {one["manager"]: one for one in after["metadata"]["managedFields"]}
    assert owners.pop("gitops")["fieldsV1"].keys() == {"f:spec"}
    assert owners
    for owner in owners.values():
        assert (owner["subresource"], owner["fieldsV1"].keys()) == ("status", {"f:status"})
    assert after["status"] == before["status"]


@table("end", ("crash", "kill"), ("sigterm", "terminate"))
def test_a_restart_changes_nothing(shown: StatusReader, end: str) -> None:
    """After a restart, versions and times of unchanged objects stay, and no event is repeated."""
    good, bad = shown.name("calm"), shown.name("broken")
    shown.apply("SchedulerProfile", good, PACK)
    shown.apply("SchedulerProfile", bad, {})
    for name in (good, bad):
        shown.until_condition(name, "Ready")
    shown.apply("SchedulerProfile", bad, UNKNOWN)
    shown.until_condition(bad, "Accepted", "False")
    events = {good: ["Accepted", "Activated"], bad: ["Accepted", "Activated", "Rejected"]}
    shown.until(
        lambda: all(sorted(shown.reasons(name)) == reasons for name, reasons in events.items()), "events are recorded"
    )
    before = {name: shown.get("SchedulerProfile", name) for name in (good, bad)}
    getattr(shown.operator, end)()
    shown.operator.start()
    marker = shown.name("marker")
    shown.apply("SchedulerProfile", marker, {})
    shown.until_condition(marker, "Ready")
    shown.until(lambda: shown.reasons(marker) == ["Accepted", "Activated"], "later events are recorded")
    assert {name: shown.get("SchedulerProfile", name) for name in (good, bad)} == before
    assert {name: sorted(shown.reasons(name)) for name in (good, bad)} == events


def test_conditions_have_the_generation(shown: StatusReader) -> None:
    """The status and every condition have the observedGeneration, as kstatus requires."""
    name = shown.name("kstatus")
    shown.apply("SchedulerProfile", name, {})
    shown.until_condition(name, "Ready")
    shown.apply("SchedulerProfile", name, UNKNOWN)
    shown.until_condition(name, "Stalled")
    status = status_of(shown.get("SchedulerProfile", name))
    assert status["observedGeneration"] == 2
    assert {kind: one["observedGeneration"] for kind, one in conditions(status).items()} == dict.fromkeys(
        ("Accepted", "Ready", "Contested", "Stalled"), 2
    )
    remedy = conditions(status)["Accepted"]["message"]
    assert remedy.endswith(
        f"Correct the spec and apply it again; until then revision {status['activeRevision']} keeps running."
    )
