"""The scheduling queue: backoff, flush, activation and gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler_core.framework.cluster_events import NODE_ADD, EventRegistration, Hint
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Timer
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.queue_world import COLUMNS, GATED, LABELLED, NAME, OTHER, WEB, QueueWorld, queue_with
from tests.support.tables import table


@pytest.mark.parametrize("cause", ["event", "profile"])
def test_a_move_that_raises_at_once_loses_no_pod(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose move raises before it begins waits for its backoff, and the other pods are moved."""
    world = queue_with(WEB, OTHER)
    world.pop_and_fail(["A"])
    world.pop_and_fail(["A"])
    moves, faults = world.queue._moves, [RuntimeError("no memory")]
    method = "requeue" if cause == "event" else "enter"
    unbroken = getattr(moves, method)

    def broken(*args: object) -> None:
        if faults:
            raise faults.pop()
        unbroken(*args)

    monkeypatch.setattr(moves, method, broken)
    if cause == "event":
        world.queue.on_event(NODE_ADD, None, None)
    else:
        world.serve(NAME)
    assert {world.place_of(each) for each in (WEB, OTHER)} <= {"active", "backoff", "errorBackoff"}
    world.clock.advance(20)
    assert {world.pop().uid, world.pop().uid} == {WEB.metadata.uid, OTHER.metadata.uid}


def test_errors_have_their_own_backoff() -> None:
    """Earlier rejections do not lengthen an error's backoff, and a rejection resets the count of errors."""
    world = queue_with(WEB)
    for _ in range(3):
        world.pop_and_fail(["A"])
        world.clock.advance(100)
        world.queue.on_event(NODE_ADD, None, None)
    queued = world.pop_and_fail()
    assert (queued.error_count, queued.backoff_until - world.clock.now()) == (1, 2)
    world.clock.advance(2)
    queued = world.pop_and_fail()
    assert (queued.error_count, queued.backoff_until - world.clock.now()) == (2, 3)
    world.clock.advance(3)
    assert world.pop_and_fail(["A"]).error_count == 0


def test_a_pod_in_error_backoff_is_not_popped_early() -> None:
    """A pod in error backoff is not popped early, so that an unavailable API server is not overloaded."""
    world = queue_with(WEB)
    world.pop_and_fail()
    assert world.queue.pop() is None
    assert world.queue.readings.is_idle
    world.clock.advance(2)
    assert world.pop().uid == WEB.metadata.uid


