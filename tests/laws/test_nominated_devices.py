"""Law of devices of nominated pods: a pod that preempts for devices gets them, and evicts once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.nominated_devices import NominatedDevices
from scheduler_core.model.pod import Pod
from tests.support.device_preemption import deallocate, held, holder, idle, pending, served
from tests.support.devices import claim, device, exactly, slice_of
from tests.support.gang_devices import report
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


@pytest.mark.parametrize("block", range(4))
async def test_a_pod_that_preempts_for_devices_gets_them_and_evicts_once(block: int) -> None:
    seeds = range(block * CASES // 4, (block + 1) * CASES // 4)
    assert await check_all(seeds) >= len(seeds) // 4


async def test_devices_that_are_not_held_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that other pods take the devices of nominated pods."""
    monkeypatch.setattr(NominatedDevices, "held_from", lambda *_: [])
    with pytest.raises(AssertionError):
        await check_all(range(CASES))
