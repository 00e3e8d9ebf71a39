"""``bayplan explain`` on the real API server: from the operator and without it, and whether what it says comes true."""

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

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.asking import Asker
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]

KINDS = "nodes,pods,events,persistentvolumeclaims"
"""Whose versions must stay; the operator writes a profile's counts at its own pace."""
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


def a_node(name: str, cpu: str, **spec: Any) -> Manifest:
    """A node."""
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    status = {"allocatable": amounts, "capacity": amounts}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def a_pod(name: str, cpu: str, **spec: Any) -> Manifest:
    """A pod of the profile."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default"}
    full = {"schedulerName": "batch", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full}


OBJECTS = [
    PROFILE,
    CLAIM,
    a_node("large", "4"),
    a_node("tainted", "4", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
    a_pod("first", "3680m"),
    a_pod("second", "500m"),
    a_pod("gated", "100m", schedulingGates=[{"name": "example.com/approval"}]),
    a_pod("stranger", "100m", schedulerName="nightly"),
    a_pod("claimant", "100m", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
]


def versions(asker: Asker) -> dict[str, str]:
    """The version of everything that is there, events too."""
    listed = json.loads(asker.plane.kubectl("get", KINDS, "--all-namespaces", "--output=json"))
    found = [(item["kind"], item["metadata"]) for item in listed["items"]]
    return {f"{kind}/{meta['name']}": meta["resourceVersion"] for kind, meta in found}


def is_at_rest(asker: Asker) -> bool:
    """Whether the scheduler has nothing to do, and has written an event of each pod that it tried."""
    queued = sum(asker.operator.metric("scheduler_pending_pods", queue=queue) for queue in ("active", "backoff"))
    events = json.loads(asker.plane.kubectl("get", "events", "--output=json"))["items"]
    return not queued and {event["involvedObject"].get("name") for event in events} >= {"first", "second", "claimant"}


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """A control plane of its own with an operator that has tried every pod."""
    log = tmp_path_factory.mktemp("explain") / "operator.log"
    with ControlPlane() as plane:
        install_crds(plane)
        for manifest in OBJECTS:
            plane.kubectl("create", "-f", "-", input=json.dumps(manifest))
        with OperatorProcess(plane.kubeconfig, log) as operator:
            operator.start()
            asker = Asker(plane, operator)
            asker.wait("first", "condition=PodScheduled")
            for pod in ("second", "claimant"):
                asker.wait(pod, "jsonpath={.status.conditions[0].reason}=Unschedulable")
            operator.until(lambda: is_at_rest(asker), "no pod is tried again, and every event is written")
            yield asker
            operator.terminate()


@pytest.mark.parametrize(
    ("pod", "verdict"),
    [
        pytest.param("first", "Placed", id="placed"),
        pytest.param("second", "Unschedulable", id="fits nowhere"),
        pytest.param("gated", "Gated", id="gated"),
        pytest.param("stranger", "NoProfile", id="no profile"),
        pytest.param("claimant", "Unschedulable", id="waits for its claim"),
    ],
)
def test_operator_and_api_server_say_the_same(asker: Asker, pod: str, verdict: str) -> None:
    """The one knows what its watches brought, the other what one list brings; neither changes anything."""
    before = versions(asker)
    explained = asker.operator_says(pod)
    assert explained["verdict"] == verdict
    assert explained == asker.api_server_says(pod)
    assert versions(asker) == before


def test_it_says_what_the_condition_says(asker: Asker) -> None:
    """An explanation and the PodScheduled condition do not contradict each other."""
    shown = json.loads(asker.plane.kubectl("get", "pod", "second", "--output=json"))
    assert asker.operator_says("second")["message"] == shown["status"]["conditions"][0]["message"]


def k9s_plugins() -> dict[str, Any]:
    """Return the plugins that the page shows for k9s."""
    page = (ROOT / "docs" / "operate" / "other-tools.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    plugins: dict[str, Any] = yaml.safe_load(block)["plugins"]
    return plugins


@pytest.mark.parametrize("plugin", ["bayplan-explain", "bayplan-explain-gang"])
def test_the_commands_for_k9s_explain(asker: Asker, plugin: str) -> None:
    """k9s replaces names of variables in each argument, in upper or lower case, and rejects unknown ones."""
    shown = k9s_plugins()[plugin]
    pod = shown["scopes"] == ["pods"]
    config = yaml.safe_load(asker.plane.kubeconfig.read_text(encoding="utf-8"))
    names = {"CONTEXT": config["current-context"], "NAMESPACE": "default", "NAME": "second" if pod else "nobodys"}
    args = [re.sub(r"\$(!?[\w|-]+)", lambda found: names[found[1].upper()], each) for each in shown["args"]]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(asker.plane.kubeconfig), "PAGER": "cat"}
    command = [shown["command"], *args]
    output = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, timeout=60)
    if pod:
        assert output.stdout.startswith("Pod default/second is unschedulable")
    else:
        assert output.stdout == "bayplan: PodGroup default/nobodys not found; check the namespace and the name\n"


def test_a_pod_that_there_is_not(asker: Asker) -> None:
    """Both say so, with exit code 1."""
    for options in (
        [f"--server={asker.operator.url}"],
        ["--offline", f"--kubeconfig={asker.plane.kubeconfig}"],
    ):
        result = CliRunner().invoke(bayplan, ["explain", "nobody", *options])
        assert (result.exit_code, result.stderr) == (
            1,
            "bayplan: pod default/nobody not found; check the namespace and the name\n",
        )


def test_status_shows_every_waiting_pod_in_its_place(asker: Asker) -> None:
    """With who rejected or holds it."""
    result = CliRunner().invoke(bayplan, ["status", f"--server={asker.operator.url}", "-o", "json"])
    assert result.exit_code == 0, result.output
    status = json.loads(result.stdout)
    waiting = {entry["pod"]: (entry["place"], entry["gatedBy"], entry["rejectedBy"]) for entry in status["queue"]}
    assert waiting == {
        "default/second": ("unschedulable", "", ["NodeResourcesFit", "TaintToleration"]),
        "default/gated": ("gated", "SchedulingGates", ["SchedulingGates"]),
        "default/stranger": ("parked", "", []),
        "default/claimant": ("unschedulable", "", ["VolumeBinding"]),
    }
    assert (status["cache"]["nodes"], status["cache"]["pods"]) == (2, 1)
    assert all(informer["synced"] for informer in status["informers"])


def test_the_cache_agrees_with_the_api_server(asker: Asker) -> None:
    """By the command, and in the log after SIGUSR2, beside the dump."""
    result = CliRunner().invoke(bayplan, ["status", f"--server={asker.operator.url}", "--check-cache"])
    assert (result.exit_code, result.stdout) == (0, "Cache and queue agree with the API server.\n")
    asker.operator.send(signal.SIGUSR2)
    asker.operator.until(lambda: "cache check: 0 differences" in asker.operator.log, "the cache is checked")
    assert "node large: requested of allocatable cpu 3680/4000" in asker.operator.log
    assert "queue gated: pod default/gated, attempts 0, rejected by SchedulingGates" in asker.operator.log


def test_what_is_named_comes_true(asker: Asker) -> None:
    """Last, since it changes the cluster: the event that is named happens, and the pod goes where it was said to."""
    events = {event["what"]: event for event in asker.operator_says("second")["unblocking"]}
    named = events["taint gpu=yes:NoSchedule removed from node tainted"]
    assert named["fitsOn"] == "tainted"
    asker.plane.kubectl("taint", "node", "tainted", "gpu-")
    asker.wait("second", "condition=PodScheduled")
    asker.operator.until(
        lambda: asker.operator_says("second")["headline"] == "pod default/second is already scheduled to node tainted",
        "the operator has seen the bind",
    )
