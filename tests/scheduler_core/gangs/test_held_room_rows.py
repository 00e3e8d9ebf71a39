"""Law: rooms that are compared with a pod at once block the same rows as when each room is evaluated by itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.gangs.held_room import WORKLOAD_LABEL, HeldPod, HeldRoom, Holder, OwnPods, Terms, slot_for
from scheduler_core.model.affinity import Affinity
from scheduler_core.model.pod import Pod
from scheduler_core.placement.reservations import Reservation, room_beside
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.affinities import anti_affinity_to
from tests.support.builders import node, pod
from tests.support.scheduling import gang_rig

NAMES = "abcde"

SIZES: tuple[dict[str, str], ...] = ({"cpu": "1"}, {"cpu": "2"}, {"memory": "1Gi"}, {"cpu": "1", "memory": "2Gi"}, {})
Blocked = list[tuple[str, tuple[int, ...]]]


class Cluster:
    """Some nodes, with pods, nominations and held room that change at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = gang_rig()
        for name in NAMES:
            self.made.add(
                node(
                    name,
                    labels={"zone": name},
                    allocatable={"cpu": "4", "memory": "4Gi", "pods": str(rng.choice((2, 5, 99)))},
                )
            )
        self.held = self.made.scheduler.reservations.held
        self.nodes = self.made.columns
        self.running: dict[str, Pod] = {}
        self.count = 0

    def step(self) -> None:
        self.count += 1
        rng = self.rng
        move = rng.choice(
            (self._hold, self._hold, self._run, self._run, self._delete, self._end, self._nominate, self._rank)
        )
        move()

    def pod(self, name: str, **fields: Any) -> Pod:
        rng, labels = self.rng, {}
        names = sorted(room.holder.name for room in self.held)
        if names and rng.random() < 0.4:
            labels["room"] = rng.choice(names)
        if rng.random() < 0.2:
            labels[WORKLOAD_LABEL] = "some"
        ports = [80] if rng.random() < 0.1 else []
        affinity = anti_affinity_to("db") if rng.random() < 0.15 else Affinity()
        requests = rng.choice(SIZES)
        return pod(
            name, requests=requests, labels=labels, ports=ports, priority=rng.randrange(4), affinity=affinity, **fields
        )

    def _hold(self) -> None:
        rng, number = self.rng, self.count
        slots = []
        for index in range(rng.randrange(1, 4)):
            ports, labels = [80] if rng.random() < 0.1 else [], {"app": rng.choice(("db", "web"))}
            requests, priority = rng.choice(SIZES), rng.randrange(3)
            wanted = pod(f"slot-{number}-{index}", requests=requests, ports=ports, labels=labels, priority=priority)
            slots.append(HeldPod(self.nodes.compile_pod(wanted), "", rng.choice(NAMES)))
        ending = frozenset(each.metadata.uid for each in self.running.values() if rng.random() < 0.3)
        own = OwnPods("default", (("room", f"r{number}"),), are_new=rng.random() < 0.3)
        holder = Holder("NodeReservation", "default", f"r{number}", f"uid-{number}", own)
        terms = Terms(ending, is_admitted=rng.random() < 0.3)
        self.made.scheduler.reservations.hold(HeldRoom(holder, slots, self.nodes, terms))

    def _run(self) -> None:
        made = self.pod(f"p{self.count}", node_name=self.rng.choice(NAMES))
        self.running[made.metadata.name] = made
        self.made.add(made)

    def _delete(self) -> None:
        if self.running:
            self.made.scheduler.feed.pod_deleted(self.running.pop(self.rng.choice(sorted(self.running))))

    def _end(self) -> None:
        rooms = list(self.held)
        if rooms:
            self.held.end(self.rng.choice(rooms).holder.uid)

    def _rank(self) -> None:
        rooms = list(self.held)
        if rooms:
            self.held.set_priority(self.rng.choice(rooms).holder.uid, self.rng.randrange(4))

    def _nominate(self) -> None:
        info = self.nodes.compile_pod(self.pod(f"n{self.count}"))
        self.made.queue.nominator.nominate(info, self.rng.choice(NAMES))

    # -- what each room blocks by itself ------------------------------------------------------------------------

    def expected(self, info: PodInfo, gangs: Mapping[str, Reservation]) -> Blocked:
        nominator, found = self.made.queue.nominator, []
        rooms = [room for room in self.held if self.held.of(room.holder.uid)]
        own = [room for room in rooms if room.holder.pods.include(info.pod, None)]
        own.sort(key=lambda room: -room.reservation.priority)
        admitted = WORKLOAD_LABEL in info.pod.metadata.labels
        live = [
            room
            for room in rooms
            if room in own or room.reservation.priority >= info.priority or (admitted and room.terms.is_admitted)
        ]
        for room in live:
            of = room if room in own else room.reservation
            found.append((room.holder.key.name, tuple(of.refused_rows(info, nominator).tolist())))
        counts = Counter(name for room in rooms for name in room.reservation.plan.node_names)
        for name, count in counts.items():
            there = [room for room in live if room.reservation.members_on(name)]
            row = self.nodes.row_of(name)
            if (
                (count > 1 or name in gangs)
                and there
                and row != NO_ROW
                and not self._fit(info, row, there, gangs.get(name))
            ):
                found.append((there[0].holder.key.name, (row,)))
        return sorted((name, rows) for name, rows in found if rows)

    def _fit(self, info: PodInfo, row: int, rooms: list[HeldRoom], gang: Reservation | None) -> bool:
        name, members = self.nodes.node_name(row), [info]
        reservations = [room.reservation for room in rooms] + ([gang] if gang is not None else [])
        members += [each for reservation in reservations for each in reservation.members_on(name)]
        own = [room for room in rooms if room.holder.pods.include(info.pod, None)]
        slots = [slot for room in own for slot in reversed(room.slots_on(name, info.pod))]
        if slots:
            members.remove(slot_for(info, slots).info)
        leaving = {each.uid: each for reservation in reservations for each in reservation.leaving(row)}
        return room_beside(self.nodes, row, members, leaving.values()).fits

    def actual(self, info: PodInfo, gangs: Mapping[str, Reservation]) -> Blocked:
        found = self.held.blocking(info, info.priority, gangs)
        return sorted((key.name, tuple(rows.tolist())) for key, rows in found)


@given(st.integers(0, 2**32), st.integers(4, 32))
def test_rooms_at_once_block_what_each_of_them_blocks(seed: int, steps: int) -> None:
    """After every change, the rows and holders are those of the rooms one by one, beside a gang's reservation too."""
    cluster = Cluster(random.Random(seed))
    for _ in range(steps):
        cluster.step()
        if not len(cluster.held):
            continue
        info = cluster.nodes.compile_pod(cluster.pod(f"later-{cluster.count}"))
        beside = list(cluster.held)[-1].reservation
        gangs = {name: beside for name in NAMES if cluster.rng.random() < 0.2}
        assert cluster.actual(info, gangs) == cluster.expected(info, gangs)
