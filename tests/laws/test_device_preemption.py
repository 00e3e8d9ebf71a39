"""Law of preemption for devices: the victims are those of a plain search over all sets of pods."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.framework.extension_points import PostFilterPreview
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.default_preemption import candidate_nodes
from scheduler_core.snapshot.held_claims import HeldClaim, HeldClaims, claim_keys
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import pod
from tests.support.devices import (
    DRIVER,
    Body,
    claim,
    device,
    device_class,
    exactly,
    group_consumer,
    slice_of,
    using,
    with_group,
    with_reserved,
)
from tests.support.gang_preemption import small_node
from tests.support.preemption import PreemptionWorld, budget, started

CASES = int(os.environ.get("BAYPLAN_DEVICE_PREEMPTION_CASES", "300"))
PREEMPTOR_PRIORITY = 3
NETWORK = "net"
OF_GROUP = group_consumer("train")
DeviceKey = tuple[str, int]
"""Pool and number of the device."""


class Holder(Struct, frozen=True):
    """A running pod; ``claims`` are numbers of the claims that it holds."""

    name: str
    node: str
    priority: int
    minutes: int
    cpus: int
    claims: tuple[int, ...]
    is_protected: bool


class Scenario(Struct, frozen=True):
    """A cluster: CPUs by node, number of devices by pool, devices by claim, and a pod that needs devices.

    Attributes:
        of_groups: Numbers of the claims that are reserved for a PodGroup, and not for the pods that use them.
    """

    cpus: dict[str, int]
    pools: dict[str, int]
    claims: tuple[tuple[DeviceKey, ...], ...]
    holders: tuple[Holder, ...]
    wanted: int
    wanted_cpus: int
    allowed: int
    of_groups: frozenset[int] = frozenset()

    def holders_of(self, number: int) -> list[Holder]:
        return [each for each in self.holders if number in each.claims]

    def may_leave(self, holder: Holder) -> bool:
        return holder.priority < PREEMPTOR_PRIORITY

    def ends(self, number: int, gone: Collection[str]) -> bool:
        """Return whether a claim ends once some pods are gone; that of a PodGroup stays until the group is deleted."""
        return number not in self.of_groups and {each.name for each in self.holders_of(number)} <= set(gone)


def random_scenario(seed: int) -> Scenario:
    """Return a cluster of up to 8 nodes with up to 6 holders each; some claims are shared, some use the network."""
    draw = Random(seed)
    names = [f"n{number}" for number in range(draw.randint(1, 8))]
    has_network = draw.random() < 0.3
    pools = {name: draw.randint(1, 6) for name in names}
    if has_network:
        names = names[:2]
        pools = {name: min(pools[name], 3) for name in names} | {NETWORK: draw.randint(1, 2)}
    claims: list[tuple[DeviceKey, ...]] = []
    holders: list[Holder] = []
    for name in names:
        free = [(name, number) for number in range(pools[name])]
        own: list[int] = []
        while free and len(own) < 6:
            count = min(draw.choice((1, 1, 1, 2, 3)), len(free))
            claims.append(tuple(free.pop() for _ in range(count)))
            own.append(len(claims) - 1)
        most = 3 if has_network else 6
        wanted = own if len(own) <= most else own[:most]
        for number in range(draw.randint(len(wanted), most)):
            held = (
                (wanted[number],)
                if number < len(wanted)
                else tuple(draw.sample(own, min(len(own), draw.randint(0, 2))))
            )
            holders.append(
                Holder(
                    f"{name}-{number}",
                    name,
                    draw.choice((0, 0, 1, 1, 2, 2, 2, 2, 5)) if draw.random() < 0.8 else 2,
                    draw.randint(0, 3),
                    draw.randint(0, 2),
                    held,
                    draw.random() < 0.3,
                )
            )
    if has_network:
        claims.append(((NETWORK, 0),))
        chosen = draw.sample(range(len(holders)), min(len(holders), draw.randint(1, 2)))
        for index in chosen:
            holders[index] = replace(holders[index], claims=(*holders[index].claims, len(claims) - 1))
        # The order of equal pods on several nodes would decide which of them violate a budget.
        minutes = draw.sample(range(20), len(holders))
        holders = [replace(each, minutes=minute) for each, minute in zip(holders, minutes, strict=True)]
    used = {name: sum(each.cpus for each in holders if each.node == name) for name in names}
    cpus = {name: used[name] + draw.randint(0, 2) for name in names}
    in_use = {number for each in holders for number in each.claims}
    kept = [number for number in range(len(claims)) if number in in_use]
    renumbered = {number: index for index, number in enumerate(kept)}
    return Scenario(
        cpus,
        pools,
        tuple(claims[number] for number in kept),
        tuple(replace(each, claims=tuple(renumbered[number] for number in each.claims)) for each in holders),
        draw.choice((1, 1, 2, 2, 3)),
        draw.randint(0, 2),
        draw.randint(0, 2),
    )


# -- the plain search -----------------------------------------------------------------------------------------------


def free_devices(scenario: Scenario, node: str, gone: frozenset[str]) -> int:
    """Return the number of devices that a node reaches and no claim has once some pods are gone."""
    used = {
        each for number, devices in enumerate(scenario.claims) if not scenario.ends(number, gone) for each in devices
    }
    return sum((pool, number) not in used for pool in (node, NETWORK) for number in range(scenario.pools.get(pool, 0)))


def fits(scenario: Scenario, node: str, gone: frozenset[str]) -> bool:
    used = sum(each.cpus for each in scenario.holders if each.node == node and each.name not in gone)
    return scenario.cpus[node] - used >= scenario.wanted_cpus and free_devices(scenario, node, gone) >= scenario.wanted


def relevant(scenario: Scenario, node: str) -> list[Holder]:
    """Return the pods whose eviction can help on a node: its own, holders of the same claims, and of the network."""
    names = {each.name for each in scenario.holders if each.node == node}
    numbers = {number for each in scenario.holders if each.name in names for number in each.claims}
    numbers |= {number for number, devices in enumerate(scenario.claims) if any(key[0] == NETWORK for key in devices)}
    numbers -= scenario.of_groups
    freed = [holders for number in numbers if all(map(scenario.may_leave, holders := scenario.holders_of(number)))]
    names |= {each.name for holders in freed for each in holders}
    return [each for each in scenario.holders if each.name in names and scenario.may_leave(each)]


def sets_of_victims(scenario: Scenario) -> Iterator[tuple[str, tuple[Holder, ...]]]:
    """Yield each node with each set of victims with which the pod fits there."""
    for node in scenario.cpus:
        pods = relevant(scenario, node)
        for count in range(1, len(pods) + 1):
            for victims in combinations(pods, count):
                if fits(scenario, node, frozenset(each.name for each in victims)):
                    yield node, victims


Rank = tuple[int, int, int, int, int]


def rank(scenario: Scenario, node: str, victims: Sequence[Holder]) -> Rank:
    """Return the harm of victims by the five criteria of kube-scheduler."""
    # In kube-scheduler a victim violates a budget if it would do so among all pods that may leave the node.
    ordered = sorted(relevant(scenario, node), key=lambda each: (-each.priority, each.minutes))
    protected = [each.name for each in ordered if each.is_protected][scenario.allowed :]
    highest = max(each.priority for each in victims)
    return (
        sum(each.name in protected for each in victims),
        highest,
        sum(each.priority + 2**31 for each in victims),
        len(victims),
        -min(each.minutes for each in victims if each.priority == highest),
    )


# -- the scheduler --------------------------------------------------------------------------------------------------


def running(scenario: Scenario, holder: Holder) -> Pod:
    labels = {"app": "protected"} if holder.is_protected else {}
    fields = {"cpu": str(holder.cpus)} if holder.cpus else {}
    made = pod(
        holder.name,
        node_name=holder.node,
        namespace="ns",
        uid=holder.name,
        priority=holder.priority,
        labels=labels,
        requests=fields,
    )
    made = replace(made, status=replace(made.status, start_time=started(holder.minutes)))
    return using(made, *(f"claim-{number}" for number in holder.claims))


def allocated(scenario: Scenario, number: int) -> ResourceClaim:
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": f"d{index}"}
        for pool, index in scenario.claims[number]
    ]
    made = claim(exactly("r"), name=f"claim-{number}", allocation={"devices": {"results": results}})
    if number in scenario.of_groups:
        return with_group(made, "train")
    return with_reserved(made, *(each.name for each in scenario.holders_of(number)))


def world_of(scenario: Scenario, *, frees_devices: bool = True) -> PreemptionWorld:
    nodes = [small_node(name, cpus) for name, cpus in scenario.cpus.items()]
    pods = [running(scenario, each) for each in scenario.holders]
    budgets = [budget("budget", {"app": "protected"}, scenario.allowed, namespace="ns")]
    made = PreemptionWorld(nodes, pods, budgets, PreemptionSettings(devices=frees_devices))
    devices = made.columns.devices
    devices.assign(device_class())
    for pool, count in scenario.pools.items():
        shown = [device(f"d{number}") for number in range(count)]
        spec: Body = {"allNodes": True} if pool == NETWORK else {}
        devices.assign(slice_of(shown, node="" if pool == NETWORK else pool, pool=pool, **spec))
    for number in range(len(scenario.claims)):
        devices.assign(allocated(scenario, number))
    devices.assign(claim(exactly("r", count=scenario.wanted), name="own"))
    return made


def preemptor(scenario: Scenario) -> Pod:
    requests = {"cpu": str(scenario.wanted_cpus)} if scenario.wanted_cpus else {}
    return using(pod("preemptor", namespace="ns", priority=PREEMPTOR_PRIORITY, requests=requests), "own")


def chosen_victims(scenario: Scenario, preview: PostFilterPreview) -> tuple[str, list[Holder]]:
    node = preview.result.nominated_node
    assert node
    by_name = {each.name: each for each in scenario.holders}
    (chosen,) = [each for each in preview.candidates if each.node_name == node]
    return node, [by_name[info.pod.metadata.name] for info in chosen.victims]


def with_claims_of_groups(scenario: Scenario, seed: int) -> Scenario:
    """Return the same cluster, in which some claims are reserved for a PodGroup."""
    draw = Random(f"groups/{seed}")
    return replace(scenario, of_groups=frozenset(each for each in range(len(scenario.claims)) if draw.random() < 0.4))


def check(seed: int, *, has_groups: bool = False) -> None:
    """Compare the victims of one random cluster with those of the plain search."""
    scenario = random_scenario(seed)
    if has_groups:
        scenario = with_claims_of_groups(scenario, seed)
    world = world_of(scenario)
    preview = world.preview(preemptor(scenario))
    found = list(sets_of_victims(scenario))
    if preview is None:
        assert any(fits(scenario, node, frozenset()) for node in scenario.cpus), seed
        return
    if not found:
        assert not preview.candidates, seed
        return
    assert preview.candidates, seed
    node, victims = chosen_victims(scenario, preview)
    assert fits(scenario, node, frozenset(each.name for each in victims)), seed
    assert rank(scenario, node, victims) == min(rank(scenario, *each) for each in found), seed


def check_all(seeds: Iterable[int], *, has_groups: bool = False) -> None:
    for seed in seeds:
        check(seed, has_groups=has_groups)


@pytest.mark.parametrize("block", range(10))
def test_victims_of_a_pod_that_needs_devices_are_those_of_a_plain_search(block: int) -> None:
    check_all(range(block * CASES // 10, (block + 1) * CASES // 10))


def test_a_holder_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that a claim counts as free while one of its holders stays."""
    monkeypatch.setattr(HeldClaim, "is_free", property(lambda held: any(info.row == NO_ROW for info in held.holders)))
    with pytest.raises(AssertionError):
        check_all(range(100))


