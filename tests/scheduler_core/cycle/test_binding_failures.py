"""How a binding cycle that fails is spoken of, whom it wakes, and what becomes of the node that was told."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.plugins_config import Plugins
from scheduler_core.cycle.binding import bind
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import SKIP, Code, Status, error, unresolvable, unschedulable
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import BARE, Rig, plugin_set, rig

POD = pod("web", requests={"cpu": "3"})
UID = POD.metadata.uid


def prepared(journal: Journal, *plugins: str) -> Rig:
    made = rig([Gate, recorder("Rec", journal)], defaults=Plugins(multi_point=plugin_set(*plugins, "Rec", *BARE)))
    made.add(node("n0"), POD)
    return made


@pytest.mark.parametrize("point", ["preBind", "bind"])
@pytest.mark.parametrize(
    ("answer", "reason", "message"),
    [
        pytest.param(unschedulable("full"), "Unschedulable", "full", id="unschedulable"),
        pytest.param(unresolvable("never"), "Unschedulable", "never", id="unresolvable"),
        pytest.param(Status(Code.PENDING, ("later",)), "Unschedulable", "later", id="pending"),
        pytest.param(error("broken"), "SchedulerError", 'running {Point} plugin "Rec": broken', id="error"),
        pytest.param(
            ValueError("x"), "SchedulerError", 'running {Point} plugin "Rec": raised ValueError: x', id="raises"
        ),
    ],
)
async def test_a_rejection_after_permit(point: str, answer: object, reason: str, message: str) -> None:
    """It is called what it is, but the pod is retried after backoff by nobody's word, as after an error."""
    made = prepared(Journal(answers={f"Rec.{point}": answer}))
    assert not await made.attempt()
    said = message.format(Point={"preBind": "PreBind", "bind": "Bind"}[point])
    assert (made.condition.reason, made.condition.message) == (reason, said)
    assert made.writer.events[-1].note == said
    queued = made.queue.find(UID)
    assert queued is not None
    assert (made.place(POD), queued.rejected_by, queued.error_count) == ("errorBackoff", frozenset(), 1)
    made.queue.close()


@pytest.mark.parametrize(
    ("answers", "place"),
    [
        pytest.param({"Rec.preBind": error("no")}, "errorBackoff", id="error"),
        pytest.param({"Rec.preBind": unschedulable("no")}, "errorBackoff", id="rejected-late"),
        pytest.param({"Rec.permit": PermitResult(Status(Code.WAIT), 10)}, "unschedulable", id="rejected-at-permit"),
    ],
)
async def test_what_was_given_back_wakes_others(answers: dict[str, object], place: str) -> None:
    """The place is as free as if the pod had left it; a pod that Permit rejected is not woken by that itself."""
    made = prepared(Journal(answers=answers), "NodeResourcesFit")
    attempt = made.decide()
    assert attempt is not None
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    task = asyncio.create_task(bind(made.context, attempt))
    await asyncio.sleep(0)
    if len(made.context.waiting):
        made.clock.advance(10)
    assert not await task
    assert made.place(POD) == place
    assert made.place(other) in ("backoff", "active")
    made.queue.close()


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        pytest.param({"Rec.preBindPreFlight": SKIP}, [], id="nothing-to-prepare"),
        pytest.param({}, ["n0"], id="something-to-prepare"),
        pytest.param({"Rec.preBind": error("no")}, ["n0", ""], id="fails"),
        pytest.param({"Rec.preBindPreFlight": error("no")}, [None], id="fails-before"),
        pytest.param(
            {"Rec.preBindPreFlight": unschedulable("no")}, [None], id="pre-flight-rejects-which-is-an-error-too"
        ),
    ],
)
async def test_the_node_is_told_before_what_may_take_long(answers: dict[str, object], told: list[str | None]) -> None:
    """Who adds nodes sees that the pod has one; the API server clears it with the bind, a failure takes it back."""
    made = prepared(Journal(answers=answers))
    await made.attempt()
    assert [patch.nominated_node_name for patch in made.writer.patches] == told
    made.queue.close()


@pytest.mark.parametrize(
    ("answers", "told"),
    [pytest.param({}, [], id="bound"), pytest.param({"Rec.preBind": error("no")}, [""], id="fails")],
)
async def test_a_node_that_was_told_before_is_not_told_again(answers: dict[str, object], told: list[str]) -> None:
    """Preemption did, and it is the same."""
    made = rig([recorder("Rec", Journal(answers=answers))])
    made.add(node("n0"), pod("web", nominated_node="n0"))
    await made.attempt()
    assert [patch.nominated_node_name for patch in made.writer.patches] == told
    made.queue.close()
