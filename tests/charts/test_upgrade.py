"""Upgrade and rollback by Helm 3 and 4 under load: from the previous version to this one, back, and again.

Pods and gangs are created all the time. Each replica runs the code of its version, as its release configures it, and
replicas are replaced one after the other, as the Deployment's rolling update does.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.accounts import bind_responses
from hack.controlplane.api_client import ApiClient
from hack.controlplane.installed_operator import InstalledOperator
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options
from tests.charts.conftest import CHART, Helm
from tests.charts.previous_version import previous_version
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.operator_process import SOURCES, OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(600)]
_NAMESPACE = "bayplan-system"
_WORK = "work"
_NODES, _PODS_PER_NODE = 20, 500
_GANG = 3
_EVERY = 5
"""One gang follows so many single pods."""
_INTERVAL_SECONDS = 0.1
_PROGRESS = 15
"""So many pods that are created after a change must be bound before the next one."""
_WAIT_SECONDS = 120.0


class Load(threading.Thread):
    """Creation of pods and gangs until it is stopped.

    Attributes:
        pods: Names of all created pods.
        failure: What ended it early.
    """

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self.pods: list[str] = []
        self.failure: Exception | None = None
        self._api = ApiClient(plane)
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            for number in range(100_000):
                if self._stopped.wait(_INTERVAL_SECONDS):
                    return
                self._create(number)
        except Exception as error:  # noqa: BLE001 - reported by the test
            self.failure = error

    def stop(self) -> list[str]:
        """Stop it; return the names of all pods."""
        self._stopped.set()
        self.join(_WAIT_SECONDS)
        self._api.close()
        assert self.failure is None, self.failure
        return self.pods

    def _create(self, number: int) -> None:
        if number % _EVERY:
            self._pod(f"single-{number}", {})
            return
        group = {
            "apiVersion": "bayplan.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": f"gang-{number}", "namespace": _WORK},
            "spec": {"minMember": _GANG},
        }
        self._api.create(group)
        for member in range(_GANG):
            self._pod(f"gang-{number}-{member}", {"bayplan.dev/pod-group": f"gang-{number}"})

    def _pod(self, name: str, labels: dict[str, str]) -> None:
        fields = {"cpu": "10m", "memory": "1Mi", "labels": labels, "spec": {"schedulerName": "bayplan"}}
        self._api.create(pod_manifest(name, _WORK, fields))
        self.pods.append(name)


@dataclass
class Rollout:
    """A release with its two replicas.

    Attributes:
        replicas: The running processes.
        started: Number of replicas started so far.
    """

    helm: Helm
    plane: ControlPlane
    directory: Path
    stack: ExitStack
    replicas: list[OperatorProcess] = field(default_factory=list)
    started: int = 0

    def run(self, *args: str) -> None:
        """Run Helm, which must succeed."""
        answer = self.helm.run(*args, f"--namespace={_NAMESPACE}", kubeconfig=self.plane.kubeconfig)
        assert answer.returncode == 0, answer.stderr

    def replace(self, sources: Path) -> None:
        """Replace the replicas by those of the Deployment: each old one stops once a new one is ready."""
        old, self.replicas = self.replicas, []
        for index in range(2):
            self.replicas.append(self._start(sources))
            if old:
                code, _ = old[index].terminate()
                assert code == 0, old[index].log[-4000:]

    def _start(self, sources: Path) -> OperatorProcess:
        self.started += 1
        directory = self.directory / f"replica-{self.started}"
        kubeconfig, (_, *flags) = InstalledOperator(self.plane, _NAMESPACE, "bayplan").prepared(directory)
        process = OperatorProcess(kubeconfig, directory / "operator.log", flags, secure=True, sources=sources)
        self.stack.enter_context(process)
        process.start()
        return process


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Start a control plane with nodes that run every pod."""
    with ControlPlane(Options(audit=True)) as plane:
        plane.start_kwok()
        plane.kubectl("create", "namespace", _WORK)
        with ApiClient(plane) as api:
            api.create_all(
                node_manifest(f"node-{number}", {"cpu": "64", "pods": str(_PODS_PER_NODE)}) for number in range(_NODES)
            )
        yield plane


