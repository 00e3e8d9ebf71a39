"""The launcher with real servers: readiness, audit log, failed starts, and the end of all processes."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import processes
from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.processes import Process, Record
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import Options

pytestmark = pytest.mark.cluster
_ROOT = Path(processes.__file__).resolve().parents[2]


def node(name: str, **status: Any) -> dict[str, Any]:
    """Return a node with four cores."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts | {"cpu": "3"}} | status
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, *, on: str | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a pod with one container, bound to the node *on* if it is given."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "example/main:1"}]}
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def create(plane: ControlPlane, namespace: str, *objects: dict[str, Any]) -> None:
    """Create objects with kubectl."""
    documents = "\n".join(json.dumps(item) + "\n---" for item in objects)
    plane.kubectl("create", "--namespace", namespace, "--filename=-", input=documents)


def wait_for(plane: ControlPlane, namespace: str, what: str, condition: str) -> None:
    """Wait with kubectl until a condition holds."""
    plane.kubectl("wait", "--namespace", namespace, what, f"--for={condition}", "--timeout=60s")


def get(plane: ControlPlane, namespace: str, what: str) -> dict[str, Any]:
    """Return one object."""
    found: dict[str, Any] = json.loads(plane.kubectl("get", "--namespace", namespace, what, "--output=json"))
    return found


def bind(plane: ControlPlane, namespace: str, name: str, target: str) -> None:
    """Bind a pod as a scheduler would."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": target}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
    plane.kubectl("create", "--raw", path, "--filename=-", input=json.dumps(binding))


def still_running(records: Sequence[Record], action: Any, *, within: float = 60.0) -> list[str]:
    """Call *action*, and return the names of the processes that have not ended afterwards.

    A pidfd becomes readable when its process still_running, whatever its parent is.
    """
    handles = {os.pidfd_open(record.pid): record.name for record in records}
    try:
        action()
        for handle in list(handles):
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            if waiting.poll(within * 1000):
                os.close(handle)
                del handles[handle]
        return list(handles.values())
    finally:
        for handle in handles:
            os.close(handle)


@pytest.fixture(scope="module")
def workers(control_plane: ControlPlane, kwok: Process) -> Iterator[tuple[str, str]]:
    """Create two nodes on the session's control plane for this module."""
    names = ("launcher-a", "launcher-b")
    create(control_plane, "default", *(node(name) for name in names))
    yield names
    control_plane.kubectl("delete", "nodes", *names)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ControlPlane]:
    """Start a control plane for one test."""
    with ControlPlane(Options(state_dir=tmp_path / "state")) as plane:
        yield plane


def test_a_reset_leaves_the_objects_of_the_start(own: ControlPlane) -> None:
    """Objects with finalizers are deleted and programs stopped; Bayplan's definitions stay unless named."""
    listed = ("get", "nodes,namespaces,configmaps,pods,clusterroles", "--all-namespaces", "--output=name")
    before = own.kubectl(*listed)
    install_crds(own)
    kwok = own.start_kwok()
    create(own, "default", node("added"))
    for each in ("namespace/added", "configmap/added"):
        own.kubectl("create", *each.split("/"))
    own.kubectl("patch", "configmap/added", '--patch={"metadata": {"finalizers": ["example.com/held"]}}')
    assert own.kubectl(*listed) != before
    own.reset()
    assert own.kubectl(*listed) == before
    assert not kwok.alive
    assert "podgroups.bayplan.dev" in own.kubectl("get", "crds", "--output=name")
    own.reset(definitions=True)
    assert own.kubectl("get", "crds", "--output=name") == ""
    install_crds(own)


def test_the_kubeconfig_verifies_the_server(control_plane: ControlPlane) -> None:
    """The kubeconfig trusts the server's certificate, and does not skip the verification."""
    (cluster,) = yaml.safe_load(control_plane.kubeconfig.read_text())["clusters"]
    assert set(cluster["cluster"]) == {"server", "certificate-authority-data"}
    assert control_plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_a_node_that_is_not_ready_stays_so(
    control_plane: ControlPlane, workers: tuple[str, str], namespace: str
) -> None:
    """A node that is created as not ready is not changed by kwok."""
    broken = node("launcher-broken", conditions=[{"type": "Ready", "status": "False"}])
    create(control_plane, namespace, broken, pod("elsewhere", on=workers[0]))
    wait_for(control_plane, namespace, "pod/elsewhere", "jsonpath={.status.phase}=Running")
    conditions = status_of(get(control_plane, namespace, "node/launcher-broken")).get("conditions", ())
    control_plane.kubectl("delete", "node", "launcher-broken")
    assert [(row["type"], row["status"]) for row in conditions] == [("Ready", "False")]


