"""Jobs: controllers that create and replace the members of gangs.

A job generates its members from its own seed, so other steps do not change them. Members of an indexed job retain their
names, as a StatefulSet's do; members of other jobs get new names.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from msgspec.structs import replace

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import (
    Container,
    Pod,
    PodSpec,
    Quantities,
    ResourceRequirements,
    SchedulingGate,
    SchedulingGroup,
)
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource
from tests.simulation.api_server import NAMESPACE, PODS, ApiServer, Change
from tests.simulation.cluster_objects import happens, one_of
from tests.simulation.device_objects import with_claims
from tests.simulation.plugins import FAULT_LABEL, GATE_LABEL, INJECTED_FAULTS
from tests.simulation.profiles import PROFILES
from tests.simulation.virtual_loop import VirtualLoop

GROUP_LABEL = POD_GROUP_LABELS[GroupSource.BAYPLAN]
JOB = "job"
KEYS = tuple(
    GroupKey(source, namespace, name)
    for name, source in (("q1", GroupSource.BAYPLAN), ("q2", GroupSource.BAYPLAN), ("q2", GroupSource.NATIVE))
    for namespace in (NAMESPACE, "other")
)
"""Keys with the same names in two namespaces and two APIs."""

_SYNC_SECONDS = 0.4


@dataclass(slots=True)
class GangJob:
    """One job.

    Attributes:
        name: Name of the job, and prefix of its members' names.
        key: Group of the members.
        size: Desired number of members, with those that succeeded.
        seed: Seed of the members' specs.
        is_indexed: Whether a replacement has the name of the member that it replaces.
        created: Number of members created.
        sizes: CPU requests of the members in milli-CPU, one per template.
        priority: Priority of the members.
        profile: Profile of the members.
        injects_faults: Whether faults are injected into some members.
        is_gated: Whether some members are created with scheduling gates.
        has_label_gate: Whether LabelGate gates some members.
        templates: Templates of the members' resource claims.
    """

    name: str
    key: GroupKey
    size: int
    seed: str
    is_indexed: bool = False
    created: int = 0
    sizes: tuple[int, ...] = (100,)
    priority: int = 0
    profile: str = PROFILES[0]
    injects_faults: bool = False
    is_gated: bool = False
    has_label_gate: bool = False
    templates: tuple[str, ...] = ()


def generate_job(rng: random.Random, name: str, key: GroupKey, size: int) -> GangJob:
    """Return a random job with one or two templates."""
    job = GangJob(name, key, size, seed=f"{rng.random()}")
    job.is_indexed = happens(rng, 0.4)
    maximum = 900 if size <= 4 else 400
    sizes = [each for each in (50, 100, 200, 300, 500, 900) if each <= maximum]
    job.sizes = tuple(one_of(rng, sizes) for _ in range(1 + happens(rng, 0.4)))
    job.priority = one_of(rng, (0, 0, 0, 5, 10, 100))
    job.profile = PROFILES[happens(rng, 0.4)]
    job.injects_faults = happens(rng, 0.4)
    job.is_gated = happens(rng, 0.25)
    job.has_label_gate = happens(rng, 0.08)
    return job


def make_member(job: GangJob, index: int, name: str, uid: str) -> Pod:
    """Return a new pending member, which names its group."""
    is_native = job.key.source is GroupSource.NATIVE
    labels = {JOB: job.name} if is_native else {GROUP_LABEL: job.key.name, JOB: job.name}
    metadata = ObjectMeta(name, job.key.namespace, uid=uid, generation=1, labels=labels)
    return pending_member(job, index, metadata, SchedulingGroup(job.key.name) if is_native else None)


def pending_member(job: GangJob, index: int, metadata: ObjectMeta, group: SchedulingGroup | None = None) -> Pod:
    """Return a new pending member with these metadata and further labels."""
    rng = random.Random(f"{job.seed}/{job.created}")
    labels = dict(metadata.labels)
    if job.injects_faults and happens(rng, 0.35):
        labels[FAULT_LABEL] = one_of(rng, (*INJECTED_FAULTS, "slow pre-bind")).replace(" ", "-")
    if job.has_label_gate and happens(rng, 0.5):
        labels[GATE_LABEL] = "closed"
    requests: Quantities = {"cpu": f"{job.sizes[index % len(job.sizes)]}m", "memory": "64Mi"}
    spec = PodSpec(
        scheduler_name=job.profile,
        priority=job.priority,
        containers=(Container("main", resources=ResourceRequirements(requests)),),
        scheduling_group=group,
        scheduling_gates=(SchedulingGate("example.com/later"),) if job.is_gated and happens(rng, 0.6) else (),
    )
    pod = Pod(replace(metadata, labels=labels), spec)
    return with_claims(pod, (), job.templates) if job.templates else pod


def without_gates(pod: Pod) -> Pod:
    """Return the pod without its scheduling gates."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=()))


class GangJobs:
    """Controllers of all jobs.

    Attributes:
        jobs: Jobs by group.
    """

    def __init__(self, loop: VirtualLoop, server: ApiServer) -> None:
        self._loop = loop
        self._server = server
        self.jobs: dict[GroupKey, GangJob] = {}
        self._is_sync_due = False
        server.collection(PODS).listeners.append(self._changed)

    def members(self, job: GangJob) -> list[Pod]:
        """Return the pods of a job in the order of creation, with terminated ones."""
        return [pod for pod in self._server.pods() if pod.metadata.labels.get(JOB) == job.name]

    def begin(self, job: GangJob, first: int) -> None:
        """Start a job with its first members; the controller creates the others later."""
        self.jobs[job.key] = job
        for index in range(first):
            self._make(job, index)

    def end(self, job: GangJob) -> None:
        """Delete a job and its members."""
        del self.jobs[job.key]
        for pod in self.members(job):
            self._server.delete_pod(pod.metadata.name)

    def reconcile(self, job: GangJob) -> None:
        """Create the missing members of a job."""
        if self.jobs.get(job.key) is not job:
            return
        pods = self.members(job)
        if job.is_indexed:
            for pod in pods:
                if pod.status.phase == "Failed":
                    self._server.delete_pod(pod.metadata.name)
            there = {pod.metadata.name for pod in self.members(job)}
            for index in range(job.size):
                if f"{job.name}-{index}" not in there:
                    self._make(job, index)
        else:
            alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase != "Failed"]
            for _ in range(job.size - len(alive)):
                self._make(job, job.created)

    def _make(self, job: GangJob, index: int) -> None:
        name = f"{job.name}-{index}"
        if self._server.pod(name) is None:
            pod = make_member(job, index, name, self._server.new_uid(name))
            job.created += 1
            self._server.put(PODS, pod)

    def _changed(self, change: Change) -> None:
        if self.jobs and not self._is_sync_due:
            self._is_sync_due = True
            self._loop.call_later(_SYNC_SECONDS, self._sync)

    def _sync(self) -> None:
        self._is_sync_due = False
        for job in list(self.jobs.values()):
            self.reconcile(job)
