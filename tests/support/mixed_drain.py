"""A drain with a little of everything, and what must hold at its end whatever befell the requests.

Owns the objects, the order in which they come, and the accounts. It must not cause any trouble: that is a test's.

    prepare() --profile live--> begin() --fillers bound--> burst() ------------------> settle() --> make_room()
                                  plain and gated pods,      important pods on full      only those wait that
                                  pods with late volumes     nodes; the gates open       fit nowhere
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Self

from hack.controlplane import accounts
from hack.controlplane.api_client import ApiClient, Manifest
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
    """One drain in a namespace of its own, on nodes of its own.

    Args:
        plane: The control plane; asked directly.
        operator: Who drains.

    Attributes:
        token: The namespace, the scheduler name, and the label of the nodes.
        history: What happened to the pods.
    """

    def __init__(self, plane: ControlPlane, operator: OperatorProcess) -> None:
        self.api = ApiClient(plane)
        self.token = f"mixed-{uuid.uuid4().hex[:8]}"
        self._operator = operator
        self._log = accounts.BindingLog(plane.audit_log)
        self._rooms = {self._node_name("full", index): NodeCapacity(4000, 110) for index in range(_FULL_NODES)}
        self._rooms |= {self._node_name("wide", index): NodeCapacity(16000, 110) for index in range(_WIDE_NODES)}
        self._rooms[self._node_name("huge", 0)] = NodeCapacity(200_000, 110)
        self.history = PodHistory(plane, self.token, self._rooms)

    def __enter__(self) -> Self:
        self.api.create({"kind": "Namespace", "metadata": {"name": self.token}})
        self.history.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.history.__exit__(None, None, None)
        self.api.close()

    # -- what comes, in this order ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create nodes, classes and the profile, and wait until it is live."""
        for index in range(_FULL_NODES):
            self._node("full", index, "4")
        for index in range(_WIDE_NODES):
            self._node("wide", index, "16")
        for name, value in (("low", 1), ("high", 1000)):
            self._wide("PriorityClass", name, "scheduling.k8s.io/v1", value=value)
        late = {"provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
        self._wide("StorageClass", "late", "storage.k8s.io/v1", **late)
        self._wide("SchedulerProfile", "", "bayplan.dev/v1alpha1", spec={})
        self._until(self._is_live, "the profile is live", 90.0)

    def begin(self) -> None:
        """Create the pods that come first."""
        self.api.create_all(self._claim(f"data{index}") for index in range(WITH_CLAIMS))
        pods = [self._filler(index) for index in range(FILLERS)]
        pods += [self._pod(f"plain{index}") for index in range(PLAIN)]
        pods += [self._pod(f"gated{index}", schedulingGates=[{"name": "example.com/a"}]) for index in range(GATED)]
        pods += [self._pod(f"volume{index}", volumes=[_volume(index)]) for index in range(WITH_CLAIMS)]
        pods += [self._pod(f"large{index}", cpu="100") for index in range(TOO_LARGE)]
        self.api.create_all(pods)

    def burst(self) -> None:
        """When the full nodes are full, important pods come for them; then the gates open."""
        self._until(lambda: self._bound("filler") == FILLERS, "the full nodes are full", 90.0)
        important = f"{self.token}-high"
        self.api.create_all(
            self._pod(f"important{index}", where="full", priorityClassName=important) for index in range(IMPORTANT)
        )
        for index in range(GATED):
            manifest = {"kind": "Pod", "metadata": {"name": f"gated{index}", "namespace": self.token}}
            self.api.patch(manifest, {"spec": {"schedulingGates": None}})

    def run_for(self, seconds: float) -> None:
        """Play the kubelet for a while."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._end_pods()

    def settle(self, seconds: float) -> None:
        """Wait until only those wait that fit nowhere, and what was written about them is."""
        waiting = [f"large{index}" for index in range(TOO_LARGE)]
        self._until(lambda: sorted(_names(self._unbound())) == waiting, "all that fit are bound", seconds)
        self._until(lambda: self._has_told(waiting), "what was to be written is written", seconds)
        self._until(lambda: not self._ending(), "victims are gone", seconds)
        self._until(lambda: self.history.node_of == self._node_of(), "the history is read", seconds)
        self._log.read()

    def make_room(self, seconds: float) -> None:
        """A node for those that fitted nowhere: its event must still wake them."""
        self._node("huge", 0, "200")
        self._until(lambda: not self._unbound(), "the large pods are bound", seconds)

    # -- what must hold -----------------------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """Everything that must not be."""
        pods = self._pods()
        nodes = self.api.items("/api/v1/nodes", labelSelector=f"for={self.token}")
        nominated = [pod for pod in pods if not pod["spec"].get("nodeName") and _nomination(pod)]
        return [
            *self.history.violations,
            *(f"bound twice: {name}" for name in self._log.twice()),
            *(f"overcommitted: {sentence}" for sentence in accounts.overcommitted(nodes, pods)),
            *(f"said not to be scheduled: {name}" for name in accounts.said_unscheduled(pods)),
            *(f"nominated for nothing: {name}" for name in _names(nominated)),
            *self._needless_victims(),
        ]

    def pods_without_events(self) -> list[str]:
        """The pods that are bound, and of which no event says so; victims of which none says by whom."""
        scheduled, preempted = self._regarded("Scheduled"), self._regarded("Preempted")
        without_events = [name for uid, name in self.history.names.items() if uid in self.history.node_of]
        without_events = [name for name in without_events if name not in scheduled]
        return without_events + [
            self.history.names[uid] for uid in self.history.deleted if self._named(uid) not in preempted
        ]

    def _needless_victims(self) -> list[str]:
        # More victims than preemptors are no error: as in kube-scheduler, a bind that fails removes the nomination,
        # and a victim that is not seen leaving yet counts as one that stays.
        victims = [self._named(uid) for uid in self.history.deleted]
        found = [f"deleted and no filler: {name}" for name in victims if not name.startswith("filler")]
        for name, note in self._events("Preempted"):
            uid = note.removeprefix(_PREEMPTED_BY).split(" ", 1)[0]
            if not self.history.names.get(uid, "").startswith("important"):
                found.append(f"{name} was preempted by nobody: {note}")
            if name not in victims:
                found.append(f"{name} was said to be preempted, and lives")
        return found

    def _has_told(self, waiting: list[str]) -> bool:
        """Whether every waiting pod has a reason, and no other pod has a nomination."""
        reported = [pod for pod in self._unbound() if _reason(pod) == "Unschedulable" and not _nomination(pod)]
        return sorted(_names(reported)) == waiting

    def _events(self, reason: str) -> list[tuple[str, str]]:
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.token}/events")
        return [(one["regarding"]["name"], one.get("note", "")) for one in events if one["reason"] == reason]

    def _regarded(self, reason: str) -> set[str]:
        return {name for name, _ in self._events(reason)}

    def _named(self, uid: str) -> str:
        return self.history.names[uid]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _pods(self) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{self.token}/pods")

    def _ending(self) -> list[Manifest]:
        return [pod for pod in self._pods() if pod["metadata"].get("deletionTimestamp")]

    def _unbound(self) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{self.token}/pods", fieldSelector="spec.nodeName=")

    def _is_live(self) -> bool:
        profile = self.api.get(f"/apis/bayplan.dev/v1alpha1/schedulerprofiles/{self.token}")
        conditions = profile.get("status", {}).get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _bound(self, prefix: str) -> int:
        return sum(self._named(uid).startswith(prefix) for uid in list(self.history.node_of))

    def _node_of(self) -> dict[str, str]:
        return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in self._pods() if pod["spec"].get("nodeName")}

    def _until(self, condition: Callable[[], Any], what: str, seconds: float) -> None:
        """Wait, and end meanwhile what a kubelet would end."""
        deadline = time.monotonic() + seconds
        while not condition():
            self._end_pods()
            if time.monotonic() > deadline:
                waiting = {pod["metadata"]["name"]: pod["status"] for pod in self._unbound()}
                log = self._operator.log[-4000:]
                seen = f"{len(self.history.node_of)} are seen bound; {self.history.violations}"
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{seen}\nunbound: {waiting}\n{log}")
            time.sleep(_POLL_SECONDS)

    def _end_pods(self) -> None:
        for pod in self._ending():
            self.api.delete({"kind": "Pod", "metadata": pod["metadata"]}, grace_seconds=0)

    # -- making -------------------------------------------------------------------------------------------------------

    def _node_name(self, pool: str, index: int) -> str:
        return f"{self.token}-{pool}{index}"

    def _node(self, pool: str, index: int, cpu: str) -> None:
        labels = {"for": self.token, "pool": pool}
        self.api.create(node_manifest(self._node_name(pool, index), {"cpu": cpu, "labels": labels}))

    def _wide(self, kind: str, short: str, version: str, **fields: Any) -> None:
        name = f"{self.token}-{short}" if short else self.token
        self.api.create({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields})

    def _pod(self, name: str, cpu: str = "1", where: str = "", **spec: Any) -> Manifest:
        selector = {"for": self.token} | ({"pool": where} if where else {})
        if not where:
            # Not on the full nodes: a plain pod there would leave less to preempt.
            spec["affinity"] = _not_in("full")
        spec |= {"schedulerName": self.token, "nodeSelector": selector}
        return pod_manifest(name, self.token, {"cpu": cpu, "spec": spec})

    def _filler(self, index: int) -> Manifest:
        # Every second one takes its time to end.
        grace = 30 if index % 2 else 0
        low = f"{self.token}-low"
        return self._pod(f"filler{index}", where="full", priorityClassName=low, terminationGracePeriodSeconds=grace)

    def _claim(self, name: str) -> Manifest:
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {**asked, "storageClassName": f"{self.token}-late"}
        return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": self.token}, "spec": spec}


def _volume(index: int) -> Manifest:
    return {"name": "v", "persistentVolumeClaim": {"claimName": f"data{index}"}}


def _not_in(pool: str) -> Manifest:
    term = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [pool]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _names(pods: list[Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def _nomination(pod: Manifest) -> str:
    return str(pod["status"].get("nominatedNodeName", ""))


def _reason(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", ())
    return next((str(one.get("reason")) for one in conditions if one["type"] == "PodScheduled"), "")
