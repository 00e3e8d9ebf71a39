"""Laws of waiting gangs: no deadlock, and a bound on the time after a reservation.

After its reservation, a Strict gang is scheduled within the longest remaining run time of the pods on the reserved
nodes plus one cycle, whatever small pods of no higher priority are created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.model.pod_group import GroupTopology
from tests.support.gang_traffic import PATIENCE, Traffic

_TICKS = 400
CLUSTERS = st.lists(st.integers(2, 6), min_size=1, max_size=5)
RUN_TIMES = st.integers(1, 60)


class Adversary:
    """Creates pending small pods, which use free capacity as soon as there is some."""

    def __init__(self, traffic: Traffic, seed: int, longest: int, waiting: int) -> None:
        self._traffic = traffic
        self._random = Random(seed)
        self._longest = longest
        self._waiting = waiting

    def fill(self, names: Sequence[str], cpus: Sequence[int]) -> None:
        """Fill every node with running pods."""
        for name, cpu in zip(names, cpus, strict=True):
            for _ in range(cpu):
                self._traffic.add_running(name, 1, self._random.randint(1, self._longest))

    def create_pods(self) -> None:
        """Create small pods up to the given number of pending pods."""
        while sum(1 for _ in self._traffic.rig.queue.readings) < self._waiting:
            self._traffic.add_pending(self._random.choice((1, 1, 1, 2)), self._random.randint(1, self._longest))


@settings(max_examples=25)
@given(CLUSTERS, st.integers(1, 2), st.integers(0, 2**32), RUN_TIMES, st.data())
def test_a_strict_gang_is_scheduled_within_the_bound(
    cpus: list[int], size: int, seed: int, longest: int, data: st.DataObject
) -> None:
    """A gang that fits an empty cluster is scheduled within the bound, while small pods are created all the time."""
    zones = data.draw(st.integers(1, 2))
    capacity = max(sum(cpu // size for cpu in cpus[zone::zones]) for zone in range(zones))
    count = data.draw(st.integers(1, capacity))
    topology = data.draw(st.sampled_from((None, GroupTopology("zone"))))

    async def scenario() -> None:
        traffic = Traffic()
        names = [f"n{number}" for number in range(len(cpus))]
        for zone in range(zones):
            of_zone = dict(zip(names[zone::zones], cpus[zone::zones], strict=True))
            traffic.nodes(of_zone, labels={"zone": str(zone)})
        adversary = Adversary(traffic, seed, longest, 8)
        adversary.fill(names, cpus)
        adversary.create_pods()
        traffic.gang("big", count, size, topology=topology)
        bound: float | None = None
        for _ in range(_TICKS):
            adversary.create_pods()
            await traffic.step()
            if traffic.is_scheduled("big"):
                return
            reservation = traffic.rig.scheduler.reservations.of(traffic.gang_named("big").key)
            if reservation is not None and bound is None:
                bound = traffic.latest_end_on(reservation.plan.node_names) + 1.0
            assert bound is None or traffic.now < bound, "the gang was not scheduled within the bound"
            assert bound is not None or traffic.now < 1000.0 + PATIENCE + 15.0, "no nodes were reserved"
        raise AssertionError("the gang was never scheduled")

    asyncio.run(scenario())


@settings(max_examples=25)
@given(
    CLUSTERS,
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(0, 1), st.booleans()), min_size=2, max_size=5),
    st.integers(0, 2**32),
)
def test_no_deadlock(cpus: list[int], gangs: list[tuple[int, int, int, bool]], seed: int) -> None:
    """All gangs of any mix are scheduled in the end, if each fits an empty cluster and running pods terminate."""
    possible = [each for each in gangs if sum(cpu // each[1] for cpu in cpus) >= each[0]]

    async def scenario() -> None:
        traffic = Traffic()
        names = [f"n{number}" for number in range(len(cpus))]
        traffic.nodes(dict(zip(names, cpus, strict=True)))
        adversary = Adversary(traffic, seed, 15, 0)
        adversary.fill(names, cpus)
        for number, (count, size, priority, is_strict) in enumerate(possible):
            traffic.gang(f"g{number}", count, size, 10.0 + number, is_strict=is_strict, priority=priority)
        waiting = {f"g{number}" for number in range(len(possible))}
        for _ in range(_TICKS):
            await traffic.step()
            waiting = {name for name in waiting if not _was_scheduled(traffic, name)}
            if not waiting:
                return
        raise AssertionError(f"never scheduled: {sorted(waiting)}")

    asyncio.run(scenario())


def _was_scheduled(traffic: Traffic, name: str) -> bool:
    return any(bound.startswith(f"{name}-") for bound in traffic.rig.bound)
