"""Laws of devices of nominated pods: a pod that preempts for devices gets them, and evicts once.

Competitors do not preempt, or preempt for the devices of the same nodes at the same time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.nominated_devices import NominatedDevices
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from tests.support.device_preemption import deallocate, held, holder, idle, pending, served
from tests.support.devices import claim, device, exactly, slice_of
from tests.support.gang_devices import claimant, gang, report
from tests.support.gang_preemption import evicted, small_node

CASES = int(os.environ.get("BAYPLAN_NOMINATED_DEVICES_CASES", "60"))
PREEMPTOR_PRIORITY = 2


def competitor(draw: Random, number: int) -> Pod:
    """Return a pod of at most the preemptor's priority that evicts no pod."""
    made = pending(f"c{number}", f"c{number}", priority=draw.choice((0, PREEMPTOR_PRIORITY)))
    return replace(made, spec=replace(made.spec, preemption_policy="Never"))


async def check(seed: int) -> bool:
    """Run one preemption, with competitors at random moments; return whether pods were evicted."""
    draw = Random(seed)
    made, writer = served(devices=True)
    holders: dict[str, Pod] = {}
    for name in "abc"[: draw.randint(1, 3)]:
        count = draw.randint(1, 4)
        report(made, writer, small_node(name, 8), slice_of([device(f"d{each}") for each in range(count)], node=name))
        for number in range(draw.randint(1, count)):
            uid = f"{name}{number}"
            holders[uid] = holder(uid, name, f"of-{uid}")
            report(made, writer, held(f"of-{uid}", f"d{number}", uid, pool=name), holders[uid])
    wanted = draw.randint(1, 3)
    report(made, writer, claim(exactly("r", count=wanted), name="own"))
    report(made, writer, pending("high", "own", priority=PREEMPTOR_PRIORITY))
    arrivals = 0
    async with made.running():
        if draw.random() < 0.7:
            await idle(made)
        first, left = evicted(made), set[str]()
        for _ in range(draw.randint(8, 16)):
            first = first or evicted(made)
            assert evicted(made) == first, seed
            # A claim is deallocated after its holder is gone.
            ending = sorted(evicted(made) - left)
            what = draw.choice(("arrive", "delete", "delete", "settle"))
            if what == "arrive":
                report(made, writer, claim(exactly("r", count=draw.randint(1, 2)), name=f"c{arrivals}"))
                report(made, writer, competitor(draw, arrivals))
                arrivals += 1
            elif what == "delete" and ending:
                left.add(ending[0])
                made.scheduler.feed.pod_deleted(holders[ending[0]])
                if draw.random() < 0.3:
                    await idle(made)
                deallocate(made, writer, f"of-{ending[0]}")
            else:
                made.clock.advance(draw.choice((0.0, 0.5, 20.0)))
                await idle(made)
        for uid in sorted(evicted(made) - left):
            made.scheduler.feed.pod_deleted(holders[uid])
            deallocate(made, writer, f"of-{uid}")
        made.clock.advance(60.0)
        await idle(made)
    first = first or evicted(made)
    assert evicted(made) == first, seed
    assert not first or "high" in made.bound, seed
    return bool(first)


async def check_all(seeds: Iterable[int]) -> int:
    """Check runs, and return the number of preemptions."""
    return sum([await check(seed) for seed in seeds])


# -- several preemptors -----------------------------------------------------------------------------------------------


