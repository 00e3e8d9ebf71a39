"""A cluster in memory for the controller of RebalancePlans: it evicts and replaces pods, and stores statuses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

from bayplan.process.copies import BackgroundDocuments
from bayplan.rebalancing.plan_controller import RebalancePlans, StoredPlan
from bayplan.rebalancing.pod_moves import EvictionRefusedError
from msgspec.structs import replace

from scheduler_core.errors import ClusterWriteError, NotFoundError, WriteTimeoutError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, PodStatus
from tests.support.builders import pod
from tests.support.scheduling import Rig

ENDED = ("Completed", "Stopped")
"""Phases of a plan that has made its moves or has given up."""
Replace = Callable[[Pod], Pod | None]


def refusal() -> EvictionRefusedError:
    """Return the error of an eviction that a PodDisruptionBudget refuses."""
    return EvictionRefusedError("Cannot evict pod as it would violate the pod's disruption budget")


async def sum_of(lifetime: Callable[..., Awaitable[Counter[str]]], seeds: Iterable[int], *given: Any) -> Counter[str]:
    """Run a lifetime for each seed, and return the sums of what happened."""
    total: Counter[str] = Counter()
    for seed in seeds:
        total += await lifetime(seed, *given)
    return total


def equal(old: Pod) -> Pod | None:
    """Return the pod that a controller creates in place of another one."""
    name = f"{old.metadata.name}-again"
    meta = replace(old.metadata, name=name, uid=f"uid-of-{name}")
    return replace(old, metadata=meta, spec=replace(old.spec, node_name=""), status=PodStatus())


def elsewhere(old: Pod) -> Pod | None:
    """Return a replacement that fits on node c only."""
    made = equal(old)
    assert made is not None
    return replace(made, spec=replace(made.spec, node_selector={"pool": "c"}))


def none(_: Pod) -> Pod | None:
    """Return no replacement."""
    return None


class PlannedCluster:
    """Pods with a controller that replaces them, and plans as the watch delivers them.

    Attributes:
        evicted: Names of the evicted pods.
        error: Error of the next evictions; None for none.
        failed_writes: Number of next statuses that cannot be written.
        refusals: Number of next evictions that a PodDisruptionBudget refuses.
        rivals: Number of pods that were added to compete with the replacements.
        uid: UID of the plan.
        statuses: Written statuses in their order.
    """

    def __init__(self, made: Rig) -> None:
        self.rig = made
        self.evicted: list[str] = []
        self.refusals = 0
        self.failed_writes = 0
        self.rivals = 0
        self.replace: Replace = equal
        self.error: ClusterWriteError | None = None
        self.waiting: list[Pod] = []
        self.statuses: list[dict[str, Any]] = []
        self.plans = RebalancePlans(made.scheduler, BackgroundDocuments(made.context, None), self, made.clock)
        self.uid = "uid-of-plan"
        self._generation = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run the scheduler and the controller, which has received the list of plans."""
        listed = asyncio.Event()
        listed.set()
        async with self.rig.running(), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.plans.run(listed))
            yield self
            running.cancel()

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        if self.error is not None:
            raise self.error
        if self.refusals:
            self.refusals -= 1
            raise refusal()
        placed = self.rig.context.cache.get(uid)
        if placed is None:
            raise NotFoundError(name)
        self.evicted.append(name)
        old = placed.info.pod
        self.rig.scheduler.feed.pod_deleted(old)
        new = self.replace(old)
        if new is not None:
            self.create(new)

    def create(self, created: Pod) -> None:
        """Add a pod that waits."""
        self.waiting.append(created)
        self.rig.add(created)

    def add_rival(self, cpus: int = 1, priority: int = 0) -> None:
        """Add a pod that may take the room of a replacement."""
        self.rivals += 1
        self.create(pod(f"rival-{self.rivals}", requests={"cpu": str(cpus)}, priority=priority))

    def _confirm(self) -> None:
        """Deliver the pods that were bound with their nodes."""
        bound = self.rig.bound
        for old in [each for each in self.waiting if each.metadata.name in bound]:
            self.waiting.remove(old)
            spec = replace(old.spec, node_name=bound[old.metadata.name])
            self.rig.scheduler.feed.pod_updated(old, replace(old, spec=spec))

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        if uid != self.uid:
            raise NotFoundError(uid)
        if self.failed_writes:
            self.failed_writes -= 1
            raise WriteTimeoutError("no response")
        self.statuses.append(status)

    def plan(self, status: dict[str, Any] | None = None, **spec: Any) -> None:
        """Create a plan, or change its spec."""
        self._generation += 1
        meta = ObjectMeta("plan", uid=self.uid, generation=self._generation)
        spec = {"objective": "Consolidate", "dryRun": False, **spec}
        self.plans.plan_changed(StoredPlan(meta, spec, status or {}))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until a condition holds."""
        for _ in range(2000):
            if condition():
                return
            self._confirm()
            self.rig.clock.advance(0.5)
            for _ in range(10):
                await asyncio.sleep(0)
        raise AssertionError(self.statuses[-1:])

    @property
    def is_over(self) -> bool:
        """Whether the plan has made its moves or has given up."""
        return bool(self.statuses) and self.statuses[-1]["phase"] in ENDED

    async def until_later(self, seconds: float) -> None:
        """Let time pass."""
        until = self.rig.clock.now() + seconds
        await self.until(lambda: self.rig.clock.now() >= until)

    async def until_phase(self, phase: str) -> dict[str, Any]:
        """Let time pass until the plan has a phase; return its status."""
        await self.until(lambda: bool(self.statuses) and self.statuses[-1]["phase"] == phase)
        return self.statuses[-1]
