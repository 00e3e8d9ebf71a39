"""Laws of the room that RebalancePlans make for gangs, among rivals that want it.

- After a completed plan, the gang is bound before each pod of equal or lower priority that fits only in its room.
- Room that the gang does not use ends in its time, and then the rivals are bound. After a plan has stopped, nothing is
  held. Room that has ended is not in the status. A plan that is deleted or changed while it is searched or its room
  begins holds nothing and evicts nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from bayplan.rebalancing.gang_rooms import GangRooms
from bayplan.rebalancing.plan_controller import StoredPlan

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupTopology
from tests.support.gang_preemption import small_node
from tests.support.gangs import add_groups, group, member
from tests.support.planned_cluster import PlannedCluster, sum_of
from tests.support.rebalancing import movable
from tests.support.scheduling import Rig, gang_rig

SEEDS, NODES = 40, 6
HOLD_SECONDS = 120


class _RivalledCluster(PlannedCluster):
    """A cluster in which rivals come with each replacement."""

    def __init__(self, made: Rig, rng: random.Random) -> None:
        super().__init__(made)
        self._rng = rng

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        await super().evict(namespace, name, uid)
        for _ in range(self._rng.randint(0, 2)):
            self.add_any_rival()

    def add_any_rival(self) -> None:
        self.add_rival(self._rng.randint(1, 4))


async def _lifetime(seed: int) -> Counter[str]:
    """Run a plan for a gang, and return what happened."""
    rng = random.Random(seed)
    made = gang_rig(*(small_node(f"n{number}", 4, zone=f"z{number % 2}") for number in range(NODES)))
    made.add(
        *(
            movable(f"p{number}-{each}", f"n{number}")
            for number in range(NODES)
            for each in range(rng.choice((1, 2, 2, 3)))
        )
    )
    count = rng.randint(1, 3)
    topology = rng.choice((None, GroupTopology("zone")))
    add_groups(made, group(min_member=count, priority=rng.choice((None, 1)), topology=topology))
    cluster = _RivalledCluster(made, rng)
    workers = [member(f"worker-{number}", requests={"cpu": "4"}) for number in range(count)]
    is_lost = rng.random() < 0.3
    async with cluster.running():
        for each in workers:
            cluster.create(each)
        gang = {"namespace": "default", "name": "train", "holdSeconds": HOLD_SECONDS}
        cluster.plan(objective="MakeRoom", gang=gang, budget={"moves": 20}, moveTimeoutSeconds=60)
        if is_lost:
            await cluster.until(lambda: bool(cluster.evicted) or bool(cluster.statuses))
            for each in [each for each in workers if each in cluster.waiting]:
                cluster.waiting.remove(each)
                made.scheduler.feed.pod_deleted(each)
        await cluster.until(lambda: cluster.is_over)
        status = cluster.statuses[-1]
        for _ in range(3):
            cluster.add_any_rival()
        await cluster.until_later(HOLD_SECONDS / 2)
        kinds = Counter({status["phase"]: 1, "moves": len(cluster.evicted), "rivals": cluster.rivals})
        bound = sum(each.metadata.name in made.bound for each in workers)
        if status["phase"] == "Stopped":
            assert not len(made.scheduler.reservations.held), seed
        elif status.get("moves") and not is_lost:
            assert bound == count, (seed, made.bound)
            kinds["gangs"] += 1
        await cluster.until_later(HOLD_SECONDS)
        assert not len(made.scheduler.reservations.held), seed
        assert cluster.statuses[-1].get("room") is None, seed
    return kinds + Counter({"unused": is_lost and status.get("room") is not None})


async def _interrupted_lifetime(seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Run a plan that is deleted or changed before its first move, and return what happened."""
    nodes = (small_node(f"n{number}", 4) for number in range(2))
    made = gang_rig(*nodes, movable("p", "n0"), movable("q", "n1", 2))
    add_groups(made, group(min_member=1))
    rng = random.Random(seed)
    cluster = _RivalledCluster(made, rng)
    where, how = rng.choice(("search", "hold")), rng.choice(("delete", "suspend", "dry run"))
    gang = {"namespace": "default", "name": "train"}
    spec: dict[str, Any] = {"objective": "MakeRoom", "gang": gang, "moveTimeoutSeconds": 60}
    place: Any = cluster.plans if where == "search" else cluster.plans.rooms
    real, count = getattr(place, where), 0

    async def interrupted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        is_late = rng.random() < 0.5
        found = await real(*arguments) if is_late else None
        if count == 1:
            if how == "delete":
                cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))
            else:
                cluster.plan(**spec | {"suspend": how == "suspend", "dryRun": True})
        return found if is_late else await real(*arguments)

    monkeypatch.setattr(place, where, interrupted)
    async with cluster.running():
        cluster.create(member("worker", requests={"cpu": "4"}))
        cluster.plan(**spec)
        await cluster.until(lambda: count > 0)
        await cluster.until_later(5)
        assert not len(made.scheduler.reservations.held), (seed, where, how)
        assert not cluster.evicted
        phases = {"delete": [], "suspend": ["Suspended"], "dry run": ["Planned"]}
        assert [each["phase"] for each in cluster.statuses] == phases[how]
    return Counter({f"{how} during {where}": 1})


@pytest.mark.timeout(180)
async def test_gangs_get_the_room_that_is_made_for_them() -> None:
    """All laws hold, and all that may happen does."""
    total = await sum_of(_lifetime, range(SEEDS))
    assert total.keys() >= {"Completed", "gangs", "moves", "rivals", "unused"}, total


@pytest.mark.timeout(180)
async def test_room_that_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds a controller that reports room and holds none."""

    async def hold(*_arguments: object) -> bool:
        return True

    monkeypatch.setattr(GangRooms, "hold", hold)
    with pytest.raises((AssertionError, ExceptionGroup)):
        await sum_of(_lifetime, range(SEEDS))


async def test_plans_that_are_interrupted_before_their_first_move() -> None:
    """No room is left, and all interruptions occur."""
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            total += await _interrupted_lifetime(seed, patch)
    assert len(total) == 6, total
