"""Pods that another scheduler binds during their binding cycle: they are counted and not bound again."""

from __future__ import annotations

import asyncio

from scheduler_core.errors import BoundElsewhereError, NotFoundError, WriteTimeoutError
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import Code, Status
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.injected_errors import KINDS, InjectedErrors, at
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig
from tests.support.tables import table

POD = pod("web", requests={"cpu": "1"})
PROFILE = "default-scheduler"


def bound_pod(node_name: str) -> Pod:
    return pod("web", requests={"cpu": "1"}, node_name=node_name)


def pod_counts(made: Rig) -> dict[str, int]:
    """Return the number of pods on each node."""
    columns = made.columns
    return {name: int(columns.pod_count[columns.row_of(name)]) for name in ("n0", "n1")}


def start_binding(*journals: Journal) -> tuple[Rig, asyncio.Task[bool], str]:
    """Schedule the pod and start its binding cycle; return the rig, the cycle and the node that was not chosen."""
    made = rig([recorder("Rec", journal) for journal in journals])
    made.add(node("n0"), node("n1"), POD)
    attempt = present(made.decide())
    other = "n1" if attempt.node_name == "n0" else "n0"
    return made, asyncio.get_running_loop().create_task(made.scheduler.cycles.binding.bind(attempt)), other


def assert_released(made: Rig, other: str) -> None:
    """Assert that the pod counts on node *other* only, is not queued, and has no reported failure."""
    assert pod_counts(made) == {"n0": int(other == "n0"), "n1": int(other == "n1")}
    assert (made.place_of(POD), made.context.cache.assumed_count, made.queue.readings.in_flight_events()) == ("", 0, {})
    assert not made.writer.events
    assert not [patch for patch in made.writer.patches if patch.condition is not None]
    record = made.context.metrics.records[PROFILE]
    assert (record.lost_binds, record.scheduled, record.last_error) == (1, 0, "")
    lost = present(record.last_lost_bind)
    assert (lost.pod, lost.rival_node_name) == ("default/web", other)
    assert lost.node_name not in ("", other)


async def test_a_rejected_bind_is_not_repeated() -> None:
    """The pod counts on the other node before any watch event, and Unreserve runs."""
    journal = Journal()
    made, binding, other = start_binding(journal)
    made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    assert not await binding
    assert_released(made, other)
    assert journal.plugins_at("unreserve") == ["Rec"]
    made.clock.advance(600)
    made.queue.flush()
    assert made.queue.pop() is None
    assert len(made.writer.attempted) == 1


async def test_a_pod_bound_elsewhere_before_its_bind_is_not_bound() -> None:
    """After a watch event of another scheduler's bind, no bind request is sent."""
    made, binding, other = start_binding(Journal())
    made.scheduler.feed.pod_updated(POD, bound_pod(other))
    assert not await binding
    assert made.writer.attempted == []
    assert_released(made, other)


async def test_a_watch_event_before_the_bind_response_is_processed() -> None:
    """A bind response during a suspended cycle is processed after the buffered watch events."""
    made, binding, other = start_binding()
    with made.context.suspension.of_cycle():
        await made.until(lambda: len(made.writer.attempted) == 1 and made.context.suspension.waiting_tasks > 0)
        made.scheduler.feed.pod_updated(POD, bound_pod(other))
    assert not await binding
    assert_released(made, other)


async def _lost_with(errors: InjectedErrors, *, by_watch: bool) -> tuple[Rig, str]:
    """End a binding cycle whose pod is bound to the other node, with exceptions at calls of the end."""
    made, binding, other = start_binding()
    if not by_watch:
        made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    with made.context.suspension.of_cycle():
        await made.until(lambda: len(made.writer.attempted) == 1 and made.context.suspension.waiting_tasks > 0)
        if by_watch:
            made.scheduler.feed.pod_updated(POD, bound_pod(other))
    with errors.active():
        assert not await binding
    return made, other


@table("by_watch", ("a watch", True), ("the response", False))
async def test_an_exception_at_any_call_of_the_end(*, by_watch: bool) -> None:
    """The pod counts on the other node, and is neither recorded as bound to the chosen node nor requeued."""
    roots = frozenset({"cycle/binding_cycle.py:BindingCycle.bind"})
    number, has_raised = 0, True
    while has_raised:
        number += 1
        errors = InjectedErrors(at(number, KINDS[number % len(KINDS)]), roots)
        made, other = await _lost_with(errors, by_watch=by_watch)
        has_raised = bool(errors.injected)
        where = errors.injected
        assert pod_counts(made) == {"n0": int(other == "n0"), "n1": int(other == "n1")}, where
        assert (made.place_of(POD), made.context.cache.assumed_count, made.writer.events) == ("", 0, []), where
        assert made.queue.readings.in_flight_events() == {}, where
        assert made.context.metrics.records[PROFILE].scheduled == 0, where
    assert number > 5


async def test_a_wait_at_permit_ends_at_once() -> None:
    """A pod that waits at Permit is released as soon as another scheduler binds it."""
    journal = Journal(results={"Rec.permit": PermitResult(Status(Code.WAIT), 600)})
    made, binding, other = start_binding(journal)
    for _ in range(5):
        await asyncio.sleep(0)
    made.scheduler.feed.pod_updated(POD, bound_pod(other))
    assert not await binding
    assert_released(made, other)


async def test_a_bind_with_unknown_outcome_of_a_pod_bound_elsewhere() -> None:
    """After a bind timeout the pod is read and is bound to the other node."""
    made, binding, other = start_binding(Journal())
    made.writer.fail_binds([WriteTimeoutError("no answer")])
    made.writer.pods["default/web"] = bound_pod(other)
    assert not await binding
    assert_released(made, other)


async def test_a_deleted_pod_is_not_counted() -> None:
    """A pod that is deleted during its bind is not counted, because no later event would remove it."""
    made, binding, other = start_binding(Journal())
    made.scheduler.feed.pod_deleted(POD)
    made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    assert not await binding
    assert pod_counts(made) == {"n0": 0, "n1": 0}


@table("failure", ("deleted", NotFoundError("gone")), ("bound-to-an-unknown-node", BoundElsewhereError("taken", "far")))
async def test_the_chosen_node_is_released(failure: NotFoundError | BoundElsewhereError) -> None:
    """After a failed bind another pod of that size is scheduled on the node."""
    made = rig()
    made.add(node("n0", allocatable={"cpu": "1", "pods": "10"}), POD)
    made.writer.fail_binds([failure])
    assert await made.attempt() == ""
    made.scheduler.feed.pod_deleted(POD)
    made.add(pod("next", requests={"cpu": "1"}))
    assert await made.attempt() == "n0"
