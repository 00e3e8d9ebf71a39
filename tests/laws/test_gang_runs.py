"""Law: succeeded members count for the quorum of their own run, whether or not their pods exist, and for no other.

Random lifetimes of a PodGroup that several Jobs use: pods are created, bound, succeed, fail, are collected, evicted and
replaced, the quorum changes, the operator restarts. After each step the number of members that must be scheduled
together equals that of a plain model, and no step binds fewer. The rule is in ``docs/gangs/how-it-works.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupKey, GroupRun, GroupSource, PodGroup
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import PodFields, node
from tests.support.group_scenarios import member
from tests.support.presence import present
from tests.support.scheduling import BARE, Rig, configured, default_rig, plugin_set, rig

START = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = "batch.kubernetes.io/job-completion-index"
BY_PERMIT = Plugins(
    multi_point=plugin_set("NodeResourcesFit", "Coscheduling", *BARE), queue_sort=plugin_set(disabled=["Coscheduling"])
)
ROUNDS = 30
Step = tuple[str, int]

KINDS = {
    "job": 1, "sync": 3, "schedule": 4, "succeed": 4, "fail": 1, "collect": 2, "evict": 1, "terminate": 1, "end job": 1,
    "resize": 1, "restart": 2,
}  # fmt: skip
"""Kinds of steps with their weights."""


def random_steps(seed: int, *, count: int = 50) -> list[Step]:
    random = Random(seed)
    kinds = random.choices(list(KINDS), list(KINDS.values()), k=count)
    return [(kind, random.randrange(8)) for kind in kinds]


@dataclass
class Run:
    """The model of a run: its Jobs, and the completed indexes of their members."""

    jobs: set[int] = field(default_factory=set)
    done: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Lifetime:
    """A PodGroup, the Jobs that use it, and the scheduler.

    Attributes:
        capacity: Number of pods that the node has room for.
        by_permit: Whether the profile schedules gangs by Permit.
        jobs: Completions of the active Jobs, by number.
        pods: Existing pods by name, with Job and index.
        completed: Completed indexes, also of pods that are gone.
        run: The model.
    """

    source: GroupSource
    capacity: int
    by_permit: bool = False
    min_member: int = 3
    jobs: dict[int, int] = field(default_factory=dict)
    pods: dict[str, tuple[Pod, int, int]] = field(default_factory=dict)
    completed: set[tuple[int, int]] = field(default_factory=set)
    run: Run = field(default_factory=Run)
    created: int = 0
    started: int = 0

    def __post_init__(self) -> None:
        self.made = self._operator(None)

    def _operator(self, recorded: GroupRun | None) -> Rig:
        if self.by_permit:
            made = rig(defaults=Plugins(), serve=False)
            made.serve(configured("default-scheduler", "Coscheduling", {}, BY_PERMIT))
        else:
            options = SchedulerOptions(volcano_groups=self.source is GroupSource.VOLCANO)
            made = default_rig(options=options)
        made.scheduler.group_feed.serve(self.source)
        made.add(node("n", allocatable={"cpu": self.capacity, "pods": 100}))
        self.recorded = recorded
        made.scheduler.group_feed.group_changed(self._group())
        return made

    def _group(self) -> PodGroup:
        key = GroupKey(self.source, "default", "train")
        return PodGroup(key, "uid-of-train", self.min_member, generation=self.min_member, run=self.recorded)

    # -- steps --------------------------------------------------------------------------------------------------

    async def take(self, step: Step) -> None:
        """Take one step."""
        kind, number = step
        match kind:
            case "job":
                self.started += 1
                self.jobs[self.started] = 2 + number % 4
            case "sync":
                self._sync()
            case "schedule":
                await self._schedule()
            case "succeed" | "fail":
                self._end(number, "Succeeded" if kind == "succeed" else "Failed")
            case "collect":
                self._delete(number, lambda each: each.is_terminal)
            case "evict":
                self._delete(number, lambda each: bool(each.spec.node_name) and not each.is_terminal)
            case "terminate":
                self._terminate(number)
            case "end job":
                self._end_job()
            case "resize":
                self.min_member = 1 + number % 5
                self.made.scheduler.group_feed.group_changed(self._group())
            case "restart":
                await self._restart()

    def _sync(self) -> None:
        """Create the pods that the Jobs lack, as the Job controller does."""
        for job, completions in self.jobs.items():
            active = {index for each, of, index in self.pods.values() if of == job and is_alive(each)}
            for index in range(completions):
                if index not in active and (job, index) not in self.completed:
                    self._create(job, index)

    def _create(self, job: int, index: int) -> None:
        self.created += 1
        owner = OwnerReference("Job", "train", f"uid-of-job-{job}", "batch/v1", controller=True)
        fields = PodFields(
            requests={"cpu": "1"},
            owners=[owner],
            created=START + timedelta(seconds=self.created),
            uid=f"u{self.created}",
        )
        made = member(self.source, f"p{self.created}", **fields)
        made = replace_labels(made, {INDEX: str(index)})
        self.pods[made.metadata.name] = (made, job, index)
        if self.run.done and job not in self.run.jobs:
            self.run = Run({of for each, of, _ in self.pods.values() if is_alive(each)})
        self.run.jobs.add(job)
        self.made.scheduler.feed.pod_added(made)

    def _end(self, number: int, phase: str) -> None:
        bound = [name for name, (each, _, _) in self.pods.items() if each.spec.node_name and not each.is_terminal]
        if not bound:
            return
        old, job, index = self.pods[bound[number % len(bound)]]
        new = with_status(old, phase=phase)
        self.pods[old.metadata.name] = (new, job, index)
        if phase == "Succeeded":
            self.completed.add((job, index))
            if job in self.run.jobs:
                self.run.done.add((job, index))
        self.made.scheduler.feed.pod_updated(old, new)

    def _terminate(self, number: int) -> None:
        """Begin to delete a running pod; its Job replaces it at once, and it may still succeed."""
        running = [name for name, (each, _, _) in self.pods.items() if each.spec.node_name and is_alive(each)]
        if running:
            old, job, index = self.pods[running[number % len(running)]]
            meta = msgspec.structs.replace(old.metadata, deletion_timestamp=START)
            new = msgspec.structs.replace(old, metadata=meta)
            self.pods[old.metadata.name] = (new, job, index)
            self.made.scheduler.feed.pod_updated(old, new)

    def _delete(self, number: int, is_meant: Callable[[Pod], bool]) -> None:
        meant = [name for name, (each, _, _) in self.pods.items() if is_meant(each)]
        if meant:
            self.made.scheduler.feed.pod_deleted(self.pods.pop(meant[number % len(meant)])[0])

    def _end_job(self) -> None:
        if self.jobs:
            job = min(self.jobs)
            del self.jobs[job]
            for name in [name for name, (_, of, _) in self.pods.items() if of == job]:
                self.made.scheduler.feed.pod_deleted(self.pods.pop(name)[0])

    async def _restart(self) -> None:
        """Start another operator, which reads the status, and lists the pods in another order."""
        gang = present(self.made.queue.gangs.get(GroupKey(self.source, "default", "train")))
        await self._wind_down()
        self.made = self._operator(gang.run_record)
        for each, _, _ in sorted(self.pods.values(), key=lambda entry: entry[0].metadata.uid[::-1]):
            self.made.scheduler.feed.pod_added(each)
        # As the scheduling loop does when it begins.
        self.made.queue.gangs.follow_runs()

    async def _wind_down(self) -> None:
        await self.made.scheduler.stop(0.0)

    async def _schedule(self) -> None:
        needed = self.needed
        used = sum(bool(each.spec.node_name) and not each.is_terminal for each, _, _ in self.pods.values())
        waiting = sum(not each.spec.node_name for each, _, _ in self.pods.values())
        before = len(self.made.writer.bindings)
        async with self.made.running():
            for _ in range(3):
                for _ in range(ROUNDS):
                    await asyncio.sleep(0)
                self._report_binds(before)
                self.made.clock.advance(400.0)
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            self._report_binds(before)
        bound, room = len(self.made.writer.bindings) - before, self.capacity - used
        fits = waiting >= needed and room >= max(1, needed)
        assert bound == (min(waiting, room) if fits else 0), (
            f"{bound} bound of {waiting}, {needed} needed, room for {room}"
        )

    def _report_binds(self, first: int) -> None:
        for binding in self.made.writer.bindings[first:]:
            old, job, index = self.pods[binding.name]
            if not old.spec.node_name:
                new = with_status(old, node_name=binding.node_name, phase="Running")
                self.pods[binding.name] = (new, job, index)
                self.made.scheduler.feed.pod_updated(old, new)

    # -- the model ----------------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """Number of members that run."""
        return sum(bool(each.spec.node_name) and is_alive(each) for each, _, _ in self.pods.values())

    @property
    def needed(self) -> int:
        """Number of members that must be scheduled together."""
        return max(0, self.min_member - self.live - len(self.run.done))

    def check(self) -> None:
        """Compare the scheduler with the model."""
        gang = present(self.made.queue.gangs.get(GroupKey(self.source, "default", "train")))
        assert (gang.needed, gang.succeeded) == (self.needed, len(self.run.done))


def is_alive(each: Pod) -> bool:
    """Return whether a pod has not ended and is not being deleted."""
    return not each.is_terminal and each.metadata.deletion_timestamp is None


def replace_labels(each: Pod, labels: dict[str, str]) -> Pod:
    return msgspec.structs.replace(
        each, metadata=msgspec.structs.replace(each.metadata, labels={**each.metadata.labels, **labels})
    )


def with_status(each: Pod, *, phase: str, node_name: str = "") -> Pod:
    """Return the pod in another phase, on a node if it has one."""
    spec = msgspec.structs.replace(each.spec, node_name=node_name or each.spec.node_name)
    return msgspec.structs.replace(each, spec=spec, status=msgspec.structs.replace(each.status, phase=phase))


async def live(lifetime: Lifetime, steps: list[Step]) -> None:
    """Take the steps, and compare after each one."""
    for step in [("job", 2), ("sync", 0), *steps, ("sync", 0), ("schedule", 0)]:
        await lifetime.take(step)
        lifetime.check()
    await lifetime.made.scheduler.stop(0.0)


@pytest.mark.parametrize("seed", range(40))
async def test_runs_of_a_group(seed: int) -> None:
    """A group of Bayplan's API, whose status records the run."""
    await live(Lifetime(GroupSource.BAYPLAN, 2 + seed % 7), random_steps(seed))


@pytest.mark.parametrize("source", POD_GROUP_SOURCES)
@pytest.mark.parametrize("seed", range(100, 105))
async def test_runs_in_all_apis(source: GroupSource, seed: int) -> None:
    """A group of any API while the operator is not restarted: nothing is recorded in the other APIs."""
    await live(Lifetime(source, 2 + seed % 7), [step for step in random_steps(seed) if step[0] != "restart"])


@pytest.mark.parametrize("seed", range(200, 212))
async def test_runs_of_a_group_by_permit(seed: int) -> None:
    """A profile that schedules gangs by Permit follows the same rule."""
    await live(Lifetime(GroupSource.BAYPLAN, 2 + seed % 7, by_permit=True), random_steps(seed))
