"""A gang with devices is placed if and only if a plain search over all nodes and devices finds a placement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import combinations
from random import Random

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import Struct

from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.devices import ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.cluster_state import cluster_state
from tests.support.devices import DRIVER, Body, alternative, claim, device, exactly, first_available, slice_of
from tests.support.gang_devices import claimant, device_rig, gang, in_use, report, settled
from tests.support.gang_preemption import small_node
from tests.support.scheduling import Rig

NODES = ("a", "b", "c")
Spot = tuple[str, str]
"""Pool and device."""


class Ask(Struct, frozen=True):
    """One request: how many devices, of which models, and whether all must be of one model."""

    count: int
    models: str
    is_uniform: bool = False
    alternative: str = ""


class Member(Struct, frozen=True):
    """A member: CPUs, the devices of its own claim, and whether it names the shared claim."""

    cpus: int
    ask: Ask | None
    shares: bool


class Scene(Struct, frozen=True):
    """A drawn cluster: CPUs by node, models of the devices by pool, and a gang."""

    cpus: dict[str, int]
    pools: dict[str, str]
    members: tuple[Member, ...]
    needed: int
    shared: Ask


def models(among: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(among), min_size=least, max_size=most).map("".join)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    count = draw(st.sampled_from((1, 1, 1, 1, 2)))
    other = draw(st.sampled_from(("", "", "x", "y"))) if count == 1 else ""
    return Ask(count, draw(st.sampled_from(("x", "y", "xy", "xy"))), count > 1 and draw(st.booleans()), other)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    names = NODES[: draw(st.sampled_from((1, 2, 2, 3)))]
    pools = {name: draw(models("xy", 1, 2)) for name in names}
    pools["net"] = draw(models("xy", 0, 1))
    members = tuple(
        Member(
            draw(st.integers(0, 2)), draw(st.one_of(asks(), asks(), asks(), st.none())), draw(st.integers(0, 3)) == 0
        )
        for _ in range(draw(st.sampled_from((2, 3, 3, 4))))
    )
    needed = len(members) - draw(st.sampled_from((0, 0, 0, 1)))
    return Scene({name: draw(st.integers(2, 5)) for name in names}, pools, members, needed, draw(asks()))


def tight_scene(seed: int) -> Scene:
    """Return a scene whose members can take all devices and nearly all CPUs, and ask for less than they take."""
    draw = Random(seed)
    names = NODES[: draw.randint(1, 2)]
    pools = {name: "".join(draw.choices("xy", k=4 // len(names) - draw.randint(0, 1))) for name in names} | {"net": ""}
    spots = [(name, model) for name in names for model in pools[name]]
    cpus = dict.fromkeys(names, draw.randint(1, 2))
    members = []
    for name, model in draw.sample(spots, len(spots)):
        wanted = draw.randint(0, 2)
        cpus[name] += wanted
        members.append(Member(wanted, Ask(1, draw.choice((model, "xy"))), shares=False))
    return Scene(cpus, pools, tuple(members), len(members), Ask(1, "x"))


# -- the plain search -----------------------------------------------------------------------------------------------


def takes(scene: Scene, ask: Ask, node: str, used: frozenset[Spot]) -> Iterator[frozenset[Spot]]:
    """Yield all sets of devices that serve a request on a node."""
    free = [
        (pool, number, model)
        for pool in (node, "net")
        for number, model in enumerate(scene.pools[pool])
        if (pool, f"d{number}") not in used
    ]
    for models in (ask.models, ask.alternative):
        for found in combinations([each for each in free if each[2] in models], ask.count if models else len(free) + 1):
            if not ask.is_uniform or len({model for _, _, model in found}) == 1:
                yield frozenset((pool, f"d{number}") for pool, number, _ in found)


def is_feasible(scene: Scene) -> bool:
    """Return whether some choice of members, nodes and devices serves the quorum."""
    return any(
        serves(scene, members, dict(scene.cpus), frozenset(), None)
        for members in combinations(scene.members, scene.needed)
    )


def serves(
    scene: Scene,
    members: tuple[Member, ...],
    free: dict[str, int],
    used: frozenset[Spot],
    shared: frozenset[Spot] | None,
) -> bool:
    if not members:
        return True
    member, rest = members[0], members[1:]
    for node, cpus in free.items():
        if cpus < member.cpus:
            continue
        left = {**free, node: cpus - member.cpus}
        for common in shared_devices(scene, member, node, used, shared):
            taken = used | (common or frozenset())
            own = [frozenset[Spot]()] if member.ask is None else takes(scene, member.ask, node, taken)
            if any(serves(scene, rest, left, taken | devices, common) for devices in own):
                return True
    return False


def shared_devices(
    scene: Scene, member: Member, node: str, used: frozenset[Spot], shared: frozenset[Spot] | None
) -> Iterator[frozenset[Spot] | None]:
    """Yield the devices of the shared claim after the member is placed; None while it is not allocated."""
    if not member.shares:
        yield shared
    elif shared is None:
        yield from takes(scene, scene.shared, node, used)
    elif {pool for pool, _ in shared} <= {node, "net"}:
        yield shared


# -- the scheduler --------------------------------------------------------------------------------------------------


def request(ask: Ask) -> tuple[Body, list[Body]]:
    """Return the request and the constraints of a claim."""
    constraints = [{"matchAttribute": f"{DRIVER}/model"}] if ask.is_uniform else []
    if ask.alternative:
        return first_available(
            "r", alternative("p", of(ask.models)), alternative("q", of(ask.alternative))
        ), constraints
    return exactly("r", of(ask.models), count=ask.count), constraints


def of(models: str) -> str:
    return f'device.attributes["{DRIVER}"].model in {list(models)}'.replace("'", '"')


def objects_of(scene: Scene) -> list[Node | ResourceSlice | ResourceClaim | Pod]:
    found: list[Node | ResourceSlice | ResourceClaim | Pod] = []
    for name, models in scene.pools.items():
        rows = [device(f"d{index}", model) for index, model in enumerate(models)]
        if name == "net":
            found.append(slice_of(rows, name=name, node="", pool=name, allNodes=True))
        else:
            found += [small_node(name, scene.cpus[name]), slice_of(rows, node=name)]
    body, constraints = request(scene.shared)
    found.append(claim(body, name="shared", constraints=constraints))
    for number, member in enumerate(scene.members):
        shared = ["shared"] if member.shares else []
        body, constraints = ({}, []) if member.ask is None else request(member.ask)
        requests = [body] if body else []
        cpu = {"cpu": str(member.cpus)}
        found += claimant(f"train-{number}", *requests, shared=shared, constraints=constraints, requests=cpu)
    return found


async def run(scene: Scene) -> Rig:
    """Run the scheduler on a scene; nothing is in use afterwards if the gang was not placed."""
    made, writer = device_rig(steps=1_000_000)
    gang(made, scene.needed)
    report(made, writer, *objects_of(scene))
    before = cluster_state(made.context)
    await settled(made)
    if not made.bound:
        after = cluster_state(made.context)
        assert in_use(made) == {}
        assert {name: after[name] for name in ("requested", "pod_count", "pods", "placed", "assumed")} == {
            name: before[name] for name in ("requested", "pod_count", "pods", "placed", "assumed")
        }
    else:
        assert len(made.bound) >= scene.needed
        assert_no_device_twice(list(writer.claims.values()))
    return made


def assert_no_device_twice(claims: list[ResourceClaim]) -> None:
    taken = [
        (each.pool, each.device)
        for one in claims
        if one.status.allocation is not None
        for each in one.status.allocation.devices.results
    ]
    assert len(taken) == len(set(taken))


@given(st.one_of(scenes(), st.integers(0, 2**32).map(tight_scene)))
def test_search_is_complete(scene: Scene) -> None:
    """It finds a placement if there is one, and says that it is impossible otherwise."""
    made = asyncio.run(run(scene))
    feasible = is_feasible(scene)
    event(f"feasible: {feasible}")
    assert bool(made.bound) == feasible
    needs = any(each.ask is not None or each.shares for each in scene.members)
    if not feasible and needs:
        assert "; impossible: no choice of nodes and devices" in made.condition.message
