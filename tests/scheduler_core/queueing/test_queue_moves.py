"""The scheduling queue: backoff, flush, activation and gates."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import (
    NODE_ADD,
    ClusterEvent,
    Hint,
)
from tests.support.builders import pod
from tests.support.queue_world import COLUMNS, GATED, LABELLED, OTHER, WEB, World


def test_backoff_doubles_up_to_the_longest() -> None:
    """1, 2, 4, 8, 10, 10 seconds."""
    world = World()
    world.add(WEB)
    waits: list[float] = []
    for _ in range(6):
        queued = world.fails(["A"])
        world.queue.on_event(NODE_ADD, None, None)
        waits.append(queued.backoff_until - world.clock.now())
        world.clock.advance(10)
    assert waits == [1, 2, 4, 8, 10, 10]


def test_errors_back_off_apart() -> None:
    """Rejections before do not lengthen an error's backoff, and a rejection ends the row of errors."""
    world = World()
    world.add(WEB)
    for _ in range(3):
        world.fails(["A"])
        world.clock.advance(100)
        world.queue.on_event(NODE_ADD, None, None)
    queued = world.fails()
    assert (queued.error_count, queued.backoff_until - world.clock.now()) == (1, 1)
    world.clock.advance(1)
    queued = world.fails()
    assert (queued.error_count, queued.backoff_until - world.clock.now()) == (2, 2)
    world.clock.advance(2)
    assert world.fails(["A"]).error_count == 0


def test_an_error_in_backoff_is_not_tried_early() -> None:
    """The scheduler rather idles than hammer an API server that is away."""
    world = World()
    world.add(WEB)
    world.fails()
    assert world.queue.pop() is None
    assert world.queue.is_idle
    world.clock.advance(1)
    assert world.pop().uid == WEB.metadata.uid


def test_an_idle_scheduler_tries_the_next_of_the_backoff_early() -> None:
    """The one whose backoff ends first."""
    world = World()
    world.add(WEB, OTHER)
    world.fails(["A"])
    world.clock.advance(0.2)
    world.fails(["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert not world.queue.is_idle
    assert [world.pop().uid, world.pop().uid] == [WEB.metadata.uid, OTHER.metadata.uid]
    world.queue.close()


def test_flush() -> None:
    """After five minutes a pod is tried whatever hints said."""
    world = World(hint=lambda _pod, _old, _new: Hint.SKIP)
    world.add(WEB)
    world.fails(["A"])
    world.clock.advance(299)
    world.queue.flush()
    assert world.place(WEB) == "unschedulable"
    world.clock.advance(1)
    world.queue.flush()
    assert world.place(WEB) == "active"


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
    world = World()
    world.add(WEB, OTHER)
    for _ in range(2):
        world.fails(by)
    if event is not None:
        world.queue.on_event(event, None, None)
    before = world.place(OTHER)
    world.queue.activate([WEB.metadata.uid, "nobody"])
    assert (world.place(WEB), world.place(OTHER)) == ("active", before)
    world.queue.close()


def test_activate_leaves_gated_pods() -> None:
    """Their gate is not a plugin's opinion of nodes."""
    world = World()
    world.add(GATED)
    world.queue.activate([GATED.metadata.uid])
    assert world.place(GATED) == "gated"


def test_a_pod_activated_in_flight_comes_back_to_be_tried() -> None:
    """And it alone: others that failed meanwhile wait on."""
    world = World()
    world.add(WEB, OTHER)
    first, second = world.pop(), world.pop()
    world.queue.activate([WEB.metadata.uid])
    world.fail(first, ["A"])
    world.fail(second, ["A"])
    assert (world.place(WEB), world.place(OTHER)) == ("backoff", "unschedulable")
    world.queue.close()


def test_a_gated_pod_waits_for_its_gate() -> None:
    """What the gate says is kept for status."""
    world = World()
    world.add(GATED)
    queued = world.queue.find(GATED.metadata.uid)
    assert queued is not None
    assert (world.place(GATED), queued.gated_by, queued.gate_reasons) == ("gated", "LabelGate", ("labelled",))
    assert world.queue.pop() is None


def test_an_update_opens_the_gate() -> None:
    """The pod is active at once: it never failed."""
    world = World()
    world.add(GATED)
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place(WEB), queued.gated_by) == ("active", "")


def test_an_update_that_opens_no_gate() -> None:
    """The pod stays gated, as it is now."""
    world = World()
    world.add(GATED)
    newer = pod("web", labels={"gated": "", "more": ""})
    world.queue.update(COLUMNS.compile_pod(newer), [LABELLED], GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place(WEB), queued.info.pod) == ("gated", newer)


def test_an_event_that_the_gate_registered_asks_it_again() -> None:
    """Others do not."""
    world = World()
    world.add(GATED)
    queued = world.queue.find(GATED.metadata.uid)
    assert queued is not None
    queued.info = COLUMNS.compile_pod(WEB)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == "gated"
    world.queue.on_event(LABELLED, None, None)
    assert world.place(WEB) == "active"


def test_a_gate_that_closed_meanwhile_holds_a_failed_pod() -> None:
    """Gates are asked on each way back."""
    world = World()
    world.add(WEB)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(GATED), [LABELLED], WEB)
    world.fail(queued)
    assert world.place(WEB) == "gated"
