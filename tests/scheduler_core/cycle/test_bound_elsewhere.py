"""Pods that another scheduler bound while they were being bound here: counted, and not bound again."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.errors import BoundElsewhereError, NotFoundError, WriteTimeoutError
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import Code, Status
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig

POD = pod("web", requests={"cpu": "1"})
UID = POD.metadata.uid
PROFILE = "default-scheduler"


def on(node_name: str) -> Pod:
    return pod("web", requests={"cpu": "1"}, node_name=node_name)


def counted(made: Rig) -> dict[str, int]:
    """Return the number of pods counted on each node."""
    columns = made.context.cache.columns
    return {name: int(columns.pod_count[columns.row_of(name)]) for name in ("n0", "n1")}


def begun(*journals: Journal) -> tuple[Rig, asyncio.Task[bool], str]:
    """Schedule the pod and start its binding cycle; return the rig, the cycle and the node that was not chosen."""
    made = rig([recorder("Rec", journal) for journal in journals])
    made.add(node("n0"), node("n1"), POD)
    attempt = made.decide()
    assert attempt is not None
    other = "n1" if attempt.node_name == "n0" else "n0"
    return made, asyncio.get_running_loop().create_task(made.scheduler.cycles.binding.bind(attempt)), other


def assert_let_go(made: Rig, other: str) -> None:
    """The pod counts on the rival's node alone, is not queued, and no failure is reported."""
    assert counted(made) == {"n0": int(other == "n0"), "n1": int(other == "n1")}
    assert (made.place(POD), made.context.cache.assumed_count, made.queue.readings.in_flight_events()) == ("", 0, {})
    assert not made.writer.events
    assert not [patch for patch in made.writer.patches if patch.condition is not None]
    record = made.context.metrics.records[PROFILE]
    assert (record.lost_binds, record.scheduled, record.last_error) == (1, 0, "")
    lost = record.last_lost_bind
    assert lost is not None
    assert (lost.pod, lost.rival_node_name) == ("default/web", other)
    assert lost.node_name not in ("", other)


async def test_a_refused_bind_is_not_repeated() -> None:
    """The rival's node counts at once, before any watch event, and the reservation is released."""
    journal = Journal()
    made, binding, other = begun(journal)
    made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    assert not await binding
    assert_let_go(made, other)
    assert journal.plugins_at("unreserve") == ["Rec"]
    made.clock.advance(600)
    made.queue.flush()
    assert made.queue.pop() is None
    assert len(made.writer.attempted) == 1


async def test_the_watch_that_comes_after_changes_nothing() -> None:
    """The pod counts once, however often it is delivered."""
    made, binding, other = begun(Journal())
    made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    await binding
    made.scheduler.feed.pod_updated(POD, on(other))
    assert_let_go(made, other)
    made.scheduler.feed.pod_deleted(on(other))
    assert counted(made) == {"n0": 0, "n1": 0}


async def test_a_pod_that_turns_up_elsewhere_is_not_bound() -> None:
    """A watch event before the bind saves the request."""
    made, binding, other = begun(Journal())
    made.scheduler.feed.pod_updated(POD, on(other))
    assert not await binding
    assert made.writer.attempted == []
    assert_let_go(made, other)


async def test_a_pod_that_turns_up_elsewhere_after_its_bind_was_answered() -> None:
    """The answer is processed after a suspended cycle, whose end applies what the watch has shown first."""
    made, binding, other = begun()
    with made.context.suspension.of_cycle():
        await made.until(lambda: len(made.writer.attempted) == 1 and made.context.suspension.is_awaited)
        made.scheduler.feed.pod_updated(POD, on(other))
    assert not await binding
    assert_let_go(made, other)


async def test_a_wait_at_permit_ends_at_once() -> None:
    """A pod is released as soon as another scheduler has bound it."""
    journal = Journal(answers={"Rec.permit": PermitResult(Status(Code.WAIT), 600)})
    made, binding, other = begun(journal)
    for _ in range(5):
        await asyncio.sleep(0)
    made.scheduler.feed.pod_updated(POD, on(other))
    assert not await binding
    assert_let_go(made, other)


async def test_an_unanswered_bind_that_is_read_to_be_lost() -> None:
    """An unknown outcome is read, and the pod is bound to the rival's node."""
    made, binding, other = begun(Journal())
    made.writer.fail_binds([WriteTimeoutError("no answer")])
    made.writer.pods["default/web"] = on(other)
    assert not await binding
    assert_let_go(made, other)


async def test_a_pod_deleted_meanwhile_is_not_accounted() -> None:
    """No later event would remove it."""
    made, binding, other = begun(Journal())
    made.scheduler.feed.pod_deleted(POD)
    made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    assert not await binding
    assert counted(made) == {"n0": 0, "n1": 0}


@pytest.mark.parametrize(
    "failure",
    [pytest.param(NotFoundError("gone"), id="gone"), pytest.param(BoundElsewhereError("taken", "far"), id="unknown")],
)
async def test_the_chosen_node_is_free_again(failure: NotFoundError | BoundElsewhereError) -> None:
    """Another pod of that size is scheduled there, whatever node the rival has chosen."""
    made = rig()
    made.add(node("n0", allocatable={"cpu": "1", "pods": "10"}), POD)
    made.writer.fail_binds([failure])
    assert await made.attempt() == ""
    made.scheduler.feed.pod_deleted(POD)
    made.add(pod("next", requests={"cpu": "1"}))
    assert await made.attempt() == "n0"
