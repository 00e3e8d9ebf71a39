"""CLI commands with two replicas on a real API server: each replica forwards requests to the leader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path

import pytest
from bayplan.kube.leader_election import ANNOTATION

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
LEASE = """\
leaderElection:
  leaseDuration: 20s
  renewDeadline: 15s
  retryPeriod: 1s
"""


def bayplan(replica: OperatorProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the URL of a replica."""
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'operator'}", "COLUMNS": "200"}
    command = [sys.executable, "-m", "bayplan", *arguments, "--server", replica.url.partition("://")[2]]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def replicas(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[list[OperatorProcess]]:
    """Start two replicas, each with its own certificate; the first one leads."""
    install_crds(control_plane)
    settings = tmp_path / "settings.yaml"
    settings.write_text(LEASE)
    flags = [f"--settings={settings}", f"--namespace={namespace}", "--leader-elect", "--secure-serving"]
    flags += ["--authorize-requests", "--advertise-address=127.0.0.1"]
    logs = tmp_path / "leader.log", tmp_path / "standby.log"
    with (
        OperatorProcess(control_plane.kubeconfig, logs[0], flags, secure=True) as leader,
        OperatorProcess(control_plane.kubeconfig, logs[1], flags, secure=True) as standby,
    ):
        leader.start()
        leads(leader, namespace)
        standby.start()
        yield [leader, standby]


def leads(replica: OperatorProcess, namespace: str) -> None:
    replica.until(lambda: replica.metric("bayplan_leader", lease=f"{namespace}/bayplan") == 1, "the replica leads")
    replica.wait_until_ready()


def test_a_standby_forwards_to_the_leader(
    control_plane: ControlPlane, namespace: str, replicas: list[OperatorProcess]
) -> None:
    """Leader and standby return the same answers; after a takeover the new leader returns them."""
    leader, standby = replicas
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"schedulerName": "unserved", "containers": [{"name": "c", "image": "i"}]},
    }
    control_plane.kubectl("create", "--filename=-", input=json.dumps(pod))
    # One request costs less than one process.
    path = f"/debug/explain?namespace={namespace}&pod=web"
    leader.until(lambda: leader.get(path)[0] == HTTPStatus.OK, "the pod can be explained")
    for replica in replicas:
        explained = bayplan(replica, *explain(namespace))
        assert 'No profile serves schedulerName "unserved"' in explained.stdout, explained
        assert bayplan(replica, "status").stdout.startswith("Scheduling\n")
        replica.until(partial(agrees, replica), "the cache agrees with the API server")
    assert bayplan(standby, "status", "--this-replica").stdout.startswith("Standby, ")
    announced = control_plane.kubectl(
        "get", "lease/bayplan", f"--namespace={namespace}", "--output=jsonpath={.metadata.annotations}"
    )
    assert json.loads(json.loads(announced)[ANNOTATION])["url"] == leader.url
    leader.kill()
    answer = bayplan(standby, "status")
    assert (answer.returncode, f"and {holder(control_plane, namespace)} leads, but" in answer.stderr) == (1, True), (
        answer
    )
    leads(standby, namespace)
    assert bayplan(standby, *explain(namespace)).returncode == 0


def explain(namespace: str) -> tuple[str, ...]:
    return ("explain", "-n", namespace, "web")


def agrees(replica: OperatorProcess) -> bool:
    return bayplan(replica, "status", "--check-cache").returncode == 0


def holder(plane: ControlPlane, namespace: str) -> str:
    path = "--output=jsonpath={.spec.holderIdentity}"
    return plane.kubectl("get", "lease/bayplan", f"--namespace={namespace}", path)
