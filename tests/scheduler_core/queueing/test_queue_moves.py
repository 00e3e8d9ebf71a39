"""The scheduling queue: backoff, flush, activation and gates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler_core.framework.cluster_events import (
    NODE_ADD,
    ClusterEvent,
    EventRegistration,
    Hint,
)
from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.queue_world import COLUMNS, GATED, LABELLED, OTHER, WEB, QueueWorld


def test_backoff_doubles_up_to_the_longest() -> None:
    """1, 2, 4, 8, 10, 10 seconds, rounded up to the end of the second."""
    world = QueueWorld()
    world.add(WEB)
    waits: list[float] = []
    for _ in range(6):
        queued = world.pop_and_fail(["A"])
        world.queue.on_event(NODE_ADD, None, None)
        waits.append(queued.backoff_until - world.clock.now())
        world.clock.advance(20)
    assert waits == [2, 3, 5, 9, 11, 11]


def test_errors_back_off_apart() -> None:
    """Earlier rejections do not lengthen an error's backoff, and a rejection resets the count of errors."""
    world = QueueWorld()
    world.add(WEB)
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


def test_an_error_in_backoff_is_not_tried_early() -> None:
    """The scheduler idles rather than overload an unavailable API server."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail()
    assert world.queue.pop() is None
    assert world.queue.readings.is_idle
    world.clock.advance(2)
    assert world.pop().uid == WEB.metadata.uid


@pytest.mark.parametrize(
    ("seconds_between", "first"),
    [
        pytest.param(0.2, "vip", id="within-a-second-priority-decides"),
        pytest.param(1.2, "web", id="else-the-backoff-that-ends-first"),
    ],
)
def test_an_idle_scheduler_tries_the_next_of_the_backoff_early(seconds_between: float, first: str) -> None:
    """Ordered by the second in which the backoff ends, and then as in the active queue."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(seconds_between)
    world.add(pod("vip", priority=9))
    world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert not world.queue.readings.is_idle
    popped = [world.pop().info.pod.metadata.name for _ in range(2)]
    assert popped == [first, "web" if first == "vip" else "vip"]
    assert world.queue.readings.incoming["PopFromBackoffQ", "active"] == 2
    world.queue.close()


@pytest.mark.parametrize(
    ("failed_at", "until"),
    [
        pytest.param(1000.0, 1002, id="on-the-second"),
        pytest.param(1000.4, 1002, id="between-two"),
        pytest.param(1000.999, 1002, id="just-before"),
        pytest.param(1001.1, 1003, id="after"),
    ],
)
def test_backoffs_end_on_whole_seconds(failed_at: float, until: int) -> None:
    """Rounded up to the second, so that priority decides among all pods that wait until then."""
    world = QueueWorld()
    world.add(WEB)
    world.clock.advance(failed_at - world.clock.now())
    world.pop_and_fail()
    world.clock.advance(until - world.clock.now() - 0.01)
    assert world.place_of(WEB) == "errorBackoff"
    world.clock.advance(0.02)
    assert world.place_of(WEB) == "active"
    assert world.queue.readings.incoming["BackoffComplete", "active"] == 1


def test_a_pod_is_woken_into_the_backoff_during_its_last_second() -> None:
    """Its seconds have passed, but the window in which they end has not."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(1.9)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "backoff"
    world.clock.advance(0.2)
    assert world.place_of(WEB) == "active"


def test_no_backoff() -> None:
    """A maximum backoff of 0 seconds turns it off."""
    world = QueueWorld(max_backoff=0.0)
    world.add(WEB)
    world.pop_and_fail()
    assert world.place_of(WEB) == "active"


def test_an_error_that_met_a_gate_backs_off_among_the_rejected() -> None:
    """A rejected pod waits for more than the API server, so it may be tried early."""
    world = QueueWorld()
    world.add(WEB)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(GATED), [LABELLED], WEB)
    world.fail(queued)
    assert world.place_of(WEB) == "gated"
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], GATED)
    assert world.place_of(WEB) == "backoff"
    world.queue.close()


def test_flush() -> None:
    """After more than five minutes a pod is retried without an event; if it is then bound, that is counted."""
    world = QueueWorld(hint=lambda _pod, _old, _new: Hint.SKIP)
    world.add(WEB)
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


def test_a_pod_that_failed_after_a_flush_is_not_counted_later() -> None:
    """Another event causes its next attempt."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(301)
    world.queue.flush()
    world.pop_and_fail()
    world.queue.activate([WEB.metadata.uid])
    world.queue.scheduled(world.pop())
    assert world.queue.scheduled_after_flush == 0


