"""Laws of RebalancePlans whose process ends at each step, and is started again from what the API server stores.

- The move that was not over is resumed: its replacement gets the destination, whatever the profile would choose, and it
  is not the one of another move of the same controller.
- No pod is evicted while an earlier replacement is not bound, and no more pods than the budget allows.
- Evictions keep the rate of moves a minute, restarts included. At the end nothing is held.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.model.pod import Pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.planned_cluster import PlannedCluster, equal
from tests.support.rebalancing import movable
from tests.support.scheduling import Rig, gang_rig
from tests.support.virtual_clock import VirtualClock

MOVES, RATE = 3, 2
TWO, OF_ONE_OWNER = "two", "two of one controller"
WIDTHS = {"one": {"movesPerMinute": RATE}, TWO: {"concurrentMoves": 2}, OF_ONE_OWNER: {"concurrentMoves": 2}}
"""Fields of the budget: one move at a time, at a rate, or two; of pods with one controller each, or one for all.

The one for all creates each second replacement late.
"""
_LATE_LOOKS = 8
MAX_STEPS = 60
_LOOKS = 4
"""Steps while one replacement is awaited."""


class _ProcessEndedError(BaseException):
    """The process has ended."""


class _Cluster(PlannedCluster):
    """A cluster whose objects outlive the process.

    Attributes:
        steps: Number of steps that were made; the process ends at the one with the number ``end_at``.
        times: Clock times of the evictions.
        bound: Nodes of the pods that were bound when the process ended; later requests of its tasks do not count.
        targets: Destinations of the evicted pods, by the name of the replacement.
        broken: What does not hold at an eviction.
        late: Replacements that do not exist yet.
    """

    def __init__(self, made: Rig, pods: dict[str, Pod], end_at: int, width: str) -> None:
        super().__init__(made)
        self.pods, self.end_at, self.width = pods, end_at, width
        self.steps = 0
        self.bound: dict[str, str] | None = None
        self.times: list[float] = []
        self.targets: dict[str, str] = {}
        self.broken: list[AssertionError] = []
        self.late: list[Pod] = []
        self._looks = 0
        if width == OF_ONE_OWNER:
            self.replace = self._replace_late

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.end_at:
            self.bound = dict(self.rig.bound)
            raise _ProcessEndedError

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        (move,) = [move for move in self.statuses[-1]["moves"] if move["uid"] == uid]
        try:
            self.check_replacements(0 if self.width == "one" else 1)
            assert move["state"] == "Evicting"
        except AssertionError as error:
            # The controller logs it, and continues.
            self.broken.append(error)
        self.step()
        self.times.append(self.rig.clock.now())
        self.targets[f"{name}-again"] = move["target"]
        del self.pods[uid]
        # The replacement exists although the response is lost.
        await super().evict(namespace, name, uid)
        self.step()

    def _replace_late(self, pod: Pod) -> Pod | None:
        new = equal(pod)
        if new is None or len(self.evicted) % 2:
            return new
        self.late.append(new)
        self._looks = 0
        return None

    def create_late(self) -> None:
        """Create the late replacements after some calls."""
        self._looks += 1
        if self.late and self._looks >= _LATE_LOOKS:
            self.create(self.late.pop())

    def create(self, created: Pod) -> None:
        self.pods[created.metadata.uid] = created
        super().create(created)

    def confirm(self) -> None:
        """Store the nodes of bound pods."""
        for uid, pod in self.pods.items():
            node_name = (self.rig.bound if self.bound is None else self.bound).get(pod.metadata.name)
            if node_name is not None:
                self.pods[uid] = replace(pod, spec=replace(pod.spec, node_name=node_name))

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        self.step()
        await super().write_status(name, uid, status)
        self.step()

    def check_replacements(self, but: int = 0) -> None:
        """Assert that all pods that were evicted, but some, have replacements on their destinations."""
        nodes = {pod.metadata.name: pod.spec.node_name for pod in self.pods.values()}
        assert sum(nodes.get(name) != target for name, target in self.targets.items()) <= but


def _rig(pods: dict[str, Pod], clock: VirtualClock) -> Rig:
    return gang_rig(*(small_node(f"n{number}", 6, pool="c") for number in range(5)), *pods.values(), clock=clock)


def _after_restart(old: _Cluster, pods: dict[str, Pod]) -> _Cluster:
    """Return the cluster with a new process, which reads all objects."""
    new = _Cluster(_rig(pods, old.rig.clock), pods, 0, old.width)
    new.evicted, new.times, new.targets, new.statuses = old.evicted, old.times, old.targets, old.statuses
    new.broken, new.late = old.broken, old.late
    new.waiting = [pod for pod in pods.values() if not pod.spec.node_name]
    return new


async def _process(cluster: _Cluster, status: dict[str, Any] | None) -> bool:
    """Run a process until the plan has ended; return whether the process has ended before."""
    listed = asyncio.Event()
    listed.set()
    cluster.plan(status, budget={"moves": MOVES, **WIDTHS[cluster.width]}, moveTimeoutSeconds=60)
    ended = asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            await cluster.plans.run(listed)
        except* _ProcessEndedError:
            ended.set_result(None)

    task = asyncio.create_task(run())
    await cluster.plans.restored.wait()
    tasks = [task, asyncio.create_task(cluster.rig.scheduler.run())]
    looks = 0

    def is_over() -> bool:
        nonlocal looks
        cluster.confirm()
        cluster.create_late()
        status: dict[str, Any] = cluster.statuses[-1] if cluster.statuses else {"phase": ""}
        is_moving = any(each["state"] == "Evicting" for each in status.get("moves", []))
        if is_moving and not ended.done() and looks < _LOOKS * len(cluster.evicted):
            looks += 1
            try:
                cluster.step()
            except _ProcessEndedError:
                ended.set_result(None)
        return ended.done() or status["phase"] in ("Completed", "Stopped")

    await cluster.until(is_over)
    if not ended.done():
        await cluster.until_later(200)
        assert not len(cluster.rig.scheduler.reservations.held)
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    cluster.rig.queue.close()
    cluster.confirm()
    return ended.done()


async def _lifetime(end_at: int, rng: random.Random, width: str) -> Counter[str]:
    """Run a plan whose process ends at a step; return what happened."""
    first = [movable(f"p{number}", f"n{number}", 1) for number in range(4)]
    if width == OF_ONE_OWNER:
        owners = first[0].metadata.owner_references
        first = [replace(each, metadata=replace(each.metadata, owner_references=owners)) for each in first]
    stay = [running_pod("stay", "n4"), movable("bare", "n4", of="")]
    pods = {pod.metadata.uid: pod for pod in (*first, *stay)}
    clock = VirtualClock()
    cluster = _Cluster(_rig(pods, clock), pods, end_at, width)
    has_ended = await _process(cluster, None)
    kinds = Counter({"restarts": has_ended, "resumed": 0})
    if has_ended:
        clock.advance(rng.choice((0.0, 20.0, 600.0)))
        status = cluster.statuses[-1] if cluster.statuses else None
        waits = [name for name in cluster.targets if name not in (cluster.bound or {})]
        kinds["resumed"] += bool(waits)
        kinds["two resumed"] += len(waits) > 1
        cluster = _after_restart(cluster, pods)
        assert not await _process(cluster, status)
    cluster.check_replacements()
    assert not cluster.broken
    status = cluster.statuses[-1]
    assert status["phase"] == "Completed", (end_at, status)
    assert status["moved"] == len(cluster.evicted) == len(set(cluster.evicted)) == MOVES
    assert width != "one" or all(
        later - earlier >= 60 / RATE for earlier, later in zip(cluster.times, cluster.times[1:], strict=False)
    )
    assert all(move.get("awaited") is None for move in status["moves"])
    return kinds


@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", WIDTHS)
async def test_a_restart_at_each_step(width: str) -> None:
    """All laws hold whichever step is the last one of the first process."""
    total, rng = Counter[str](), random.Random(7)
    for end_at in range(1, MAX_STEPS):
        kinds = await _lifetime(end_at, rng, width)
        total += kinds
        if not kinds["restarts"]:
            break
    assert end_at < MAX_STEPS - 1
    assert total["restarts"] > 15
    assert total["resumed"] >= MOVES, total
    assert bool(total["two resumed"]) is (width != "one"), total
