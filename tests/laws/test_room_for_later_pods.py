"""Laws of held room: only pods of the holder and pods of higher priority use it, it ends in time, and nothing starves.

Random lifetimes of a cluster: pods of all kinds are created and end, nodes go, binds fail, and room is held for pods
that are created later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.fit.fit_search import FitVerdict
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import EndReason, HeldPod, HeldRoom, HeldRooms, Holder, OwnPods, Terms
from scheduler_core.model.pod import Pod
from scheduler_core.placement.reservations import Slot
from tests.support.builders import pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.random_lifetimes import live_all
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table

NODES = "abcd"
MAX_PRIORITY = 2


@dataclass(slots=True)
class Held:
    """Held room, and what has happened to it.

    Attributes:
        is_disturbed: Whether a pod or room of higher priority, or the end of a node, may have taken it.
        ends: Why it has ended by itself.
    """

    room: HeldRoom
    app: str
    priority: int
    until: float
    ends: list[EndReason]
    is_disturbed: bool = False

    @property
    def is_live(self) -> bool:
        return not self.is_disturbed and not self.ends


class World:
    """A scheduler with four nodes, and what has happened to it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.made: Rig = default_rig()
        self.capacity = {name: random.randint(1, 4) for name in NODES}
        for name, cpus in self.capacity.items():
            self.made.add(small_node(name, cpus))
        self.held: list[Held] = []
        self.pods: dict[str, Pod] = {}
        self.number = 0

    async def step(self) -> None:
        steps = (self.hold, self.create, self.create, self.create, self.end_pod, self.remove_node, self.wait)
        await self.random.choices(steps, weights=(3, 3, 3, 3, 2, 1, 2))[0]()
        self.check()

    def _name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}-{self.number}"

    async def hold(self) -> None:
        """Hold room for pods of an application, if it fits now."""
        app, priority = self.random.choice("xy"), self.random.randint(0, MAX_PRIORITY)
        wanted = tuple(
            pod(self._name("wanted"), requests={"cpu": str(self.random.randint(1, 2))}, priority=priority)
            for _ in range(self.random.randint(1, 3))
        )
        found = fit_search(self.made.context, self.made.scheduler.reservations).answer(FitRequest(pods=wanted))
        if found.verdict is not FitVerdict.FITS_NOW or found.chosen is None:
            return
        slots = [HeldPod(info, "", found.chosen.nodes[info.uid]) for info in found.infos]
        until, ends = self.made.clock.now() + self.random.randint(1, 60), list[EndReason]()
        name = self._name("room")
        holder = Holder("NodeReservation", "default", name, name, OwnPods("default", (("app", app),)))
        terms = Terms(until=until, prefers_slots=self.random.random() < 0.5, on_end=ends.append)
        room = HeldRoom(holder, slots, self.made.columns, terms)
        assert self.made.scheduler.reservations.hold(room), "the dry run found the room"
        for each in self.held:
            # Room of a higher priority may be held in that of a lower one.
            each.is_disturbed |= each.priority < priority
        self.held.append(Held(room, app, priority, until, ends))

    async def create(self) -> None:
        """Create a pod of an application or of none, and schedule all active pods."""
        app, priority = self.random.choice("xyz"), self.random.randint(0, MAX_PRIORITY)
        cpus = self.random.randint(1, 2)
        name = self._name("pod")
        made = pod(name, requests={"cpu": str(cpus)}, labels={"app": app}, priority=priority, preemption_policy="Never")
        await self.schedule()
        # Room that has been taken is not held on other nodes here, and blocks the nodes on which it was.
        has_room = all(each.is_live or each.ends for each in self.held) and any(
            each.app == app and self._has_slot(each, cpus) for each in self.held
        )
        self.pods[name] = made
        self.made.add(made)
        await self.schedule()
        assert not has_room or name in self.made.bound, "a pod of the holder has room"

    def _has_slot(self, held: Held, cpus: int) -> bool:
        # A pod that has just been bound takes its slot when the room is read.
        self.made.scheduler.reservations.held.of(held.room.holder.uid)
        sizes = _sizes(held.room.free_slots)
        return not held.ends and bool(sizes) and min(sizes) >= cpus * 1000

    async def schedule(self) -> None:
        for _ in range(2 * len(self.pods)):
            if self.made.queue.readings.is_idle:
                break
            before = set(self.made.bound)
            await self.made.attempt()
            for name in set(self.made.bound) - before:
                self._disturb(self.pods[name])

    def _free(self) -> dict[str, int]:
        held = self.made.scheduler.reservations.held
        return {room.holder.uid: room.free for room in held if held.of(room.holder.uid) is not None}

    def _disturb(self, bound: Pod) -> None:
        app, priority = bound.metadata.labels["app"], bound.spec.priority or 0
        cpu = self.made.columns.compile_pod(bound).requests.accounted["cpu"]
        own = [each for each in self.held if each.app == app and not each.ends]
        smallest = min((size for each in own for size in _sizes(each.room.reservation.plan.slots)), default=cpu)
        for each in self.held:
            # A pod that is larger than a slot that it takes uses the room of another one. A pod of a higher priority
            # may take a slot of one room of its application, and be bound to a node of another one.
            is_displaced = each.priority < priority and (each.app != app or len(own) > 1)
            each.is_disturbed |= is_displaced or (each.app == app and cpu > smallest)

    async def end_pod(self) -> None:
        """End a bound pod."""
        bound = [name for name in self.pods if name in self.made.bound]
        if bound:
            name = self.random.choice(bound)
            gone = self.pods.pop(name)
            node_name, free = self.made.bound[name], self._free()
            self.made.scheduler.feed.pod_deleted(
                running_pod(name, node_name, labels=gone.metadata.labels, priority=gone.spec.priority or 0)
            )
            self._note_given_back(free)

    def _note_given_back(self, free: dict[str, int]) -> None:
        # The slot of a pod that ends less than a second after its bind is free again, on the node that it had.
        for uid, count in self._free().items():
            for each in self.held:
                each.is_disturbed |= each.room.holder.uid == uid and count > free[uid]

    async def remove_node(self) -> None:
        """Remove a node with its pods."""
        name = self.random.choice(NODES)
        if name in self.capacity and len(self.capacity) > 1:
            free = self._free()
            self.made.scheduler.feed.node_deleted(small_node(name, self.capacity.pop(name)))
            for each in self.held:
                each.is_disturbed |= name in each.room.reservation.plan.node_names
            self._note_given_back(free)

    async def wait(self) -> None:
        self.made.clock.advance(self.random.choice((0.3, 1.0, 5.0, 20.0)))

    def check(self) -> None:
        """Check that no room outlives its time, that live room exists, and that each ended room is forgotten."""
        reservations, now = self.made.scheduler.reservations, self.made.clock.now()
        live = {room.holder.uid for room in reservations.held}
        for each in self.held:
            assert len(each.ends) <= 1
            assert (each.room.holder.uid in live) is not bool(each.ends)
            takers = {uid.rpartition("default-")[2] for uid in each.room.taken}
            apps = {self.pods[name].metadata.labels["app"] for name in takers & self.pods.keys()}
            assert apps <= {each.app}, "only pods of the holder take slots"
            assert each.until > now or each.ends, "held room never outlives its time"
            if not each.ends and not each.is_disturbed:
                assert reservations.held.of(each.room.holder.uid) is each.room
                beside = [other.room.reservation for other in self.held if other is not each and other.is_live]
                assert each.room.reservation.fits_then(beside), "only pods of the holder use the room"
        assert live == {key.name.partition("/")[2] for key in reservations.by_gang}

    async def finish(self) -> None:
        """Let the time of all room pass; then each pod that fits gets a node."""
        for _ in range(10):
            self.made.clock.advance(15)
            await self.schedule()
            self.check()
        assert not self.made.scheduler.reservations.by_gang
        waiting = [each for name, each in self.pods.items() if name not in self.made.bound]
        for each in waiting:
            copy = pod(self._name("copy"), requests={"cpu": str(each.spec.containers[0].resources.requests["cpu"])})
            found = fit_search(self.made.context, self.made.scheduler.reservations).answer(FitRequest(pods=(copy,)))
            assert found.verdict is not FitVerdict.FITS_NOW, f"{each.key} starves"


def _sizes(slots: Iterable[Slot]) -> list[int]:
    return [slot.info.requests.accounted["cpu"] for slot in slots]


async def live(seed: int, steps: int = 40) -> None:
    """Run a lifetime."""
    world = World(Random(seed))
    for _ in range(steps):
        await world.step()
    await world.finish()


@given(st.integers(0, 2**32))
@example(1126)
@example(1498)
@example(2251)
async def test_lifetimes(seed: int) -> None:
    """All laws hold after each step."""
    await live(seed)


_END = HeldRooms.end


def _end_without_report(rooms: HeldRooms, uid: str) -> None:
    rooms._on_change = lambda _: None
    _END(rooms, uid)


@table(
    "name, planted",
    ("times are forgotten", "next_end", None),
    ("all pods use the room", "_rooms_of", lambda rooms, _: list(rooms)),
    ("blocked pods are forgotten", "end", _end_without_report),
)
async def test_planted_bugs_are_found(name: str, planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug breaks a law in a few lifetimes."""
    monkeypatch.setattr(HeldRooms, name, planted)
    with pytest.raises(AssertionError):
        await live_all(live, range(30))