def test_a_flush_checks_every_gate_again() -> None:
    """A gate opens even if its plugin has not registered for the change that opened it."""
    world = QueueWorld()
    world.add(GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
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


def test_a_flush_reaches_those_in_flight() -> None:
    """It is an event for all pods."""
    world = QueueWorld()
    world.add(WEB)
    world.pop_and_fail(["A"])
    world.clock.advance(301)
    world.add(OTHER)
    queued = world.pop()
    world.queue.flush()
    world.fail(queued, ["A"])
    assert world.place_of(OTHER) == "backoff"
    world.queue.close()


@pytest.mark.parametrize(
    ("by", "event"),
    [
        pytest.param(["A"], None, id="unschedulable"),
        pytest.param(["A"], NODE_ADD, id="backoff"),
        pytest.param([], None, id="error-backoff"),
    ],
)
def test_activate(by: list[str], event: ClusterEvent | None) -> None:
    """From wherever it waits; other pods stay."""
    world = QueueWorld()
    world.add(WEB, OTHER)
    for _ in range(2):
        world.pop_and_fail(by)
    if event is not None:
        world.queue.on_event(event, None, None)
    before = world.place_of(OTHER)
    world.queue.activate([WEB.metadata.uid, "nobody"])
    assert (world.place_of(WEB), world.place_of(OTHER)) == ("active", before)
    world.queue.close()


@pytest.mark.parametrize(
    ("now", "place"), [pytest.param(GATED, "gated", id="closed"), pytest.param(WEB, "active", id="open")]
)
def test_activate_asks_the_gates(now: Pod, place: str) -> None:
    """A preemptor is activated when its evictions are issued, which opens its gate."""
    world = QueueWorld()
    world.add(GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    queued.info = COLUMNS.compile_pod(now)
    world.queue.activate([GATED.metadata.uid])
    assert world.place_of(WEB) == place


def test_activate_asks_no_gate_of_a_pod_that_backs_off() -> None:
    """It has passed them before."""
    world = QueueWorld()
    world.add(WEB)
    queued = world.pop_and_fail()
    queued.info = COLUMNS.compile_pod(GATED)
    world.queue.activate([WEB.metadata.uid])
    assert world.place_of(WEB) == "active"
    world.queue.close()


def test_a_pod_activated_in_flight_comes_back_to_be_tried() -> None:
    """Only this one: others that failed meanwhile keep waiting."""
    world = QueueWorld()
    world.add(WEB, OTHER)
    first, second = world.pop(), world.pop()
    world.queue.activate([WEB.metadata.uid])
    world.fail(first, ["A"])
    world.fail(second, ["A"])
    assert (world.place_of(WEB), world.place_of(OTHER)) == ("backoff", "unschedulable")
    world.queue.close()


def test_a_gated_pod_waits_for_its_gate() -> None:
    """The gate's reasons are stored for status."""
    world = QueueWorld()
    world.add(GATED)
    queued = world.queue.find(GATED.metadata.uid)
    assert queued is not None
    assert (world.place_of(GATED), queued.gated_by, queued.gate_reasons) == ("gated", "LabelGate", ("labelled",))
    assert world.queue.pop() is None


def test_an_update_opens_the_gate() -> None:
    """The pod is active at once: it never failed."""
    world = QueueWorld()
    world.add(GATED)
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place_of(WEB), queued.gated_by) == ("active", "")


def test_an_update_that_opens_no_gate() -> None:
    """The pod stays gated, in its new version."""
    world = QueueWorld()
    world.add(GATED)
    newer = pod("web", labels={"gated": "", "more": ""})
    world.queue.update(COLUMNS.compile_pod(newer), [LABELLED], GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place_of(WEB), queued.info.pod) == ("gated", newer)


def test_an_event_that_the_gate_registered_asks_it_again() -> None:
    """Other events do not."""
    world = QueueWorld()
    world.add(GATED)
    queued = world.queue.find(GATED.metadata.uid)
    assert queued is not None
    queued.info = COLUMNS.compile_pod(WEB)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "gated"
    world.queue.on_event(LABELLED, None, None)
    assert world.place_of(WEB) == "active"


def test_a_gate_that_closed_meanwhile_holds_a_failed_pod() -> None:
    """Gates are called on every requeue."""
    world = QueueWorld()
    world.add(WEB)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(GATED), [LABELLED], WEB)
    world.fail(queued)
    assert world.place_of(WEB) == "gated"


