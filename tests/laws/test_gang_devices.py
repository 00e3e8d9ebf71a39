"""Law of gangs with devices: a gang is scheduled if and only if a plain search finds nodes and devices for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import combinations
from random import Random

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import Struct

from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.cluster_state import cluster_state
from tests.support.devices import DRIVER, Body, alternative, claim, device, exactly, first_available, slice_of
from tests.support.gang_devices import claimant, device_rig, gang, in_use, report, settled
from tests.support.gang_preemption import small_node
from tests.support.scheduling import Rig

NODES = ("a", "b", "c")
DeviceKey = tuple[str, str]
"""Pool and device."""


class Request(Struct, frozen=True):
    """A device request: number of devices, their models, and whether all must have the same model."""

    count: int
    models: str
    is_uniform: bool = False
    alternative: str = ""


class Member(Struct, frozen=True):
    """A member: CPU request, request of its own claim, and whether it uses the shared claim."""

    cpus: int
    request: Request | None
    uses_shared_claim: bool


class Scenario(Struct, frozen=True):
    """A cluster: CPUs by node, models of the devices by pool, and a gang."""

    cpus: dict[str, int]
    pools: dict[str, str]
    members: tuple[Member, ...]
    needed: int
    shared: Request


def models(among: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(among), min_size=least, max_size=most).map("".join)


@st.composite
def device_requests(draw: st.DrawFn) -> Request:
    count = draw(st.sampled_from((1, 1, 1, 1, 2)))
    other = draw(st.sampled_from(("", "", "x", "y"))) if count == 1 else ""
    return Request(count, draw(st.sampled_from(("x", "y", "xy", "xy"))), count > 1 and draw(st.booleans()), other)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    names = NODES[: draw(st.sampled_from((1, 2, 2, 3)))]
    pools = {name: draw(models("xy", 1, 2)) for name in names}
    pools["net"] = draw(models("xy", 0, 1))
    members = tuple(
        Member(
            draw(st.integers(0, 2)),
            draw(st.one_of(device_requests(), device_requests(), device_requests(), st.none())),
            draw(st.integers(0, 3)) == 0,
        )
        for _ in range(draw(st.sampled_from((2, 3, 3, 4))))
    )
    needed = len(members) - draw(st.sampled_from((0, 0, 0, 1)))
    return Scenario({name: draw(st.integers(2, 5)) for name in names}, pools, members, needed, draw(device_requests()))


def tight_scenario(seed: int) -> Scenario:
    """Return a feasible scenario whose members need all devices and nearly all CPUs."""
    draw = Random(seed)
    names = NODES[: draw.randint(1, 2)]
    pools = {name: "".join(draw.choices("xy", k=4 // len(names) - draw.randint(0, 1))) for name in names} | {"net": ""}
    free_devices = [(name, model) for name in names for model in pools[name]]
    cpus = dict.fromkeys(names, draw.randint(1, 2))
    members = []
    for name, model in draw.sample(free_devices, len(free_devices)):
        wanted = draw.randint(0, 2)
        cpus[name] += wanted
        members.append(Member(wanted, Request(1, draw.choice((model, "xy"))), uses_shared_claim=False))
    return Scenario(cpus, pools, tuple(members), len(members), Request(1, "x"))


# -- the plain search -----------------------------------------------------------------------------------------------


def device_choices(
    scenario: Scenario, request: Request, node: str, used: frozenset[DeviceKey]
) -> Iterator[frozenset[DeviceKey]]:
    """Yield each set of devices that satisfies a request on a node."""
    free = [
        (pool, number, model)
        for pool in (node, "net")
        for number, model in enumerate(scenario.pools[pool])
        if (pool, f"d{number}") not in used
    ]
    for models in (request.models, request.alternative):
        for found in combinations(
            [each for each in free if each[2] in models], request.count if models else len(free) + 1
        ):
            if not request.is_uniform or len({model for _, _, model in found}) == 1:
                yield frozenset((pool, f"d{number}") for pool, number, _ in found)


def is_feasible(scenario: Scenario) -> bool:
    """Return whether members, nodes and devices can be chosen so that the quorum is placed."""
    return any(
        can_place(scenario, members, dict(scenario.cpus), frozenset(), None)
        for members in combinations(scenario.members, scenario.needed)
    )


def can_place(
    scenario: Scenario,
    members: tuple[Member, ...],
    free: dict[str, int],
    used: frozenset[DeviceKey],
    shared: frozenset[DeviceKey] | None,
) -> bool:
    if not members:
        return True
    member, rest = members[0], members[1:]
    for node, cpus in free.items():
        if cpus < member.cpus:
            continue
        left = {**free, node: cpus - member.cpus}
        for common in shared_devices(scenario, member, node, used, shared):
            taken = used | (common or frozenset())
            own = (
                [frozenset[DeviceKey]()]
                if member.request is None
                else device_choices(scenario, member.request, node, taken)
            )
            if any(can_place(scenario, rest, left, taken | devices, common) for devices in own):
                return True
    return False


def shared_devices(
    scenario: Scenario, member: Member, node: str, used: frozenset[DeviceKey], shared: frozenset[DeviceKey] | None
) -> Iterator[frozenset[DeviceKey] | None]:
    """Yield the devices of the shared claim after the member is placed; None while it is not allocated."""
    if not member.uses_shared_claim:
        yield shared
    elif shared is None:
        yield from device_choices(scenario, scenario.shared, node, used)
    elif {pool for pool, _ in shared} <= {node, "net"}:
        yield shared


# -- the scheduler --------------------------------------------------------------------------------------------------


def request_body(request: Request) -> tuple[Body, list[Body]]:
    """Return the request and the constraints of a claim."""
    constraints = [{"matchAttribute": f"{DRIVER}/model"}] if request.is_uniform else []
    if request.alternative:
        return first_available(
            "r",
            alternative("p", model_selector(request.models)),
            alternative("q", model_selector(request.alternative)),
        ), constraints
    return exactly("r", model_selector(request.models), count=request.count), constraints


def model_selector(models: str) -> str:
    return f'device.attributes["{DRIVER}"].model in {list(models)}'.replace("'", '"')


def objects_of(scenario: Scenario) -> list[Node | ResourceSlice | ResourceClaim | Pod]:
    found: list[Node | ResourceSlice | ResourceClaim | Pod] = []
    for name, models in scenario.pools.items():
        rows = [device(f"d{index}", model) for index, model in enumerate(models)]
        if name == "net":
            found.append(slice_of(rows, name=name, node="", pool=name, allNodes=True))
        else:
            found += [small_node(name, scenario.cpus[name]), slice_of(rows, node=name)]
    body, constraints = request_body(scenario.shared)
    found.append(claim(body, name="shared", constraints=constraints))
    for number, member in enumerate(scenario.members):
        shared = ["shared"] if member.uses_shared_claim else []
        body, constraints = ({}, []) if member.request is None else request_body(member.request)
        requests = [body] if body else []
        cpu = {"cpu": str(member.cpus)}
        found += claimant(f"train-{number}", *requests, shared=shared, constraints=constraints, requests=cpu)
    return found


async def run(scenario: Scenario) -> Rig:
    """Run the scheduler on a scenario; check that nothing is in use if the gang was not scheduled."""
    made, writer = device_rig(steps=1_000_000)
    gang(made, scenario.needed)
    report(made, writer, *objects_of(scenario))
    before = cluster_state(made.context)
    await settled(made)
    if not made.bound:
        after = cluster_state(made.context)
        assert in_use(made) == {}
        assert {name: after[name] for name in ("requested", "pod_count", "pods", "placed", "assumed")} == {
            name: before[name] for name in ("requested", "pod_count", "pods", "placed", "assumed")
        }
    else:
        assert len(made.bound) >= scenario.needed
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


@given(st.one_of(scenarios(), st.integers(0, 2**32).map(tight_scenario)))
def test_search_is_complete(scenario: Scenario) -> None:
    """The scheduler finds a placement if one exists, and reports otherwise that none exists."""
    made = asyncio.run(run(scenario))
    feasible = is_feasible(scenario)
    event(f"feasible: {feasible}")
    assert bool(made.bound) == feasible
    needs = any(each.request is not None or each.uses_shared_claim for each in scenario.members)
    if not feasible and needs:
        assert "; impossible: no choice of nodes and devices" in made.condition.message
