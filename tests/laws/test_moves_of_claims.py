"""Laws of plans that move pods with resource claims: the devices of each replacement are free when its turn comes.

- Each destination is accepted, and its devices are allocated, when exactly the earlier moves are made: in a fresh
  scheduler, with a new claim of the same template.
- No device is allocated twice. Only pods whose claims end with them are moved. A second plan after all moves of the
  first has no moves.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.devices import ClaimConsumer, ResourceClaim, ResourceClaimStatus, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodResourceClaimStatus, PodStatus
from scheduler_core.rebalance import mover
from scheduler_core.rebalance.movable_pods import replace_claims
from scheduler_core.rebalance.requests import Consolidate, Drain, MakeRoom, Objective, RebalanceRequest
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.overlay import ColumnsOverlay
from tests.support.devices import DRIVER, Body, device, exactly, slice_of, using, with_meta
from tests.support.gang_devices import claimant, device_rig, gang, owned, report
from tests.support.gang_preemption import small_node
from tests.support.gangs import key
from tests.support.presence import present
from tests.support.rebalancing import movable, planned
from tests.support.scheduling import Rig

SEEDS = 100
MODELS = ("a", "b")


@dataclass
class World:
    """Nodes with devices, running pods by name, and claims by name."""

    nodes: list[Node] = field(default_factory=list)
    slices: list[ResourceSlice] = field(default_factory=list)
    running: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    lasting: set[str] = field(default_factory=set)
    """Pods with claims that do not end with them."""
    gang: list[Pod | ResourceClaim] = field(default_factory=list)

    def rig(self) -> Rig:
        """Return a scheduler that has read everything."""
        made, writer = device_rig()
        report(made, writer, *self.nodes, *self.slices, *self.claims.values(), *self.running.values())
        if self.gang:
            gang(made, sum(isinstance(each, Pod) for each in self.gang))
            report(made, writer, *self.gang)
        return made

    def devices_in_use(self) -> list[tuple[str, str]]:
        """Return pool and name of each allocated device."""
        allocations = (claim.status.allocation for claim in self.claims.values())
        return [(one.pool, one.device) for each in allocations if each is not None for one in each.devices.results]


def _requests(rng: random.Random) -> Body:
    model = rng.choice((*MODELS, ""))
    selector = (f'device.attributes["{DRIVER}"].model == "{model}"',) if model else ()
    return exactly("r", *selector, count=rng.randint(1, 2))


def _world(rng: random.Random) -> World:
    world, made = World(), None
    for number in range(rng.randint(3, 5)):
        name = f"n{number}"
        world.nodes.append(small_node(name, 4))
        devices = [device(f"d{each}", rng.choice(MODELS)) for each in range(rng.randint(0, 4))]
        world.slices.append(slice_of(devices, node=name, name=f"slice-{name}"))
    for number in range(rng.randint(3, 8)):
        made = movable(f"p{number}", "", rng.randint(1, 2), namespace="ns")
        _run(world, made, rng.choice(world.nodes).metadata.name, _requests(rng) if rng.random() < 0.7 else None)
        if made.metadata.name in world.running and rng.random() < 0.1:
            _share(world, made.metadata.name)
    if rng.random() < 0.6:
        world.gang = [
            each for number in range(2) for each in claimant(f"w{number}", exactly("r"), requests={"cpu": "3"})
        ]
    return world


def _run(world: World, waiting: Pod, node_name: str, wanted: Body | None) -> bool:
    """Let a pod run on a node with a claim of its own if the scheduler accepts that; return whether it does."""
    own = None if wanted is None else owned(waiting, wanted)
    if own is not None:
        own = with_meta(own, uid=f"uid-of-{own.metadata.name}")
        waiting = using(waiting, templates={"gpu": own.metadata.name})
        world.claims[own.metadata.name] = own
    made = world.rig()
    search = plan_search(made.context, made.scheduler.reservations).world
    instance = present(made.context.profiles.get(waiting.spec.scheduler_name))
    nodes = made.columns
    attempt = search.begin(instance, QueuedPod(nodes.compile_pod(waiting), 0.0, 0), Where(only(nodes, node_name), ""))
    with search.steps.dry_run(limit=1_000_000), search.assumed.undone():
        is_accepted = bool(len(search.find(attempt).rows)) and (
            search.assumed.reserve_or_release(attempt, node_name) is None
        )
        if own is not None:
            del world.claims[own.metadata.name]
        if not is_accepted:
            return False
        if own is not None:
            allocation = present(nodes.devices.in_flight(own.metadata.uid)).allocation
            meta = waiting.metadata
            status = ResourceClaimStatus(allocation, (ClaimConsumer("pods", meta.name, meta.uid),))
            world.claims[own.metadata.name] = replace(own, status=status)
    world.running[waiting.metadata.name] = replace(waiting, spec=replace(waiting.spec, node_name=node_name))
    return True


def _share(world: World, name: str) -> None:
    """Let another pod use the claim of a pod, too."""
    claim = world.claims.get(f"claim-of-{name}")
    if claim is not None:
        consumers = (*claim.status.reserved_for, ClaimConsumer("pods", "other", "uid-of-other"))
        world.claims[claim.metadata.name] = replace(claim, status=replace(claim.status, reserved_for=consumers))
        world.lasting.add(name)


def _objective(rng: random.Random, world: World) -> Objective:
    drained = frozenset(node.metadata.name for node in world.nodes if rng.random() < 0.4)
    choices: list[Objective] = [Consolidate(), Drain(drained)]
    return rng.choice([*choices, *([MakeRoom(key(namespace="ns"))] * 2 if world.gang else [])])


def _lifetime(seed: int) -> Counter[str]:
    """Plan, make the moves in fresh schedulers, and return what was moved."""
    rng = random.Random(seed)
    world = _world(rng)
    request = RebalanceRequest(_objective(rng, world))
    plan = planned(world.rig(), request)
    kinds = Counter({"plans": bool(plan.moves), "moves": len(plan.moves)})
    for move in plan.moves:
        old = world.running.pop(move.info.pod.metadata.name)
        assert old.metadata.name not in world.lasting, seed
        own = world.claims.pop(f"claim-of-{old.metadata.name}", None)
        kinds["claims"] += own is not None
        again = movable(f"{old.metadata.name}-again", "", namespace="ns")
        again = replace(again, spec=replace(old.spec, node_name="", resource_claims=()))
        wanted = None if own is None else _body_of(own)
        assert _run(world, again, move.target, wanted), (seed, move.info.key, move.target)
        in_use = world.devices_in_use()
        assert len(in_use) == len(set(in_use)), seed
    if plan.moves:
        assert not planned(world.rig(), request).moves, seed
        kinds[type(request.objective).__name__] += 1
    return kinds


def _body_of(claim: ResourceClaim) -> Body:
    (request,) = claim.spec.devices.requests
    exact = present(request.exactly)
    return exactly("r", *(present(each.cel).expression for each in exact.selectors), count=exact.count)


def _all_lifetimes() -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        total += _lifetime(seed)
    return total


def test_plans_with_claims() -> None:
    """All laws hold in random clusters, and pods with claims are moved."""
    total = _all_lifetimes()
    assert total.keys() >= {"Consolidate", "Drain", "MakeRoom"}, total
    assert total["claims"] >= SEEDS // 6, total


def test_replacements_without_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws find a search that drops the claims of replacements."""

    def drop(overlay: ColumnsOverlay, devices: DeviceIndex, old: Pod, uid: str) -> PodStatus:
        status = replace_claims(overlay, devices, old, uid)
        names = (each.name for each in status.resource_claim_statuses)
        return PodStatus(resource_claim_statuses=tuple(map(PodResourceClaimStatus, names)))

    monkeypatch.setattr(mover, "replace_claims", drop)
    with pytest.raises(AssertionError):
        _all_lifetimes()
