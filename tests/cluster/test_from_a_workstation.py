"""CLI commands on a workstation: they find the leader in the cluster of the kubeconfig, through a real API server.

kwok is the kubelet of the operator's pods. It connects the ports of the pods to the operator's processes.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hack.controlplane import binaries, probes
from hack.controlplane.certificates import Authority
from hack.controlplane.credentials import User
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import STAGES, Layout, Options, kwok_args
from scheduler_core.recording.record_file import RecordReader
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300), pytest.mark.in_order]
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "bayplan-system"
PODS = ("bayplan-6f7c-x", "bayplan-6f7c-y")
SECRETS = {
    name: f"{name}-{secrets.token_hex(12)}" for name in ("env", "settings", "object", "annotation", "argument", "log")
}
CLIENT = Authority().issue("client")
SECRETS["key"] = base64.b64encode(CLIENT.key.encode()).decode()
SECRETS["middle of the key"] = SECRETS["key"][40:80]
"""Secrets in the cluster, by the place where they are."""
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
    documents += [
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Logs",
            "metadata": {"name": pod, "namespace": NAMESPACE},
            "spec": {"logs": [{"containers": ["bayplan"], "logsFile": str(config.with_name(f"{pod}.cri"))}]},
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
    env = [{"name": "PLAIN", "value": SECRETS["env"]}]
    labels = {"bayplan.dev/local-port": str(port), "app.kubernetes.io/instance": "bayplan"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "nodeName": "edge",
            "containers": [{"name": "bayplan", "image": "bayplan", "env": env}],
            "volumes": [{"name": "settings", "configMap": {"name": "bayplan-settings"}}],
        },
    }


def run(kubeconfig: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user on a workstation."""
    environment = {"PATH": os.defpath, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'operator'}", "COLUMNS": "200"}
    environment |= {"KUBECONFIG": str(kubeconfig), **variables}
    command = [sys.executable, "-m", "bayplan", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_leader_answers(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """Without a port-forward and an address, commands get the leader's response, whatever pod is listed first."""
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
    assert run(plane.kubeconfig, "explain", "-A", "web").stdout == replicas_view[0].stdout
    missing = run(plane.kubeconfig, "explain", "-A", "gone")
    assert (missing.returncode, "pod gone not found in any namespace" in missing.stderr) == (1, True), missing
    listed = [
        run(plane.kubeconfig, "status", "--all", *form).stdout for form in (["-A"], ["-n", "default"], ["-n", "x"])
    ]
    assert ["default/web" in each for each in listed] == [True, True, False], listed


def complete(kubeconfig: Path, line: str) -> set[str]:
    """Return what bash is offered at the end of a line."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_BAYPLAN_COMPLETE": "bash_complete"}
    found = run(kubeconfig, **variables)
    assert found.stderr == "", found
    return {each.partition(",")[2] for each in found.stdout.splitlines()}


def test_a_shell_completes_names(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """Pods, PodGroups, namespaces, profiles and revisions are completed, with and without a namespace."""
    group = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": 1},
    }
    profile = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": "completed"},
        "spec": {},
    }
    for manifest in (group, profile):
        plane.kubectl("create", "--filename=-", input=json.dumps(manifest))
    labels = {"profile": "completed", "type": "Ready", "status": "True"}
    replicas[0].until(lambda: replicas[0].metric("bayplan_profile_condition", **labels) == 1, "the profile is live")
    own = plane.kubeconfig
    assert complete(own, f"bayplan explain -n {NAMESPACE} ") == {*PODS, "podgroup/"}
    assert complete(own, f"bayplan explain {NAMESPACE}/") == {f"{NAMESPACE}/{pod}" for pod in PODS}
    assert set(PODS) < complete(own, "bayplan explain -A ")
    assert complete(own, "bayplan explain podgroup/") == {"podgroup/train"}
    assert complete(own, "bayplan explain podgroup/default/t") == {"podgroup/default/train"}
    assert complete(own, f"bayplan status -n {NAMESPACE[:4]}") == {NAMESPACE}
    assert complete(own, "bayplan history com") == {"completed"}
    assert complete(own, "bayplan rollback completed --to-revision ") == {"1"}
    assert complete(own, "bayplan diff completed@") == {"completed@1"}
    assert complete(own, "bayplan reserve room -n default --podgroup ") == {"train"}
    assert complete(own, "bayplan reserve room --scheduler-name com") == {"completed"}


def test_few_rights_are_enough(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """A user who may forward ports in the operator's namespace names it; without the rights the error names them."""
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


@table(
    "operator, message",
    ("other namespace", "default", "no Bayplan operator in namespace default"),
    ("name", f"{NAMESPACE}/other", f"no Bayplan operator in namespace {NAMESPACE} with the name other"),
)
def test_no_operator_there(plane: ControlPlane, replicas: list[OperatorProcess], operator: str, message: str) -> None:
    """If no operator is found, the error has the remedy."""
    answer = run(plane.kubeconfig, "status", "--operator", operator)
    assert (answer.returncode, message in answer.stderr) == (1, True), answer
    assert "install it with Helm, choose another cluster with --context, or set --server" in answer.stderr


def test_an_address_of_the_environment_wins(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """The operator at the address of BAYPLAN_SERVER is queried, and no cluster."""
    leader, _ = replicas
    answer = run(Path("/nonexistent"), "status", BAYPLAN_SERVER=f"127.0.0.1:{leader.port}")
    assert answer.stdout.startswith("Scheduling\n"), answer


def _planted() -> list[dict[str, Any]]:
    """Return objects with secrets: all that a cluster of Bayplan may contain."""
    bayplan = "bayplan.dev/v1alpha1"
    certificate = base64.b64encode(CLIENT.certificate.encode()).decode()
    tls = {"insecure": True, "certData": certificate, "keyData": SECRETS["key"]}
    extender = {"urlPrefix": "https://127.0.0.1:1", "filterVerb": "f", "enableHTTPS": True, "tlsConfig": tls}
    applied = {"note": SECRETS["annotation"]}
    settings = f"logLevel: info\ntracing: {{endpoint: 'https://user:{SECRETS['settings']}@collector'}}\n"
    own = {"name": "bayplan-settings", "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": {"settings.yaml": settings}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": own, "stringData": {"password": SECRETS["object"]}},
        {
            "apiVersion": bayplan,
            "kind": "SchedulerProfile",
            "metadata": {"name": "planted", "annotations": applied},
            "spec": {"extenders": [extender]},
        },
        {
            "apiVersion": bayplan,
            "kind": "PluginConfig",
            "metadata": {"name": "planted"},
            "spec": {"plugin": "Licences", "args": {"apiToken": SECRETS["argument"]}},
        },
    ]


@pytest.fixture(scope="module")
def planted(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """Plant secrets in objects and in a log."""
    for manifest in _planted():
        plane.kubectl("apply", "--filename=-", input=json.dumps(manifest))
    logged = f'a plugin logs "Authorization: Bearer {SECRETS["log"]}"'
    for pod, replica in zip(PODS, replicas, strict=True):
        # The format of a container runtime, of which kwok is the kubelet.
        lines = [f"2026-01-01T00:00:00Z stderr F {line}\n" for line in (*replica.log.splitlines(), logged)]
        replica.log_file.with_name(f"{pod}.cri").write_text("".join(lines))


def _bundle(kubeconfig: Path, target: Path, *options: str) -> dict[str, str]:
    """Run the command; return the files of the archive by their path."""
    answer = run(kubeconfig, "bundle", f"--output={target}", *options)
    assert answer.returncode == 0, answer
    with tarfile.open(target) as archive:
        members = {each.name.partition("/")[2]: archive.extractfile(each) for each in archive.getmembers()}
        return {name: file.read().decode(errors="replace") for name, file in members.items() if file is not None}


def _until_reconciled(replicas: list[OperatorProcess]) -> None:
    labels = {"profile": "planted", "type": "Accepted", "status": "True"}
    replicas[0].until(lambda: replicas[0].metric("bayplan_profile_condition", **labels) == 1, "the profile is live")


@pytest.mark.usefixtures("planted")
def test_a_bundle_has_what_a_ticket_needs_and_no_secret(
    plane: ControlPlane, replicas: list[OperatorProcess], tmp_path: Path
) -> None:
    """A bundle has status, metrics, objects, settings, logs and a record; planted secrets are in no file of it."""
    _until_reconciled(replicas)
    files = _bundle(plane.kubeconfig, tmp_path / "bundle.tar.gz", f"--record={replicas[0].records}")
    assert "Parts that could not be read" not in files["README.txt"], files["README.txt"]
    assert json.loads(files["status.json"])["profiles"]
    assert files["status.txt"].startswith("Scheduling\n")
    assert files["readyz.txt"].endswith("readyz check passed\n")
    assert "bayplan_leader" in files["metrics.txt"]
    assert yaml.safe_load(files[f"operator/settings/{NAMESPACE}/bayplan-settings.yaml"])["settings.yaml"]["logLevel"]
    assert {each["metadata"]["name"] for each in yaml.safe_load(files["operator/pods.yaml"])} == set(PODS)
    assert "planted" in files["objects/schedulerprofiles.yaml"]
    for pod in PODS:
        assert "Serving /livez" in files[f"logs/{pod}.bayplan.log"]
    (record_file,) = _extracted(tmp_path / "bundle.tar.gz", "record.bpr", tmp_path)
    replayed = run(plane.kubeconfig, "replay", str(record_file))
    assert replayed.returncode == 0, replayed
    contents = _decompressed(record_file)
    for place, secret in SECRETS.items():
        forms = (secret, base64.b64encode(secret.encode()).decode())
        assert [name for name, text in files.items() if any(form in text for form in forms)] == [], place
        assert [form for form in forms if form.encode() in contents] == [], f"{place} in the record"


def _extracted(archive: Path, name: str, directory: Path) -> list[Path]:
    with tarfile.open(archive) as opened:
        found = []
        for member in opened.getmembers():
            file = opened.extractfile(member)
            if member.name.endswith(f"/{name}") and file is not None:
                found.append(directory / name)
                found[-1].write_bytes(file.read())
        return found


def _decompressed(record: Path) -> bytes:
    with record.open("rb") as file:
        reader = RecordReader(file, str(record))
        frames = [msgspec.json.encode(frame.entries) for frame in reader.frames()]
        return b"".join([msgspec.json.encode(reader.header), *frames])


@pytest.mark.usefixtures("planted")
def test_a_bundle_with_hashed_names(plane: ControlPlane, replicas: list[OperatorProcess], tmp_path: Path) -> None:
    """With --hash-names no name of the operator's pods, namespace, node and profiles is in any file or path."""
    _until_reconciled(replicas)
    files = _bundle(plane.kubeconfig, tmp_path / "bundle.tar.gz", "--hash-names")
    text = "\n".join([*files, *files.values()])
    assert [name for name in (NAMESPACE, *PODS, "planted") if name in text] == []
    assert "Serving /livez" in text
    refused = run(plane.kubeconfig, "bundle", "--hash-names", f"--record={replicas[0].records}")
    assert refused.returncode == 2
    assert "--record: a record contains names" in refused.stderr


@pytest.mark.usefixtures("replicas")
def test_a_bundle_lists_what_cannot_be_read(plane: ControlPlane, tmp_path: Path) -> None:
    """With few rights the readable parts are written, and the others are listed with the missing rights."""
    viewer = plane.kubeconfig_for(VIEWER.name)
    files = _bundle(viewer, tmp_path / "bundle.tar.gz", f"--operator={NAMESPACE}")
    assert json.loads(files["status.json"])
    assert "  schedulerprofiles: GET /apis/bayplan.dev/v1alpha1/schedulerprofiles: HTTP 403" in files["README.txt"]
    hashed = run(viewer, "bundle", "--hash-names", f"--operator={NAMESPACE}", f"--output={tmp_path / 'x'}")
    assert hashed.returncode == 1
    assert "/api/v1/namespaces: HTTP 403" in hashed.stderr
    assert not (tmp_path / "x").exists()


def test_a_bundle_of_nothing_is_an_error(tmp_path: Path) -> None:
    """Without an operator and a cluster no archive is written."""
    answer = run(Path("/nonexistent"), "bundle", "--server=127.0.0.1:1", f"--output={tmp_path / 'x'}")
    assert answer.returncode == 2
    assert "nothing can be read" in answer.stderr
    assert not (tmp_path / "x").exists()


def test_a_kubelet_that_cannot_be_reached(plane: ControlPlane, replicas: list[OperatorProcess]) -> None:
    """If the API server cannot connect to the kubelet of the operator's node, the error has its reason."""
    status = _status(probes.free_port())
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "remote"}, "status": status}
    pod = _pod("remote", replicas[0].port)
    pod["metadata"]["namespace"] = "remote"
    pod["spec"]["nodeName"] = "remote"
    plane.kubectl("create", "namespace", "remote")
    for document in (node, pod):
        plane.kubectl("create", "--filename=-", input=json.dumps(document))
    plane.kubectl("patch", "node/remote", "--subresource=status", f"--patch={json.dumps({'status': status})}")
    plane.kubectl("wait", "--for=condition=Ready", "pod/remote", "--namespace=remote", "--timeout=60s")
    answer = run(plane.kubeconfig, "status", "--operator", "remote/remote")
    plane.kubectl("delete", "pod/remote", "--namespace=remote", "--grace-period=0", "--force")
    assert answer.returncode == 1
    assert "the port of pod remote/remote cannot be forwarded" in answer.stderr, answer
    assert "HTTP 500: error dialing backend: dial tcp 127.0.0.1:" in answer.stderr, answer


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
