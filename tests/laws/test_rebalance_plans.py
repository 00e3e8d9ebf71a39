"""Laws of RebalancePlans that are made among faults and interruptions.

Evictions are refused, replacements are lost or differ, rivals come, writes of the status fail or take long, and plans
are deleted, suspended or changed while a move begins.

- A pod is evicted only if the replacements of all pods that were evicted before are bound to their nodes, except those
  of the moves that may be made at the same time.
- No PodDisruptionBudget is broken, no more pods are evicted than the budget of the plan allows, and no pod twice.
- After a plan has stopped, nothing is evicted and nothing is held. After a completed one, a second plan has no moves.
- Each move is in the stored status before its pod is evicted. After a plan was deleted, suspended or changed, and after
  a move has failed, no pod is evicted; the status of a suspended plan has no move that is being made.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from bayplan.rebalancing.plan_controller import StoredPlan

from scheduler_core.errors import WriteTimeoutError
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from tests.support.gang_preemption import small_node
from tests.support.planned_cluster import ENDED, PlannedCluster, elsewhere, equal, none, refusal, sum_of
from tests.support.rebalancing import movable
from tests.support.scheduling import Rig, gang_rig

CHUNKS, SEEDS = 2, 50


class FaultyCluster(PlannedCluster):
    """A cluster with budgets and faults.

    Attributes:
        kinds: Number of events of each kind.
        broken: What does not hold at an eviction; the controller would log an exception, and continue.
        interruption: How the plan is interrupted while a status is written that begins a move; "" if it is not.
        is_interrupted: Whether that has happened.

    Args:
        most: Number of moves that may be made at the same time.
    """

    def __init__(self, made: Rig, rng: random.Random, faults: float, most: int) -> None:
        super().__init__(made)
        self._most = most
        self.kinds: Counter[str] = Counter()
        self.broken: list[AssertionError] = []
        self.interruption, self.is_interrupted = "", False
        self._writes = random.Random(rng.random())
        self._begins, self._is_slow = self._writes.randint(1, 6), self._writes.random() < 0.5
        self._rng, self._faults = rng, faults
        self._targets: dict[str, str] = {}
        self._apps: dict[str, str] = {}

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        try:
            self._check_eviction(name, uid)
        except AssertionError as error:
            self.broken.append(error)
        if self._rng.random() < self._faults:
            self.kinds["refused"] += 1
            raise refusal()
        placed = self.rig.context.cache.get(uid)
        assert placed is not None
        budgets = self.rig.columns.disruption_budgets.protecting(placed.info)
        labels = placed.info.pod.metadata.labels
        if any(self._disrupted(str(budget.name)) >= budget.disruptions_allowed for budget in budgets):
            self.kinds["budget"] += 1
            raise refusal()
        (target,) = [move["target"] for move in self.statuses[-1]["moves"] if move["uid"] == uid]
        self._targets[f"{name}-again"] = target
        self._apps[f"{name}-again"] = labels["app"]
        self.replace = self._next_replacement()
        if self._rng.random() < self._faults:
            self.kinds["rival"] += 1
            self.add_rival(priority=self._rng.choice((0, 5)))
        await super().evict(namespace, name, uid)

    def _check_eviction(self, name: str, uid: str) -> None:
        self.check_replacements()
        assert not self.is_interrupted
        # After a failed write the plan is made again, for the present state.
        assert not name.endswith("-again") or self.kinds["unwritten"]
        placed = self.rig.context.cache.get(uid)
        assert placed is not None
        budgets = self.rig.columns.disruption_budgets.protecting(placed.info)
        assert all(budget.disruptions_allowed > 0 for budget in budgets)
        moves = {move["uid"]: move for move in self.statuses[-1]["moves"]}
        assert (moves[uid]["state"], "awaited" in moves[uid]) == ("Evicting", True)
        assert all(move["state"] != "Failed" for move in moves.values())

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        assert not (self.is_interrupted and self.interruption == "delete")
        if self._is_slow:
            await self.rig.clock.sleep(self._writes.choice((0, 1, 3)))
        self._begins -= any(move["state"] == "Evicting" for move in status.get("moves", ()))
        if self.interruption and not self._begins and not self.is_interrupted:
            self.is_interrupted = True
            self.kinds[self.interruption] += 1
            if self.interruption == "delete":
                self.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))
            else:
                self.plan(suspend=self.interruption == "suspend", dryRun=True)
        if self._writes.random() < self._faults / 2:
            self.kinds["unwritten"] += 1
            raise WriteTimeoutError("no response")
        await super().write_status(name, uid, status)

    def _next_replacement(self) -> Any:
        if self._rng.random() >= self._faults / 2:
            return equal
        self.kinds["lost"] += 1
        return self._rng.choice((elsewhere, none))

    def check_replacements(self) -> None:
        """Assert that pods that were evicted have replacements on their nodes, but those of moves that are made."""
        assert self.missing < self._most
        self.kinds["at the same time"] += self.missing > 0

    def _disrupted(self, app: str) -> int:
        """Return the number of pods of a budget that were evicted and are not replaced."""
        return sum(self._apps[name] == app and name not in self.rig.bound for name in self._targets)

    @property
    def missing(self) -> int:
        """Number of evicted pods without a replacement on its node."""
        return sum(self.rig.bound.get(name) != target for name, target in self._targets.items())


def _budget(name: str, allowed: int) -> PodDisruptionBudget:
    spec = PodDisruptionBudgetSpec(LabelSelector({"app": name}))
    return PodDisruptionBudget(ObjectMeta(name, "default"), spec, PodDisruptionBudgetStatus(allowed))


def _pods(rng: random.Random) -> list[Pod]:
    found = []
    for number in range(6):
        for each in range(rng.randint(0, 3)):
            labels = {"app": rng.choice(("web", "db", "other"))}
            found.append(movable(f"p{number}-{each}", f"n{number}", rng.randint(1, 2), labels=labels))
    return found


async def _lifetime(seed: int) -> Counter[str]:
    rng = random.Random(seed)
    made = gang_rig(*(small_node(f"n{number}", 6, pool="c") for number in range(6)), *_pods(rng))
    for name in ("web", "db"):
        made.scheduler.workload_feed.added(_budget(name, rng.choice((0, 1, 1, 2))))
    most = rng.choice((1, 1, 3, 5))
    cluster = FaultyCluster(made, rng, rng.choice((0.0, 0.1, 0.3)), most)
    cluster.interruption = rng.choice(("", "", "", "delete", "suspend", "change"))
    moves = rng.randint(1, 8)
    async with cluster.running():
        cluster.plan(budget={"moves": moves, "concurrentMoves": most}, moveTimeoutSeconds=60)
        await cluster.until(lambda: cluster.is_interrupted or cluster.is_over)
        evicted, ended = list(cluster.evicted), cluster.statuses[-1:]
        await cluster.until_later(300)
        assert not cluster.broken, seed
        assert cluster.evicted == evicted
        assert not len(made.scheduler.reservations.held)
        assert len(evicted) == len(set(evicted)) <= moves
        status = cluster.statuses[-1]
        if cluster.is_interrupted:
            phases = {"delete": ("Moving", *ENDED), "suspend": ("Suspended",), "change": ("Planned",)}
            assert status["phase"] in phases[cluster.interruption]
            assert status["phase"] == "Moving" or all(move["state"] != "Evicting" for move in status["moves"])
            return cluster.kinds
        assert ended == [status]
        assert status["moved"] == len(evicted) - cluster.missing
        assert cluster.missing <= (most if status["phase"] == "Stopped" else 0)
        if status["phase"] == "Completed" and len(evicted) < moves and not cluster.kinds["rival"]:
            # With more moves it could empty a node for which the first plan had too few left.
            cluster.plan(budget={"moves": moves - len(evicted)}, dryRun=True)
            assert (await cluster.until_phase("Planned"))["planned"] == 0
    return cluster.kinds + Counter({status["phase"]: 1, "evicted": len(evicted)})


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_plans_among_faults(chunk: int) -> None:
    """All laws hold, and all faults occur."""
    total = await sum_of(_lifetime, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert total.keys() >= {
        "Completed",
        "Stopped",
        "evicted",
        "refused",
        "rival",
        "lost",
        "budget",
        "at the same time",
        "unwritten",
        "delete",
        "suspend",
        "change",
    }, total
