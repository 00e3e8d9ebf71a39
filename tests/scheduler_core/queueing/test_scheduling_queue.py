"""The scheduling queue: added, failed and requeued pods, with a virtual clock."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import (
    FORCE_ACTIVATE,
    NODE_ADD,
    NODE_DELETE,
    ClusterEvent,
    EventRegistration,
    Hint,
)
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from tests.support.builders import pod
from tests.support.queue_world import COLUMNS, LABELLED, NAME, OTHER, WEB, QueueWorld, by_priority, queue_with
from tests.support.tables import table

GATED_JOB = pod("job", labels={"gated": ""})


def test_pods_are_popped_by_priority_then_age() -> None:
    """Pods are popped by priority, and in the order in which they were added."""
    world = queue_with(WEB, OTHER, pod("vip", priority=9))
    assert [world.pop().info.pod.metadata.name for _ in range(3)] == ["vip", "web", "other"]
    assert world.queue.pop() is None


def test_a_pod_that_is_added_twice_is_updated() -> None:
    """A second addition of a pod is an update."""
    world = queue_with(WEB, pod("web", labels={"a": "b"}))
    assert world.pop().info.pod.metadata.labels == {"a": "b"}
    assert world.queue.pop() is None


def test_a_popped_pod_is_in_flight() -> None:
    """A popped pod is in flight until its attempt ends, and its attempts are counted."""
    world = queue_with(WEB)
    queued = world.pop()
    assert (world.place_of(WEB), queued.attempts, queued.first_attempt) == ("inFlight", 1, 1000.0)
    assert world.queue.is_in_flight(WEB.metadata.uid)
    world.queue.done(WEB.metadata.uid)
    assert world.place_of(WEB) == ""


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


@table(
    "by, pending, place",
    ("rejected", ["A"], [], "unschedulable"),
    ("pending", [], ["A"], "unschedulable"),
    ("error", [], [], "errorBackoff"),
)
def test_the_place_of_a_failed_pod(by: list[str], pending: list[str], place: str) -> None:
    """A failed pod waits for an event if a plugin rejected it, otherwise for its backoff."""
    world = queue_with(WEB)
    world.pop_and_fail(by, pending)
    assert world.place_of(WEB) == place


def test_a_requeued_pod_is_in_backoff() -> None:
    """A requeued pod is in backoff until the end of the second in which its backoff of one second has passed."""
    world = queue_with(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(1.9)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "backoff"
    world.clock.advance(0.09)
    assert world.place_of(WEB) == "backoff"
    world.clock.advance(0.02)
    assert world.place_of(WEB) == "active"


def test_a_pod_is_requeued_into_the_active_queue_after_its_backoff() -> None:
    """A pod whose backoff has passed is active when an event requeues it."""
    world = queue_with(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(2)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "active"


@table(
    "hint, place",
    ("event-of-the-pending-plugin", Hint.QUEUE, "active"),
    ("event-of-another-plugin", Hint.SKIP, "backoff"),
)
def test_pending_skips_backoff(hint: Hint, place: str) -> None:
    """A pod skips backoff only at an event of the plugin that returned Pending."""
    world = queue_with(WEB, hint=lambda _pod, _old, _new: hint)
    world.pop_and_fail(["B"], pending=["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == place


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


@table(
    "before, during, place",
    ("before-the-attempt", NODE_ADD, None, "unschedulable"),
    ("during-the-attempt", None, NODE_ADD, "backoff"),
    ("during-the-attempt-but-not-registered", None, LABELLED, "unschedulable"),
)
def test_events_while_in_flight(before: ClusterEvent | None, during: ClusterEvent | None, place: str) -> None:
    """An event that occurs during the attempt is not missed."""
    world = queue_with(OTHER, WEB)
    world.pop()
    if before is not None:
        world.queue.on_event(before, None, None)
    queued = world.pop()
    if during is not None:
        world.queue.on_event(during, None, None)
    world.fail(queued, ["A"])
    assert world.place_of(WEB) == place


def test_a_pending_pod_with_an_event_in_flight_is_active() -> None:
    """A pod with status Pending skips backoff after an event during its attempt."""
    world = queue_with(WEB)
    queued = world.pop()
    world.queue.on_event(NODE_ADD, None, None)
    world.fail(queued, pending=["A"])
    assert world.place_of(WEB) == "active"


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


def test_a_pod_that_fails_after_its_events_were_dropped_is_retried() -> None:
    """A pod without stored events stays in flight, and is retried after backoff when it fails."""
    world = queue_with(WEB, OTHER)
    queued = world.pop()
    world.queue.end_recording(WEB.metadata.uid)
    world.pop()
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], WEB)
    world.queue.activate([WEB.metadata.uid])
    assert (world.place_of(WEB), world.queue.readings.in_flight_events()) == ("inFlight", {"PodPopped": 1})
    world.fail(queued, ["A"])
    assert world.place_of(WEB) == "backoff"


def test_incoming_pods_are_counted() -> None:
    """Incoming pods are counted by the event that moved them and the queue that they entered."""
    world = queue_with(WEB, pod("gated", labels={"gated": ""}))
    world.queue.update(COLUMNS.compile_pod(OTHER))
    world.pop_and_fail(["A"])
    world.pop_and_fail()
    world.queue.on_event(NODE_ADD, None, None)
    world.queue.update(COLUMNS.compile_pod(pod("gated")), [LABELLED], pod("gated", labels={"gated": ""}))
    world.queue.activate([WEB.metadata.uid])
    assert world.queue.readings.incoming == {
        ("UnscheduledPodAdd", "active"): 2,
        ("UnscheduledPodAdd", "unschedulable"): 1,
        ("ScheduleAttemptFailure", "unschedulable"): 1,
        ("ScheduleAttemptFailure", "backoff"): 1,
        ("NodeAdd", "backoff"): 1,
        ("TargetPodUpdatePodLabel", "active"): 1,
        ("ForceActivate", "active"): 1,
    }


def test_unschedulable_pods_are_counted_by_plugin() -> None:
    """Waiting pods are counted by rejecting plugin; the counts of a withdrawn profile are removed."""
    world = queue_with(WEB, OTHER, pod("third"), GATED_JOB)
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


def test_places() -> None:
    """Every pod is listed with its place."""
    world = queue_with(WEB, OTHER, GATED_JOB, pod("parked", scheduler_name="none"))
    world.pop_and_fail(["A"])
    world.pop_and_fail()
    world.add(pod("flying"), pod("active"))
    world.pop()
    places = {queued.info.pod.metadata.name: place for place, queued in world.queue.readings.places()}
    assert places == {
        "web": "unschedulable",
        "other": "errorBackoff",
        "job": "gated",
        "parked": "parked",
        "flying": "inFlight",
        "active": "active",
    }
