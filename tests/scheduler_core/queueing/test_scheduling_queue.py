"""The scheduling queue: added, failed and requeued pods, on virtual time."""

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
from scheduler_core.queueing.gates_and_hints import QueueingRules
from tests.support.builders import pod
from tests.support.queue_world import COLUMNS, LABELLED, NAME, OTHER, WEB, QueueWorld, by_priority

GATED_JOB = pod("job", labels={"gated": ""})


def test_first_come_first_served() -> None:
    """Pods of equal priority are in order of arrival; higher priority goes first."""
    world = QueueWorld()
    world.add(WEB, OTHER, pod("vip", priority=9))
    assert [world.pop().info.pod.metadata.name for _ in range(3)] == ["vip", "web", "other"]
    assert world.queue.pop() is None


def test_a_pod_that_comes_twice_is_one_pod() -> None:
    """The second time is an update."""
    world = QueueWorld()
    world.add(WEB, pod("web", labels={"a": "b"}))
    assert world.pop().info.pod.metadata.labels == {"a": "b"}
    assert world.queue.pop() is None


def test_a_popped_pod_is_in_flight() -> None:
    """Until its attempt ends; the attempt is counted and the last rejection is cleared."""
    world = QueueWorld()
    world.add(WEB)
    queued = world.pop()
    assert (world.place_of(WEB), queued.attempts, queued.first_attempt) == ("inFlight", 1, 1000.0)
    assert world.queue.is_in_flight(WEB.metadata.uid)
    world.queue.done(WEB.metadata.uid)
    assert world.place_of(WEB) == ""


@pytest.mark.parametrize(
    ("by", "pending", "place"),
    [
        pytest.param(["A"], [], "unschedulable", id="rejected"),
        pytest.param([], ["A"], "unschedulable", id="pending"),
        pytest.param([], [], "errorBackoff", id="error"),
    ],
)
def test_where_a_failed_pod_waits(by: list[str], pending: list[str], place: str) -> None:
    """For an event if a plugin rejected it, otherwise for its backoff."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(by, pending)
    assert world.place_of(WEB) == place


def test_a_rejected_pod_that_is_woken_backs_off() -> None:
    """To the end of the second in which one second has passed since the failure."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(0.4)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "backoff"
    world.clock.advance(1.59)
    assert world.place_of(WEB) == "backoff"
    world.clock.advance(0.02)
    assert world.place_of(WEB) == "active"


def test_a_pod_whose_backoff_has_passed_is_woken_into_the_active_queue() -> None:
    """Its backoff has passed already."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(2)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "active"


def test_pending_skips_backoff() -> None:
    """The plugin that returned Pending knows when to continue."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["B"], pending=["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "active"


def test_another_plugins_event_does_not_skip_the_backoff_of_a_pending_pod() -> None:
    """Only the plugin that returned Pending lets it skip."""
    world = QueueWorld(hint=lambda _pod, _old, _new: Hint.SKIP)
    world.add(WEB)
    world.pop_and_fail(["B"], pending=["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "backoff"
    world.queue.close()


def _raise(_pod: Pod, _old: object | None, _new: object | None) -> Hint:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("hint", "by", "event", "place"),
    [
        pytest.param(Hint.QUEUE, ["A"], NODE_ADD, "backoff", id="queue"),
        pytest.param(Hint.SKIP, ["A"], NODE_ADD, "unschedulable", id="skip"),
        pytest.param(None, ["A"], NODE_ADD, "backoff", id="raises-is-queue"),
        pytest.param(Hint.QUEUE, ["A"], LABELLED, "unschedulable", id="not-registered"),
        pytest.param(Hint.SKIP, ["A", "B"], NODE_ADD, "backoff", id="one-of-two-agrees"),
        pytest.param(Hint.QUEUE, ["Gone"], NODE_ADD, "unschedulable", id="nobody-asks-for-it"),
        pytest.param(Hint.SKIP, ["A"], FORCE_ACTIVATE, "backoff", id="wildcard-asks-nobody"),
    ],
)
def test_hints(hint: Hint | None, by: list[str], event: ClusterEvent, place: str) -> None:
    """Only the plugins that rejected a pod are called, and only for events for which they registered."""
    world = QueueWorld(hint=_raise if hint is None else lambda _pod, _old, _new: hint)
    world.add(WEB)
    world.pop_and_fail(by)
    world.queue.on_event(event, None, None)
    assert world.place_of(WEB) == place
    world.queue.close()


def test_hints_see_the_objects() -> None:
    """The pod, and the object of the event before and after."""
    seen: list[tuple[object, ...]] = []

    def hint(*objects: object) -> Hint:
        seen.append(objects)
        return Hint.SKIP

    world = QueueWorld(hint=hint)
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, "before", "after")
    assert seen == [(WEB, "before", "after")]


