"""The scheduling queue: pods that are added, fail, change or leave in every place, and changes of profiles.

``test_queue_against_model.py`` compares places and counts after random steps, and these tests
what the model leaves out.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler_core.framework.cluster_events import (
    FORCE_ACTIVATE,
    NODE_ADD,
    NODE_DELETE,
    ClusterEvent,
    EventRegistration,
    Hint,
)
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.queue_world import COLUMNS, GATED, LABELLED, NAME, OTHER, WEB, QueueWorld, by_priority, queue_with
from tests.support.tables import table


def test_a_pod_that_is_added_twice_is_updated() -> None:
    """A second addition of a pod is an update."""
    world = queue_with(WEB, pod("web", labels={"a": "b"}))
    assert world.pop().info.pod.metadata.labels == {"a": "b"}
    assert world.queue.pop() is None


def test_a_nomination_that_is_written_after_the_removal_of_its_pod_is_dropped() -> None:
    """A pod that is deleted while it is being bound leaves nothing behind when its attempt ends."""
    world = queue_with(WEB)
    queued = world.pop()
    world.queue.remove(queued.uid)
    world.queue.nominator.written(queued.uid, "n0")
    world.queue.done(queued.uid)
    assert not world.queue.nominator.is_unseen(queued.uid)


@pytest.mark.parametrize("end", ["done", "removed", "scheduled"])
def test_a_pod_that_left_delays_no_pod_that_is_given_up(end: str) -> None:
    """The backoff of a pod that is given up grows with such pods in the queue, not with those that have left it."""
    world = queue_with(WEB, OTHER)
    first, second = world.pop(), world.pop()
    world.queue.failed(first, 100_000)
    if end == "removed":
        world.queue.remove(first.uid)
    else:
        world.queue.activate([first.uid])
        popped = world.pop()
        assert popped is first
        world.queue.scheduled(popped) if end == "scheduled" else world.queue.done(popped.uid)
    world.queue.failed(second, 100_000)
    assert second.minimum_backoff == 4.0


def _raise(_pod: Pod, _old: object | None, _new: object | None) -> Hint:
    raise ValueError("no hint")


@table(
    "hint, by, event, place",
    ("queue", Hint.QUEUE, ["A"], NODE_ADD, "backoff"),
    ("skip", Hint.SKIP, ["A"], NODE_ADD, "unschedulable"),
    ("raises-is-queue", None, ["A"], NODE_ADD, "backoff"),
    ("not-registered", Hint.QUEUE, ["A"], LABELLED, "unschedulable"),
    ("one-of-two-returns-queue", Hint.SKIP, ["A", "B"], NODE_ADD, "backoff"),
    ("plugin-without-registrations", Hint.QUEUE, ["Gone"], NODE_ADD, "unschedulable"),
    ("wildcard-calls-no-hint", Hint.SKIP, ["A"], FORCE_ACTIVATE, "backoff"),
)
def test_hints(hint: Hint | None, by: list[str], event: ClusterEvent, place: str) -> None:
    """Only the plugins that rejected a pod are called, and only for events for which they registered."""
    world = queue_with(WEB, hint=_raise if hint is None else lambda _pod, _old, _new: hint)
    world.pop_and_fail(by)
    world.queue.on_event(event, None, None)
    assert world.place_of(WEB) == place


def test_hints_get_the_objects() -> None:
    """A hint is called with the pod and the event's object before and after the change."""
    calls: list[tuple[object, ...]] = []

    def hint(*objects: object) -> Hint:
        calls.append(objects)
        return Hint.SKIP

    world = queue_with(WEB, hint=hint)
    world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, "before", "after")
    assert calls == [(WEB, "before", "after")]


def test_an_update_of_a_pod_in_flight_is_stored() -> None:
    """An update of a pod is stored as an event only if that pod is in flight."""
    world = queue_with(WEB, OTHER)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(OTHER), [LABELLED], OTHER)
    assert world.queue.readings.in_flight_events() == {"PodPopped": 1}
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], WEB)
    assert world.queue.readings.in_flight_events() == {"TargetPodUpdatePodLabel": 1, "PodPopped": 1}
    world.fail(queued, ["LabelGate"])
    assert world.place_of(WEB) == "backoff"
    assert world.queue.readings.in_flight_events() == {}


def test_an_event_without_a_registration_is_not_stored() -> None:
    """An event for which no plugin registered is not stored, because it requeues no pod."""
    world = QueueWorld()
    del world.rules[NAME]
    world.rules[NAME] = QueueingRules((), {"A": (EventRegistration(NODE_ADD),)}, by_priority)
    world.queue.profile_changed(NAME)
    world.add(WEB)
    world.pop()
    world.queue.on_event(NODE_DELETE, None, None)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.queue.readings.in_flight_events() == {"NodeAdd": 1, "PodPopped": 1}


def test_unschedulable_pods_are_counted_by_plugin() -> None:
    """Waiting pods are counted by rejecting plugin; the counts of a withdrawn profile are removed."""
    world = queue_with(WEB, OTHER, pod("third"), pod("job", labels={"gated": ""}))
    world.pop_and_fail(["A", "B"])
    world.pop_and_fail(["A"])
    world.pop_and_fail(["A"])
    expected = {("A", NAME): 3, ("B", NAME): 1, ("LabelGate", NAME): 1}
    assert world.queue.readings.unschedulable_by == expected
    world.queue.activate([WEB.metadata.uid])
    assert world.queue.readings.unschedulable_by == expected
    world.pop()
    world.queue.remove(OTHER.metadata.uid)
    assert world.queue.readings.unschedulable_by == {("A", NAME): 1, ("B", NAME): 0, ("LabelGate", NAME): 1}
    world.remove_profile(NAME)
    assert world.queue.readings.unschedulable_by == {}


# -- changes in every place, and of profiles ---------------------------------------------------------------------------


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