class Preemptors:
    """Pods of several priorities and perhaps a gang, which preempt for the devices of the same nodes at the same time.

    Attributes:
        holders: Running pods that may be evicted, by UID; each holds one device, by a claim ``of-<name>``.
        devices: Number of devices by node.
        wants: Number of devices by name of each pod that preempts.
        priorities: Their priorities, by name.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = draw = Random(f"preemptors/{seed}")
        self.made, self.writer = served(devices=True)
        self.holders: dict[str, Pod] = {}
        self.devices: dict[str, int] = {}
        self.free: Counter[str] = Counter()
        for name in "abc"[: draw.randint(2, 3)]:
            count = self.devices[name] = draw.randint(2, 4)
            shown = [device(f"d{each}") for each in range(count)]
            report(self.made, self.writer, small_node(name, 8), slice_of(shown, node=name))
            running = draw.randint(count - 1, count)
            self.free[name] = count - running
            for number in range(running):
                uid = f"{name}{number}"
                self.holders[uid] = holder(uid, name, f"of-{uid}", priority=draw.choice((0, 0, 1)))
                report(self.made, self.writer, held(f"of-{uid}", f"d{number}", uid, pool=name), self.holders[uid])
        self.wants = {f"p{number}": draw.choice((1, 1, 2)) for number in range(draw.randint(2, 3))}
        priorities = draw.choice(((2,), (2, 3, 4)))
        self.priorities = {name: draw.choice(priorities) for name in self.wants}
        if draw.random() < 0.7:
            gang(self.made, 2)
            self.wants |= dict.fromkeys(("g0", "g1"), 1)
            self.priorities |= dict.fromkeys(("g0", "g1"), draw.choice(priorities))
        self.gone: set[str] = set()
        self.pods: dict[str, Pod] = {}
        """Pods that preempt, as the API server shows them."""

    def arrivals(self) -> list[list[Pod | ResourceClaim]]:
        """Return the pods with their claims in random order; the members of the gang arrive together."""
        found: list[list[Pod | ResourceClaim]] = []
        of_gang: list[Pod | ResourceClaim] = []
        for name, count in self.wants.items():
            wanted, priority = exactly("r", count=count), self.priorities[name]
            if name.startswith("g"):
                of_gang += claimant(name, wanted, priority=priority, requests={"cpu": "100m"})
            else:
                found.append([claim(wanted, name=name), pending(name, name, priority=priority)])
        found += [of_gang] if of_gang else []
        self.draw.shuffle(found)
        return found

    def arrive(self, objects: Sequence[Pod | ResourceClaim]) -> None:
        report(self.made, self.writer, *objects)
        self.pods |= {each.metadata.name: each for each in objects if isinstance(each, Pod)}

    async def settle(self, seconds: float) -> None:
        """Let the scheduler run after some time, and report the pods that it has bound."""
        self.made.clock.advance(seconds)
        await idle(self.made)
        for name, node_name in self.made.bound.items():
            shown = self.pods[name]
            if not shown.spec.node_name:
                self.pods[name] = replace(shown, spec=replace(shown.spec, node_name=node_name))
                self.made.scheduler.feed.pod_updated(shown, self.pods[name])

    def end_victim(self) -> str:
        """Report the end of a victim; return its name, "" if none has to end. Its claim ends later."""
        ending = sorted(evicted(self.made) - self.gone)
        if not ending:
            return ""
        name = self.draw.choice(ending)
        self.gone.add(name)
        self.made.scheduler.feed.pod_deleted(self.holders[name])
        return name

    def check_devices(self) -> None:
        """No device is in two claims."""
        results = [
            (result.pool, result.device)
            for each in self.writer.claims.values()
            if each.status.allocation is not None
            for result in each.status.allocation.devices.results
        ]
        assert len(results) == len(set(results)), self.seed

    async def run(self) -> None:
        arriving, ended = self.arrivals(), list[str]()
        async with self.made.running():
            for _ in range(self.draw.randint(12, 24)):
                what = self.draw.choice(("arrive", "end", "deallocate", "settle"))
                if what == "arrive" and arriving:
                    self.arrive(arriving.pop())
                elif what == "end":
                    ended += filter(None, [self.end_victim()])
                elif what == "deallocate" and ended:
                    deallocate(self.made, self.writer, f"of-{ended.pop(0)}")
                else:
                    await self.settle(self.draw.choice((0.0, 0.5, 20.0)))
                self.check_devices()
            for each in arriving:
                self.arrive(each)
            for _ in range(12):
                await self.settle(60.0)
                while name := self.end_victim():
                    ended.append(name)
                for name in ended:
                    deallocate(self.made, self.writer, f"of-{name}")
                ended.clear()
                self.check_devices()

    def check_end(self) -> None:
        """Check who has devices at the end, and that no pod was evicted for a device that no preemptor uses.

        A pod of a higher priority may take devices that were freed for another one, which then evicts other pods.
        """
        used = Counter[str]()
        for name, node_name in self.made.bound.items():
            used[node_name] += self.wants[name]
        most = max(count - used[name] for name, count in self.devices.items())
        assert all(self.wants[name] > most for name in self.wants.keys() - self.made.bound.keys()), self.seed
        victims = Counter(self.holders[name].spec.node_name for name in self.gone)
        unused = sum((victims - used).values())
        highest = max(self.priorities.values())
        assert unused <= sum(self.wants[name] for name, each in self.priorities.items() if each < highest), self.seed


async def check_preemptors(seeds: Iterable[int]) -> int:
    """Run several preemptions at once for each seed; return the number of victims."""
    victims = 0
    for seed in seeds:
        world = Preemptors(seed)
        await world.run()
        world.check_end()
        victims += len(world.gone)
    return victims


@pytest.mark.parametrize("block", range(4))
async def test_preemptors_of_several_priorities_get_no_device_twice_and_evict_no_pod_in_excess(block: int) -> None:
    seeds = range(block * CASES // 4, (block + 1) * CASES // 4)
    assert await check_preemptors(seeds) >= len(seeds)


@pytest.mark.parametrize("block", range(4))
async def test_a_pod_that_preempts_for_devices_gets_them_and_evicts_once(block: int) -> None:
    seeds = range(block * CASES // 4, (block + 1) * CASES // 4)
    assert await check_all(seeds) >= len(seeds) // 4


async def test_devices_that_are_not_held_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that other pods take the devices of nominated pods."""
    monkeypatch.setattr(NominatedDevices, "held_from", lambda *_: [])
    with pytest.raises(AssertionError):
        await check_all(range(CASES))
    with pytest.raises(AssertionError):
        await check_preemptors(range(CASES))