def test_the_audit_log_records_a_binding(control_plane: ControlPlane, workers: tuple[str, str], namespace: str) -> None:
    """The audit log has the user, the node and the response code of each bind."""
    create(control_plane, namespace, pod("audited"))
    bind(control_plane, namespace, "audited", workers[0])
    with pytest.raises(ControlPlaneError, match="already assigned"):
        bind(control_plane, namespace, "audited", workers[1])
    assert get(control_plane, namespace, "pod/audited")["spec"]["nodeName"] == workers[0]
    deadline = time.monotonic() + 60.0
    # An entry is written after the response.
    while len(bindings := logged_bindings(control_plane, namespace)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert bindings == [("bayplan-admin", workers[0], 201), ("bayplan-admin", workers[1], 409)]


def logged_bindings(plane: ControlPlane, namespace: str) -> list[tuple[str, str, int]]:
    """Return user, node and code of each bind in the audit log."""
    return [
        (event["user"]["username"], event["requestObject"]["target"]["name"], event["responseStatus"]["code"])
        for event in plane.audit_events()
        # Requests for no object, such as those for /readyz, have none.
        if (of := event.get("objectRef", {})).get("subresource") == "binding" and of["namespace"] == namespace
    ]


def test_stop_leaves_no_process() -> None:
    """Stop still_running all processes, even a paused one, and removes a temporary state directory."""
    plane = ControlPlane().start()
    records = processes.read_records(plane.state_dir)
    assert [record.name for record in records] == ["etcd", "kube-apiserver"]
    plane.etcd.pause()
    assert still_running(records, plane.stop) == []
    assert not plane.state_dir.exists()


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    """When the Python process is killed, its servers end too, whichever thread has started them."""
    script = f"""
import sys, threading
from pathlib import Path
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options
plane = ControlPlane(Options(state_dir=Path({str(tmp_path)!r})))
starter = threading.Thread(target=plane.start)
starter.start()
starter.join()
print(plane.kubectl("get", "--raw", "/readyz"), flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ok\n"
        records = processes.read_records(tmp_path)
        assert still_running(records, parent.kill) == []
    assert parent.returncode == -signal.SIGKILL


def test_up_leaves_servers_and_down_ends_them(tmp_path: Path) -> None:
    """`up` leaves the servers running after it has exited, and `down` still_running them."""
    command = [sys.executable, "-m", "hack.controlplane.launcher"]
    printed = subprocess.run(
        [*command, "up", "--state-dir", str(tmp_path)], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert f"export KUBECONFIG={tmp_path / 'kubeconfig'}" in printed
    records = processes.read_records(tmp_path)
    assert [record.is_running() for record in records] == [True, True]
    assert (tmp_path / "bin" / "kubectl").is_file()
    assert f"{tmp_path / 'bin' / 'kubectl'} get nodes" in printed
    down = printed.split("To end it:\n")[1].strip()
    # The printed command must work in any directory.
    by_shell = ["/bin/sh", "-c", down]
    assert (
        still_running(records, lambda: subprocess.run(by_shell, cwd="/", check=True, stdout=subprocess.DEVNULL)) == []
    )


def test_a_reused_pid_is_not_ended() -> None:
    """A process whose start time differs from the record's is not ended."""
    own = processes.Record("etcd", os.getpid(), 1, Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    assert not processes.end_recorded(own)


def test_a_failed_start_shows_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When a server does not start, the error has its log, no process is left and the log file is not removed."""
    plane = ControlPlane(Options(state_dir=tmp_path, apiserver_args=["--no-such-flag"]))
    with pytest.raises(ControlPlaneError, match=r"kube-apiserver ended with status 1 .*\n(.*\n)*.*unknown flag"):
        plane.start()
    assert processes.read_records(tmp_path) == []
    assert "unknown flag" in (tmp_path / "logs" / "kube-apiserver.log").read_text()
    assert f"logs are in {tmp_path / 'logs'}" in capsys.readouterr().err


def test_a_state_dir_in_use_is_rejected(own: ControlPlane) -> None:
    """A state directory belongs to one control plane only."""
    with pytest.raises(ControlPlaneError, match=r"belongs to a control plane that runs \(etcd, kube-apiserver\)"):
        ControlPlane(Options(state_dir=own.state_dir)).start()
