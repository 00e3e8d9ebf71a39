"""Laws of plans of moves in random clusters.

- Each destination is a node that all filters accept when exactly the earlier moves have been made in a fresh scheduler.
- A plan with moves gains something, moves no pod twice, and moves no pod that is to be left alone.
- A second plan after all moves has no moves.
- A plan changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from scheduler_core.rebalance.requests import (
    Consolidate,
    Defragment,
    Drain,
    MakeRoom,
    Objective,
    RebalancePlan,
    RebalanceRequest,
    Spread,
)
from tests.support.gang_preemption import add_gang, small_node
from tests.support.gangs import group, key, members
from tests.support.presence import present
from tests.support.rebalancing import movable, planned
from tests.support.scheduling import Rig, gang_rig

CHUNKS, SEEDS = 3, 60
WEB = LabelSelector({"app": "web"})
ALONE = Affinity(pod_anti_affinity=PodAffinity(required=(PodAffinityTerm(topology_key="host", label_selector=WEB),)))
TOGETHER = Affinity(pod_affinity=PodAffinity(required=(PodAffinityTerm(topology_key="zone", label_selector=WEB),)))
EVEN = TopologySpreadConstraint(1, "zone", "DoNotSchedule", WEB)


@dataclass
class World:
    """A random cluster.

    Attributes:
        running: Pods by UID.
        gang: A gang that waits; None for none.
    """

    nodes: list[Node] = field(default_factory=list)
    running: dict[str, Pod] = field(default_factory=dict)
    gang: tuple[PodGroup, list[Pod]] | None = None

    def rig(self) -> Rig:
        made = gang_rig(*self.nodes, *self.running.values())
        if self.gang is not None:
            of, waiting = self.gang
            add_gang(made, *waiting, of=of)
        return made


def _world(rng: random.Random) -> World:
    world = World()
    for number in range(rng.randint(2, 6)):
        name, cpus = f"n{number}", rng.randint(2, 6)
        world.nodes.append(small_node(name, cpus, zone=f"z{rng.randint(0, 1)}", host=name))
        left = cpus
        for each in range(rng.randint(0, 3)):
            size = rng.randint(1, 3)
            if size <= left:
                left -= size
                made = _running(rng, f"p{number}-{each}", name, size)
                world.running[made.metadata.uid] = made
    if rng.random() < 0.5:
        count, topology = rng.randint(1, 3), rng.choice((None, GroupTopology("zone")))
        waiting = members(count, requests={"cpu": str(rng.randint(1, 5))})
        world.gang = group(min_member=count, topology=topology), waiting
    return world


def _running(rng: random.Random, name: str, node_name: str, cpus: int) -> Pod:
    kind = rng.choice(("ReplicaSet",) * 8 + ("", "DaemonSet"))
    fields: dict[str, Any] = {"labels": {"app": rng.choice(("web", "db"))}}
    constraint = rng.random()
    if constraint < 0.15:
        fields["affinity"] = ALONE
    elif constraint < 0.25:
        fields["affinity"] = TOGETHER
    elif constraint < 0.45:
        fields["spread"] = (EVEN,)
    return movable(name, node_name, cpus, of=kind, **fields)


def _objective(rng: random.Random, world: World) -> Objective:
    drained = frozenset(node.metadata.name for node in world.nodes if rng.random() < 0.4)
    pieces = [Defragment("cpu", rng.randint(2, 4) * 1000)] * 3
    choices: list[Objective] = [Consolidate(), Consolidate(), Drain(drained), *pieces, *([Spread()] * 3)]
    return rng.choice([*choices, *([MakeRoom(key())] * 3 if world.gang is not None else [])])


def _accepts(made: Rig, pod: Pod, node_name: str) -> bool:
    """Return whether the filters of a pod's profile accept a node."""
    columns = made.columns
    instance = present(made.context.profiles.get(pod.spec.scheduler_name))
    info = columns.compile_pod(pod)
    attempt = Attempt(QueuedPod(info, 0.0, 0), info, instance, 0.0)
    found = made.scheduler.cycles.selection.find_feasible(attempt, everywhere=True)
    return columns.row_of(node_name) in found.rows.tolist()


def _make_moves(world: World, plan: RebalancePlan) -> None:
    """Make the moves one by one, each in a fresh scheduler."""
    for move in plan.moves:
        old = world.running.pop(move.info.uid)
        assert old.spec.node_name == move.source != move.target
        waiting = replace(
            old,
            metadata=replace(old.metadata, uid=f"{old.metadata.uid}-again", name=f"{old.metadata.name}-again"),
            spec=replace(old.spec, node_name=""),
        )
        assert _accepts(world.rig(), waiting, move.target), (move.info.key, move.target)
        world.running[waiting.metadata.uid] = replace(waiting, spec=replace(old.spec, node_name=move.target))


def _repairs(plan: RebalancePlan) -> bool:
    before, after = plan.gain.excess or (0, 0)
    return after < before


def _gains(plan: RebalancePlan, request: RebalanceRequest) -> bool:
    if isinstance(request.objective, Drain):
        return all(move.source in request.objective.nodes for move in plan.moves)
    before, after = plan.gain.pieces or (0, 0)
    return bool(plan.gain.emptied) or bool(plan.gain.fits) or after > before or _repairs(plan)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_plans(chunk: int) -> None:
    """All laws hold in random clusters, and most kinds of plans occur."""
    with_moves = 0
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        rng = random.Random(seed)
        world = _world(rng)
        request = RebalanceRequest(_objective(rng, world))
        plan = planned(world.rig(), request)
        if not plan.moves:
            continue
        with_moves += 1
        assert _gains(plan, request), seed
        uids = [move.info.uid for move in plan.moves]
        assert len(uids) == len(set(uids)), seed
        owners = [move.info.pod.metadata.owner_references for move in plan.moves]
        assert all(each and each[0].kind == "ReplicaSet" for each in owners), seed
        _make_moves(world, plan)
        again = planned(world.rig(), request)
        assert not again.moves, (seed, [(m.info.key, m.source, m.target) for m in again.moves])
    assert with_moves >= SEEDS // 6
