"""The scheduling queue: updates, removals and changes of profiles in every place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.framework.queued_pod import QueuedPod
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.queue_world import COLUMNS, GATED, LABELLED, NAME, OTHER, WEB, QueueWorld, by_priority, queue_with
from tests.support.tables import table

PLACES = ["active", "backoff", "errorBackoff", "unschedulable", "gated", "parked", "inFlight"]


def move_to(world: QueueWorld, place: str) -> None:
    """Move the pod ``web`` to a place of the queue."""
    world.add(GATED if place == "gated" else WEB)
    if place in ("active", "gated"):
        return
    if place == "parked":
        world.remove_profile(NAME)
        return
    queued = world.pop()
    if place != "inFlight":
        world.fail(queued, () if place == "errorBackoff" else ["A"])
    if place == "backoff":
        world.queue.on_event(NODE_ADD, None, None)


@pytest.mark.parametrize("place", PLACES)
def test_an_update_applies_in_every_place(place: str) -> None:
    """An update without a relevant change replaces the pod and leaves it in its place."""
    world = QueueWorld()
    move_to(world, place)
    assert world.place_of(WEB) == place
    newer = pod("web", labels={"gated": ""} if place == "gated" else {"v": "2"})
    world.queue.update(COLUMNS.compile_pod(newer))
    queued = present(world.queue.find(WEB.metadata.uid))
    assert (world.place_of(WEB), queued.info.pod) == (place, newer)


@pytest.mark.parametrize("place", PLACES)
def test_a_pod_is_removed_from_every_place(place: str) -> None:
    """A removed pod has no nomination, and no event requeues it."""
    world = QueueWorld()
    move_to(world, place)
    world.queue.nominator.nominate(COLUMNS.compile_pod(WEB), "n0")
    removed = present(world.queue.remove(WEB.metadata.uid))
    assert (world.place_of(WEB), len(world.queue.nominator)) == ("", 0)
    if place == "inFlight":
        world.fail(removed, ["A"])
    world.clock.advance(100)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == ""
    assert world.queue.remove(WEB.metadata.uid) is None


def test_an_update_of_an_unknown_pod_adds_it() -> None:
    """An update of an unknown pod adds the pod."""
    world = QueueWorld()
    world.queue.update(COLUMNS.compile_pod(WEB))
    assert world.place_of(WEB) == "active"


def test_an_update_changes_the_order() -> None:
    """The sort key of an updated pod is recomputed."""
    world = queue_with(WEB, OTHER)
    world.queue.update(COLUMNS.compile_pod(pod("other", priority=5)))
    assert [world.pop().uid, world.pop().uid] == [OTHER.metadata.uid, WEB.metadata.uid]


@pytest.mark.parametrize("place", PLACES)
def test_a_withdrawn_profile_parks_its_pods(place: str) -> None:
    """Pods in any place are parked, pods in flight when they fail, and are queued when the profile is live again."""
    world = QueueWorld()
    move_to(world, place)
    queued = present(world.queue.find(WEB.metadata.uid))
    if NAME in world.rules:
        world.remove_profile(NAME)
    if place == "inFlight":
        assert world.place_of(WEB) == "inFlight"
        world.fail(queued, ["A"])
    assert world.place_of(WEB) == "parked"
    assert (len(world.queue.readings), world.queue.readings.parked_count, world.queue.readings.is_idle) == (0, 1, True)
    world.serve(NAME)
    assert world.place_of(WEB) == ("gated" if place == "gated" else "active")


def test_a_pod_of_an_unknown_profile_is_parked() -> None:
    """A pod of an unknown profile is parked until the profile is live."""
    world = QueueWorld()
    batch = pod("job", scheduler_name="batch")
    world.add(batch)
    assert world.place_of(batch) == "parked"
    world.serve("batch")
    assert world.place_of(batch) == "active"


@table(
    "place, after",
    ("unschedulable-is-retried", "unschedulable", "active"),
    ("gates-are-called-again", "gated", "gated"),
    ("backoff-continues", "backoff", "backoff"),
    ("error-backoff-continues", "errorBackoff", "errorBackoff"),
    ("active-stays", "active", "active"),
)
def test_a_replaced_profile_retries_its_pods(place: str, after: str) -> None:
    """Pods that the old profile revision rejected are active; pods of other profiles stay."""
    world = QueueWorld()
    world.serve("batch")
    move_to(world, place)
    world.add(pod("job", scheduler_name="batch", labels={"gated": ""}))
    world.serve(NAME)
    assert world.place_of(WEB) == after


def test_a_pod_in_flight_during_a_profile_change_is_retried() -> None:
    """A pod in flight that the old profile revision rejects is retried; pods of other profiles wait for events."""
    world = QueueWorld()
    world.serve("batch")
    job = pod("job", scheduler_name="batch")
    world.add(WEB, job)
    first, second = world.pop(), world.pop()
    world.serve(NAME)
    world.fail(first, ["Gone"])
    world.fail(second, ["A"])
    assert (world.place_of(WEB), world.place_of(job)) == ("backoff", "unschedulable")


def test_resort() -> None:
    """All sort keys are recomputed after a change of the QueueSort plugin."""
    world = queue_with(WEB, OTHER)
    world.sort_key = lambda queued: queued.info.pod.metadata.name
    world.queue.resort()
    assert [world.pop().uid, world.pop().uid] == [OTHER.metadata.uid, WEB.metadata.uid]


def test_a_sort_key_that_raises_delays_its_pod_only() -> None:
    """The sort key of a pod is computed again after a backoff, and other pods are popped before."""

    def key(queued: QueuedPod) -> Any:
        if queued.info.pod.metadata.name == "web" and world.clock.now() < 1003:
            raise ValueError("no key")
        return by_priority(queued)

    world = queue_with(WEB, OTHER, sort_key=key)
    assert (world.place_of(WEB), world.pop().uid) == ("errorBackoff", OTHER.metadata.uid)
    world.clock.advance(2)
    assert world.place_of(WEB) == "errorBackoff"
    world.clock.advance(3)
    assert world.place_of(WEB) == "active"


async def test_wait_ends_when_a_pod_can_be_popped() -> None:
    """The wait ends when a pod is added and when a backoff ends."""
    world = QueueWorld()
    assert world.queue.pop() is None
    waiting = asyncio.get_running_loop().create_task(world.queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.add(WEB)
    await waiting
    world.pop_and_fail()
    assert world.queue.pop() is None
    waiting = asyncio.get_running_loop().create_task(world.queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.clock.advance(2)
    await waiting


def test_counts() -> None:
    """Pods are counted by profile and place; pods in flight and parked pods do not count as waiting."""
    world = QueueWorld()
    world.serve("batch")
    world.add(*(pod(f"p{number}") for number in range(5)))
    world.add(pod("job", scheduler_name="batch"), pod("g", labels={"gated": ""}), pod("x", scheduler_name="none"))
    world.pop_and_fail(["A"])
    world.pop_and_fail()
    world.pop_and_fail(["B"])
    world.queue.on_event(LABELLED, None, None)
    world.pop()
    counts = world.queue.readings.counts()
    of_default = counts[NAME]
    assert (of_default.active, of_default.backoff, of_default.unschedulable, of_default.gated) == (1, 2, 1, 1)
    assert (of_default.pending, counts["batch"].pending) == (5, 1)
    assert len(world.queue.readings) == len(list(world.queue.readings)) == 6
    assert (world.queue.readings.in_flight_count, world.queue.readings.parked_count) == (1, 1)
    world.queue.close()
    assert world.clock.pending == 0
