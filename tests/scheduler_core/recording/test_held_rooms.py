"""Room for pods in records: a replay holds, changes and ends it as callers outside the core did."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from scheduler_core.gangs.held_room import (
    POD_SET_LABEL,
    WORKLOAD_LABEL,
    HeldPod,
    HeldRoom,
    Holder,
    OwnPods,
    Terms,
    admitted_workload,
    own_slot,
)
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.queueing.gang_members import RecordedLoss
from scheduler_core.record_assembly import ReplayLoop, header_of, recorded_scheduler, replay_of
from scheduler_core.recording.object_types import ObjectTypes, content_of
from scheduler_core.recording.record_file import RecordReader
from scheduler_core.recording.recorder import Recorder
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from tests.simulation.records import ProcessRecord
from tests.support.builders import pod
from tests.support.devices import allocated_claim
from tests.support.gang_preemption import small_node, with_pod_groups
from tests.support.gangs import JOB, add_groups, gang_of, group, indexed
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock


def recorded() -> tuple[Rig, Recorder, ProcessRecord]:
    """Return a recorded scheduler with a node of 8 CPUs, and its record."""
    clock, options, ports, registry = VirtualClock(), SchedulerOptions(seed=5), SchedulerPorts(), in_tree_registry()
    record = ProcessRecord(header_of(options, ports, registry, "1.0"))
    recorder, writer = Recorder(clock, record), RecordingWriter()
    scheduler = recorded_scheduler(recorder, writer, options, registry, default_plugins(), ports=ports)
    made = with_pod_groups(Rig(scheduler, clock, writer))
    made.add(small_node("a", 8))
    return made, recorder, record


def replayed(recorder: Recorder, record: ProcessRecord) -> Scheduler:
    """Return the scheduler of a replay at its end."""
    recorder.close()
    reader = RecordReader(io.BytesIO(record.content), "record")
    entries = (entry for frame in reader.frames() for entry in frame.entries)
    recorded_input, scheduler, replay = replay_of(reader.header, entries, in_tree_registry(), default_plugins())
    with asyncio.Runner(loop_factory=ReplayLoop) as runner:
        runner.run(replay.run())
    assert recorded_input.difference is None
    return scheduler


def held_rooms(scheduler: Scheduler) -> list[bytes]:
    """Return what is held, with the number of slots that no pod has taken."""
    objects, held = ObjectTypes(scheduler.decoded), scheduler.reservations.held
    return [msgspec.json.encode((content_of(room, objects), present(held.of(room.holder.uid)).free)) for room in held]


def hold(made: Rig, own: OwnPods, terms: Terms | None = None, *devices: AllocationResult) -> HeldRoom:
    """Hold room for two pods on the node."""
    nodes, scheduler = made.columns, made.scheduler
    wanted = [pod(f"wanted-{number}", requests={"cpu": "2"}, priority=3) for number in range(2)]
    slots = [HeldPod(nodes.compile_pod(each), own.slot_class(each), "a", devices) for each in wanted]
    room = HeldRoom(
        Holder("NodeReservation", own.namespace, "room", "uid-of-room", own), slots, nodes, terms or Terms()
    )
    room.reservation.priority = 7
    room.settled.add("earlier")
    assert scheduler.reservations.hold(room)
    return room


GROUP = GroupKey(GroupSource.BAYPLAN, "default", "train")
WORKLOAD = admitted_workload("default", "work", "uid-of-work").pods
RESULT = present(allocated_claim({"device": "d0"}).status.allocation)


@table(
    "own, terms, fields",
    ("labels", OwnPods("default", (("app", "x"),)), Terms(), {"labels": {"app": "x"}}),
    ("owner", OwnPods("default", owner=("Job", "train")), Terms(), {"owners": (JOB,)}),
    ("UID of the owner", OwnPods("default", owner_uid="uid-of-job"), Terms(), {"owners": (JOB,)}),
    ("pods of a gang", OwnPods("default", group=GROUP, slot_class=own_slot), Terms(), {"labels": {"g": "x"}}),
    (
        "workload",
        WORKLOAD,
        Terms(is_admitted=True),
        {"labels": {WORKLOAD_LABEL: "uid-of-work", POD_SET_LABEL: "main"}},
    ),
    (
        "terms",
        OwnPods("default", (("app", "x"),), are_new=True),
        Terms(frozenset("uv"), 1300.0, prefers_slots=True, follows_group=True, on_end=lambda _: None),
        {"labels": {"app": "x"}},
    ),
)
def test_room_is_held_as_recorded(own: OwnPods, terms: Terms, fields: dict[str, Any]) -> None:
    """All that decides who uses the room is in the record; a pod takes the same slot."""
    made, recorder, record = recorded()
    hold(made, own, terms)
    made.add(pod("later", requests={"cpu": "2"}, node_name="a", **fields), pod("other", node_name="a"))
    expected = held_rooms(made.scheduler)
    assert len(expected) == 1
    assert held_rooms(replayed(recorder, record)) == expected


def test_devices_are_held_as_recorded() -> None:
    """The devices of the slots are in the record."""
    made, recorder, record = recorded()
    hold(made, OwnPods("default", (("app", "x"),)), Terms(), RESULT)
    (room,) = replayed(recorder, record).reservations.held
    assert [each.devices.results for each in room.devices] == [RESULT.devices.results] * 2


@table(
    "change, remaining",
    ("release", lambda made, room: made.scheduler.reservations.release(room), 0),
    ("end", lambda made, room: made.scheduler.reservations.held.end(room.holder.uid), 0),
    ("extend", lambda made, room: made.scheduler.reservations.held.extend(room.holder.uid, 2000.0), 1),
    ("no limit", lambda made, room: made.scheduler.reservations.held.extend(room.holder.uid, None), 1),
    ("priority", lambda made, room: made.scheduler.reservations.held.set_priority(room.holder.uid, 1), 1),
    ("time", lambda made, _: made.clock.advance(400.0), 0),
    (
        "release of earlier room",
        lambda made, room: (
            hold(made, OwnPods("default", (("app", "y"),))),
            made.scheduler.reservations.release(room),
        ),
        1,
    ),
    ("another room instead", lambda made, _: hold(made, OwnPods("default", (("app", "y"),))), 1),
)
def test_room_changes_as_recorded(change: Callable[[Rig, HeldRoom], object], remaining: int) -> None:
    """What callers outside the core change, and what ends by itself, is the same in a replay."""
    made, recorder, record = recorded()
    change(made, hold(made, OwnPods("default", (("app", "x"),)), Terms(until=1300.0)))
    expected = held_rooms(made.scheduler)
    assert len(expected) == remaining
    assert held_rooms(replayed(recorder, record)) == expected


def test_room_follows_its_group_as_recorded() -> None:
    """A changed priority of the group is that of the room, in the replay, too."""
    made, recorder, record = recorded()
    add_groups(made, group(min_member=2, priority=5))
    hold(made, OwnPods("default", group=GROUP), Terms(follows_group=True))
    add_groups(made, group(min_member=2, priority=4))
    for scheduler in (made.scheduler, replayed(recorder, record)):
        assert [room.reservation.priority for room in scheduler.reservations.held] == [4]


def test_room_is_settled_as_recorded() -> None:
    """The slots of bound pods are given up for good at the same moment."""
    made, recorder, record = recorded()
    hold(made, OwnPods("default", (("app", "x"),)))
    first, second = (pod(f"p{each}", requests={"cpu": "2"}, node_name="a", labels={"app": "x"}) for each in "ab")
    made.add(first)
    made.scheduler.reservations.held.settle()
    made.scheduler.feed.pod_deleted(first)
    made.add(second)
    made.scheduler.feed.pod_deleted(second)
    expected = held_rooms(made.scheduler)
    assert b'"uid-of-room"' in expected[0]
    assert expected[0].endswith(b",1]"), "the slot of the first pod is not free again"
    assert held_rooms(replayed(recorder, record)) == expected


def test_room_of_lost_members_is_held_again_as_recorded() -> None:
    """The loss that the status had at the start is in the record, and its time ends in the replay, too."""
    made, recorder, record = recorded()
    add_groups(made, group(min_member=2, hold_seconds=60.0))
    made.add(indexed("train-1", 1, node_name="a"), indexed("train-0-again", 0))
    loss = RecordedLoss("train-0", "a", "Job/uid-of-job/0", made.clock.wall() + timedelta(seconds=30))
    assert made.scheduler.healing.restore(gang_of(made).key, loss)
    recorder.flush()
    scheduler = replayed(Recorder(VirtualClock(), record), record)
    (room,) = scheduler.reservations.held
    assert (room.holder.name, [slot.node_name for slot in room.free_slots]) == ("train-0", ["a"])
    made.clock.advance(31.0)
    assert not len(made.scheduler.reservations.held)
    assert not len(replayed(recorder, record).reservations.held)
