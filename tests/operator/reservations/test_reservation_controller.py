"""NodeReservations: when room is held, who uses it, how it ends, and what the status reports, without an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from bayplan.reservations import reservation_controller
from bayplan.resources.node_reservation import NodeReservation, NodeReservationStatus
from bayplan.resources.resource_model import format_time
from msgspec.structs import replace

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.device_preemption import idle, pending, served
from tests.support.devices import claim, device, exactly, slice_of
from tests.support.gang_devices import report
from tests.support.gang_preemption import running_pod, small_node
from tests.support.node_reservations import TRAIN, Reservations, other_pod, own_pod, two_nodes
from tests.support.scheduling import gang_rig
from tests.support.tables import table


@pytest.fixture
def world() -> Reservations:
    return two_nodes()


async def test_room_is_held_until_its_pods_are_bound(world: Reservations) -> None:
    """Others wait, the pods of the owner get the room, and the status counts them."""
    await world.apply("room", count=3)
    assert (world.phase(), world.status()["reserved"]) == ("Reserved", 3)
    assert {each["name"]: each["pods"] for each in world.status()["nodes"]} in ({"a": 2, "b": 1}, {"a": 1, "b": 2})
    assert world.condition()[:2] == ("True", "RoomHeld")
    others = await world.bound(other_pod("other-0"), other_pod("other-1"))
    assert sum(map(bool, others.values())) == 1
    assert "node(s) were reserved for NodeReservation default/room" in world.rig.condition.message
    assert all((await world.bound(own_pod("own-0"), own_pod("own-1"))).values())
    await world.later()
    assert (world.phase(), world.status()["reserved"], world.status()["consumed"]) == ("Reserved", 1, 2)
    assert all((await world.bound(own_pod("own-2"))).values())
    await world.later()
    await world.later()
    assert (world.phase(), world.status()["reserved"], world.status()["consumed"]) == ("Consumed", 0, 3)
    assert world.condition("Consumed")[0] == "True"
    assert not len(world.rig.scheduler.reservations.held)


@table(
    "owner, fields, expected",
    ("labels", TRAIN, {"labels": {"app": "train"}}, True),
    ("other labels", TRAIN, {"labels": {"app": "web"}}, False),
    (
        "owner reference",
        {"ownerReference": {"kind": "Job", "name": "train"}},
        {"owners": (OwnerReference("Job", "train", "u"),)},
        True,
    ),
    (
        "owner of another UID",
        {"ownerReference": {"kind": "Job", "name": "train", "uid": "v"}},
        {"owners": (OwnerReference("Job", "train", "u"),)},
        False,
    ),
    (
        "other owner",
        {"ownerReference": {"kind": "Job", "name": "a"}},
        {"owners": (OwnerReference("Job", "b", "u"),)},
        False,
    ),
    (
        "labels and an owner",
        {**TRAIN, "ownerReference": {"kind": "Job", "name": "a"}},
        {"labels": {"app": "train"}},
        False,
    ),
)
async def test_the_owner_selects_the_pods(
    world: Reservations, owner: dict[str, Any], fields: dict[str, Any], expected: bool
) -> None:
    """Only pods that meet every condition of spec.owner use the room."""
    await world.apply("room", count=4, owner=owner)
    found = await world.bound(other_pod("later", **fields))
    assert bool(found["later"]) is expected


@table(
    "spec, priority, expected",
    ("default", {}, 0, False),
    ("higher pod", {}, 1, True),
    ("priority", {"priority": 5}, 5, False),
    ("higher than priority", {"priority": 5}, 6, True),
    ("critical pod", {"priority": 2147483647}, 2_000_000_000, True),
    ("class", {"priorityClassName": "high"}, 10, False),
    ("higher than class", {"priorityClassName": "high"}, 11, True),
)
async def test_pods_of_higher_priority_use_the_room(
    world: Reservations, spec: dict[str, Any], priority: int, expected: bool
) -> None:
    """The room then does not exist any more, and other room is searched."""
    await world.apply("room", count=4, **spec)
    found = await world.bound(other_pod("later", priority=priority))
    assert bool(found["later"]) is expected
    await world.later()
    assert world.phase() == ("Pending" if expected else "Reserved")
    if expected:
        assert "taken by pods or reservations of higher priority" in world.condition()[2]


async def test_room_expires(world: Reservations) -> None:
    """The room ends at its time, not later, and the pods that it blocked are tried."""
    await world.apply("room", count=4, ttlSeconds=60)
    assert world.status()["expirationTime"] == format_time(world.rig.clock.wall() + timedelta(seconds=60))
    waiting = other_pod("waiting")
    assert await world.bound(waiting) == {"waiting": ""}
    await world.later(59)
    assert world.phase() == "Reserved"
    world.rig.clock.advance(1)
    assert not len(world.rig.scheduler.reservations.held), "the core ends it, whether the controller runs or not"
    await world.later(0)
    assert world.phase() == "Expired"
    assert world.rig.place_of(waiting) in ("active", "backoff")
    await world.later(600)
    assert (world.phase(), world.condition()[1]) == ("Expired", "Expired")


async def test_room_that_does_not_exist_yet(world: Reservations) -> None:
    """The status reports what is missing, and the room is held when pods have ended."""
    world.rig.add(running_pod("running", "a", cpus=2))
    await world.apply("room", count=3)
    assert (world.phase(), world.condition()[:2]) == ("Pending", ("False", "NoRoom"))
    assert "2 of 3 pods fit now; " in world.condition()[2]
    assert world.condition("Impossible") == ("False", "MayFit", "It is not proved that the pods never fit")
    world.rig.scheduler.feed.pod_deleted(running_pod("running", "a", cpus=2))
    await world.later(2)
    assert world.phase() == "Reserved"


async def test_searches_are_bounded(world: Reservations) -> None:
    """Without a change in the cluster, room is searched once a minute."""
    world.rig.add(running_pod("running", "a", cpus=2))
    searches = 0
    search = world.controller._dry_run.search

    async def counted(request: Any) -> Any:
        nonlocal searches
        searches += 1
        return await search(request)

    world.controller._dry_run.search = counted  # type: ignore[method-assign]
    await world.apply("room", count=3)
    for _ in range(59):
        await world.later()
    assert searches == 1
    for _ in range(61):
        await world.later()
    assert searches in (2, 3)


async def test_impossible(world: Reservations) -> None:
    """Pods that fit on no node, whatever ends, are reported; a node that is added later helps."""
    await world.apply("room", resources={"cpu": 16})
    assert (world.phase(), world.condition("Impossible")[:2]) == ("Pending", ("True", "NeverFits"))
    assert world.condition()[:2] == ("False", "Impossible")
    world.rig.add(small_node("c", 16))
    await world.later(2)
    assert (world.phase(), world.condition("Impossible")[0]) == ("Reserved", "False")


async def test_invalid_spec(world: Reservations) -> None:
    """A spec that is not valid holds nothing, and names the field."""
    await world.apply("room", resources={"cpu": "a lot"})
    assert world.condition()[:2] == ("False", "InvalidSpec")
    assert "spec.resources.cpu" in world.condition()[2]
    await world.apply("room", count=2)
    assert world.phase() == "Reserved"


PLAIN = {"containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]}


@table(
    "spec, reason, message",
    (
        "class",
        {"priorityClassName": "hihg"},
        "NotFound",
        'spec.priorityClassName: there is no PriorityClass "hihg" (did you mean "high"?); no room is reserved until',
    ),
    (
        "class of the template",
        {"template": {"spec": {**PLAIN, "priorityClassName": "hihg"}}},
        "NotFound",
        'spec.template.spec.priorityClassName: there is no PriorityClass "hihg"',
    ),
    (
        "profile",
        {"schedulerName": "absent"},
        "NotFound",
        'spec.schedulerName: no live profile has the schedulerName "absent"; available profiles: default-scheduler',
    ),
    (
        "profile of the template",
        {"template": {"spec": {**PLAIN, "schedulerName": "absent"}}},
        "NotFound",
        'spec.template.spec.schedulerName: no live profile has the schedulerName "absent"',
    ),
    (
        "template of claims",
        {"template": {"spec": {**PLAIN, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "onne"}]}}},
        "NotFound",
        'spec.template.spec.resourceClaims: there is no ResourceClaimTemplate "onne"; create it',
    ),
    (
        "template",
        {"template": {"spec": {"containers": [{"name": "main"}]}}},
        "InvalidTemplate",
        "spec.template.spec.containers[0].image: Required value: add it",
    ),
    (
        "pods that are too large",
        {"resources": {"cpu": 64}},
        "Impossible",
        "The pods never fit on the present nodes: a pod fits on no node, whatever runs there: 0/2 nodes",
    ),
    (
        "topology",
        {"topology": {"key": "rack"}},
        "Impossible",
        "The pods never fit on the present nodes: no node has the label rack of its topology",
    ),
)
async def test_what_a_reservation_names_and_does_not_exist(
    world: Reservations, spec: dict[str, Any], reason: str, message: str
) -> None:
    """The condition names the field of the reservation once, whatever the number of pods."""
    await world.apply("room", count=3, **spec)
    status, found, text = world.condition()
    assert (world.phase(), status, found) == ("Pending", "False", reason)
    assert text.startswith(message)
    assert "room-" not in text, "pods and groups of the search are not named"
    await world.later(61)
    warnings = [event for event in world.rig.writer.events if event.type == "Warning"]
    assert [(event.reason, event.note) for event in warnings if event.regarding.name == "room"] == [(reason, text)]


async def test_a_profile_that_goes_live_later(world: Reservations) -> None:
    """The room is searched as soon as a live profile has the scheduler name."""
    await world.apply("room", count=2, schedulerName="later")
    await world.later()
    assert world.condition()[1] == "NotFound"
    scheduler = world.rig.scheduler
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="later"))])
    await world.later()
    assert world.phase() == "Reserved"


async def test_an_edit_moves_the_room(world: Reservations) -> None:
    """A changed spec is evaluated again; deletion ends the room."""
    await world.apply("room", count=1)
    await world.apply("room", count=4)
    assert (world.status()["reserved"], world.status()["observedGeneration"]) == (4, 2)
    await world.delete("room")
    assert not len(world.rig.scheduler.reservations.held)


async def test_topology(world: Reservations) -> None:
    """All pods share one domain, or nothing is reserved."""
    await world.apply("room", count=2, topology={"key": "zone"})
    assert len(world.status()["nodes"]) == 1
    await world.apply("large", count=3, topology={"key": "zone"}, priority=5)
    assert world.phase("large") == "Pending"
    await world.apply("small", count=1)
    await world.apply("other", count=2, topology={"key": "zone"})
    text = world.condition(name="other")[2]
    assert "1 of the 2 members that must be placed together fit" in text
    assert "with them in place, for another one: 0/2 nodes are available" in text
    assert not [name for name in ("other-", "uid-of") if name in text], "pods and groups of the search are not named"


async def test_template(world: Reservations) -> None:
    """The constraints of the template count."""
    spec = {
        "nodeSelector": {"zone": "y"},
        "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}],
    }
    await world.apply("room", count=2, template={"spec": spec})
    assert world.status()["where"] == "b"
    await world.apply("more", count=1, template={"spec": spec})
    assert world.phase("more") == "Pending"


async def test_devices_of_a_template() -> None:
    """A claim for each pod is searched, and other pods get the devices that are left."""
    made, writer = served(devices=False)
    report(made, writer, small_node("a", 8), slice_of([device(f"d{number}") for number in range(3)], node="a"))
    world = Reservations(made)
    template = {"spec": {**PLAIN, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}}
    await world.apply("room", count=2, template=template)
    assert world.phase() == "Reserved"
    await world.apply("more", count=2, template=template)
    assert world.phase("more") == "Pending"
    async with made.running():
        for name in ("other-0", "other-1", "other-2"):
            report(made, writer, claim(exactly("r"), name=f"of-{name}"), pending(name, f"of-{name}", priority=0))
        await idle(made)
    assert len(made.bound) == 1


async def test_a_node_that_is_gone(world: Reservations) -> None:
    """The room moves to another node."""
    await world.apply("room", count=2, topology={"key": "zone"})
    lost = world.status()["where"]
    world.rig.scheduler.feed.node_deleted(small_node(lost))
    await world.later()
    assert (world.phase(), world.status()["where"]) == ("Reserved", "b" if lost == "a" else "a")


async def test_kube_scheduler_takes_the_room(world: Reservations) -> None:
    """The status names the pod, its scheduler and the node."""
    await world.apply("room", count=4)
    world.rig.add(pod("foreign", requests={"cpu": "1"}, node_name="a", scheduler_name="kube-scheduler"))
    await world.later()
    assert world.phase() == "Pending"
    assert world.condition()[2].startswith(
        "Pod default/foreign of scheduler kube-scheduler, which does not read NodeReservations, was bound to a"
    )


async def test_restart(world: Reservations) -> None:
    """The room is held again on the same nodes, without what pods have used meanwhile."""
    await world.apply("room", count=4, ttlSeconds=60)
    before = world.status()["nodes"]
    await world.restart()
    assert [room.holder.name for room in world.rig.scheduler.reservations.held] == ["room"]
    assert (world.phase(), world.status()["nodes"]) == ("Reserved", before)
    for room in world.rig.scheduler.reservations.held:
        world.rig.scheduler.reservations.held.end(room.holder.uid)
    world.rig.clock.advance(10)
    created = world.rig.clock.wall()
    world.rig.add(own_pod("own", node_name="a", created=created))
    await world.restart()
    assert (world.status()["reserved"], world.status()["consumed"]) == (3, 1)
    for room in world.rig.scheduler.reservations.held:
        world.rig.scheduler.reservations.held.end(room.holder.uid)
    world.rig.add(*(own_pod(f"own-{number}", node_name="b", created=created) for number in range(3)))
    await world.restart()
    await world.later(0)
    assert (world.phase(), world.status()["consumed"]) == ("Consumed", 4)
    await world.restart()
    assert not len(world.rig.scheduler.reservations.held)


@table(
    "counts, used, consumed, deleted, expected",
    ("first one", (2, 2), 2, 2, (), ("Consumed 2", "Reserved 0")),
    ("both in part", (2, 2), 3, 3, (), ("Consumed 2", "Reserved 1")),
    ("not yet counted", (2, 2), 2, 0, (), ("Consumed 2", "Reserved 0")),
    ("one not yet counted", (2, 2), 3, 2, (), ("Consumed 2", "Reserved 1")),
    ("one counted of two", (2, 1), 2, 1, (), ("Consumed 2", "Reserved 0")),
    ("pods are gone", (2, 2), 2, 2, ("own-0", "own-1"), ("Consumed 2", "Reserved 0")),
    ("pods after the end", (1, 3), 3, 1, ("own-0",), ("Consumed 1", "Reserved 2")),
)
async def test_restart_with_reservations_for_the_same_pods(
    counts: tuple[int, int], used: int, consumed: int, deleted: Collection[str], expected: tuple[str, str]
) -> None:
    """Each pod has used the room of one of them, whatever the statuses counted before the restart."""
    made = gang_rig(small_node("a", 4), small_node("b", 4))
    world = Reservations(made)
    for number, count in enumerate(counts):
        await world.apply(f"room-{number}", count=count)
    world.rig.clock.advance(5)
    placed = dict[str, Pod]()
    for number in range(used + 1):
        if number == consumed:
            for _ in range(3):
                await world.later()
            for name in deleted:
                made.scheduler.feed.pod_deleted(placed[name])
        if number < used:
            own = own_pod(f"own-{number}", created=world.rig.clock.wall())
            await world.bound(own)
            name = own.metadata.name
            placed[name] = replace(own, spec=replace(own.spec, node_name=made.bound[name]))
            made.scheduler.feed.pod_updated(own, placed[name])
    await world.restart()
    await world.later(0)
    shown = [f"{world.phase(name)} {world.status(name)['consumed']}" for name in world.bodies]
    assert tuple(shown) == expected
    held = sum(room.free for room in world.rig.scheduler.reservations.held)
    assert held == sum(counts) - used


@table(
    "failures, settles",
    ("one request", 1, True),
    ("all requests", 1000, False),
)
async def test_a_restart_without_priority_classes(
    world: Reservations, failures: int, settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scheduling begins when the room is held again, but not later than after some seconds."""
    for number in range(2):
        await world.apply(f"room-{number}", count=2)
    before = [world.status(name)["nodes"] for name in world.bodies]
    world.failed_lists, world.lists = failures, 0
    monkeypatch.setattr(reservation_controller, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(reservation_controller, "SETTLE_SECONDS", 0.2)
    world.replace_controller()
    async with asyncio.TaskGroup() as group:
        run = group.create_task(world.controller.run())
        settling = group.create_task(world.controller.settle())
        for _ in range(1000):
            if world.lists > min(failures, 3):
                break
            assert not world.controller.restored.is_set()
            assert not len(world.rig.scheduler.reservations.held)
            world.rig.clock.advance(1)
            await asyncio.sleep(0)
        await settling
        assert world.controller.restored.is_set() is settles
        run.cancel()
    world.failed_lists = 0
    await world.later(30)
    assert [world.status(name)["nodes"] for name in world.bodies] == before
    assert [world.phase(name) for name in world.bodies] == ["Reserved", "Reserved"]


async def test_writes_that_fail(world: Reservations) -> None:
    """The room is held all the same, and the status is written later."""
    world.failures = 2
    await world.apply("room", count=2)
    assert len(world.rig.scheduler.reservations.held) == 1
    for _ in range(4):
        await world.later()
    assert world.phase() == "Reserved"


async def test_a_last_write_that_fails(world: Reservations) -> None:
    """That all pods are bound is written later, and reported once."""
    await world.apply("room", count=1)
    await world.bound(own_pod("own"))
    world.failures = 2
    for _ in range(6):
        await world.later()
    assert (world.phase(), world.status()["consumed"]) == ("Consumed", 1)
    assert [event.reason for event in world.rig.writer.events].count("ReservationConsumed") == 1


async def test_a_status_is_built_only_after_a_change(world: Reservations, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the counts stay the same, no status is built."""
    await world.apply("room", count=2)
    await world.later()
    built = 0

    class Counted(NodeReservationStatus):
        def model_post_init(self, context: Any, /) -> None:
            nonlocal built
            built += 1

    monkeypatch.setattr(reservation_controller, "NodeReservationStatus", Counted)
    for _ in range(5):
        await world.later()
    assert built == 0
    await world.bound(own_pod("own"))
    await world.later()
    assert built
    assert world.status()["consumed"] == 1


async def test_a_restart_scans_the_pods_once(world: Reservations) -> None:
    """The number of reservations does not multiply the scans before the first cycle."""
    for number in range(3):
        await world.apply(f"room-{number}", count=1)
    pods = world.rig.context.cache.columns.pods
    scans = 0

    class Counted(list[Any]):
        def __iter__(self) -> Any:
            nonlocal scans
            scans += 1
            return super().__iter__()

    world.rig.context.cache.columns.pods = Counted(pods)
    try:
        await world.restart()
    finally:
        world.rig.context.cache.columns.pods = pods
    assert len(world.rig.scheduler.reservations.held) == 3
    assert scans == 1


async def test_reservations_for_the_same_pods_hold_room_of_their_own(world: Reservations) -> None:
    """The pods use the room of all of them; the search for one counts on none of the others."""
    for number in range(4):
        await world.apply(f"room-{number}", count=1)
    assert [world.phase(f"room-{number}") for number in range(4)] == ["Reserved"] * 4
    await world.bound(other_pod("other"))
    assert not world.rig.bound
    await world.bound(*(own_pod(f"own-{number}") for number in range(4)))
    assert len(world.rig.bound) == 4
    await world.later()
    await world.later()
    assert [world.phase(f"room-{number}") for number in range(4)] == ["Consumed"] * 4


async def test_two_reservations_do_not_count_on_the_same_room(world: Reservations) -> None:
    """The second one waits, and gets the room when the first is deleted."""
    await world.apply("first", count=3)
    await world.apply("second", count=3)
    assert (world.phase("first"), world.phase("second")) == ("Reserved", "Pending")
    await world.delete("first")
    await world.later(61)
    assert world.phase("second") == "Reserved"


async def test_a_reservation_that_is_created_again_before_the_watch_reports_it(world: Reservations) -> None:
    """The status of the deleted reservation is not written to the new one, which then gets its own."""
    await world.apply("room", count=1, ttlSeconds=60)
    old = world.bodies["room"]
    created = format_time(world.rig.clock.wall() + timedelta(seconds=61))
    metadata = {**old["metadata"], "uid": "uid-of-another", "generation": 1, "creationTimestamp": created}
    world.bodies["room"] = {**{name: value for name, value in old.items() if name != "status"}, "metadata": metadata}
    world.rig.clock.advance(61)
    await world.controller.look()
    await world.controller.look()
    assert "status" not in world.bodies["room"]
    world.controller.gone(NodeReservation, old)
    world.controller.seen(NodeReservation, world.bodies["room"])
    for _ in range(3):
        await world.later()
    assert world.phase() == "Reserved"
