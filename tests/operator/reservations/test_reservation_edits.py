"""NodeReservations that are edited, and what their status counts: room is not held twice for pods that have used it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from bayplan.fit.room_search import FitResult
from msgspec.structs import replace

from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import SEARCHED_FOR_LABEL
from scheduler_core.model.node import NodeSpec
from tests.support.gang_preemption import running_pod, small_node
from tests.support.node_reservations import Reservations, other_pod, own_pod, two_nodes
from tests.support.scheduling import gang_rig
from tests.support.tables import table


def held(world: Reservations) -> int:
    """Return the number of pods that room is held for."""
    return sum(room.free for room in world.rig.scheduler.reservations.held)


async def use(world: Reservations, *names: str) -> None:
    """Let pods of the owner be created and bound, and report their nodes."""
    for name in names:
        own = own_pod(name, created=world.rig.clock.wall())
        await world.bound(own)
        node_name = world.rig.bound[name]
        world.rig.scheduler.feed.pod_updated(own, replace(own, spec=replace(own.spec, node_name=node_name)))


@table(
    "before, after, expected",
    ("more time", {"ttlSeconds": 60}, {"ttlSeconds": 600}, ("Reserved", 2, 1)),
    ("no time", {"ttlSeconds": 60}, {}, ("Reserved", 2, 1)),
    ("other priority", {}, {"priority": 5}, ("Reserved", 2, 1)),
    ("more pods", {}, {"count": 4}, ("Reserved", 3, 1)),
    ("fewer pods", {}, {"count": 2}, ("Reserved", 1, 1)),
    ("as many pods as are bound", {}, {"count": 1}, ("Consumed", 0, 1)),
)
async def test_counted_pods_stay_counted(
    before: Mapping[str, Any], after: Mapping[str, Any], expected: tuple[str, int, int]
) -> None:
    """An edit does not hold room again for pods that have used it, whether a process restarts or not."""
    world = two_nodes()
    await world.apply("room", **{"count": 3, **before})
    await use(world, "own-0")
    await world.apply("room", **{"count": 3, **after})
    for restarts in (False, True, True):
        status = world.status()
        assert (status["phase"], status["reserved"], status["consumed"]) == expected
        assert (status["observedGeneration"], held(world)) == (2, expected[1])
        if restarts:
            await world.restart()
        await world.later()


async def test_counted_pods_of_an_earlier_release() -> None:
    """Its statuses have the number of the counted pods and no UIDs: after the upgrade they are not counted twice."""
    world = two_nodes()
    await world.apply("room", count=4)
    await use(world, "own-0", "own-1")
    await world.later()
    of_release = ("countedPods", "otherPods", "inTheWay")
    status = {name: value for name, value in world.status().items() if name not in of_release}
    world.bodies["room"] = {**world.bodies["room"], "status": status}
    for _ in range(3):
        await world.restart()
        await world.later()
        assert (world.phase(), world.status()["consumed"], held(world)) == ("Reserved", 2, 2)
    await use(world, "own-2")
    await world.restart()
    await world.later()
    assert (world.phase(), world.status()["consumed"], held(world)) == ("Reserved", 3, 1)


async def test_more_time_keeps_the_room() -> None:
    """No other pod gets the room while the time is changed; it ends at the new time."""
    world = two_nodes()
    await world.apply("room", count=4, ttlSeconds=60)
    (room,) = world.rig.scheduler.reservations.held
    await world.bound(other_pod("other"))
    await world.later(50)
    await world.apply("room", count=4, ttlSeconds=600)
    assert list(world.rig.scheduler.reservations.held) == [room]
    await world.bound()
    assert not world.rig.bound
    await world.later(540)
    assert world.phase() == "Reserved"
    await world.later(10)
    assert (world.phase(), held(world)) == ("Expired", 0)


async def test_less_time_ends_the_room() -> None:
    """The room ends at the new time."""
    world = two_nodes()
    await world.apply("room", count=4, ttlSeconds=600)
    await world.later(30)
    await world.apply("room", count=4, ttlSeconds=20)
    assert (world.phase(), held(world)) == ("Expired", 0)


@table(
    "spec, expected",
    ("more time", {"ttlSeconds": 600}, ("Reserved", "False")),
    ("too little time", {"ttlSeconds": 61}, ("Expired", "True")),
)
async def test_an_expired_reservation_gets_more_time(spec: Mapping[str, Any], expected: tuple[str, str]) -> None:
    """The room is searched again, and condition Expired becomes False."""
    world = two_nodes()
    await world.apply("room", count=2, ttlSeconds=60)
    await world.later(100)
    assert world.phase() == "Expired"
    await world.apply("room", count=2, **spec)
    assert (world.phase(), world.condition("Expired")[0]) == expected


async def test_a_consumed_reservation_gets_more_pods() -> None:
    """Room is held for the further pods alone, and condition Consumed becomes False."""
    world = two_nodes()
    await world.apply("room", count=1)
    await use(world, "own-0")
    for _ in range(2):
        await world.later()
    assert world.phase() == "Consumed"
    await world.apply("room", count=1, ttlSeconds=60)
    assert (world.phase(), held(world)) == ("Consumed", 0)
    await world.apply("room", count=3)
    assert (world.phase(), held(world), world.condition("Consumed")[0]) == ("Reserved", 2, "False")


async def test_a_spec_that_is_invalid_for_a_time() -> None:
    """The pods that were counted before are counted when it is valid again."""
    world = two_nodes()
    await world.apply("room", count=3)
    await use(world, "own-0")
    await world.apply("room", count=3, resources={"cpu": "much"})
    assert (held(world), world.status()["consumed"]) == (0, 1)
    await world.restart()
    await world.apply("room", count=3)
    assert (held(world), world.status()["consumed"]) == (2, 1)


async def test_pods_that_are_bound_when_the_time_ends_are_counted() -> None:
    """The status of an expired reservation has all pods that have used the room."""
    world = two_nodes()
    await world.apply("room", count=3, ttlSeconds=60)
    world.rig.clock.advance(59.5)
    await use(world, "own-0")
    await world.later(1)
    assert (world.phase(), world.status()["consumed"]) == ("Expired", 1)


async def test_a_pod_whose_bind_is_in_flight_is_not_counted() -> None:
    """Its bind may fail, and after a restart its room must be held again."""
    world = two_nodes()
    await world.apply("room", count=1)
    own = own_pod("own", created=world.rig.clock.wall() + timedelta(seconds=1))
    world.rig.add(own)
    attempt = world.rig.decide()
    assert attempt is not None
    for _ in range(3):
        await world.later()
        assert (world.phase(), world.status()["reserved"], world.status()["consumed"]) == ("Reserved", 1, 0)
        assert world.condition()[2].startswith("Room for 1 pod is held on ")
    world.rig.scheduler.feed.pod_deleted(own)
    await world.restart()
    assert (world.phase(), held(world)) == ("Reserved", 1)


@table(
    "is_deleted_before",
    ("deleted before the restart", True),
    ("deleted while no operator runs", False),
)
async def test_pods_of_a_deleted_reservation_count_for_no_other(is_deleted_before: bool) -> None:
    """The status of a reservation names the pods that it selects and that need no room."""
    made = gang_rig(small_node("a", 4), small_node("b", 4))
    world = Reservations(made)
    await world.apply("first", count=2, priority=5)
    await world.apply("second", count=2)
    world.rig.clock.advance(5)
    await use(world, "own-0", "own-1")
    for _ in range(3):
        await world.later()
    assert (world.phase("first"), world.phase("second")) == ("Consumed", "Reserved")
    assert world.status("second")["otherPods"] == ["uid-of-default-own-0", "uid-of-default-own-1"]
    assert world.status("first")["countedPods"] == world.status("second")["otherPods"]
    if is_deleted_before:
        await world.delete("first")
    else:
        del world.bodies["first"]
    await world.restart()
    await world.later()
    status = world.status("second")
    assert (status["phase"], status["consumed"], held(world)) == ("Reserved", 0, 2)
    await use(world, "own-2")
    await world.restart()
    await world.later(0)
    assert (world.status("second")["consumed"], held(world)) == (1, 1)


async def test_pods_that_are_gone_are_not_named() -> None:
    """The list has only pods that exist."""
    made = gang_rig(small_node("a", 8))
    world = Reservations(made)
    await world.apply("first", count=2, priority=5)
    await world.apply("second", count=2)
    await use(world, "own-0")
    await world.later(2)
    made.scheduler.feed.pod_deleted(own_pod("own-0", node_name="a"))
    await use(world, "own-1")
    await world.later(2)
    await world.later(2)
    assert world.status("second")["otherPods"] == ["uid-of-default-own-1"]


@table(
    "change, nodes, is_lost",
    ("more pods", {"count": 4}, {"a": 1, "b": 2, "c": 1}, False),
    ("fewer pods", {"count": 2}, None, False),
    ("other priority", {"count": 3, "priority": 1}, {"a": 1, "b": 2}, False),
    ("a label of a node", "label", {"a": 1, "b": 2}, False),
    ("a node is cordoned", "cordon", None, True),
)
async def test_room_is_held_while_other_room_is_searched(
    change: Mapping[str, Any] | str, nodes: Mapping[str, int] | None, is_lost: bool
) -> None:
    """No pod that waits gets the room meanwhile, and room that is found again has not been lost."""
    world = two_nodes()
    world.rig.add(running_pod("running", "a", cpus=1))
    await world.apply("room", count=3)
    waiting = other_pod("waiting")
    await world.bound(waiting)
    world.rig.scheduler.feed.pod_deleted(running_pod("running", "a", cpus=1))
    world.rig.add(running_pod("other", "a", cpus=1) if change != {"count": 4} else small_node("c", 1))
    search = world.controller._dry_run.search

    async def searched(request: FitRequest) -> FitResult:
        assert held(world) == 3
        await world.bound()
        while not world.rig.queue.readings.is_idle:
            await world.rig.attempt()
        return await search(request)

    world.controller._dry_run.search = searched  # type: ignore[method-assign]
    if isinstance(change, str):
        before = small_node("b", zone="y")
        labels, spec = {**before.metadata.labels, "new": "label"}, NodeSpec(unschedulable=change == "cordon")
        after = replace(before, metadata=replace(before.metadata, labels=labels), spec=spec)
        world.rig.scheduler.feed.node_updated(before, after)
        await world.later()
    else:
        await world.apply("room", **change)
    if nodes is not None:
        assert world.phase() == "Reserved"
        assert {each["name"]: each["pods"] for each in world.status()["nodes"]} == nodes
    events = [event.reason for event in world.rig.writer.events if event.regarding.name == "room"]
    assert ("ReservedRoomLost" in events) is is_lost
    assert (held(world) > 0) is not is_lost


async def test_a_pod_with_the_label_of_the_search_uses_no_room() -> None:
    """The label has an effect in a dry run alone."""
    world = two_nodes()
    await world.apply("room", count=4)
    labels = {SEARCHED_FOR_LABEL: world.bodies["room"]["metadata"]["uid"]}
    assert await world.bound(other_pod("other", labels=labels)) == {"other": ""}


async def test_a_restart_holds_the_room_of_all_before_it_searches() -> None:
    """A reservation whose room was taken while no operator ran does not get the room of a later one."""
    world = two_nodes()
    for name in ("first", "second"):
        await world.apply(name, count=2, topology={"key": "zone"})
    taken, other = world.status("first")["where"], world.status("second")["where"]
    for room in world.rig.scheduler.reservations.held:
        world.rig.scheduler.reservations.held.end(room.holder.uid)
    world.rig.add(running_pod("foreign", taken, cpus=2))
    await world.restart()
    await world.later(0)
    assert (world.phase("first"), world.phase("second"), world.status("second")["where"]) == (
        "Pending",
        "Reserved",
        other,
    )
    assert world.condition(name="first")[2].startswith("The room that was held before the restart is taken. ")


async def test_an_edit_while_no_operator_runs() -> None:
    """Room is searched again, but the unchanged room of others of the same priority is held again first."""
    world = two_nodes()
    for name in ("first", "second"):
        await world.apply(name, count=2, topology={"key": "zone"})
    body, taken = world.bodies["first"], world.status("first")["where"]
    metadata = {**body["metadata"], "generation": 2}
    world.bodies["first"] = {**body, "metadata": metadata, "spec": {**body["spec"], "ttlSeconds": 600}}
    world.rig.add(running_pod("foreign", taken, cpus=2))
    other = world.status("second")["where"]
    await world.restart()
    await world.later(0)
    assert (world.phase("second"), world.status("second")["where"]) == ("Reserved", other)
    assert world.phase("first") == "Pending"
    assert world.condition(name="first")[2].startswith("The spec was changed while no operator ran. ")


async def test_room_of_an_edited_reservation_after_a_restart() -> None:
    """Free room is found again, and pods that were counted stay counted."""
    world = two_nodes()
    await world.apply("room", count=3)
    await use(world, "own-0")
    await world.later()
    body = world.bodies["room"]
    metadata = {**body["metadata"], "generation": 2}
    world.bodies["room"] = {**body, "metadata": metadata, "spec": {**body["spec"], "count": 2}}
    await world.restart()
    await world.later(0)
    assert (world.phase(), world.status()["consumed"], held(world)) == ("Reserved", 1, 1)


async def test_a_restart_holds_room_that_needs_evictions() -> None:
    """The status names the pods that are evicted, and the room is not searched again."""
    world = two_nodes()
    world.rig.add(running_pod("low-a", "a", cpus=1), running_pod("low-b", "b", cpus=2))
    await world.apply("room", count=2, priority=5, topology={"key": "zone"})
    before = world.status()
    assert before["inTheWay"], "pods are evicted"
    assert world.condition()[2].endswith("or are evicted for its pods of priority 5: 1")
    await world.restart()
    assert held(world) == 2
    assert world.status() == before
