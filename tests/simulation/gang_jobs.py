"""Jobs: controllers that create and replace the members of gangs.

A job draws its members from its own seed, so other events of a run do not change them. Members of an indexed job keep
their names, as a StatefulSet's do; the others get new ones.
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
from tests.simulation.device_objects import with_claims
from tests.simulation.inhabitants import happens, one_of
from tests.simulation.plugins import DOOR, TURN, TURNS
from tests.simulation.profiles import PROFILES
from tests.simulation.virtual_loop import VirtualLoop

GROUP_LABEL = POD_GROUP_LABELS[GroupSource.BAYPLAN]
JOB = "job"
KEYS = tuple(
    GroupKey(source, namespace, name)
    for name, source in (("q1", GroupSource.BAYPLAN), ("q2", GroupSource.BAYPLAN), ("q2", GroupSource.NATIVE))
    for namespace in (NAMESPACE, "other")
)
"""Few names, in two namespaces and two APIs, so that they collide."""

_SYNC_SECONDS = 0.4


@dataclass(slots=True)
class GangJob:
    """One job.

    Attributes:
        name: Name of the job, and prefix of its members' names.
        key: The group of its members.
        size: Desired number of members, including those that succeeded.
        seed: Seed for its members' specs.
        is_indexed: Whether a replacement has the name of the member that it replaces.
        created: Members created so far.
        sizes: CPU requests of its members in milli-CPU, one per template.
        priority: Priority of its members.
        profile: Profile of its members.
        has_turns: Whether some members wait or fail at Permit and PreBind.
        is_gated: Whether some members are created with scheduling gates.
        stands_before_a_door: Whether Doorman holds some members back.
        templates: Templates of its members' resource claims.
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
    has_turns: bool = False
    is_gated: bool = False
    stands_before_a_door: bool = False
    templates: tuple[str, ...] = ()


def draw_job(rng: random.Random, name: str, key: GroupKey, size: int) -> GangJob:
    """Draw a job of one or two templates."""
    job = GangJob(name, key, size, seed=f"{rng.random()}")
    job.is_indexed = happens(rng, 0.4)
    most = 900 if size <= 4 else 400
    sizes = [each for each in (50, 100, 200, 300, 500, 900) if each <= most]
    job.sizes = tuple(one_of(rng, sizes) for _ in range(1 + happens(rng, 0.4)))
    job.priority = one_of(rng, (0, 0, 0, 5, 10, 100))
    job.profile = PROFILES[happens(rng, 0.4)]
    job.has_turns = happens(rng, 0.4)
    job.is_gated = happens(rng, 0.25)
    job.stands_before_a_door = happens(rng, 0.08)
    return job


def make_member(job: GangJob, index: int, name: str, uid: str) -> Pod:
    """Return a pending member."""
    rng = random.Random(f"{job.seed}/{job.created}")
    is_native = job.key.source is GroupSource.NATIVE
    labels = {JOB: job.name} if is_native else {GROUP_LABEL: job.key.name, JOB: job.name}
    if job.has_turns and happens(rng, 0.35):
        labels[TURN] = one_of(rng, (*TURNS, "slow pre-bind")).replace(" ", "-")
    if job.stands_before_a_door and happens(rng, 0.5):
        labels[DOOR] = "closed"
    requests: Quantities = {"cpu": f"{job.sizes[index % len(job.sizes)]}m", "memory": "64Mi"}
    spec = PodSpec(
        scheduler_name=job.profile,
        priority=job.priority,
        containers=(Container("main", resources=ResourceRequirements(requests)),),
        scheduling_group=SchedulingGroup(job.key.name) if is_native else None,
        scheduling_gates=(SchedulingGate("example.com/later"),) if job.is_gated and happens(rng, 0.6) else (),
    )
    pod = Pod(ObjectMeta(name, job.key.namespace, uid=uid, generation=1, labels=labels), spec)
    return with_claims(pod, (), job.templates) if job.templates else pod


def opened(pod: Pod) -> Pod:
    """Return the pod without its scheduling gates."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=()))


class GangJobs:
    """The controllers of all jobs.

    Attributes:
        jobs: By group.
    """

    def __init__(self, loop: VirtualLoop, server: ApiServer) -> None:
        self._loop = loop
        self._server = server
        self.jobs: dict[GroupKey, GangJob] = {}
        self._is_looking = False
        server.collection(PODS).listeners.append(self._changed)

    def members(self, job: GangJob) -> list[Pod]:
        """Return the pods of a job, ended ones included, in the order of creation."""
        return [pod for pod in self._server.pods() if pod.metadata.labels.get(JOB) == job.name]

    def begin(self, job: GangJob, first: int) -> None:
        """Start a job with the first of its members; the controller creates the others later."""
        self.jobs[job.key] = job
        for index in range(first):
            self._make(job, index)

    def end(self, job: GangJob) -> None:
        """Delete a job and its members."""
        del self.jobs[job.key]
        for pod in self.members(job):
            self._server.end_pod(pod.metadata.name)

    def look_after(self, job: GangJob) -> None:
        """Create the members that a job lacks."""
        if self.jobs.get(job.key) is not job:
            return
        pods = self.members(job)
        if job.is_indexed:
            for pod in pods:
                if pod.status.phase == "Failed":
                    self._server.end_pod(pod.metadata.name)
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
        del change
        if self.jobs and not self._is_looking:
            self._is_looking = True
            self._loop.call_later(_SYNC_SECONDS, self._look)

    def _look(self) -> None:
        self._is_looking = False
        for job in list(self.jobs.values()):
            self.look_after(job)