def test_a_pod_whose_parking_raises_is_parked_without_its_nomination(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parked pod is not nominated, because no attempt would end its nomination."""
    world = queue_with(WEB)
    world.queue.nominator.nominate(COLUMNS.compile_pod(WEB), "n")
    faults = [RuntimeError("no memory")]
    unbroken = world.queue._moves.park

    def broken(pod: QueuedPod) -> None:
        if faults:
            raise faults.pop()
        unbroken(pod)

    monkeypatch.setattr(world.queue._moves, "park", broken)
    del world.rules[NAME]
    world.queue.profile_changed(NAME)
    assert not faults
    assert (world.place_of(WEB), world.queue.nominator.node_of(WEB.metadata.uid)) == ("parked", "")


def test_backoffs_end_although_their_timer_could_not_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is set to an earlier time, and that raises once: both pods are tried again."""
    world = queue_with(WEB)
    for _ in range(3):
        world.pop_and_fail()
        world.clock.advance(20)
    world.pop_and_fail()
    world.add(OTHER)
    unbroken, faults = world.clock.call_later, [MemoryError()]

    def broken(seconds: float, callback: Callable[[], None]) -> Timer:
        if faults:
            raise faults.pop()
        return unbroken(seconds, callback)

    monkeypatch.setattr(world.clock, "call_later", broken)
    world.pop_and_fail()
    assert not faults
    world.queue.flush()
    world.clock.advance(60)
    assert {world.pop().uid, world.pop().uid} == {WEB.metadata.uid, OTHER.metadata.uid}


@table(
    "seconds_between, first", ("same-second-by-priority", 0.2, "vip"), ("other-second-by-end-of-backoff", 1.2, "web")
)
def test_an_idle_scheduler_pops_from_the_backoff_queue(seconds_between: float, first: str) -> None:
    """Pods in backoff are popped in the order of the second in which the backoff ends, then of priority."""
    world = queue_with(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(seconds_between)
    world.add(pod("vip", priority=9))
    world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert not world.queue.readings.is_idle
    popped = [world.pop().info.pod.metadata.name for _ in range(2)]
    assert popped == [first, "web" if first == "vip" else "vip"]
    assert world.queue.readings.incoming["PopFromBackoffQ", "active"] == 2


def test_no_backoff() -> None:
    """A maximum backoff of 0 seconds disables backoff."""
    world = queue_with(WEB, max_backoff=0.0)
    world.pop_and_fail()
    assert world.place_of(WEB) == "active"


def test_flush() -> None:
    """A pod is retried after more than five minutes without an event, and its bind is counted."""
    world = queue_with(WEB, hint=lambda _pod, _old, _new: Hint.SKIP)
    world.pop_and_fail(["A"])
    world.clock.advance(300)
    world.queue.flush()
    assert world.place_of(WEB) == "unschedulable"
    world.clock.advance(0.1)
    world.queue.flush()
    assert world.place_of(WEB) == "active"
    assert world.queue.readings.incoming["UnschedulableTimeout", "active"] == 1
    world.queue.scheduled(world.pop())
    assert world.queue.scheduled_after_flush == 1


def test_a_flush_checks_every_gate_again() -> None:
    """A flush calls the gates, whose plugins may not have registered for the change that opened them."""
    world = queue_with(GATED)
    queued = present(world.queue.find(WEB.metadata.uid))
    world.clock.advance(301)
    world.queue.flush()
    assert (world.place_of(WEB), queued.was_flushed) == ("gated", False)
    queued.info = COLUMNS.compile_pod(WEB)
    world.clock.advance(200)
    world.queue.flush()
    assert world.place_of(WEB) == "gated"
    world.clock.advance(101)
    world.queue.flush()
    assert world.place_of(WEB) == "active"


@table("now, place", ("closed", GATED, "gated"), ("open", WEB, "active"))
def test_activate_calls_the_gates(now: Pod, place: str) -> None:
    """A gated pod is activated only if its gate is open."""
    world = queue_with(GATED)
    queued = present(world.queue.find(WEB.metadata.uid))
    queued.info = COLUMNS.compile_pod(now)
    world.queue.activate([GATED.metadata.uid])
    assert world.place_of(WEB) == place


def test_activate_calls_no_gates_for_a_pod_in_backoff() -> None:
    """A pod in backoff is activated without a call of the gates, which it has passed."""
    world = queue_with(WEB)
    queued = world.pop_and_fail()
    queued.info = COLUMNS.compile_pod(GATED)
    world.queue.activate([WEB.metadata.uid])
    assert world.place_of(WEB) == "active"


def test_a_pod_activated_in_flight_is_retried() -> None:
    """A pod that is activated in flight is retried when it fails; other pods are not."""
    world = queue_with(WEB, OTHER)
    first, second = world.pop(), world.pop()
    world.queue.activate([WEB.metadata.uid])
    world.fail(first, ["A"])
    world.fail(second, ["A"])
    assert (world.place_of(WEB), world.place_of(OTHER)) == ("backoff", "unschedulable")


def test_a_gated_pod_waits_for_its_gate() -> None:
    """A gated pod is not popped, and the gate's reasons are stored."""
    world = queue_with(GATED)
    queued = present(world.queue.find(GATED.metadata.uid))
    assert (world.place_of(GATED), queued.gated_by, queued.gate_reasons) == ("gated", "LabelGate", ("labelled",))
    assert world.queue.pop() is None


def assert_opened_by_label_event(world: QueueWorld, queued: QueuedPod, corrected: Pod, place: str) -> None:
    """Remove the gate's label without an event; assert that only the label event moves the pod to a place."""
    assert world.place_of(corrected) == "gated"
    queued.info = COLUMNS.compile_pod(corrected)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(corrected) == "gated"
    world.queue.on_event(LABELLED, None, None)
    assert world.place_of(corrected) == place


def test_only_a_registered_event_calls_the_gate() -> None:
    """The gate of a gated pod is called at events for which its plugin registered, and at no others."""
    world = queue_with(GATED)
    queued = present(world.queue.find(GATED.metadata.uid))
    assert_opened_by_label_event(world, queued, WEB, "active")


def test_an_event_of_a_rejecting_plugin_does_not_call_the_gate() -> None:
    """An event that only a rejecting plugin registered does not requeue a gated pod."""
    world = queue_with(WEB)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(GATED), [LABELLED], WEB)
    world.queue.on_event(NODE_ADD, None, None)
    world.fail(queued, ["A"])
    assert_opened_by_label_event(world, queued, WEB, "backoff")


def test_a_gate_is_called_at_events_that_it_registered_in_another_profile() -> None:
    """Registrations of the gate in another profile count if a rejecting plugin registered too, as in kube-scheduler."""
    world = QueueWorld()
    world.serve("two")
    registrations = {"A": (EventRegistration(NODE_ADD), EventRegistration(LABELLED))}
    world.rules["two"] = replace(world.rules["two"], registrations=registrations, _by_event={})
    world.queue.profile_changed("two")
    waiting = pod("web", scheduler_name="two")
    world.add(waiting)
    queued = world.pop()
    gated = pod("web", scheduler_name="two", labels={"gated": ""})
    world.queue.update(COLUMNS.compile_pod(gated), [LABELLED], waiting)
    world.fail(queued, ["A"])
    assert_opened_by_label_event(world, queued, waiting, "backoff")


def test_a_gated_pod_keeps_its_timestamp() -> None:
    """Pods of equal priority are ordered by when they were added, not by when their gates opened."""
    world = queue_with(GATED)
    world.clock.advance(5)
    world.add(OTHER)
    world.clock.advance(5)
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], GATED)
    queued = world.pop()
    assert (queued.uid, queued.timestamp, queued.first_attempt) == (WEB.metadata.uid, 1000.0, 1010.0)


def test_an_event_that_excludes_pods() -> None:
    """An event does not requeue the pod of an excluded UID and pods above a maximum priority."""
    world = queue_with(WEB, OTHER, pod("vip", priority=9))
    for _ in range(3):
        world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, None, None, exclude=OTHER.metadata.uid, max_priority=8)
    assert {queued.info.pod.metadata.name for name, queued in world.queue.readings.places() if name == "backoff"} == {
        "web"
    }


@pytest.mark.parametrize("step", ["clear_rejections", "begin_attempt"])
def test_a_pop_that_raises_leaves_no_pod_in_flight(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose attempt could not begin waits for its backoff, whichever step raised, also after the last one."""
    world = queue_with(WEB)
    world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, None, None)
    world.clock.advance(20)
    places, faults = world.queue._places, [RuntimeError("no memory")]
    unbroken = getattr(places, step)

    def broken(queued: QueuedPod) -> None:
        unbroken(queued)
        if faults:
            raise faults.pop()

    monkeypatch.setattr(places, step, broken)
    assert world.queue.pop() is None
    assert world.place_of(WEB) == "errorBackoff"
    world.clock.advance(20)
    assert world.pop().uid == WEB.metadata.uid
