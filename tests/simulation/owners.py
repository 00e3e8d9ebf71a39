"""Workloads whose pods are gangs by owner: Jobs, JobSets, LeaderWorkerSets and Kueue's pod groups, and controllers.

The controllers create, replace and delete pods as those of Kubernetes, JobSet, LeaderWorkerSet and Kueue do. The
number of members of a gang is computed here from the fields of the workload, not by the operator's code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from bayplan.gangs.owner_sizes import OWNER_TYPES
from msgspec.structs import replace

from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from tests.simulation.api_server import NAMESPACE, PODS, Change
from tests.simulation.gang_jobs import GangJob, pending_member
from tests.simulation.network import Network
from tests.simulation.owned_groups import OwnedGroups
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import gang_key
from tests.support.presence import present

PATHS = {
    "Job": "/apis/batch/v1/jobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
}
_TYPES: dict[str, Any] = {kind: OWNER_TYPES[kind] for kind in ("Job", "JobSet", "LeaderWorkerSet")}
KINDS = (*PATHS, "KueuePodGroup")
WORKLOAD = "workload"
_SYNC_SECONDS = 0.3
_JOB_SET, _LWS = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
_KUEUE = "kueue.x-k8s.io/pod-group"


@dataclass(frozen=True, slots=True)
class Slot:
    """Place of one pod in its workload.

    Attributes:
        unit: Pods that are recreated together; "" if each is replaced alone.
        is_leader: Whether the other pods of the unit exist only as long as this one does.
    """

    name: str
    labels: dict[str, str]
    controller: OwnerReference | None
    unit: str = ""
    is_leader: bool = False


@dataclass(slots=True)
class Workload:
    """One workload.

    Attributes:
        template: Generates the specs of the pods.
        pods: Pods at the same time: of a Job, of each Job of a JobSet, of a replica, or of a pod group.
        completions: Completions of a Job; None for none.
        replicas: Jobs of each of the two replicated jobs of a JobSet, or replicas of a LeaderWorkerSet.
        recreates_unit: Whether all pods of a JobSet or a replica are recreated if one is lost.
        sizes: Every number of members that its gangs have had, also before the first pod.
        gangs: Keys of the gangs of its pods, also of those that are deleted.
        made: Names of the slots whose pods were created, by unit; empty while the unit is being recreated.
    """

    kind: str
    name: str
    uid: str
    template: GangJob
    pods: int
    completions: int | None = None
    replicas: int = 1
    is_suspended: bool = False
    recreates_unit: bool = False
    sizes: set[int] = field(default_factory=set)
    gangs: set[GroupKey] = field(default_factory=set)
    made: dict[str, set[str]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of members of each of its gangs."""
        if self.kind == "JobSet":
            return 2 * self.replicas * self.pods
        return self.pods if self.completions is None else min(self.pods, self.completions)

    def document(self) -> Any:
        """Return the object that the operator reads."""
        job = {"parallelism": self.pods, "completions": self.completions}
        spec: dict[str, Any] = {**job, "suspend": self.is_suspended}
        if self.kind == "JobSet":
            jobs = [
                {"name": name, "replicas": self.replicas, "template": {"spec": job}} for name in ("driver", "worker")
            ]
            spec = {"replicatedJobs": jobs, "suspend": self.is_suspended}
        elif self.kind == "LeaderWorkerSet":
            spec = {"startupPolicy": "LeaderCreated"}
        metadata = {"name": self.name, "namespace": NAMESPACE, "uid": self.uid}
        return msgspec.convert({"metadata": metadata, "spec": spec}, _TYPES[self.kind])

    def slots(self) -> Iterator[Slot]:
        """Yield the places of all pods."""
        name, uid = self.name, self.uid
        if self.kind == "Job":
            for index in range(self.pods if self.completions is None else self.completions):
                yield Slot(f"{name}-{index}", {}, _controller("Job", "batch/v1", name, uid))
        elif self.kind == "JobSet":
            labels = {f"{_JOB_SET}/jobset-name": name, f"{_JOB_SET}/jobset-uid": uid}
            for part in ("driver", "worker"):
                for job in (f"{name}-{part}-{number}" for number in range(self.replicas)):
                    controller = _controller("Job", "batch/v1", job, f"{uid}-{job}")
                    for index in range(self.pods):
                        of_part = labels | {f"{_JOB_SET}/replicatedjob-name": part}
                        yield Slot(f"{job}-{index}", of_part, controller, name)
        elif self.kind == "LeaderWorkerSet":
            for replica in (f"{name}-{number}" for number in range(self.replicas)):
                labels = {f"{_LWS}/name": name, f"{_LWS}/group-key": f"key-of-{replica}"}
                for index in range(self.pods):
                    controller = _controller("StatefulSet", "apps/v1", replica, f"{uid}-{replica}-{index > 0}")
                    of_pod = labels | {f"{_LWS}/worker-index": str(index)}
                    yield Slot(f"{replica}-{index}", of_pod, controller, replica, is_leader=not index)
        else:
            for index in range(self.pods):
                yield Slot(f"{name}-{index}", {f"{_KUEUE}-name": name}, None)

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of its pods."""
        if self.kind == "LeaderWorkerSet":
            return {f"{_LWS}/size": str(self.pods)}
        return {f"{_KUEUE}-total-count": str(self.pods)} if self.kind == "KueuePodGroup" else {}


def _controller(kind: str, version: str, name: str, uid: str) -> OwnerReference:
    return OwnerReference(kind, name, uid, version, controller=True)


class Owners:
    """Controllers of all workloads.

    Attributes:
        workloads: Workloads by name.
    """

    def __init__(self, network: Network, groups: PodGroups, owned: OwnedGroups, seed: int) -> None:
        self._loop = network.loop
        self._network = network
        self._server = network.server
        self._groups = groups
        self._owned = owned
        self._rng = random.Random(f"{seed}/owners")
        self.workloads: dict[str, Workload] = {}
        self._is_sync_due = False

    def begin(self) -> None:
        """Watch the pods."""
        self._server.collection(PODS).listeners.append(self._pods_changed)

    def put(self, workload: Workload) -> None:
        """Create or change a workload; its controller acts later."""
        self.workloads[workload.name] = workload
        workload.sizes.add(workload.size)
        path = PATHS.get(workload.kind)
        if path is not None:
            self._owned.owner_uids.add(workload.uid)
            self._server.put(path, workload.document())
        for key in workload.gangs:
            self._owned.sizes[key].add(workload.size)
        self._network.log(f"{workload.kind} {workload.name} ({workload.uid}) has gangs of {workload.size}")
        self._sync_later()

    def delete(self, workload: Workload, *, orphans: bool = False) -> None:
        """Delete a workload, and its pods later, in any order, or none of them."""
        del self.workloads[workload.name]
        path = PATHS.get(workload.kind)
        if path is not None:
            self._server.remove(path, workload.name)
        self._network.log(f"{workload.kind} {workload.name} is deleted{', and not its pods' if orphans else ''}")
        self._owned.owner_deleted(workload.uid, orphans=orphans)
        for pod in self.pods(workload):
            if not orphans:
                self._loop.call_later(3.0 * self._rng.random() ** 2, self._delete, pod)
            elif pod.metadata.is_controlled_by(workload.uid):
                self._server.put(PODS, replace(pod, metadata=replace(pod.metadata, owner_references=())))

    def pods(self, workload: Workload) -> list[Pod]:
        """Return the pods that were created for a workload and still exist."""
        return [pod for pod in self._server.pods() if pod.metadata.labels.get(WORKLOAD) == workload.uid]

    def recreate_units(self, workload: Workload) -> None:
        """Delete all pods of a workload, which its controller creates again."""
        workload.made.clear()
        for pod in self.pods(workload):
            self._delete(pod)

    def _note_size(self, workload: Workload, pod: Pod) -> None:
        key = gang_key(pod)
        if key is not None:
            workload.gangs.add(key)
            self._owned.sizes[key] |= workload.sizes

    def _delete(self, pod: Pod) -> None:
        self._server.delete_pod(pod.metadata.name, pod.metadata.uid)

    def _pods_changed(self, change: Change) -> None:
        if b'"DELETED"' in change.line[:20]:
            self._owned.pods_changed()
        self._sync_later()

    def _sync_later(self) -> None:
        if not self._is_sync_due:
            self._is_sync_due = True
            self._loop.call_later(_SYNC_SECONDS * (0.5 + self._rng.random()), self._sync)

    def _sync(self) -> None:
        self._is_sync_due = False
        for workload in list(self.workloads.values()):
            self._reconcile(workload)

    def _reconcile(self, workload: Workload) -> None:
        slots = {slot.name: slot for slot in workload.slots()}
        there = {pod.metadata.name: pod for pod in self.pods(workload)}
        active = {name: pod for name, pod in there.items() if _is_active(pod)}
        for name, pod in there.items():
            is_surplus = name not in slots or workload.is_suspended
            if pod.status.phase == "Failed" or (is_surplus and name in active):
                self._delete(pod)
        if workload.is_suspended:
            workload.made.clear()
            return
        self._recreate_broken_units(workload, slots, there)
        limit = workload.pods if workload.kind == "Job" else len(slots)
        running = sum(name in slots for name in active)
        if workload.kind == "Job" and running > limit:
            for name in sorted(name for name in active if name in slots)[limit:]:
                self._delete(active[name])
        for slot in slots.values():
            if self._server.pod(slot.name) is None and running < limit and self._may_create(workload, slot):
                running += 1
                self._create(workload, slot)

    def _recreate_broken_units(self, workload: Workload, slots: dict[str, Slot], there: dict[str, Pod]) -> None:
        for unit, made in workload.made.items():
            lost = [name for name in made if not (name in there and _stays(there[name]))]
            is_broken = (
                bool(lost) if workload.recreates_unit else any(slots[each].is_leader for each in lost if each in slots)
            )
            if is_broken:
                made.clear()
                for name, pod in there.items():
                    if name in slots and slots[name].unit == unit:
                        self._delete(pod)

    def _may_create(self, workload: Workload, slot: Slot) -> bool:
        """Return whether the old pods of a unit are gone, and its leader exists."""
        if not slot.unit:
            return True
        made = workload.made.setdefault(slot.unit, set())
        of_unit = [each.name for each in workload.slots() if each.unit == slot.unit]
        if any(name not in made and self._server.pod(name) is not None for name in of_unit):
            return False
        has_leader = workload.kind == "LeaderWorkerSet"
        return slot.is_leader or not has_leader or self._server.pod(of_unit[0]) is not None

    def _create(self, workload: Workload, slot: Slot) -> None:
        uid = self._server.new_uid(slot.name)
        owners = () if slot.controller is None else (slot.controller,)
        labels = slot.labels | {WORKLOAD: workload.uid}
        metadata = ObjectMeta(slot.name, NAMESPACE, uid=uid, generation=1, labels=labels, owner_references=owners)
        pod = pending_member(workload.template, workload.template.created, metadata)
        workload.template.created += 1
        if slot.unit:
            workload.made.setdefault(slot.unit, set()).add(slot.name)
        self._owned.annotations[uid] = workload.annotations
        self._note_size(workload, pod)
        self._server.put(PODS, pod)

    # -- when nothing changes any more ----------------------------------------------------------------------------

    def check_idle(self, received: Mapping[GroupKey, PodGroup]) -> Iterator[str]:
        """Yield gangs whose PodGroup does not follow their workload.

        Args:
            received: PodGroups that the core has received; gangs of one have no object.
        """
        for workload in self.workloads.values():
            for key in dict.fromkeys(present(gang_key(pod)) for pod in self.pods(workload)):
                yield from self._gang_problems(workload, key, received.get(key))

    def _gang_problems(self, workload: Workload, key: GroupKey, received: PodGroup | None) -> Iterator[str]:
        body = self._groups.bodies.get(key)
        # A suspended owner may have ended pods. The leader that would own the PodGroup of a removed replica is gone.
        is_active = any(gang_key(pod) == key and _is_active(pod) for pod in self.pods(workload))
        if body is not None:
            size = body["spec"]["minMember"]
            # The size of a suspended owner counts when it is resumed.
            if body["metadata"]["labels"] and size != workload.size and not workload.is_suspended:
                yield f"gang {key} has minMember {size}, and its owner has {workload.size} pods"
        elif workload.size > 1:
            if is_active:
                yield f"gang {key} of {workload.kind} {workload.name} has no PodGroup"
        elif received is not None and (received.min_member, received.is_basic) == (1, True):
            self._groups.objects[key] = received
        elif is_active:
            yield f"gang {key} of one pod is not reported to the core: {received}"


def _is_active(pod: Pod) -> bool:
    return not pod.is_terminal and pod.metadata.deletion_timestamp is None


def _stays(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed"
