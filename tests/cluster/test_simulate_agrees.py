"""``bayplan simulate`` and ``bayplan run`` schedule the same manifests to the same nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.api_client import ApiClient, condition_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "simulate" / "cluster.yaml"
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.2
Outcome = dict[str, tuple[str, str]]
"""Pod to its node and, if it has none, to the message of its PodScheduled condition."""


@pytest.fixture
def plane(empty_plane: ControlPlane) -> ControlPlane:
    """Return an empty control plane, because nodes of other tests would receive pods."""
    empty_plane.reset()
    return empty_plane


def simulated(seed: int) -> Outcome:
    """Return the outcome of ``bayplan simulate``."""
    command = [sys.executable, "-m", "bayplan", "simulate", str(CLUSTER), "-o", "json", "--seed", str(seed)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT / "operator").stdout
    pods: list[dict[str, Any]] = json.loads(output)["pods"]
    return {f"{pod['namespace']}/{pod['name']}": (pod["node"] or "", pod["reason"] or "") for pod in pods}


def on_server(api: ApiClient) -> Outcome:
    """Return the outcome that the API server shows."""
    outcome: Outcome = {}
    for pod in api.items("/api/v1/pods"):
        message = condition_of(pod, "PodScheduled").get("message", "")
        node = pod["spec"].get("nodeName", "")
        outcome[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = (node, "" if node else message)
    return outcome


@pytest.mark.parametrize("seed", [0, 7])
def test_simulate_and_run_agree(plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    """Every pod of the manifests has the same node in both, or the same reason for having none."""
    expected = simulated(seed)
    install_crds(plane)
    for namespace in {key.partition("/")[0] for key in expected} - {"default"}:
        plane.kubectl("create", "namespace", namespace)
    documents = [document for document in yaml.safe_load_all(CLUSTER.read_text()) if document]
    plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    served = {name for name, (node, reason) in expected.items() if "no profile" not in reason}
    gated = {name for name in served if "scheduling gates" in expected[name][1]}

    log, flags = tmp_path / "operator.log", [f"--seed={seed}"]
    with ApiClient(plane) as api, OperatorProcess(plane.kubeconfig, log, flags) as operator:
        operator.start()
        deadline = time.monotonic() + _WAIT_SECONDS
        found = on_server(api)
        # The message of a first attempt is replaced after pods that are bound later have changed it.
        while any(found[name] != expected[name] for name in served - gated) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = on_server(api)
        operator.terminate()
        found = on_server(api)
    assert {name: found[name] for name in served - gated} == {name: expected[name] for name in served - gated}
    assert {name: found[name][0] for name in expected} == {name: expected[name][0] for name in expected}
