"""Laws of NodeReservations with their controller: counts are true, no room outlives its time, restarts change nothing.

Random lifetimes: reservations are created, edited, deleted and created again, pods of all priorities and schedulers
come and end, nodes change, writes fail, and the controller restarts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from bayplan.fit.room_search import RoomHolding
from bayplan.reservations.reservation_controller import ReservationController
from bayplan.resources.node_reservation import NodeReservation
from msgspec.structs import replace

from scheduler_core.gangs.held_room import HeldRoom
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.model.node import NodeSpec
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.node_reservations import Reservations
from tests.support.random_lifetimes import NODES, SmallCluster, cpus_of, live_all
from tests.support.tables import table

SEEDS = int(os.environ.get("BAYPLAN_RESERVATION_LIFETIMES", "24"))
NAMES = ("one", "two", "three")
MAX_PRIORITY = 2


class Lifetime(SmallCluster):
    """A scheduler with NodeReservations, and what has happened to it."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.world = Reservations(self.made)
        self.fails = False
        self.counted = Counter[str]()
        """Number of pods that the last status counts, by UID of the reservation."""

    async def step(self) -> None:
        steps: dict[Callable[[], Awaitable[None]], int] = {
            self.apply: 4,
            self.delete: 1,
            self.create_pod: 8,
            self.foreign_pod: 1,
            self.end_pod: 2,
            self.change_node: 1,
            self.wait: 3,
            self.restart: 2,
            self.fail_writes: 1,
        }
        await self.any_of(steps)
        self.check_always()
        await self.settle()
        self.check_settled()

    async def settle(self) -> None:
        """Let pods be scheduled, writes be repeated and statuses follow."""
        for _ in range(4):
            await self.schedule()
            await self.world.later(1.0)
        if self.fails:
            self.world.failures, self.fails = 0, False
            for _ in range(40):
                await self.world.later(1.0)

    async def apply(self) -> None:
        """Create or edit a reservation."""
        name, draw = self.random.choice(NAMES), self.random
        spec: dict[str, Any] = {
            "count": draw.randint(1, 3),
            "resources": {"cpu": draw.choice((1, 1, 2))},
            "owner": {"labels": draw.choice(({"app": "x"}, {"app": "y"}, {"team": "t"}))},
            "priority": draw.randint(0, MAX_PRIORITY),
        }
        if draw.random() < 0.5:
            spec["ttlSeconds"] = draw.choice((5, 20, 100, 300))
        if name in self.world.bodies and draw.random() < 0.6:
            # Most edits change one field.
            before = {**self.world.bodies[name]["spec"]}
            field = draw.choice(("count", "priority", "ttlSeconds"))
            before.pop(field, None)
            spec = {**before, **({field: spec[field]} if field in spec else {})}
        await self.world.apply(name, **spec)

    async def delete(self) -> None:
        if self.world.bodies:
            name = self.random.choice(sorted(self.world.bodies))
            await self.world.delete(name)
            if self.random.random() < 0.3:
                await self.world.apply(name, count=self.random.randint(1, 3), priority=1)

    async def create_pod(self) -> None:
        self.number += 1
        draw = self.random
        labels = draw.choice(({"app": "x"}, {"app": "y"}, {"app": "x", "team": "t"}, {"team": "t"}, {"app": "z"}))
        created = pod(
            f"pod-{self.number}",
            requests={"cpu": str(draw.choice((1, 1, 2)))},
            labels=labels,
            priority=draw.randint(0, MAX_PRIORITY),
            preemption_policy="Never",
            created=self.made.clock.wall(),
        )
        self.add(created)

    async def foreign_pod(self) -> None:
        """Let another scheduler bind a pod."""
        self.number += 1
        name, node_name = f"foreign-{self.number}", self.random.choice(sorted(self.nodes))
        labels = self.random.choice(({"app": "x"}, {"app": "z"}))
        made = pod(name, requests={"cpu": "1"}, labels=labels, node_name=node_name, created=self.made.clock.wall())
        self.add(replace(made, spec=replace(made.spec, scheduler_name="kube-scheduler")))

    async def end_pod(self) -> None:
        if self.pods:
            self.remove(self.random.choice(sorted(self.pods)))

    async def change_node(self) -> None:
        """Cordon, resize, delete or create a node."""
        name = self.random.choice(NODES)
        before = self.nodes.get(name)
        if before is None:
            self.create_node(name)
        elif self.random.random() < 0.3 and len(self.nodes) > 1:
            del self.nodes[name]
            for each in [each for each in self.pods.values() if each.spec.node_name == name]:
                self.remove(each.metadata.name)
            self.made.scheduler.feed.node_deleted(before)
        else:
            after = replace(
                small_node(name, self.random.randint(1, 6)), spec=NodeSpec(unschedulable=self.random.random() < 0.4)
            )
            self.nodes[name] = after
            self.made.scheduler.feed.node_updated(before, after)

    async def wait(self) -> None:
        await self.world.later(self.random.choice((0.3, 1.0, 5.0, 30.0)))

    async def restart(self) -> None:
        """Replace the controller; room is held as before, except below the priority of room that is found now."""
        before, rooms = self.state(), self.rooms()
        self.world.replace_controller()
        for _ in range(2):
            await self.world.controller.look()
        after = self.state()
        found = [name for name in before if before[name][0] == "Pending" and after[name][0] != "Pending"]
        lowest = max((self.world.bodies[name]["spec"]["priority"] for name in found), default=0)
        for name, state in before.items():
            room = rooms.get(name)
            if room is not None and room.reservation.priority >= lowest:
                assert after[name] == state, f"a restart changes {name}"
            elif state[0] in ("Consumed", "Expired"):
                assert after[name] == state

    async def fail_writes(self) -> None:
        self.world.failures, self.fails = self.random.randint(1, 6), True

    async def schedule(self) -> None:
        for _ in range(3 * len(self.pods) + 3):
            if self.made.queue.readings.is_idle:
                break
            await self.made.attempt()
        self.report_bound()

    # -- checks -------------------------------------------------------------------------------------------------

    def rooms(self) -> dict[str, HeldRoom]:
        held = self.made.scheduler.reservations.held
        found = {room.holder.name: room for room in held}
        for room in found.values():
            held.of(room.holder.uid)
        return found

    def state(self) -> dict[str, tuple[Any, ...]]:
        """Return what a restart must not change: phase, counts and nodes."""
        rooms, found = self.rooms(), {}
        for name, body in self.world.bodies.items():
            status, room = body.get("status") or {}, rooms.get(name)
            nodes = None if room is None else Counter(slot.node_name for slot in room.free_slots)
            found[name] = status.get("phase"), status.get("consumed"), status.get("reserved"), nodes
        return found

    def check_always(self) -> None:
        """Check what holds at every moment."""
        now = self.made.clock.wall()
        for name, room in self.rooms().items():
            assert name in self.world.bodies, "room is held for a reservation that does not exist"
            body = NodeReservation.from_object(self.world.bodies[name])
            assert body.expiration is None or now < body.expiration, "room outlives its time"
            assert room.free <= body.spec.count, "more room than requested"

    def check_settled(self) -> None:
        """Check that the statuses are true."""
        self.check_always()
        rooms, now = self.rooms(), self.made.clock.wall()
        for name, body in self.world.bodies.items():
            read = NodeReservation.from_object(body)
            status, room = read.status, rooms.get(name)
            assert status.observed_generation == read.metadata.generation
            counted = min(self.counted[read.metadata.uid], read.spec.count)
            assert status.consumed >= counted, "pods that were counted are counted no more"
            self.counted[read.metadata.uid] = status.consumed
            assert (status.phase == "Reserved") is (room is not None), (name, status.phase)
            if room is not None:
                assert status.reserved == room.free == sum(each.pods for each in status.nodes)
                assert status.reserved + status.consumed == read.spec.count
                assert self.made.scheduler.reservations.stands(room), "room that does not exist is reported"
            if status.phase == "Consumed":
                assert status.consumed == read.spec.count
            if status.phase == "Pending":
                assert read.expiration is None or now < read.expiration

    async def finish(self) -> None:
        """End all reservations; then nothing is held, and no pod waits that fits."""
        for name in list(self.world.bodies):
            await self.world.delete(name)
        assert not self.made.scheduler.reservations.by_gang
        for _ in range(10):
            self.made.clock.advance(60)
            await self.schedule()
        free = {name: self.free(name) for name, node in self.nodes.items() if not node.spec.unschedulable}
        for each in self.pods.values():
            if not each.spec.node_name:
                assert max(free.values(), default=0) < cpus_of(each), f"{each.key} starves: {free}"


