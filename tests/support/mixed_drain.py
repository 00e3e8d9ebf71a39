"""Plain, gated, preempting and infeasible pods and pods with volumes, and the checks after they are scheduled.

The test injects faults meanwhile. It calls :meth:`MixedDrain.prepare`, :meth:`~MixedDrain.begin`,
:meth:`~MixedDrain.burst`, :meth:`~MixedDrain.settle` and :meth:`~MixedDrain.make_room` in this order.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Self

from hack.controlplane import accounts
from hack.controlplane.api_client import ApiClient, Manifest, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.volume_controller import PROVISIONER
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.operator_process import OperatorProcess
from tests.support.pod_history import NodeCapacity, PodHistory

PLAIN, GATED, WITH_CLAIMS, IMPORTANT, TOO_LARGE = 460, 40, 20, 20, 2
FILLERS = 40
PODS = PLAIN + GATED + WITH_CLAIMS + IMPORTANT + FILLERS
_FULL_NODES, _WIDE_NODES = 10, 40
_POLL_SECONDS = 0.2
_PREEMPTED_BY = "Preempted by pod "


class MixedDrain:
    """Pods in their own namespace, for their own nodes and their own SchedulerProfile.

    Args:
        plane: Control plane; requests of the test do not pass through a proxy.

    Attributes:
        token: Name of the namespace and the scheduler, and value of the nodes' label ``for``.
        history: Changes of the pods.
    """

    def __init__(self, plane: ControlPlane, operator: OperatorProcess) -> None:
        self.api = ApiClient(plane)
        self.token = f"mixed-{uuid.uuid4().hex[:8]}"
        self._operator = operator
        self._log = accounts.BindingLog(plane.audit_log)
        self._capacities = {self._node_name("full", index): NodeCapacity(4000, 110) for index in range(_FULL_NODES)}
        self._capacities |= {self._node_name("wide", index): NodeCapacity(16000, 110) for index in range(_WIDE_NODES)}
        self._capacities[self._node_name("huge", 0)] = NodeCapacity(200_000, 110)
        self.history = PodHistory(plane, self.token, self._capacities)

    def __enter__(self) -> Self:
        self.api.create({"kind": "Namespace", "metadata": {"name": self.token}})
        self.history.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.history.__exit__(None, None, None)
        self.api.close()

    # -- steps of the test --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create nodes, classes and the profile, and wait until the profile is ready."""
        for index in range(_FULL_NODES):
            self._node("full", index, "4")
        for index in range(_WIDE_NODES):
            self._node("wide", index, "16")
        for name, value in (("low", 1), ("high", 1000)):
            self._cluster_object("PriorityClass", name, "scheduling.k8s.io/v1", value=value)
        late = {"provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
        self._cluster_object("StorageClass", "late", "storage.k8s.io/v1", **late)
        self._cluster_object("SchedulerProfile", "", "bayplan.dev/v1alpha1", spec={})
        self._until(self._is_ready, "the profile is ready", 90.0)

    def begin(self) -> None:
        """Create claims and pods, all but the important ones."""
        self.api.create_all(self._claim(f"data{index}") for index in range(WITH_CLAIMS))
        pods = [self._filler(index) for index in range(FILLERS)]
        pods += [self._pod(f"plain{index}") for index in range(PLAIN)]
        pods += [self._pod(f"gated{index}", schedulingGates=[{"name": "example.com/a"}]) for index in range(GATED)]
        pods += [self._pod(f"volume{index}", volumes=[_volume(index)]) for index in range(WITH_CLAIMS)]
        pods += [self._pod(f"large{index}", cpu="100") for index in range(TOO_LARGE)]
        self.api.create_all(pods)

    def burst(self) -> None:
        """Wait until the full nodes are full, create important pods for them, and remove the scheduling gates."""
        self._until(lambda: self._bound("filler") == FILLERS, "the full nodes are full", 90.0)
        important = f"{self.token}-high"
        self.api.create_all(
            self._pod(f"important{index}", pool="full", priorityClassName=important) for index in range(IMPORTANT)
        )
        for index in range(GATED):
            manifest = {"kind": "Pod", "metadata": {"name": f"gated{index}", "namespace": self.token}}
            self.api.patch(manifest, {"spec": {"schedulingGates": None}})

    def run_for(self, seconds: float) -> None:
        """Delete terminating pods for a while, as the kubelet does."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._delete_terminating()

    def settle(self, seconds: float) -> None:
        """Wait until only infeasible pods are pending, their statuses are written, and all victims are deleted."""
        infeasible = [f"large{index}" for index in range(TOO_LARGE)]
        self._until(lambda: sorted(_names(self._unbound())) == infeasible, "all feasible pods are bound", seconds)
        self._until(lambda: self._are_statuses_written(infeasible), "all statuses are written", seconds)
        self._until(lambda: not self._terminating(), "all victims are deleted", seconds)
        self._until(lambda: self.history.node_of == self._node_of(), "the watch has received all changes", seconds)
        self._log.read()

    def make_room(self, seconds: float) -> None:
        """Add a node for the infeasible pods; its event must requeue them."""
        self._node("huge", 0, "200")
        self._until(lambda: not self._unbound(), "the large pods are bound", seconds)

    # -- checks -------------------------------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """Return every violation."""
        pods = self._pods()
        nodes = self.api.items("/api/v1/nodes", labelSelector=f"for={self.token}")
        nominated = [pod for pod in pods if not pod["spec"].get("nodeName") and _nomination(pod)]
        return [
            *self.history.violations,
            *(f"bound twice: {name}" for name in self._log.twice()),
            *(f"overcommitted: {sentence}" for sentence in accounts.overcommitted(nodes, pods)),
            *(f"bound, but reported as unscheduled: {name}" for name in accounts.reported_unscheduled(pods)),
            *(f"pending, but still nominated: {name}" for name in _names(nominated)),
            *self._wrong_victims(),
        ]

    def pods_without_events(self) -> list[str]:
        """Return the bound pods without event Scheduled and the victims without event Preempted."""
        bound = [name for uid, name in self.history.names.items() if uid in self.history.node_of]
        victims = [self._name_of(uid) for uid in self.history.deleted]
        scheduled, preempted = self._pods_with_event("Scheduled"), self._pods_with_event("Preempted")
        return [
            *(name for name in bound if name not in scheduled),
            *(name for name in victims if name not in preempted),
        ]

    def _wrong_victims(self) -> list[str]:
        # More victims than preemptors are no violation: as in kube-scheduler, a failed bind removes the nomination, and
        # a victim counts as running until its deletion is observed.
        victims = [self._name_of(uid) for uid in self.history.deleted]
        found = [f"deleted, but no filler: {name}" for name in victims if not name.startswith("filler")]
        for name, note in self._events("Preempted"):
            uid = note.removeprefix(_PREEMPTED_BY).split(" ", 1)[0]
            if not self.history.names.get(uid, "").startswith("important"):
                found.append(f"event of {name} names no important pod: {note}")
            if name not in victims:
                found.append(f"{name} has event Preempted, but was not deleted")
        return found

    def _are_statuses_written(self, infeasible: list[str]) -> bool:
        """Return whether exactly the infeasible pods are reported as unschedulable, without nomination."""
        reported = [pod for pod in self._unbound() if _reason(pod) == "Unschedulable" and not _nomination(pod)]
        return sorted(_names(reported)) == infeasible

    def _events(self, reason: str) -> list[tuple[str, str]]:
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.token}/events")
        return [(one["regarding"]["name"], one.get("note", "")) for one in events if one["reason"] == reason]

    def _pods_with_event(self, reason: str) -> set[str]:
        return {name for name, _ in self._events(reason)}

    def _name_of(self, uid: str) -> str:
        return self.history.names[uid]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _pods(self) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{self.token}/pods")

    def _terminating(self) -> list[Manifest]:
        return [pod for pod in self._pods() if pod["metadata"].get("deletionTimestamp")]

    def _unbound(self) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{self.token}/pods", fieldSelector="spec.nodeName=")

    def _is_ready(self) -> bool:
        profile = self.api.get(f"/apis/bayplan.dev/v1alpha1/schedulerprofiles/{self.token}")
        return condition_of(profile, "Ready").get("status") == "True"

    def _bound(self, prefix: str) -> int:
        return sum(self._name_of(uid).startswith(prefix) for uid in list(self.history.node_of))

    def _node_of(self) -> dict[str, str]:
        return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in self._pods() if pod["spec"].get("nodeName")}

    def _until(self, condition: Callable[[], Any], what: str, seconds: float) -> None:
        """Wait until a condition holds, and delete terminating pods meanwhile, as the kubelet does."""
        deadline = time.monotonic() + seconds
        while not condition():
            self._delete_terminating()
            if time.monotonic() > deadline:
                pending = {pod["metadata"]["name"]: status_of(pod) for pod in self._unbound()}
                log = self._operator.log[-4000:]
                seen = f"{len(self.history.node_of)} are bound; {self.history.violations}"
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{seen}\nunbound: {pending}\n{log}")
            time.sleep(_POLL_SECONDS)

    def _delete_terminating(self) -> None:
        for pod in self._terminating():
            self.api.delete({"kind": "Pod", "metadata": pod["metadata"]}, grace_seconds=0)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _node_name(self, pool: str, index: int) -> str:
        return f"{self.token}-{pool}{index}"

    def _node(self, pool: str, index: int, cpu: str) -> None:
        labels = {"for": self.token, "pool": pool}
        self.api.create(node_manifest(self._node_name(pool, index), {"cpu": cpu, "labels": labels}))

    def _cluster_object(self, kind: str, short: str, version: str, **fields: Any) -> None:
        name = f"{self.token}-{short}" if short else self.token
        self.api.create({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields})

    def _pod(self, name: str, cpu: str = "1", pool: str = "", **spec: Any) -> Manifest:
        selector = {"for": self.token} | ({"pool": pool} if pool else {})
        if not pool:
            # Plain pods on the full nodes would leave fewer fillers to preempt.
            spec["affinity"] = _not_in("full")
        spec |= {"schedulerName": self.token, "nodeSelector": selector}
        return pod_manifest(name, self.token, {"cpu": cpu, "spec": spec})

    def _filler(self, index: int) -> Manifest:
        # Every second filler has a grace period, so its preemption takes longer.
        grace = 30 if index % 2 else 0
        low = f"{self.token}-low"
        return self._pod(f"filler{index}", pool="full", priorityClassName=low, terminationGracePeriodSeconds=grace)

    def _claim(self, name: str) -> Manifest:
        request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {**request, "storageClassName": f"{self.token}-late"}
        return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": self.token}, "spec": spec}


def _volume(index: int) -> Manifest:
    return {"name": "v", "persistentVolumeClaim": {"claimName": f"data{index}"}}


def _not_in(pool: str) -> Manifest:
    term = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [pool]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _names(pods: list[Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def _nomination(pod: Manifest) -> str:
    return str(status_of(pod).get("nominatedNodeName", ""))


def _reason(pod: Manifest) -> str:
    return str(condition_of(pod, "PodScheduled").get("reason", ""))