def test_a_victim_that_counts_as_essential_and_is_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that sets of victims are left out because they lack a pod that may stay."""
    victims = property(lambda reprieve: frozenset(info.uid for info in reprieve.outcome.victims))
    monkeypatch.setattr(candidate_nodes._Reprieve, "essential", victims)
    with pytest.raises(AssertionError):
        check_all(range(100))


def test_no_pod_is_evicted_for_devices_of_a_claim_of_a_pod_group() -> None:
    """The victims are those of the plain search, in which such a claim never ends."""
    check_all(range(CASES), has_groups=True)


def test_a_claim_of_a_pod_group_that_ends_with_its_pods_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that pods are evicted for devices that their PodGroup keeps."""
    of = HeldClaims.of

    def named(held: HeldClaims, info: PodInfo) -> list[HeldClaim]:
        claims = (each for each in held._nodes.devices.claims if each.status.reserved_for[0:1] == (OF_GROUP,))
        keys = claim_keys((info.pod,))
        return of(held, info) + [HeldClaim(each, (info,), is_local=True) for each in claims if each.key in keys]

    monkeypatch.setattr(HeldClaims, "of", named)
    check_all(range(20))
    with pytest.raises(AssertionError):
        check_all(range(CASES), has_groups=True)


def crowded_scenario(seed: int) -> Scenario:
    """Return one node with more holders than the search of the scheduler tries all sets of."""
    draw = Random(seed)
    claims: list[tuple[DeviceKey, ...]] = []
    count = 0
    for _ in range(draw.randint(10, 12)):
        size = draw.choice((1, 1, 1, 2, 2, 4))
        claims.append(tuple(("n0", count + number) for number in range(size)))
        count += size
    holders = tuple(
        Holder(f"n0-{number}", "n0", 1, draw.randint(0, 30), 0, (number,), is_protected=False)
        for number in range(len(claims))
    )
    return Scenario({"n0": 4}, {"n0": count}, tuple(claims), holders, draw.randint(6, 10), 0, 0)


@pytest.mark.parametrize("seed", range(10))
def test_a_search_that_is_given_up_finds_hardly_more_victims(seed: int) -> None:
    """The number of victims is at most 1.1 times the lowest one."""
    scenario = crowded_scenario(seed)
    preview = world_of(scenario).preview(preemptor(scenario))
    assert preview is not None
    _, victims = chosen_victims(scenario, preview)
    sizes = sorted((len(devices) for devices in scenario.claims), reverse=True)
    least = next(count for count in range(1, len(sizes) + 1) if sum(sizes[:count]) >= scenario.wanted)
    assert len(victims) <= 1.1 * least