def test_nothing_is_lost_by_an_upgrade_and_a_rollback(each_helm: Helm, plane: ControlPlane, tmp_path: Path) -> None:
    """Every pod of the load is bound once, gangs and edits of profiles stay, and the definitions are upgraded."""
    previous = previous_version(tmp_path / "previous")
    with ExitStack() as stack:
        rollout = Rollout(each_helm, plane, tmp_path, stack)
        old_chart = str(previous / "charts" / "bayplan")
        rollout.run("install", "bayplan", old_chart, "--create-namespace", "--wait=false")
        rollout.replace(previous)
        plane.kubectl("wait", "schedulerprofile/bayplan", "--for=condition=Ready", "--timeout=60s")
        plane.kubectl(
            "patch", "schedulerprofile/bayplan", "--type=merge", '--patch={"spec": {"podMaxBackoffSeconds": 7}}'
        )
        load = Load(plane)
        load.start()
        progress = partial(_await_progress, plane, load)
        progress()

        upgrade = ("upgrade", "bayplan", str(CHART), "--wait=false", "--reset-then-reuse-values")
        # The old chart's definitions have no owner.
        rollout.run(*upgrade, "--take-ownership")
        assert _definition(plane)["versions"][0]["selectableFields"] != []
        progress()
        rollout.replace(SOURCES)
        progress()

        rollout.run("rollback", "bayplan", "1", "--wait=false")
        progress()
        rollout.replace(previous)
        progress()

        rollout.run(*upgrade)
        rollout.replace(SOURCES)
        progress()
        pods = load.stop()
        _until_all_are_bound(plane, pods)
        for replica in rollout.replicas:
            assert replica.terminate()[0] == 0
        logs = [path.read_text() for path in tmp_path.glob("replica-*/operator.log")]
    assert [line for log in logs for line in log.splitlines() if "Traceback" in line or "HTTP 403" in line] == []
    # Requests for paths without an object have no reference.
    bound = bind_responses((event for event in plane.audit_events() if "objectRef" in event), _WORK)[201]
    assert bound == Counter(pods), "a pod was bound twice, or never"
    spec = json.loads(plane.kubectl("get", "schedulerprofile/bayplan", "--output=json"))["spec"]
    assert spec["podMaxBackoffSeconds"] == 7
    assert _numbers_of_revisions(plane) == [1, 2]


def _await_progress(plane: ControlPlane, load: Load) -> None:
    """Wait until pods that are created from now on are bound."""
    first = len(load.pods)
    _wait(lambda: load.failure is not None or len(load.pods) >= first + _PROGRESS)
    assert load.failure is None, load.failure
    _until_all_are_bound(plane, load.pods[first : first + _PROGRESS])


def _until_all_are_bound(plane: ControlPlane, pods: list[str]) -> None:
    with ApiClient(plane) as api:
        path = f"/api/v1/namespaces/{_WORK}/pods"
        missing = set(pods)

        def are_bound() -> bool:
            missing.difference_update(pod["metadata"]["name"] for pod in api.items(path) if pod["spec"].get("nodeName"))
            return not missing

        assert _wait(are_bound, 0.5), f"not bound: {sorted(missing)[:10]}"


def _wait(condition: Any, poll: float = 0.05) -> bool:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll)
    return True


def _definition(plane: ControlPlane) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plane.kubectl("get", "crd/podgroups.bayplan.dev", "--output=json"))["spec"]
    return found


def _numbers_of_revisions(plane: ControlPlane) -> list[int]:
    """Return the numbers of the profile's stored revisions."""
    listed = plane.kubectl("get", "controllerrevisions", f"--namespace={_NAMESPACE}", "--output=json")
    return sorted(one["revision"] for one in json.loads(listed)["items"])
