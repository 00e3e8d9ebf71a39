"""Failures in a binding cycle: reports, requeued pods, and the nomination of the chosen node."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import SKIP, Code, Status, error, unresolvable, unschedulable
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import BARE, Rig, plugin_set, rig
from tests.support.tables import table

POD = pod("web", requests={"cpu": "3"})
UID = POD.metadata.uid


def rig_with_pod(journal: Journal, *plugins: str) -> Rig:
    made = rig([Gate, recorder("Rec", journal)], defaults=Plugins(multi_point=plugin_set(*plugins, "Rec", *BARE)))
    made.add(node("n0"), POD)
    return made


@pytest.mark.parametrize("point", ["preBind", "bind"])
@table(
    "answer, reason, message",
    ("unschedulable", unschedulable("full"), "Unschedulable", "full"),
    ("unresolvable", unresolvable("never"), "Unschedulable", "never"),
    ("pending", Status(Code.PENDING, ("later",)), "Unschedulable", "later"),
    ("error", error("broken"), "SchedulerError", 'running {Point} plugin "Rec": broken'),
    ("raises", ValueError("x"), "SchedulerError", 'running {Point} plugin "Rec": raised ValueError: x'),
)
async def test_a_rejection_after_permit(point: str, answer: object, reason: str, message: str) -> None:
    """A rejection after Permit is reported as a rejection, but the pod is retried after backoff without events."""
    made = rig_with_pod(Journal(results={f"Rec.{point}": answer}))
    assert not await made.attempt()
    expected = message.format(Point={"preBind": "PreBind", "bind": "Bind"}[point])
    assert (made.condition.reason, made.condition.message) == (reason, expected)
    assert made.writer.events[-1].note == expected
    queued = present(made.queue.find(UID))
    assert (made.place_of(POD), queued.rejected_by, queued.error_count) == ("errorBackoff", frozenset(), 1)


@table(
    "answers, place",
    ("error", {"Rec.preBind": error("no")}, "errorBackoff"),
    ("rejected-late", {"Rec.preBind": unschedulable("no")}, "errorBackoff"),
    ("rejected-at-permit", {"Rec.permit": PermitResult(Status(Code.WAIT), 10)}, "unschedulable"),
)
async def test_released_capacity_requeues_other_pods(answers: dict[str, object], place: str) -> None:
    """Capacity that a failed pod releases requeues other pods, but not the failed pod."""
    made = rig_with_pod(Journal(results=answers), "NodeResourcesFit")
    attempt = present(made.decide())
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    task = asyncio.create_task(made.scheduler.cycles.binding.bind(attempt))
    await asyncio.sleep(0)
    if len(made.context.waiting):
        made.clock.advance(10)
    assert not await task
    assert made.place_of(POD) == place
    assert made.place_of(other) in ("backoff", "active")


@table(
    "answers, nominations",
    ("no-pre-bind-work", {"Rec.preBindPreFlight": SKIP}, []),
    ("pre-bind-work", {}, ["n0"]),
    ("pre-bind-fails", {"Rec.preBind": error("no")}, ["n0", ""]),
    ("pre-flight-fails", {"Rec.preBindPreFlight": error("no")}, [None]),
    ("pre-flight-rejects", {"Rec.preBindPreFlight": unschedulable("no")}, [None]),
)
async def test_the_node_is_nominated_before_pre_bind(answers: dict[str, object], nominations: list[str | None]) -> None:
    """The chosen node is nominated before PreBind, and a failure clears the nomination."""
    made = rig_with_pod(Journal(results=answers))
    await made.attempt()
    assert [patch.nominated_node_name for patch in made.writer.patches] == nominations


@table("answers, nominations", ("bound", {}, []), ("fails", {"Rec.preBind": error("no")}, [""]))
async def test_a_nomination_is_not_written_again(answers: dict[str, object], nominations: list[str]) -> None:
    """A nomination that the pod's status already has is not written again."""
    made = rig([recorder("Rec", Journal(results=answers))])
    made.add(node("n0"), pod("web", nominated_node="n0"))
    await made.attempt()
    assert [patch.nominated_node_name for patch in made.writer.patches] == nominations
