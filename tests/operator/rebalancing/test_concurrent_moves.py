"""Moves that are made at the same time: which ones, how their replacements are counted, and what stops them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from bayplan.rebalancing.plan_controller import StoredPlan
from msgspec.structs import replace

from scheduler_core.errors import WriteTimeoutError
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from tests.support.gang_preemption import running_pod, small_node
from tests.support.planned_cluster import PlannedCluster, none
from tests.support.rebalancing import movable
from tests.support.scheduling import gang_rig
from tests.support.tables import table

APP = LabelSelector({"app": "web"})
ALONE = Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key="pool", label_selector=APP),)))
SPREAD = TopologySpreadConstraint(9, "pool", "DoNotSchedule", APP)
DRAIN = {"objective": "Drain", "drain": {"nodes": ["a"]}}


@pytest.fixture
async def cluster() -> AsyncIterator[PlannedCluster]:
    """Return nodes a, b and c, without movable pods."""
    made = gang_rig(*(small_node(name, 4, pool=name) for name in "abc"))
    async with PlannedCluster(made).running() as cluster:
        yield cluster


def plan(cluster: PlannedCluster, most: int, **spec: Any) -> None:
    """Create a plan that drains node a."""
    cluster.plan(**{**DRAIN, "budget": {"concurrentMoves": most}, "moveTimeoutSeconds": 60, **spec})


@table(
    "fields, most, evicted",
    ("one-by-one", {}, 1, 1),
    ("two", {}, 2, 2),
    ("all", {}, 50, 3),
    ("anti-affinity", {"affinity": ALONE}, 50, 1),
    ("spread", {"spread": (SPREAD,)}, 50, 1),
)
async def test_moves_at_the_same_time(cluster: PlannedCluster, fields: dict[str, Any], most: int, evicted: int) -> None:
    """Pods with constraints to others are moved alone; when a replacement does not come, no further pod is evicted."""
    cluster.rig.add(*(movable(f"p{number}", "a", **fields) for number in range(3)))
    cluster.replace = none
    plan(cluster, most)
    status = await cluster.until_phase("Stopped")
    assert len(cluster.evicted) == evicted
    assert [each["state"] for each in status["moves"]] == ["Failed"] * evicted + ["Pending"] * (3 - evicted)
    assert not len(cluster.rig.scheduler.reservations.held)


async def test_a_rate(cluster: PlannedCluster) -> None:
    """With a rate of moves a minute, moves are made one after the other."""
    cluster.rig.add(*(movable(f"p{number}", "a") for number in range(3)))
    cluster.replace = none
    plan(cluster, 50, budget={"concurrentMoves": 50, "movesPerMinute": 60})
    await cluster.until_phase("Stopped")
    assert len(cluster.evicted) == 1


async def test_all_replacements_get_their_nodes(cluster: PlannedCluster) -> None:
    """The plan is completed when all moves are."""
    cluster.rig.add(*(movable(f"p{number}", "a") for number in range(3)))
    plan(cluster, 3)
    status = await cluster.until_phase("Completed")
    targets = {f"{each['pod'].partition('/')[2]}-again": each["target"] for each in status["moves"]}
    assert (status["moved"], cluster.rig.bound) == (3, targets)


async def test_a_higher_priority_waits_for_a_lower_one_on_the_same_node(cluster: PlannedCluster) -> None:
    """The room of a replacement does not keep out a pod of a higher priority, which is moved after it."""
    low, high = movable("low", "a", 2), movable("high", "a", 1, priority=5)
    cluster.rig.add(low, high, running_pod("q", "c", cpus=4))
    cluster.replace = none
    plan(cluster, 2)
    status = await cluster.until_phase("Stopped")
    assert [each["pod"] for each in status["moves"]] == ["default/low", "default/high"]
    assert cluster.evicted == ["low"]


def of_one_owner(name: str) -> Pod:
    """Return a pod on node a of a controller that has several."""
    made = movable(name, "a")
    owner = OwnerReference("ReplicaSet", "web", "uid-of-web", "apps/v1", controller=True)
    return replace(made, metadata=replace(made.metadata, owner_references=(owner,)))


@pytest.mark.parametrize("lost", ["p0", "p1"])
async def test_a_pod_replaces_one_other(cluster: PlannedCluster, lost: str) -> None:
    """Of two pods of one controller with one destination, both moves need a replacement there."""
    cluster.rig.add(of_one_owner("p0"), of_one_owner("p1"), running_pod("q", "c", cpus=4))

    def replaced(pod: Pod) -> Pod | None:
        made = PlannedCluster(cluster.rig).replace(pod)
        assert made is not None
        selector = {"pool": "a"} if pod.metadata.name == lost else {}
        return replace(made, spec=replace(made.spec, node_selector=selector))

    cluster.replace = replaced
    plan(cluster, 2)
    status = await cluster.until_phase("Stopped")
    assert sorted(each["state"] for each in status["moves"]) == ["Failed", "Moved"]
    assert (status["moved"], len(cluster.evicted)) == (1, 2)


async def test_an_error_of_one_move(cluster: PlannedCluster) -> None:
    """The replacements of the other moves are awaited, and no further pod is evicted."""
    cluster.rig.add(*(movable(f"p{number}", "a") for number in range(3)))
    real = cluster.evict

    async def evict(namespace: str, name: str, uid: str) -> None:
        if len(cluster.evicted) == 1:
            raise WriteTimeoutError("no response")
        await real(namespace, name, uid)

    cluster.evict = evict  # type: ignore[method-assign]
    plan(cluster, 2)
    status = await cluster.until_phase("Stopped")
    assert [each["state"] for each in status["moves"]] == ["Moved", "Failed", "Pending"]
    assert len(cluster.evicted) == 1


@dataclass(slots=True)
class BeginWrites:
    """The writes that begin moves: the first one waits for a gate, and may fail.

    Attributes:
        evicted: For each evicted pod, the moves that were begun in the stored status.
    """

    cluster: PlannedCluster
    fails: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: bool = False
    evicted: dict[str, list[str]] = field(default_factory=dict)

    def install(self) -> None:
        """Replace the requests of the cluster."""
        write, evict = self.cluster.write_status, self.cluster.evict

        async def write_status(name: str, uid: str, status: dict[str, Any]) -> None:
            is_first = not self.has_begun and any(each["state"] == "Evicting" for each in status["moves"])
            self.has_begun |= is_first
            if is_first:
                await self.gate.wait()
            if is_first and self.fails:
                raise WriteTimeoutError("no response")
            await write(name, uid, status)

        async def evict_pod(namespace: str, name: str, uid: str) -> None:
            moves = self.cluster.statuses[-1]["moves"]
            self.evicted[name] = [each["pod"].partition("/")[2] for each in moves if "awaited" in each]
            await evict(namespace, name, uid)

        self.cluster.write_status = write_status  # type: ignore[method-assign]
        self.cluster.evict = evict_pod  # type: ignore[method-assign]


async def begun(cluster: PlannedCluster, *, fails: bool = False) -> BeginWrites:
    """Plan the moves of three pods, and return when the write that begins them waits."""
    cluster.rig.add(*(movable(f"p{number}", "a") for number in range(3)))
    writes = BeginWrites(cluster, fails)
    writes.install()
    plan(cluster, 3)
    await cluster.until(lambda: writes.has_begun)
    return writes


async def test_a_begin_that_cannot_be_written(cluster: PlannedCluster) -> None:
    """The moves that begin at the same time stay in the status, so that a restart resumes them."""
    writes = await begun(cluster, fails=True)
    await cluster.until_later(3)
    writes.gate.set()
    await cluster.until_phase("Completed")
    assert len(writes.evicted) == 3
    assert all(name in stored for name, stored in writes.evicted.items())


@table(
    "change",
    ("deleted", lambda cluster: cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))),
    ("suspended", lambda cluster: plan(cluster, 3, suspend=True)),
    ("changed", lambda cluster: plan(cluster, 3, dryRun=True)),
)
async def test_a_change_while_moves_begin(cluster: PlannedCluster, change: Any) -> None:
    """No pod is evicted, although the writes that begin the moves succeed later."""
    writes = await begun(cluster)
    await cluster.until_later(3)
    change(cluster)
    writes.gate.set()
    await cluster.until_later(20)
    assert not cluster.evicted
    assert not len(cluster.rig.scheduler.reservations.held)
    if cluster.statuses[-1]["phase"] == "Suspended":
        assert [each["state"] for each in cluster.statuses[-1]["moves"]] == ["Pending"] * 3


async def test_a_move_that_fails_while_another_one_begins(cluster: PlannedCluster) -> None:
    """The pod whose move is written at that time is not evicted."""
    writes = await begun(cluster)
    cluster.error = WriteTimeoutError("no response")
    writes.gate.set()
    status = await cluster.until_phase("Stopped")
    assert sorted(each["state"] for each in status["moves"]) == ["Failed", "Pending", "Pending"]
    assert len(writes.evicted) == 1


async def test_a_restart_while_one_of_two_replacements_waits(cluster: PlannedCluster) -> None:
    """The move that was not over does not take the replacement of the other one for its own."""
    cluster.rig.add(of_one_owner("p0"), of_one_owner("p1"), running_pod("q", "c", cpus=4))
    replaced = cluster.replace
    cluster.replace = lambda pod: replaced(pod) if pod.metadata.name == "p0" else None
    plan(cluster, 2)
    await cluster.until(lambda: bool(cluster.statuses) and cluster.statuses[-1]["moved"] == 1)
    status = cluster.statuses[-1]
    (waiting,) = [each["pod"] for each in status["moves"] if each["state"] == "Evicting"]
    restarted = PlannedCluster(cluster.rig)
    plan(restarted, 2, status=status)
    listed = asyncio.Event()
    listed.set()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(restarted.plans.run(listed))
        (condition,) = (await restarted.until_phase("Stopped"))["conditions"]
        late = f"no replacement of pod {waiting} was bound within 60 s"
        assert condition["message"] == f"{late}; see its controller, or raise spec.moveTimeoutSeconds"
        running.cancel()
