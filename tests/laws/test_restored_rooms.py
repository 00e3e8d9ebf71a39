"""Law of NodeReservations after a restart: no room is lost, whatever the statuses counted before it.

Random histories: several reservations select the same pods, each pod uses the room of one of them, statuses are written
late, pods end, and reservations are deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from bayplan.reservations import reserved_pods
from bayplan.reservations.reserved_pods import rooms_left
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.resource_model import API_VERSION, format_time
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.tables import table

START = datetime(2026, 1, 1, tzinfo=UTC)
NODES = "ab"


class _Room:
    """Room of a reservation as it is, and its status as it was written last."""

    def __init__(self, number: int, count: int, since: datetime, random: Random) -> None:
        self.name, self.count, self.since, self.used = f"room-{number}", count, since, 0
        self.free = [random.choice(NODES) for _ in range(count)]
        self.counted: set[str] = set()
        self.others: set[str] = set()
        self.status: dict[str, Any] = {}
        self.write(since)

    def use(self, node_name: str) -> None:
        self.free.remove(node_name if node_name in self.free else self.free[0])
        self.used += 1

    def write(self, now: datetime) -> None:
        if self.status.get("phase") == "Consumed":
            return
        phase, reason = ("Reserved", "RoomHeld") if self.free else ("Consumed", "PodsBound")
        condition = {"type": phase, "status": "True", "reason": reason, "lastTransitionTime": format_time(now)}
        self.status = {
            "observedGeneration": 1,
            "phase": phase,
            "consumed": self.used,
            "nodes": [{"name": name, "pods": self.free.count(name)} for name in sorted({*self.free})],
            "reservedSince": format_time(self.since) if self.free else None,
            "countedPods": sorted(self.counted),
            "otherPods": sorted(self.others),
            "conditions": [condition],
        }

    @property
    def read(self) -> NodeReservation:
        metadata = {"name": self.name, "namespace": "default", "uid": self.name, "generation": 1}
        spec = {"count": self.count, "resources": {"cpu": 1}, "owner": {"labels": {"app": "x"}}}
        body = {"apiVersion": API_VERSION, "kind": "NodeReservation", "metadata": metadata, "spec": spec}
        return NodeReservation.from_object({**body, "status": self.status})


def live(seed: int) -> None:
    """Run a history, and compare the room that is held again with the room that was left."""
    random, now = Random(seed), START
    rooms, pods, has_ended = list[_Room](), dict[str, Pod](), False
    for number in range(random.randint(4, 16)):
        now += timedelta(seconds=random.randint(0, 2))
        usable = [room for room in rooms if room.free]
        step = random.choice(("room", "pod", "pod", "write", "write", "end", "delete"))
        if step == "room" and len(rooms) < 4:
            rooms.append(_Room(number, random.randint(1, 3), now, random))
            rooms[-1].others.update(each.metadata.uid for each in pods.values())
            rooms[-1].write(now)
        elif step == "pod" and usable:
            name, node_name, used = f"p{number}", random.choice(NODES), random.choice(usable)
            used.use(node_name)
            pods[name] = pod(name, labels={"app": "x"}, node_name=node_name, created=now)
            for room in rooms:
                (room.counted if room is used else room.others).add(pods[name].metadata.uid)
        elif step == "write" and rooms:
            random.choice(rooms).write(now)
        elif step == "end" and pods and seed % 2:
            has_ended = True
            del pods[random.choice(sorted(pods))]
        elif step == "delete" and rooms and seed % 3:
            # The look that counts the pods of one room writes the statuses of the others.
            rooms.remove(random.choice(rooms))
            for room in rooms:
                room.write(now)
    given_rooms = [(room.read, room.read.status, room.status["phase"] == "Reserved") for room in rooms]
    left = rooms_left(given_rooms, list(pods.values()), lambda _: None)
    held, free = sum(len(each.nodes) for each in left.values()), sum(len(room.free) for room in rooms)
    assert held >= free, "room is lost"
    if not rooms:
        return
    created = [each.metadata.creation_timestamp or START for each in pods.values()]
    are_all_late = all(room.since <= each for room in rooms for each in created)
    if not has_ended and are_all_late:
        assert held == free, "room that pods have used is held again"


@given(st.integers(0, 2**32))
def test_no_room_is_lost(seed: int) -> None:
    """At least the room that no pod has used is held again, and no more if all pods still exist."""
    live(seed)


_WRITE = _Room.write


def _write_no_counted_pods(room: _Room, now: datetime) -> None:
    room.counted.clear()
    _WRITE(room, now)


def _write_no_other_pods(room: _Room, now: datetime) -> None:
    room.others.clear()
    _WRITE(room, now)


def _live_often() -> None:
    for seed in range(200):
        live(seed)


@table(
    "owner, name, planted",
    ("no counted pods are written", _Room, "write", _write_no_counted_pods),
    ("no other pods are written", _Room, "write", _write_no_other_pods),
    ("no late pods are counted", reserved_pods._Share, "take", lambda *_: None),
)
def test_planted_bugs_are_found(owner: type, name: str, planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug breaks the law in a few histories."""
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError):
        _live_often()