async def live(seed: int, steps: int = 25) -> None:
    lifetime = Lifetime(Random(seed))
    for _ in range(steps):
        await lifetime.step()
    await lifetime.finish()


@pytest.mark.parametrize("block", range(2))
async def test_lifetimes(block: int, caplog: pytest.LogCaptureFixture) -> None:
    """Counts, times and restarts in random lifetimes."""
    await live_all(live, range(block * SEEDS // 2, (block + 1) * SEEDS // 2))
    assert "bug" not in caplog.text


async def _count_from_zero(_: ReservationController, record: Any) -> Any:
    return record.status.model_copy(update={"consumed": 0})


def _beside_higher_priority(reservations: GangReservations, room: HeldRoom) -> bool:
    return room.reservation.fits_then(reservations._beside(room, at_least=room.reservation.priority + 1))


async def _hold_on(_: RoomHolding, room: HeldRoom) -> None:
    del room


@table(
    "owner, name, planted",
    ("counts begin at zero", ReservationController, "_counted", _count_from_zero),
    ("counted pods are forgotten", ReservationController, "_since", lambda *_: ()),
    ("room of equal priority is ignored", GangReservations, "stands", _beside_higher_priority),
    ("room of deleted reservations is held", RoomHolding, "end", _hold_on),
)
async def test_planted_bugs_are_found(owner: type, name: str, planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug breaks the law in a few lifetimes."""
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError):
        await live_all(live, range(100))
