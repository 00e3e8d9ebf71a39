"""A running pod with a deferred in-place resize, compared with kube-scheduler with the same feature gate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.controlplane.api_client import ApiClient, Manifest, address, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import start_kube_scheduler
from hack.controlplane.servers import Options
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kube_scheduler, pytest.mark.reference, pytest.mark.timeout(300)]
GATE = "InPlacePodVerticalScalingSchedulerPreemption"
NAMESPACE = "default"
WAIT_SECONDS = 60.0
RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": "PodScheduled", "status": "True"},
        {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
    ],
    "containerStatuses": [
        {
            "name": "c",
            "image": "i",
            "imageID": "i",
            "ready": True,
            "restartCount": 0,
            "allocatedResources": {"cpu": "1", "memory": "64Mi"},
            "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
        }
    ],
}

plane = module_plane(options=Options(feature_gates={GATE: True}))
"""Its nodes may disable preemption for resizes. No kubelet changes the status of pods."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS:.0f} s: {what}"
        time.sleep(0.05)


@contextmanager
def kube_scheduler(plane: ControlPlane, name: str, log: Path) -> Iterator[None]:
    process = start_kube_scheduler(plane, name, [f"--feature-gates={GATE}=true"])
    try:
        yield
    finally:
        process.kill()


@contextmanager
def bayplan(plane: ControlPlane, name: str, log: Path) -> Iterator[None]:
    with ApiClient(plane) as api, OperatorProcess(plane.kubeconfig, log) as process:
        profile = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": name}}
        api.create({**profile, "spec": {}})
        process.start(f"--feature-gates={GATE}=true")
        yield


class DeferredResize:
    """A node with a victim and a pod with a deferred resize, and a second node for pods that prove an attempt.

    Args:
        name: Name of the scheduler, and prefix of all object names.
    """

    def __init__(self, plane: ControlPlane, api: ApiClient, name: str) -> None:
        self._plane, self._api, self._name = plane, api, name
        self.node = node_manifest(f"{name}-a", {"cpu": "3"})
        self.node["spec"]["podPreemptionPolicy"] = {"disableResizePreemption": ["a-test"]}
        self.victim, self.resized = self._pod("victim", "1"), self._pod("resized", "3")
        self.resized["spec"]["priorityClassName"] = "system-cluster-critical"
        self.resized["status"] = RUNNING
        api.create_all([self.node, node_manifest(f"{name}-b", {"cpu": "3", "labels": {"for": name}})])
        for each in (self.victim, self.resized):
            each["spec"]["nodeName"] = f"{name}-a"
            api.create(each)

    def _pod(self, name: str, cpu: str) -> Manifest:
        return pod_manifest(f"{self._name}-{name}", NAMESPACE, {"cpu": cpu, "spec": {"schedulerName": self._name}})

    def await_attempt(self, name: str) -> None:
        """Wait until a new pod is bound, which proves that the pods of higher priority have been attempted."""
        probe = self._pod(name, "10m")
        probe["spec"]["nodeSelector"] = {"for": self._name}
        probe["spec"]["tolerations"] = [{"operator": "Exists"}]
        self._api.create(probe)
        until(lambda: bool(self._read(probe)["spec"].get("nodeName")), f"{name} is bound")

    def _read(self, manifest: Manifest) -> Manifest:
        return self._api.get(address(manifest))

    def is_evicted(self) -> bool:
        """Return whether the victim is being deleted."""
        return "deletionTimestamp" in self._read(self.victim)["metadata"]

    def allow(self) -> None:
        """Allow preemption for resizes on the node."""
        self._api.patch(self.node, {"spec": {"podPreemptionPolicy": None}})

    def observed_state(self) -> dict[str, object]:
        """Return the conditions, events and nomination of both pods, without names."""
        conditions = {
            (each["type"], each["status"], each.get("reason", ""), each.get("message", "").replace(self._name, "S"))
            for manifest in (self.victim, self.resized)
            for each in status_of(self._read(manifest)).get("conditions", [])
        }
        events = {
            (each["regarding"]["name"].removeprefix(self._name), each["reason"])
            for each in self._api.items(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
            if each["regarding"]["name"] in {self.victim["metadata"]["name"], self.resized["metadata"]["name"]}
        }
        nominated = status_of(self._read(self.resized)).get("nominatedNodeName", "")
        return {"conditions": conditions, "events": events, "nominated": nominated}

    def clean_up(self) -> None:
        """Delete pods and nodes."""
        selected = [each for each in self._api.items("/api/v1/pods") if each["spec"]["schedulerName"] == self._name]
        for each in selected:
            self._api.delete({"apiVersion": "v1", "kind": "Pod", **each}, grace_seconds=0)
        for short in "ab":
            self._plane.kubectl("delete", "node", f"{self._name}-{short}")


def run(plane: ControlPlane, name: str) -> list[dict[str, object]]:
    """Return the observed state while the node disables preemption, afterwards, and after the victim is deleted."""
    with ApiClient(plane) as api:
        resize = DeferredResize(plane, api, name)
        resize.await_attempt("first")
        assert not resize.is_evicted()
        found = [resize.observed_state()]
        resize.allow()
        until(resize.is_evicted, "the victim is evicted")
        until(lambda: ("-victim", "Preempted") in resize.observed_state()["events"], "the event")  # type: ignore[operator]
        found.append(resize.observed_state())
        api.delete(resize.victim, grace_seconds=0)
        resize.await_attempt("second")
        resized = api.get(address(resize.resized))
        found.append({"node": resized["spec"]["nodeName"].removeprefix(name), "status": status_of(resized)["phase"]})
        resize.clean_up()
        return found


def test_both_schedulers_preempt_for_a_deferred_resize(plane: ControlPlane, tmp_path: Path) -> None:
    """No pod is evicted while the node disables preemption; then the victim is, and the pod keeps its status."""
    with kube_scheduler(plane, "theirs", tmp_path / "theirs"):
        theirs = run(plane, "theirs")
    with bayplan(plane, "ours", tmp_path / "ours"):
        ours = run(plane, "ours")
    assert ours == theirs
    evicted = ours[1]
    assert evicted["events"] == {("-victim", "Preempted")}
    assert evicted["nominated"] == ""
