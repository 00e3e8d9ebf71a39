"""Law of preemption for the devices of gangs, by an exact solver for small clusters.

The solver tries all sets of pods that hold devices, and all nodes of the members. The members have claims of templates,
of equal or unequal size, and perhaps a claim that they share, for which all of them need one node. A claim of running
pods ends when all its holders are gone; a claim of a PodGroup never ends. No victim may stay, and in most clusters no
other victims do less harm.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.held_claims import HeldClaim
from scheduler_core.snapshot.pod_info import NO_ROW
from tests.support.builders import pod
from tests.support.device_preemption import served
from tests.support.devices import DRIVER, claim, device, exactly, slice_of, using, with_group, with_reserved
from tests.support.gang_devices import claimant, gang, report
from tests.support.gang_preemption import all_fit, small_node
from tests.support.preemption import budget, started
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME

CASES = int(os.environ.get("BAYPLAN_GANG_DEVICE_PREEMPTION_CASES", "200"))
EXCESS = 1.1
"""Largest ratio of victims to the fewest sufficient ones: of 200 clusters 97 had some, with 193 victims and 184."""
WORSE = 0.1
"""Largest part of plans that do more harm than the least harmful one: 7 of 91."""
MISSED = 0.1
"""Largest ratio of missed plans to others: 6 to 91."""
PRIORITY = 5
_ABOVE_ANY_PRIORITY = 2**31


class Holder(Struct, frozen=True):
    """A running pod; ``claims`` are numbers of the claims that it holds."""

    node: int
    priority: int
    claims: tuple[int, ...]
    is_protected: bool


class HeldDevices(Struct, frozen=True):
    """A claim of running pods: its node, its devices, and whether it is reserved for a PodGroup."""

    node: int
    devices: tuple[int, ...]
    is_of_group: bool


class Scenario(Struct, frozen=True):
    """A cluster and a gang.

    Attributes:
        devices: Number of devices by node.
        allowed: Disruptions that the budget allows.
        wants: Number of devices in the claim of each member.
        shared: Number of devices in the claim that all members share; 0 for none.
    """

    devices: tuple[int, ...]
    claims: tuple[HeldDevices, ...]
    holders: tuple[Holder, ...]
    allowed: int
    wants: tuple[int, ...]
    shared: int

    def free(self, gone: Collection[int]) -> list[int]:
        """Return the number of free devices by node once some holders are gone."""
        free = list(self.devices)
        for number, each in enumerate(self.claims):
            holders = {index for index, holder in enumerate(self.holders) if number in holder.claims}
            if each.is_of_group or not holders <= set(gone):
                free[each.node] -= len(each.devices)
        return free

    def suffice(self, gone: Collection[int]) -> bool:
        """Return whether all members get their devices once some holders are gone."""
        free = self.free(gone)
        if self.shared:
            return max(free) >= self.shared + sum(self.wants)
        return all_fit(free, sorted(self.wants))

    def harm(self, gone: Collection[int]) -> tuple[int, int, int, int]:
        """Return the harm of victims: budget violations, highest priority, sum of shifted priorities, number."""
        priorities = [self.holders[number].priority for number in gone]
        violations = max(0, sum(self.holders[number].is_protected for number in gone) - self.allowed)
        return violations, max(priorities), sum(each + _ABOVE_ANY_PRIORITY for each in priorities), len(priorities)

    def sufficient(self) -> Iterator[tuple[int, ...]]:
        """Yield all sets of victims with which the gang fits, the smallest first."""
        lower = [number for number, each in enumerate(self.holders) if each.priority < PRIORITY]
        for count in range(len(lower) + 1):
            yield from filter(self.suffice, combinations(lower, count))


def random_scenario(seed: int) -> Scenario:
    """Return up to 5 nodes with up to 11 holders, and a gang of two or three members."""
    draw = Random(seed)
    counts = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 5)))
    priorities = draw.choice(((0,), (0, 1, 2), (0, 1, 2, 9)))
    claims: list[HeldDevices] = []
    holders: list[Holder] = []
    for node, count in enumerate(counts):
        free = list(range(count))
        while free and len(holders) < 10 and draw.random() < 0.9:
            taken = tuple(free.pop() for _ in range(min(draw.choice((1, 1, 1, 2, 3)), len(free))))
            claims.append(HeldDevices(node, taken, draw.random() < 0.08))
            for _ in range(draw.choice((1, 1, 1, 2))):
                own = (len(claims) - 1,)
                holders.append(Holder(node, draw.choice(priorities), own, draw.random() < 0.3))
        # A pod that holds two claims of its node.
        of_node = [number for number, each in enumerate(holders) if each.node == node]
        if len(of_node) > 1 and draw.random() < 0.3:
            first, second = draw.sample(of_node, 2)
            both = tuple(sorted({*holders[first].claims, *holders[second].claims}))
            holders[first] = replace(holders[first], claims=both)
    size = draw.randint(2, 3)
    wants = (draw.randint(1, 2),) * size if draw.random() < 0.6 else tuple(draw.randint(1, 3) for _ in range(size))
    shared = draw.randint(1, 2) if draw.random() < 0.25 else 0
    if shared:
        wants = tuple(draw.choice((0, 1)) for _ in range(size))
    return Scenario(counts, tuple(claims), tuple(holders), draw.randint(0, 3), wants, shared)


# -- the scheduler --------------------------------------------------------------------------------------------------


def running(scenario: Scenario, number: int) -> Pod:
    each = scenario.holders[number]
    labels = {"app": "kept"} if each.is_protected else {}
    name = str(number)
    made = pod(name, node_name=f"n{each.node}", namespace="ns", uid=name, priority=each.priority, labels=labels)
    made = replace(made, status=replace(made.status, start_time=started(number)))
    return using(made, *(f"claim-{held}" for held in each.claims))


def allocated(scenario: Scenario, number: int) -> ResourceClaim:
    each = scenario.claims[number]
    results = [
        {"request": "r", "driver": DRIVER, "pool": f"n{each.node}", "device": f"d{index}"} for index in each.devices
    ]
    made = claim(exactly("r"), name=f"claim-{number}", allocation={"devices": {"results": results}})
    if each.is_of_group:
        return with_group(made, "other")
    return with_reserved(
        made, *(str(index) for index, holder in enumerate(scenario.holders) if number in holder.claims)
    )


def victims_of(scenario: Scenario) -> frozenset[int] | None:
    """Return the numbers of the victims that the scheduler selects; None for no plan."""
    made, writer = served(devices=True)
    gang(made, len(scenario.wants))
    for node, count in enumerate(scenario.devices):
        report(made, writer, small_node(f"n{node}", 8))
        report(made, writer, slice_of([device(f"d{index}") for index in range(count)], node=f"n{node}"))
    for number in range(len(scenario.claims)):
        report(made, writer, allocated(scenario, number))
    for number in range(len(scenario.holders)):
        report(made, writer, running(scenario, number))
    made.columns.disruption_budgets.assign(budget("kept", {"app": "kept"}, scenario.allowed, namespace="ns"))
    shared = ["shared"] if scenario.shared else []
    if shared:
        report(made, writer, claim(exactly("r", count=scenario.shared), name="shared"))
    for number, count in enumerate(scenario.wants):
        wanted = [exactly("r", count=count)] if count else []
        fields = {"cpu": "100m"}
        report(made, writer, *claimant(f"m{number}", *wanted, shared=shared, priority=PRIORITY, requests=fields))
    (found,) = made.queue.gangs
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    plan = made.scheduler.cycles.preemption.preview(found, instance).plan
    return None if plan is None else frozenset(int(info.pod.metadata.name) for info in plan.victims)


def checked(seeds: Iterable[int]) -> Counter[str]:
    """Check the victims of random clusters; return how many had each result, and the numbers of victims."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        scenario = random_scenario(seed)
        if scenario.suffice(()):
            counts["fits"] += 1
            continue
        sufficient, gone = list(scenario.sufficient()), victims_of(scenario)
        if gone is None:
            counts["no plan" if sufficient else "nothing helps"] += 1
            continue
        assert scenario.suffice(gone), seed
        assert all(scenario.holders[number].priority < PRIORITY for number in gone), seed
        assert not any(scenario.suffice(gone - {number}) for number in gone), seed
        best = min(sufficient, key=scenario.harm)
        counts["victims"] += len(gone)
        counts["fewest"] += min(map(len, sufficient))
        counts["of the best"] += len(best)
        is_best = scenario.harm(gone) == scenario.harm(best)
        counts["best" if is_best else "worse"] += 1
    return counts


def test_victims_of_a_gang_that_needs_devices_are_hardly_worse_than_the_least_harmful_ones() -> None:
    """No victim may stay, nine of ten plans are the least harmful ones, and few plans are missed."""
    counts = checked(range(CASES))
    plans = counts["best"] + counts["worse"]
    assert plans >= CASES // 8
    assert counts["worse"] <= plans * WORSE
    assert counts["victims"] <= EXCESS * counts["fewest"]
    # A group cycle places the members one by one, so that large ones may find no node beside the others.
    assert counts["no plan"] <= plans * MISSED


def test_a_holder_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that a claim counts as free while one of its holders stays."""
    monkeypatch.setattr(HeldClaim, "is_free", property(lambda held: any(info.row == NO_ROW for info in held.holders)))
    with pytest.raises(AssertionError):
        checked(range(CASES))
