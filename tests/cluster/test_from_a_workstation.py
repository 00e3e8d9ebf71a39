"""CLI commands on a workstation: they find the leader in the cluster of the kubeconfig, through a real API server.

kwok is the kubelet of the operator's pods. It connects the ports of the pods to the operator's processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import binaries, probes
from hack.controlplane.credentials import User
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import STAGES, Layout, Options, kwok_args
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "bayplan-system"
PODS = ("bayplan-6f7c-x", "bayplan-6f7c-y")
VIEWER, READER = User("viewer"), User("reader")
VIEWERS_RIGHTS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer, namespace: bayplan-system}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [get, list]}
  - {apiGroups: [""], resources: [pods/portforward], verbs: [create, get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: bayplan-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Start a control plane with two users that have few rights."""
    with ControlPlane(Options(users=(VIEWER, READER))) as plane:
        install_crds(plane)
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.kubectl("apply", "--filename=-", input=VIEWERS_RIGHTS)
        yield plane


@pytest.fixture(scope="module")
def replicas(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[OperatorProcess]]:
    """Start a leader and a standby, and the pods in which they would run."""
    directory = tmp_path_factory.mktemp("replicas")
    flags = [f"--namespace={NAMESPACE}", "--leader-elect"]
    replicas = [OperatorProcess(plane.kubeconfig, directory / f"{pod}.log", flags, host_name=pod) for pod in PODS]
    with replicas[0] as leader, replicas[1] as standby:
        leader.start()
        leader.until(lambda: leader.metric("bayplan_leader", lease=f"{NAMESPACE}/bayplan") == 1, "the replica leads")
        standby.start()
        port = _start_kubelet(plane, directory / "forwards.yaml", dict(zip(PODS, replicas, strict=True)))
        plane.kubectl("create", "--filename=-", input=json.dumps(_node(port)))
        plane.kubectl("patch", "node/edge", "--subresource=status", f"--patch={json.dumps({'status': _status(port)})}")
        for pod, replica in zip(PODS, replicas, strict=True):
            plane.kubectl("create", "--filename=-", input=json.dumps(_pod(pod, replica.port)))
        plane.kubectl("wait", "--for=condition=Ready", "pods", "--all", f"--namespace={NAMESPACE}", "--timeout=60s")
        yield replicas


def _start_kubelet(plane: ControlPlane, config: Path, operators: dict[str, OperatorProcess]) -> int:
    """Start kwok, which forwards ports of these pods to these processes, and return its port."""
    documents = [
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "PortForward",
            "metadata": {"name": pod, "namespace": NAMESPACE},
            "spec": {"forwards": [{"target": {"address": "127.0.0.1", "port": operator.port}}]},
        }
        for pod, operator in operators.items()
    ]
    config.write_text(yaml.safe_dump_all(documents))
    port = probes.free_port()
    command = [str(binaries.resolve(["kwok"])["kwok"]), *kwok_args(Layout(plane.state_dir), (STAGES, config), port)]
    plane.start_program("kwok", command, lambda: probes.http_ok(port, "/readyz"))
    return port


def _node(port: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"}, "status": _status(port)}


def _status(port: int) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


def _pod(name: str, port: int) -> dict[str, Any]:
    labels = {"bayplan.dev/local-port": str(port), "app.kubernetes.io/instance": "bayplan"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": "edge", "containers": [{"name": "bayplan", "image": "bayplan"}]},
    }


def run(kubeconfig: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user on a workstation."""
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'operator'}", "COLUMNS": "200"}
    environment |= {"KUBECONFIG": str(kubeconfig), **variables}
    command = [sys.executable, "-m", "bayplan", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_leader_answers(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """Without a port-forward and an address, commands get the leader's response, whatever pod is listed first."""
    del replicas
    answer = run(plane.kubeconfig, "status")
    assert answer.stdout.startswith("Scheduling\n"), answer
    assert answer.stderr == ""
    assert run(plane.kubeconfig, "status", "--check-cache").returncode == 0
    chosen = run(plane.kubeconfig, "status", "--this-replica", "--operator", f"{NAMESPACE}/{PODS[1]}")
    assert chosen.stdout.startswith("Standby, "), chosen
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"schedulerName": "unserved", "containers": [{"name": "c", "image": "i"}]},
    }
    plane.kubectl("create", "--filename=-", input=json.dumps(pod))
    replicas_view = [
        run(plane.kubeconfig, "explain", *form) for form in (["web"], ["default/web"], ["pod/default/web"])
    ]
    assert ['No profile serves schedulerName "unserved"' in each.stdout for each in replicas_view] == [True] * 3


def test_few_rights_are_enough(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """A user who may forward ports in the operator's namespace names it; without the rights the error names them."""
    del replicas
    viewer, reader = plane.kubeconfig_for(VIEWER.name), plane.kubeconfig_for(READER.name)
    named = run(viewer, "status", "--operator", NAMESPACE)
    assert named.stdout.startswith("Scheduling\n"), named
    unnamed = run(viewer, "status")
    assert unnamed.returncode == 1
    assert unnamed.stderr.startswith("bayplan: looking for the operator: GET /api/v1/pods: HTTP 403"), unnamed
    assert "name its namespace with --operator NAMESPACE" in unnamed.stderr
    forbidden = run(reader, "status")
    assert forbidden.returncode == 1
    assert f"you may not forward a port to pod {NAMESPACE}/{PODS[0]}; request the rights" in forbidden.stderr, forbidden


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        pytest.param("default", "no Bayplan operator in namespace default", id="other namespace"),
        pytest.param(
            f"{NAMESPACE}/other", f"no Bayplan operator in namespace {NAMESPACE} with the name other", id="name"
        ),
    ],
)
def test_no_operator_there(plane: ControlPlane, replicas: list[OperatorProcess], operator: str, message: str) -> None:
    """If no operator is found, the error has the remedy."""
    del replicas
    answer = run(plane.kubeconfig, "status", "--operator", operator)
    assert (answer.returncode, message in answer.stderr) == (1, True), answer
    assert "install it with Helm, choose another cluster with --context, or set --server" in answer.stderr


def test_an_address_of_the_environment_wins(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """The operator at the address of BAYPLAN_SERVER is queried, and no cluster."""
    leader, _ = replicas
    answer = run(Path("/nonexistent"), "status", BAYPLAN_SERVER=f"127.0.0.1:{leader.port}")
    assert answer.stdout.startswith("Scheduling\n"), answer
    del plane


def test_a_new_leader_is_found(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """After a takeover the new leader answers; runs last, because it ends a replica."""
    leader, standby = replicas
    leader.kill()
    standby.until(lambda: standby.metric("bayplan_leader", lease=f"{NAMESPACE}/bayplan") == 1, "the standby leads")
    standby.wait_until_ready()
    unreachable = run(plane.kubeconfig, "status", "--operator", f"{NAMESPACE}/{PODS[0]}")
    assert unreachable.returncode == 1
    assert f"the port of pod {NAMESPACE}/{PODS[0]} cannot be forwarded" in unreachable.stderr, unreachable
    plane.kubectl("delete", f"pod/{PODS[0]}", f"--namespace={NAMESPACE}", "--grace-period=0", "--force")
    answer = run(plane.kubeconfig, "status")
    assert answer.stdout.startswith("Scheduling\n"), answer