def test_an_event_that_the_gate_did_not_register_is_not_for_a_gated_pod() -> None:
    """Not even if a plugin that rejected it before has registered for the event."""
    world = QueueWorld()
    world.add(WEB)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(GATED), [LABELLED], WEB)
    world.queue.on_event(NODE_ADD, None, None)
    world.fail(queued, ["A"])
    assert world.place_of(WEB) == "gated"
    queued.info = COLUMNS.compile_pod(WEB)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "gated"
    world.queue.on_event(LABELLED, None, None)
    assert world.place_of(WEB) == "backoff"
    world.queue.close()


def test_a_gate_is_called_at_events_that_it_registered_in_another_profile() -> None:
    """As in kube-scheduler; the event must also be registered by a plugin that rejected the pod."""
    world = QueueWorld()
    world.serve("two")
    wanting = {"A": (EventRegistration(NODE_ADD), EventRegistration(LABELLED))}
    world.rules["two"] = replace(world.rules["two"], registrations=wanting, _by_event={})
    world.queue.profile_changed("two")
    waiting = pod("web", scheduler_name="two")
    world.add(waiting)
    queued = world.pop()
    held = pod("web", scheduler_name="two", labels={"gated": ""})
    world.queue.update(COLUMNS.compile_pod(held), [LABELLED], waiting)
    world.fail(queued, ["A"])
    assert world.place_of(WEB) == "gated"
    queued.info = COLUMNS.compile_pod(waiting)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place_of(WEB) == "gated"
    world.queue.on_event(LABELLED, None, None)
    assert world.place_of(WEB) == "backoff"
    world.queue.close()


def test_a_gated_pod_keeps_its_turn() -> None:
    """Equal pods are ordered by their creation, not by when their gates opened."""
    world = QueueWorld()
    world.add(GATED)
    world.clock.advance(5)
    world.add(OTHER)
    world.clock.advance(5)
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], GATED)
    queued = world.pop()
    assert (queued.uid, queued.timestamp, queued.first_attempt) == (WEB.metadata.uid, 1000.0, 1010.0)


def test_an_event_of_which_a_pod_is_excepted() -> None:
    """By its UID, or by its priority."""
    world = QueueWorld()
    world.add(WEB, OTHER, pod("vip", priority=9))
    for _ in range(3):
        world.pop_and_fail(["A"])
    world.queue.on_event(NODE_ADD, None, None, exclude=OTHER.metadata.uid, max_priority=8)
    assert {queued.info.pod.metadata.name for name, queued in world.queue.readings.places() if name == "backoff"} == {
        "web"
    }
    world.queue.close()
