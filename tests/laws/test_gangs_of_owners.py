"""Law: no pod of an owner under ``fromOwners`` is bound unless the quorum of its gang is bound with it.

Jobs, their pods and their sizes change in any order, PodGroups are deleted, requests fail, and room is scarce. The
controller and the scheduler handle every change before the next one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.model.pod import Pod
from tests.support.builders import node
from tests.support.owned_world import OwnedWorld, of_job

JOBS = 3
SIZES = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("size"), st.integers(0, JOBS - 1), SIZES),
    st.tuples(st.just("pod"), st.integers(0, JOBS - 1), SIZES),
    st.tuples(st.just("pod"), st.integers(0, JOBS - 1), SIZES),
    st.tuples(st.just("delete"), st.integers(0, JOBS - 1), st.integers(0, 5)),
    st.tuples(st.just("collect"), st.integers(0, JOBS - 1), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.booleans()),
    st.tuples(st.just("node"), st.just(0), st.just(0)),
)


@dataclass
class Course:
    """One course of events.

    Attributes:
        pods: Existing pods by Job.
        bound: Names of the pods whose binds were delivered.
        violations: What contradicts the law.
    """

    world: OwnedWorld = field(default_factory=lambda: OwnedWorld({"kind": "Job"}))
    pods: dict[int, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[int, int] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    count: int = 0

    async def run(self, steps: list[tuple[str, int, Any]]) -> None:
        """Apply steps, and check the law after each."""
        self.world.rig.add(node("first", allocatable={"cpu": 3, "pods": 10}))
        scheduler = self.world.rig.scheduler
        async with self.world.running(), self.world.rig.running():
            await self.world.settle()
            for kind, job, value in steps:
                self._apply(kind, job, value)
                for _ in range(3):
                    await self.world.settle(15.0)
                    await scheduler.until_idle()
                self._check()

    def _apply(self, kind: str, job: int, value: Any) -> None:
        world, name = self.world, f"job-{job}"
        pods = self.pods[job]
        match kind:
            case "size" if "jobs" in world.owners:
                self.sizes[job] = value
                world.deliver("jobs", {"parallelism": value}, name=name, uid=name)
            case "pod":
                for _ in range(value):
                    self.count += 1
                    pods.append(of_job(f"p{self.count}", name, name, requests={"cpu": "1"}))
                    world.rig.add(pods[-1])
            case "delete" if pods:
                world.rig.scheduler.feed.pod_deleted(pods.pop(value % len(pods)))
            case "collect" if pods and world.size(pods[0]) is not None:
                world.collect(pods[0])
            case "fail":
                world.requests.error = ServerUnavailableError("down") if value else None
            case "node":
                self.count += 1
                world.rig.add(node(f"n{self.count}", allocatable={"cpu": 2, "pods": 10}))

    def _check(self) -> None:
        """Deliver new binds, and compare the bound pods of their Jobs with the sizes."""
        bound = self.world.rig.bound
        for job, pods in self.pods.items():
            new = [each for each in pods if each.metadata.name in bound and each.metadata.name not in self.bound]
            for each in new:
                self.bound.add(each.metadata.name)
                placed = replace(each, spec=replace(each.spec, node_name=bound[each.metadata.name]))
                pods[pods.index(each)] = placed
                self.world.rig.scheduler.feed.pod_updated(each, placed)
            together = sum(each.metadata.name in self.bound for each in pods)
            if new and together < self._quorum(job):
                self.violations.append(f"job {job}: {together} of {self._quorum(job)} pods are bound")

    def _quorum(self, job: int) -> float:
        """Return the quorum of a Job; infinite while its size is not known."""
        return self.sizes.get(job, float("inf"))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=4, max_size=24))
def test_no_gang_of_an_owner_is_bound_in_part(steps: list[tuple[str, int, Any]]) -> None:
    """Whatever the order of events is, a pod is bound only if the quorum of its Job is."""
    course = Course()
    asyncio.run(course.run([("pod", 0, 1), *steps]))
    assert course.violations == []


def test_the_law_covers_bound_gangs() -> None:
    """The steps can bind whole gangs, so that the law is not empty."""
    course = Course()
    asyncio.run(course.run([("pod", 0, 3), ("size", 0, 3), ("pod", 1, 1), ("size", 1, 2), ("node", 0, 0)]))
    assert len(course.bound) == 3
