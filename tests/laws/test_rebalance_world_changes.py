"""Laws of RebalancePlans while the cluster changes at random moments, with several plans that overlap.

Nodes are cordoned, tainted, drained and deleted; pods end by themselves; replacements never come or fit elsewhere only;
other schedulers bind pods; evictions fail in all ways of the Eviction API; the profile is deleted and created again;
plans are changed, suspended and deleted, also while their statuses are written.

- Each plan ends, and then nothing is held and nothing is evicted. No plan fails because of a bug.
- The evictions of a spec stay within its budget, and each pod is evicted once. No pod is evicted by a plan that was
  suspended, changed or deleted, or that is a dry run, and none that has no controller.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from bayplan.rebalancing.plan_controller import StoredPlan
from bayplan.rebalancing.plan_run import PlanRun
from msgspec.structs import replace

from scheduler_core.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.taints import Taint
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.planned_cluster import PlannedCluster, elsewhere, equal, none, refusal, sum_of
from tests.support.rebalancing import movable
from tests.support.scheduling import Rig, gang_rig, profile

SEEDS, NODES = 30, 6
ENDED = ("Completed", "Stopped", "Planned", "Suspended", "Invalid")
NAMES = ("plan-a", "plan-b")
CHANGES = ("cordon", "taint", "drain", "delete node", "finish", "rival", "bound rival", "profile", "plan", "repair")
ERRORS = (
    refusal(),
    NotFoundError("pods not found"),
    ConflictError("the UID in the precondition does not match"),
    ForbiddenError("pods/eviction is forbidden"),
    ServerUnavailableError("the server is unavailable"),
    WriteTimeoutError("no response"),
)


class _ChangingCluster(PlannedCluster):
    """A cluster with several plans.

    Attributes:
        specs: Present specs by name of the plan; the generation is its position in all specs of the name.
        last: Last written status by name.
        broken: What does not hold at an eviction.
        is_changing: Whether changes are made during writes of statuses, too.
    """

    def __init__(self, made: Rig, rng: random.Random) -> None:
        super().__init__(made)
        self.kinds: Counter[str] = Counter()
        self.specs: dict[str, list[dict[str, Any]]] = {}
        self.last: dict[str, dict[str, Any]] = {}
        self.broken: list[str] = []
        self.nodes: dict[str, Node] = {}
        self._by_spec: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        self._rng = rng
        self._count = 0
        self.is_changing = True

    # -- API ----------------------------------------------------------------------------------------------------

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        if name not in self.specs:
            raise NotFoundError(name)
        if self._rng.random() < 0.05:
            self.kinds["unwritten"] += 1
            raise WriteTimeoutError("no response")
        self.last[name] = status
        if self.is_changing and self._rng.random() < 0.2:
            self.kinds["change during a write"] += 1
            self.change()

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        self._check(name, uid)
        if self._rng.random() < 0.3:
            error = self._rng.choice(ERRORS)
            self.kinds[type(error).__name__] += 1
            if isinstance(error, WriteTimeoutError) and self._rng.random() < 0.5:
                self.kinds["evicted without response"] += 1
                await super().evict(namespace, name, uid)
            raise error
        self.replace = self._rng.choice((equal, equal, equal, equal, equal, elsewhere, none))
        self.kinds[f"replacement: {self.replace.__name__}"] += 1
        await super().evict(namespace, name, uid)

    def _check(self, name: str, uid: str) -> None:
        found = [
            plan
            for plan, status in self.last.items()
            for move in status.get("moves", ())
            if move["uid"] == uid and move["state"] == "Evicting" and plan in self.specs
        ]
        # The status of a plan that was changed during a move has this move until the plan is made again.
        found = [plan for plan in found if self._may_evict(plan)]
        if len(found) != 1:
            self.broken.append(f"{name}: evicted by {found}")
        for plan in found:
            spec, generation = self.specs[plan][-1], len(self.specs[plan])
            self._by_spec[plan, generation].append(name)
            if len(set(self._by_spec[plan, generation])) > spec["budget"]["moves"]:
                self.broken.append(f"{name}: above the budget of {plan}")
        placed = self.rig.context.cache.get(uid)
        # A pod that has just ended may be gone: its eviction has no effect.
        if placed is not None and not placed.info.pod.metadata.owner_references:
            self.broken.append(f"{name}: it has no controller")

    def _may_evict(self, plan: str) -> bool:
        spec = self.specs[plan][-1]
        is_current = self.last[plan]["observedGeneration"] == len(self.specs[plan])
        return is_current and not spec["dryRun"] and not spec.get("suspend")

    # -- changes ------------------------------------------------------------------------------------------------

    def put(self, name: str, **spec: Any) -> None:
        """Create or change a plan."""
        self.specs.setdefault(name, []).append(spec)
        meta = ObjectMeta(name, uid=f"uid-of-{name}", generation=len(self.specs[name]))
        self.plans.plan_changed(StoredPlan(meta, spec, self.last.get(name, {})))

    def change(self) -> None:
        """Make one random change."""
        kind = self._rng.choice(CHANGES)
        self.kinds[kind] += 1
        name = self._rng.choice(sorted(self.nodes)) if self.nodes else ""
        match kind:
            case "cordon" if name:
                self._update(replace_spec(self.nodes[name], unschedulable=True))
            case "taint" if name:
                self._update(replace_spec(self.nodes[name], taints=(Taint("busy", "", "NoSchedule"),)))
            case "repair" if name:
                self._update(replace_spec(self.nodes[name], unschedulable=False, taints=()))
            case "drain" if name:
                self._update(replace_spec(self.nodes[name], unschedulable=True))
                self._end_pods(name)
            case "delete node" if name and len(self.nodes) > 3:
                self._end_pods(name)
                self.rig.scheduler.feed.node_deleted(self.nodes.pop(name))
            case "finish" if name:
                self._end_pods(name, 1)
            case "rival":
                self.add_rival(priority=self._rng.choice((0, 0, 5)))
            case "bound rival" if name:
                self._count += 1
                self.rig.add(pod(f"other-{self._count}", node_name=name, requests={"cpu": "1"}))
            case "profile":
                if self.rig.scheduler.context.profiles.get("default-scheduler") is None:
                    self.rig.serve(profile())
                else:
                    self.rig.scheduler.withdraw("default-scheduler")
            case "plan":
                self._change_plan(self._rng.choice(NAMES))

    def _change_plan(self, name: str) -> None:
        if name not in self.specs:
            self.put(name, **self.any_spec())
        elif self._rng.random() < 0.2:
            self.kinds["plan deleted"] += 1
            meta = ObjectMeta(name, uid=f"uid-of-{name}", generation=len(self.specs[name]))
            del self.specs[name]
            self.last.pop(name, None)
            self._by_spec = defaultdict(list, {key: each for key, each in self._by_spec.items() if key[0] != name})
            self.plans.plan_deleted(StoredPlan(meta))
        elif self._rng.random() < 0.5:
            self.put(name, **{**self.specs[name][-1], "suspend": not self.specs[name][-1].get("suspend", False)})
        else:
            self.put(name, **self.any_spec())

    def any_spec(self) -> dict[str, Any]:
        """Return a random spec."""
        rng = self._rng
        nodes = rng.sample(sorted(self.nodes), min(2, len(self.nodes)))
        forms: tuple[dict[str, Any], ...] = (
            {"objective": "Consolidate"},
            {"objective": "Consolidate"},
            {"objective": "Drain", "drain": {"nodes": nodes or ["gone"]}},
            {"objective": "Defragment", "defragment": {"resource": "cpu", "amount": 5}},
            {"objective": "Spread"},
        )
        budget = {"moves": rng.choice((1, 3, 500)), "concurrentMoves": rng.choice((1, 1, 3, 50))}
        if rng.random() < 0.2:
            budget["movesPerMinute"] = rng.choice((1, 6, 2**31 - 1))
        common = {"budget": budget, "dryRun": rng.random() < 0.1, "moveTimeoutSeconds": rng.choice((10, 30))}
        return {**rng.choice(forms), **common}

    def _update(self, node: Node) -> None:
        old = self.nodes[node.metadata.name]
        self.nodes[node.metadata.name] = node
        self.rig.scheduler.feed.node_updated(old, node)

    def _end_pods(self, node_name: str, most: int = 100) -> None:
        columns = self.rig.columns
        pods = [info.pod for info in columns.pods[columns.row_of(node_name)].values()]
        for each in [each for each in pods if each.spec.node_name][:most]:
            self.rig.scheduler.feed.pod_deleted(each)


def replace_spec(node: Node, **fields: Any) -> Node:
    """Return a node with other fields of its spec."""
    return replace(node, spec=replace(node.spec, **fields))


async def _lifetime(seed: int) -> Counter[str]:
    rng = random.Random(seed)
    made = gang_rig()
    cluster = _ChangingCluster(made, rng)
    cluster.nodes = {f"n{number}": small_node(f"n{number}", 6, pool="c") for number in range(NODES)}
    made.add(*cluster.nodes.values())
    for number in range(NODES):
        made.add(*(movable(f"p{number}-{each}", f"n{number}", rng.randint(1, 2)) for each in range(rng.randint(1, 3))))
    async with cluster.running():
        for name in NAMES:
            cluster.put(name, **cluster.any_spec())
        for _ in range(rng.randint(3, 12)):
            await cluster.until_later(rng.choice((0.5, 1, 3, 10)))
            cluster.change()
        cluster.is_changing = False
        if made.scheduler.context.profiles.get("default-scheduler") is None:
            made.serve(profile())
        await cluster.until(lambda: all(cluster.last.get(name, {}).get("phase") in ENDED for name in cluster.specs))
        for _ in range(3):
            await cluster.until_later(900)
        evicted = list(cluster.evicted)
        await cluster.until_later(300)
        assert cluster.evicted == evicted
        assert not cluster.broken, (seed, cluster.broken)
        assert not len(made.scheduler.reservations.held), seed
        assert len(evicted) == len(set(evicted)), seed
        for name, specs in cluster.specs.items():
            status = cluster.last[name]
            assert (status["phase"], status["observedGeneration"]) in [(each, len(specs)) for each in ENDED], seed
            cluster.kinds[status["phase"]] += 1
    return cluster.kinds + Counter({"evicted": len(evicted)})


@pytest.mark.timeout(300)
async def test_plans_while_the_cluster_changes(caplog: pytest.LogCaptureFixture) -> None:
    """All laws hold, and all changes and errors occur."""
    with caplog.at_level(logging.ERROR):
        total = await sum_of(_lifetime, range(SEEDS))
    assert not caplog.records
    assert total.keys() >= {type(error).__name__ for error in ERRORS}, total
    assert total.keys() >= {"Completed", "Stopped", "evicted", "plan deleted", "profile", "change during a write"}, (
        total
    )


@pytest.mark.timeout(300)
async def test_moves_that_are_not_wanted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds a controller that evicts pods although the plan was changed, suspended or deleted."""
    monkeypatch.setattr(PlanRun, "_is_wanted", lambda _: True)
    with pytest.raises((AssertionError, ExceptionGroup)):
        # Few seeds find it; the law holds for these without the bug.
        await sum_of(_lifetime, range(SEEDS, SEEDS + 4))