@pytest.mark.parametrize(
    ("before", "during", "place"),
    [
        pytest.param(NODE_ADD, None, "unschedulable", id="earlier-does-not-count"),
        pytest.param(None, NODE_ADD, "backoff", id="meanwhile-counts"),
        pytest.param(None, LABELLED, "unschedulable", id="meanwhile-but-of-no-interest"),
    ],
)
def test_events_while_in_flight(before: ClusterEvent | None, during: ClusterEvent | None, place: str) -> None:
    """An event that occurs during the attempt is not missed."""
    world = QueueWorld()
    world.add(OTHER, WEB)
    world.pop()
    if before is not None:
        world.queue.on_event(before, None, None)
    queued = world.pop()
    if during is not None:
        world.queue.on_event(during, None, None)
    world.fail(queued, ["A"])
    assert world.place_of(WEB) == place
    world.queue.close()


def test_a_pending_pod_that_was_helped_in_flight_is_active_at_once() -> None:
    """Pending skips backoff there, too."""
    world = QueueWorld()
    world.add(WEB)
    queued = world.pop()
    world.queue.on_event(NODE_ADD, None, None)
    world.fail(queued, pending=["A"])
    assert world.place_of(WEB) == "active"


def test_an_update_of_a_pod_in_flight_is_kept_for_it() -> None:
    """It is not recorded if no attempt of that pod is in flight, even if others are."""
    world = QueueWorld()
    world.add(WEB, OTHER)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(OTHER), [LABELLED], OTHER)
    assert world.queue.readings.in_flight_events() == {"PodPopped": 1}
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], WEB)
    assert world.queue.readings.in_flight_events() == {"TargetPodUpdatePodLabel": 1, "PodPopped": 1}
    world.fail(queued, ["LabelGate"])
    assert world.place_of(WEB) == "backoff"
    assert world.queue.readings.in_flight_events() == {}
    world.queue.close()


def test_an_event_without_a_registration_is_not_recorded() -> None:
    """It could requeue no pod."""
    world = QueueWorld()
    del world.rules[NAME]
    world.rules[NAME] = QueueingRules((), {"A": (EventRegistration(NODE_ADD),)}, by_priority)
    world.queue.profile_changed(NAME)
    world.add(WEB)
    world.pop()
    world.queue.on_event(NODE_DELETE, None, None)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.queue.readings.in_flight_events() == {"NodeAdd": 1, "PodPopped": 1}


def test_a_pod_that_fails_after_its_recording_ended_is_retried() -> None:
    """Its missed events are unknown; meanwhile nothing is recorded for it, and it is still in flight."""
    world = QueueWorld()
    world.add(WEB, OTHER)
    queued = world.pop()
    world.queue.end_recording(WEB.metadata.uid)
    world.pop()
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], WEB)
    world.queue.activate([WEB.metadata.uid])
    assert (world.place_of(WEB), world.queue.readings.in_flight_events()) == ("inFlight", {"PodPopped": 1})
    world.fail(queued, ["A"])
    assert world.place_of(WEB) == "backoff"
    world.queue.close()


def test_incoming_pods_are_counted() -> None:
    """By the event that moved them and the queue that they entered."""
    world = QueueWorld()
    world.add(WEB, pod("gated", labels={"gated": ""}))
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
    world.queue.close()


def test_unschedulable_pods_are_counted_by_plugin() -> None:
    """Only while they wait; nothing remains of a withdrawn profile."""
    world = QueueWorld()
    world.add(WEB, OTHER, pod("third"), GATED_JOB)
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
    world = QueueWorld()
    world.add(WEB, OTHER, GATED_JOB, pod("parked", scheduler_name="none"))
    world.pop_and_fail(["A"])
    world.pop_and_fail()
    world.add(pod("flying"), pod("active"))
    world.pop()
    shown = {queued.info.pod.metadata.name: place for place, queued in world.queue.readings.places()}
    assert shown == {
        "web": "unschedulable",
        "other": "errorBackoff",
        "job": "gated",
        "parked": "parked",
        "flying": "inFlight",
        "active": "active",
    }
    world.queue.close()
