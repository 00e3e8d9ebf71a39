"""``bayplan explain`` on a real API server, with the operator and offline: both give the same, true explanation."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.api_client import condition_of
from hack.controlplane.launcher import ControlPlane
from tests.support.explain_command import ExplainCommand, explained
from tests.support.manifests import Manifest
from tests.support.tables import table

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
KINDS = "nodes,pods,events,persistentvolumeclaims"
"""Kinds whose resource versions must not change; SchedulerProfiles are left out because their counts are updated."""
PROFILE = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "batch"}, "spec": {}}
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def node(name: str, cpu: str, **spec: Any) -> Manifest:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    status = {"allocatable": amounts, "capacity": amounts}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def pod_of_profile(name: str, cpu: str, **spec: Any) -> Manifest:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    full = {"schedulerName": "batch", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full}


SECOND = pod_of_profile("second", "500m")
OBJECTS = [
    PROFILE,
    CLAIM,
    node("large", "4"),
    node("tainted", "4", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
    pod_of_profile("first", "3680m"),
    SECOND,
    pod_of_profile("gated", "100m", schedulingGates=[{"name": "example.com/approval"}]),
    pod_of_profile("stranger", "100m", schedulerName="nightly"),
    pod_of_profile("claimant", "100m", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
]


def versions(explain: ExplainCommand) -> dict[str, str]:
    """Return the resource version of each object of KINDS, by kind and name."""
    listed = json.loads(explain.plane.kubectl("get", KINDS, "--all-namespaces", "--output=json"))
    found = [(item["kind"], item["metadata"]) for item in listed["items"]]
    return {f"{kind}/{meta['name']}": meta["resourceVersion"] for kind, meta in found}


def is_at_rest(explain: ExplainCommand) -> bool:
    """Return whether no pod is queued for an attempt and each attempted pod has an event."""
    queued = sum(explain.operator.metric("scheduler_pending_pods", queue=queue) for queue in ("active", "backoff"))
    events = json.loads(explain.plane.kubectl("get", "events", "--output=json"))["items"]
    return not queued and {event["involvedObject"].get("name") for event in events} >= {"first", "second", "claimant"}


@pytest.fixture(scope="module")
def explain(empty_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainCommand]:
    """Start an operator on an empty control plane, which has attempted every pod."""
    with explained(empty_plane, OBJECTS, tmp_path_factory.mktemp("explain") / "operator.log") as explain:
        wait_until_at_rest(explain)
        yield explain


def wait_until_at_rest(explain: ExplainCommand) -> None:
    explain.wait("first", "condition=PodScheduled")
    for pod in ("second", "claimant"):
        explain.wait(pod, "jsonpath={.status.conditions[0].reason}=Unschedulable")
    explain.operator.until(lambda: is_at_rest(explain), "no pod is queued, and every event is written")


@table(
    "pod, verdict",
    ("placed", "first", "Placed"),
    ("infeasible", "second", "Unschedulable"),
    ("gated", "gated", "Gated"),
    ("no profile", "stranger", "NoProfile"),
    ("waits for its claim", "claimant", "Unschedulable"),
)
def test_online_and_offline_explanations_are_equal(explain: ExplainCommand, pod: str, verdict: str) -> None:
    """The operator explains from its informers, the command offline from one list; neither writes an object."""
    before = versions(explain)
    explained = explain.online(pod)
    assert explained["verdict"] == verdict
    assert explained == explain.offline(pod)
    assert versions(explain) == before


def test_the_message_equals_the_condition(explain: ExplainCommand) -> None:
    """The message of an explanation equals the message of the PodScheduled condition."""
    shown = json.loads(explain.plane.kubectl("get", "pod", "second", "--output=json"))
    assert explain.online("second")["message"] == condition_of(shown, "PodScheduled")["message"]


def k9s_plugins() -> dict[str, Any]:
    """Return the k9s plugins of the documentation page."""
    page = (ROOT / "docs" / "operate" / "other-tools.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    plugins: dict[str, Any] = yaml.safe_load(block)["plugins"]
    return plugins


@pytest.mark.parametrize("plugin", ["bayplan-explain", "bayplan-explain-gang"])
def test_the_commands_for_k9s_explain(explain: ExplainCommand, plugin: str) -> None:
    """The documented k9s commands work. k9s replaces variables in any letter case and rejects unknown ones."""
    shown = k9s_plugins()[plugin]
    pod = shown["scopes"] == ["pods"]
    config = yaml.safe_load(explain.plane.kubeconfig.read_text(encoding="utf-8"))
    names = {"CONTEXT": config["current-context"], "NAMESPACE": "default", "NAME": "second" if pod else "missing"}
    args = [re.sub(r"\$(!?[\w|-]+)", lambda found: names[found[1].upper()], each) for each in shown["args"]]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(explain.plane.kubeconfig), "PAGER": "cat"}
    command = [shown["command"], *args]
    output = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, timeout=60)
    if pod:
        assert output.stdout.startswith("Pod default/second is unschedulable")
    else:
        assert output.stdout == "bayplan: PodGroup default/missing not found; check the namespace and the name\n"


def test_a_missing_pod(explain: ExplainCommand) -> None:
    """Both ways to explain report a missing pod with exit code 1."""
    for options in ([f"--server={explain.operator.url}"], ["--offline", f"--kubeconfig={explain.plane.kubeconfig}"]):
        result = CliRunner().invoke(bayplan, ["explain", "missing", *options])
        assert (result.exit_code, result.stderr) == (
            1,
            "bayplan: pod default/missing not found; check the namespace and the name\n",
        )


def test_status_shows_every_pending_pod(explain: ExplainCommand) -> None:
    """``bayplan status`` shows for each pending pod its queue and the plugins that gate or reject it.

    A pod of another scheduler is shown with ``--all`` alone.
    """
    status, with_others = _status(explain), _status(explain, "--all")
    own = {
        "default/second": ("unschedulable", "", ["NodeResourcesFit", "TaintToleration"]),
        "default/gated": ("gated", "SchedulingGates", ["SchedulingGates"]),
        "default/claimant": ("unschedulable", "", ["VolumeBinding"]),
    }
    assert _waiting(status) == own
    assert _waiting(with_others) == {**own, "default/stranger": ("parked", "", [])}
    assert (status["cache"]["nodes"], status["cache"]["pods"]) == (2, 1)
    assert all(informer["synced"] for informer in status["informers"])


def _status(explain: ExplainCommand, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(bayplan, ["status", f"--server={explain.operator.url}", "-o", "json", *options])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def _waiting(status: dict[str, Any]) -> dict[str, tuple[str, str, list[str]]]:
    return {entry["pod"]: (entry["place"], entry["gatedBy"], entry["rejectedBy"]) for entry in status["queue"]}


def test_the_cache_agrees_with_the_api_server(explain: ExplainCommand) -> None:
    """``bayplan status --check-cache`` and the dump after SIGUSR2 report no differences."""
    result = CliRunner().invoke(bayplan, ["status", f"--server={explain.operator.url}", "--check-cache"])
    assert (result.exit_code, result.stdout) == (0, "Cache and queue agree with the API server.\n")
    explain.operator.send(signal.SIGUSR2)
    explain.operator.until(lambda: "cache check: 0 differences" in explain.operator.log, "the cache is checked")
    assert "node large: requested of allocatable cpu 3680/4000" in explain.operator.log
    assert "queue gated: pod default/gated, attempts 0, rejected by SchedulingGates" in explain.operator.log


def test_the_named_event_makes_the_pod_schedulable(explain: ExplainCommand) -> None:
    """The pod is bound to the named node after the named event."""
    events = {event["what"]: event for event in explain.online("second")["unblocking"]}
    named = events["taint gpu=yes:NoSchedule removed from node tainted"]
    assert named["fitsOn"] == "tainted"
    try:
        explain.plane.kubectl("taint", "node", "tainted", "gpu-")
        explain.wait("second", "condition=PodScheduled")
        explain.operator.until(
            lambda: explain.online("second")["headline"] == "pod default/second is already scheduled to node tainted",
            "the operator has received the bind",
        )
    finally:
        explain.plane.kubectl("taint", "node", "tainted", "gpu=yes:NoSchedule")
        explain.replace([SECOND])
        wait_until_at_rest(explain)
