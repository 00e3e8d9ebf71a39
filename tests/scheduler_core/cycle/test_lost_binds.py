"""Pods that someone else has bound while they were being bound here: counted, accounted, and not fought over."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.cycle.binding import bind
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
    """How many pods each node is charged with."""
    columns = made.context.cache.columns
    return {name: int(columns.pod_count[columns.row_of(name)]) for name in ("n0", "n1")}


def begun(journal: Journal) -> tuple[Rig, asyncio.Task[bool], str]:
    """Decide about the pod and start its binding cycle; the rig, the cycle and the node that was not chosen."""
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), node("n1"), POD)
    attempt = made.decide()
    assert attempt is not None
    other = "n1" if attempt.node_name == "n0" else "n0"
    return made, asyncio.get_running_loop().create_task(bind(made.context, attempt)), other


def assert_let_go(made: Rig, other: str) -> None:
    """The pod counts on the rival's node alone, waits nowhere, and nobody is told that it could not be scheduled."""
    assert counted(made) == {"n0": int(other == "n0"), "n1": int(other == "n1")}
    assert (made.place(POD), made.context.cache.assumed_count, made.queue.in_flight_events()) == ("", 0, {})
    assert not made.writer.events
    assert not [patch for patch in made.writer.patches if patch.condition is not None]
    record = made.context.record(PROFILE)
    assert (record.lost_binds, record.scheduled, record.last_error) == (1, 0, "")
    lost = record.last_lost_bind
    assert lost is not None
    assert (lost.pod, lost.rival_node_name) == ("default/web", other)
    assert lost.node_name not in ("", other)


async def test_a_refused_bind_is_not_repeated() -> None:
    """The rival's node counts at once, before any watch tells of it, and what was reserved is given back."""
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
    """The pod is accounted once, however often it is told."""
    made, binding, other = begun(Journal())
    made.writer.fail_binds([BoundElsewhereError("bound already", other)])
    await binding
    made.scheduler.feed.pod_updated(POD, on(other))
    assert_let_go(made, other)
    made.scheduler.feed.pod_deleted(on(other))
    assert counted(made) == {"n0": 0, "n1": 0}


async def test_a_pod_that_turns_up_elsewhere_is_not_bound() -> None:
    """What the watch has shown before the bind is sent spares the request."""
    made, binding, other = begun(Journal())
    made.scheduler.feed.pod_updated(POD, on(other))
    assert not await binding
    assert made.writer.attempted == []
    assert_let_go(made, other)


async def test_a_wait_at_permit_ends_at_once() -> None:
    """What is held for a pod is free as soon as someone else has bound it."""
    journal = Journal(answers={"Rec.permit": PermitResult(Status(Code.WAIT), 600)})
    made, binding, other = begun(journal)
    for _ in range(5):
        await asyncio.sleep(0)
    made.scheduler.feed.pod_updated(POD, on(other))
    assert not await binding
    assert_let_go(made, other)


async def test_an_unanswered_bind_that_is_read_to_be_lost() -> None:
    """An outcome that is not known is read, and read to be a rival's."""
    made, binding, other = begun(Journal())
    made.writer.fail_binds([WriteTimeoutError("no answer")])
    made.writer.pods["default/web"] = on(other)
    assert not await binding
    assert_let_go(made, other)


async def test_a_pod_deleted_meanwhile_is_not_accounted() -> None:
    """Nothing would ever take it away again."""
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
    """Another pod of that size is placed there, whatever node the rival has taken."""
    made = rig()
    made.add(node("n0", allocatable={"cpu": "1", "pods": "10"}), POD)
    made.writer.fail_binds([failure])
    assert await made.attempt() == ""
    made.scheduler.feed.pod_deleted(POD)
    made.add(pod("next", requests={"cpu": "1"}))
    assert await made.attempt() == "n0"
