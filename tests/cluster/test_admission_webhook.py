"""The admission webhook on a real API server: what it refuses, who serves it, and what happens without it.

A standby serves it here, so that no review depends on the Lease. The API server reaches it by a URL, because no Service
network exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.schedulers import install_crds
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
Manifest = dict[str, Any]
CONFIGURATION = "bayplan.test"
TYPO: Manifest = {"plugins": {"score": {"enabled": [{"name": "NodeResourceFit"}]}}}
TYPO_PROBLEM = 'spec.plugins.score.enabled[0].name: there is no plugin "NodeResourceFit"'
ARGS_PROBLEM = "spec.args.scoringStrategy.type: must be one of LeastAllocated, MostAllocated"


def manifest(kind: str, name: str, spec: Manifest | None = None) -> Manifest:
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec or {}}


def profile_manifest(name: str, spec: Manifest | None = None) -> Manifest:
    return manifest("SchedulerProfile", name, spec)


WRONG_ARGS: Manifest = {"scoringStrategy": {"type": "Random"}}
WRONG_CONFIG = manifest("PluginConfig", "wrong", {"plugin": "NodeResourcesFit", "args": WRONG_ARGS})
GROUP = manifest("PodGroup", "wrong", {"minMember": 2, "topology": {"key": "a b"}})


@dataclass(frozen=True)
class Reviewed:
    """A cluster with a leader, and a standby that serves the webhook."""

    plane: ControlPlane
    leader: OperatorProcess
    standby: OperatorProcess

    def apply(self, manifest: Manifest, *flags: str) -> str:
        """Apply an object; return what kubectl prints, or why it was refused."""
        try:
            return self.plane.kubectl("apply", "--filename=-", *flags, input=json.dumps(manifest))
        except ControlPlaneError as error:
            return f"refused: {error}"

    def exists(self, manifest: Manifest) -> bool:
        """Return whether an object is stored."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        return bool(self.plane.kubectl("get", kind, name, "--ignore-not-found", "--output=name").strip())

    def condition(self, manifest: Manifest, kind: str) -> str:
        """Return the message of a condition that is False; "" without one."""
        path = f"--output=jsonpath={{.status.conditions[?(@.type=='{kind}')]}}"
        text = self.plane.kubectl("get", manifest["kind"], manifest["metadata"]["name"], path)
        found = json.loads(text or "{}")
        return str(found["message"]) if found.get("status") == "False" else ""

    def until_condition(self, manifest: Manifest, kind: str, problem: str) -> None:
        """Wait until a condition is False and reports a problem."""
        self.leader.until(lambda: problem in self.condition(manifest, kind), f"{kind} reports the problem")


def _settings(directory: Path, port: int) -> str:
    directory.mkdir()
    file = directory / "settings.yaml"
    webhook = {"address": f"{LOOPBACK}:{port}", "configuration": CONFIGURATION}
    file.write_text(yaml.safe_dump({"webhook": webhook, "leaderElection": {"leaderElect": True}}))
    return f"--settings={file}"


@pytest.fixture
def reviewed(empty_plane: ControlPlane, tmp_path: Path) -> Iterator[Reviewed]:
    """Start the leader and the standby, whose webhook receives the objects of the whole cluster."""
    ports = free_port(), free_port()
    rule = {
        "apiGroups": ["bayplan.dev"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["schedulerprofiles", "pluginconfigs", "podgroups", "nodereservations", "rebalanceplans"],
    }
    webhook = {
        "name": "validate.bayplan.dev",
        "clientConfig": {"url": f"https://{LOOPBACK}:{ports[1]}/validate"},
        "rules": [rule],
        "failurePolicy": "Ignore",
        "timeoutSeconds": 10,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [webhook],
    }
    leading, standing = (_settings(tmp_path / str(port), port) for port in ports)
    with (
        OperatorProcess(empty_plane.kubeconfig, tmp_path / "leader.log", [leading]) as leader,
        OperatorProcess(empty_plane.kubeconfig, tmp_path / "standby.log", [standing]) as standby,
    ):
        install_crds(empty_plane)
        empty_plane.kubectl("create", "--filename=-", input=json.dumps(configuration))
        leader.start()
        leader.until(lambda: "Scheduling:" in leader.log, "the first process leads")
        standby.start()
        standby.until(lambda: "Serving the admission webhook" in standby.log, "the standby serves the webhook")
        yield Reviewed(empty_plane, leader, standby)


def test_the_admission_webhook(reviewed: Reviewed) -> None:
    """Invalid objects are refused with their field path, also in a dry run; without the webhook a condition has it."""
    assert "standby" in reviewed.standby.get("/readyz")[1]
    profile = profile_manifest("wrong", TYPO)
    # The API server may still use the bundle without the certificate for a moment.
    reviewed.standby.until(
        lambda: "validate.bayplan.dev" in reviewed.apply(profile, "--dry-run=server"),
        "the API server calls the webhook",
    )
    for refused, problem in ((profile, TYPO_PROBLEM), (WRONG_CONFIG, ARGS_PROBLEM), (GROUP, "spec.topology.key")):
        for flags in ((), ("--dry-run=server",)):
            answer = reviewed.apply(refused, *flags)
            assert answer.startswith("refused")
            assert problem in answer
        assert not reviewed.exists(refused)
    reference = profile_manifest("later", {"pluginConfigRefs": [{"name": "wrong"}]})
    assert "created" in reviewed.apply(reference)

    # These processes read neither kind.
    owner = {"owner": {"labels": {"app": "a"}}, "resources": {"cpu": 1}, "schedulerName": "later"}
    for of_gate in (
        manifest("NodeReservation", "room", {**owner, "priorityClassName": "absent"}),
        manifest("RebalancePlan", "plan", {"objective": "Consolidate", "scope": {"profiles": ["absent"]}}),
    ):
        assert "(server dry run)" in reviewed.apply(of_gate, "--dry-run=server")
        answer = reviewed.apply(of_gate, "--dry-run=server", "--warnings-as-errors")
        assert f"has no effect: its feature gate {of_gate['kind']} is off; turn it on with --feature-gates=" in answer
        assert '"absent"' in answer

    # An object that is valid can be edited only to a valid one.
    assert "created" in reviewed.apply(profile_manifest("wrong"))
    assert TYPO_PROBLEM in reviewed.apply(profile)

    reviewed.standby.kill()
    for admitted, problem, kind in ((profile, TYPO_PROBLEM, "Accepted"), (WRONG_CONFIG, ARGS_PROBLEM, "Valid")):
        assert not reviewed.apply(admitted).startswith("refused")
        reviewed.until_condition(admitted, kind, problem)

    # It was stored without a review: its labels may still be changed, and its deletion is never reviewed.
    reviewed.standby.start()
    served = "Serving the admission webhook"
    reviewed.standby.until(lambda: reviewed.standby.log.count(served) == 2, "the standby serves the webhook again")
    other = profile_manifest("other", TYPO)
    reviewed.standby.until(lambda: "denied" in reviewed.apply(other, "--dry-run=server"), "the webhook is called")
    reviewed.plane.kubectl("label", "schedulerprofile", "wrong", "a=b")
    reviewed.plane.kubectl("delete", "schedulerprofile", "wrong")
