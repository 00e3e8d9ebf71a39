"""The scheduling queue: updates, removals and changes of profiles in every place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler_core.framework.cluster_events import (
    NODE_ADD,
)
from scheduler_core.framework.queued_pod import QueuedPod
from tests.support.builders import pod
from tests.support.queue_world import COLUMNS, GATED, LABELLED, NAME, OTHER, WEB, QueueWorld, by_priority

PLACES = ["active", "backoff", "errorBackoff", "unschedulable", "gated", "parked", "inFlight"]


def put(world: QueueWorld, place: str) -> None:
    """Move the pod ``web`` to a place."""
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
def test_an_update_is_seen_in_every_place(place: str) -> None:
    """The pod is tried in its new version; an update without a relevant change moves it nowhere."""
    world = QueueWorld()
    put(world, place)
    assert world.place_of(WEB) == place
    newer = pod("web", labels={"gated": ""} if place == "gated" else {"v": "2"})
    world.queue.update(COLUMNS.compile_pod(newer))
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place_of(WEB), queued.info.pod) == (place, newer)
    world.queue.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_pod_is_removed_from_every_place(place: str) -> None:
    """Its nomination is dropped, and nothing requeues it."""
    world = QueueWorld()
    put(world, place)
    world.queue.nominator.nominate(COLUMNS.compile_pod(WEB), "n0")
    removed = world.queue.remove(WEB.metadata.uid)
    assert removed is not None
    assert (world.place_of(WEB), len(world.queue.nominator)) == ("", 0)
    if place == "inFlight":
        world.fail(removed, ["A"])
    world.clock.advance(100)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == ""
    assert world.queue.remove(WEB.metadata.uid) is None


def test_an_update_of_an_unknown_pod_is_its_coming() -> None:
    """An unknown pod is added."""
    world = QueueWorld()
    world.queue.update(COLUMNS.compile_pod(WEB))
    assert world.place_of(WEB) == "active"


def test_an_updated_pod_takes_its_new_place_in_the_order() -> None:
    """Its key is computed again."""
    world = QueueWorld()
    world.add(WEB, OTHER)
    world.queue.update(COLUMNS.compile_pod(pod("other", priority=5)))
    assert [world.pop().uid, world.pop().uid] == [OTHER.metadata.uid, WEB.metadata.uid]


@pytest.mark.parametrize("place", PLACES)
def test_a_withdrawn_profile_parks_its_pods(place: str) -> None:
    """In any place, those in flight when they fail; they are retried when the profile is live again."""
    world = QueueWorld()
    put(world, place)
    flying = world.queue.find(WEB.metadata.uid)
    assert flying is not None
    if NAME in world.rules:
        world.remove_profile(NAME)
    if place == "inFlight":
        assert world.place_of(WEB) == "inFlight"
        world.fail(flying, ["A"])
    assert world.place_of(WEB) == "parked"
    assert (len(world.queue.readings), world.queue.readings.parked_count, world.queue.readings.is_idle) == (0, 1, True)
    world.serve(NAME)
    assert world.place_of(WEB) == ("gated" if place == "gated" else "active")


def test_a_pod_of_an_unknown_profile_is_parked() -> None:
    """It waits for the profile, not for nodes."""
    world = QueueWorld()
    batch = pod("job", scheduler_name="batch")
    world.add(batch)
    assert world.place_of(batch) == "parked"
    world.serve("batch")
    assert world.place_of(batch) == "active"


@pytest.mark.parametrize(
    ("place", "after"),
    [
        pytest.param("unschedulable", "active", id="unschedulable-is-retried"),
        pytest.param("gated", "gated", id="gates-are-asked-again"),
        pytest.param("backoff", "backoff", id="backoff-runs-on"),
        pytest.param("errorBackoff", "errorBackoff", id="error-backoff-runs-on"),
        pytest.param("active", "active", id="active-stays"),
    ],
)
def test_a_replaced_profile_retries_its_pods(place: str, after: str) -> None:
    """Rejections by the old plugins do not count any more; other profiles' pods stay."""
    world = QueueWorld()
    world.serve("batch")
    put(world, place)
    world.add(pod("job", scheduler_name="batch", labels={"gated": ""}))
    world.serve(NAME)
    assert world.place_of(WEB) == after
    world.queue.close()


def test_a_pod_in_flight_over_a_swap_is_retried() -> None:
    """Plugins that reject it then are not live any more, so no event would requeue it; other profiles' pods wait."""
    world = QueueWorld()
    world.serve("batch")
    job = pod("job", scheduler_name="batch")
    world.add(WEB, job)
    first, second = world.pop(), world.pop()
    world.serve(NAME)
    world.fail(first, ["Gone"])
    world.fail(second, ["A"])
    assert (world.place_of(WEB), world.place_of(job)) == ("backoff", "unschedulable")
    world.queue.close()


def test_resort() -> None:
    """Keys of another QueueSort plugin may not be comparable with the old ones."""
    world = QueueWorld()
    world.add(WEB, OTHER)
    world.sort_key = lambda queued: queued.info.pod.metadata.name
    world.queue.resort()
    assert [world.pop().uid, world.pop().uid] == [OTHER.metadata.uid, WEB.metadata.uid]


def test_a_sort_key_that_raises_delays_its_pod_only() -> None:
    """It is called again after a backoff, and other pods go first."""

    def key(queued: QueuedPod) -> Any:
        if queued.info.pod.metadata.name == "web" and world.clock.now() < 1003:
            raise ValueError("no key")
        return by_priority(queued)

    world = QueueWorld(sort_key=key)
    world.add(WEB, OTHER)
    assert (world.place_of(WEB), world.pop().uid) == ("errorBackoff", OTHER.metadata.uid)
    world.clock.advance(2)
    assert world.place_of(WEB) == "errorBackoff"
    world.clock.advance(3)
    assert world.place_of(WEB) == "active"


async def test_wait_ends_when_something_can_be_tried() -> None:
    """By an added pod, by the end of a backoff, or by a requeued pod."""
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
    """By profile and place; pods in flight and parked ones do not count as waiting."""
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
