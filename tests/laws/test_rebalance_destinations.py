"""Laws of the destinations of moves that gain nothing one by one, among rivals of the same priority.

- If a pod is evicted for a gang, the gang gets its room; if one is evicted off a node that Consolidate empties, the
  node is emptied. Rivals that come at each eviction, refused or not, do not take the destinations of later moves.
- A destination that is taken before the first eviction stops the plan without one.
- At the end nothing is held, and also after a plan was deleted or changed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from bayplan.rebalancing.plan_controller import StoredPlan
from bayplan.rebalancing.pod_moves import PodMoves

from scheduler_core.model.meta import ObjectMeta
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gangs import add_groups, group, member
from tests.support.planned_cluster import PlannedCluster, refusal, sum_of
from tests.support.rebalancing import movable
from tests.support.scheduling import Rig, gang_rig

SEEDS, NODES = 40, 6
OBJECTIVES = ("MakeRoom", "Consolidate")


class _RivalledCluster(PlannedCluster):
    """A cluster in which rivals come with each eviction and after each beginning of a move."""

    def __init__(self, made: Rig, rng: random.Random) -> None:
        super().__init__(made)
        self._rng = rng

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        self._add_rivals()
        if self._rng.random() < 0.3:
            raise refusal()
        await super().evict(namespace, name, uid)
        self._add_rivals()

    def _add_rivals(self) -> None:
        for _ in range(self._rng.randint(0, 2)):
            self.add_rival(self._rng.randint(1, 3))


def _made(rng: random.Random) -> Rig:
    made = gang_rig(*(small_node(f"n{number}", 4) for number in range(NODES)))
    for number in range(NODES):
        made.add(*(movable(f"p{number}-{each}", f"n{number}") for each in range(rng.choice((1, 2, 2, 3)))))
    return made


async def _lifetime(seed: int, objective: str) -> Counter[str]:
    """Run a plan to its end, and return what happened."""
    rng = random.Random(seed)
    made = _made(rng)
    spec: dict[str, Any] = {"objective": objective, "budget": {"moves": 20}, "moveTimeoutSeconds": 60}
    spec["budget"]["concurrentMoves"] = rng.choice((1, 1, 3))
    workers = [member(f"worker-{number}", requests={"cpu": "4"}) for number in range(rng.randint(1, 2))]
    if objective == "MakeRoom":
        add_groups(made, group(min_member=len(workers)))
        spec["gang"] = {"namespace": "default", "name": "train"}
    cluster = _RivalledCluster(made, rng)
    interruption = rng.choice(("", "", "", "delete", "change"))
    async with cluster.running():
        if objective == "MakeRoom":
            for each in workers:
                cluster.create(each)
        cluster.plan(**spec)
        if interruption:
            await cluster.until(lambda: bool(cluster.evicted) or cluster.is_over)
            if interruption == "delete":
                cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))
            else:
                cluster.plan(**spec | {"dryRun": True})
            await cluster.until_later(0.5)
            later = [room for room in made.scheduler.reservations.held if room.holder.pods.are_new]
            assert not later, (seed, interruption)
            return Counter({interruption: 1})
        await cluster.until(lambda: cluster.is_over)
        status = cluster.statuses[-1]
        kinds = Counter({status["phase"]: 1, "evicted": len(cluster.evicted), "rivals": cluster.rivals})
        moves = status.get("moves", ())
        kinds["several"] += len(moves) > 1
        if objective == "MakeRoom":
            assert status["phase"] == "Completed" or not cluster.evicted, (seed, status)
            await cluster.until_later(30)
            bound = sum(each.metadata.name in made.bound for each in workers)
            assert bound == len(workers) or not cluster.evicted, seed
        begun = {move["source"] for move in moves if move["pod"].partition("/")[2] in cluster.evicted}
        left = [move for move in moves if move["source"] in begun and move["state"] != "Moved"]
        assert not left, (seed, status)
        await cluster.until_later(400)
        assert not len(made.scheduler.reservations.held), seed
    return kinds


@pytest.mark.timeout(180)
@pytest.mark.parametrize("objective", OBJECTIVES)
async def test_no_eviction_is_useless(objective: str) -> None:
    """All laws hold, and all that may happen does."""
    total = await sum_of(_lifetime, range(SEEDS), objective)
    assert total.keys() >= {"Completed", "evicted", "rivals", "several", "delete", "change"}, total


@pytest.mark.timeout(180)
@pytest.mark.parametrize("objective", OBJECTIVES)
async def test_destinations_that_are_not_held(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds a controller that holds no destinations of later moves."""

    async def hold_later(*_arguments: object) -> str:
        return ""

    monkeypatch.setattr(PodMoves, "hold_later", hold_later)
    with pytest.raises((AssertionError, ExceptionGroup)):
        await sum_of(_lifetime, range(SEEDS), objective)


async def test_a_destination_that_is_taken_before_the_first_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan stops, and no pod is evicted although the destination of the first move is free."""
    made = gang_rig(*(small_node(name, 4) for name in "abc"), movable("p", "a", 2), movable("q", "a", 1))
    made.add(movable("r", "b", 2, of=""), movable("s", "c", 3, of=""))
    cluster = PlannedCluster(made)
    search = cluster.plans.search

    async def then_taken(*arguments: Any) -> Any:
        found = await search(*arguments)
        (last,) = [move.target for move in found.moves[1:]]
        made.add(pod("taker", node_name=last, requests={"cpu": "1"}))
        return found

    monkeypatch.setattr(cluster.plans, "search", then_taken)
    async with cluster.running():
        cluster.plan()
        status = await cluster.until_phase("Stopped")
        assert "the room on node" in status["conditions"][0]["message"]
        assert not cluster.evicted
        await asyncio.sleep(0)
        assert not len(made.scheduler.reservations.held)
