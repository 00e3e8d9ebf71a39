"""Failures in a binding cycle, and changes of a pod, its node or its profile at each stage of it."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError, ServerUnavailableError
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.status import SKIP, Code, Status, error, unresolvable, unschedulable
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.gang_preemption import terminating_pod
from tests.support.injected_errors import KINDS, InjectedErrors, at
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import BARE, Rig, plugin_set, profile, rig
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


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_an_exception_at_any_call_after_the_cycle() -> None:
    """If PreBind fails, the nomination ends and the room is reported, whatever call of the binding cycle raises."""
    roots = frozenset({"cycle/binding_cycle.py:BindingCycle.bind"})
    number, has_raised = 0, True
    while has_raised:
        number += 1
        errors = InjectedErrors(at(number, KINDS[number % len(KINDS)]), roots)
        made = rig_with_pod(Journal(results={"Rec.preBind": error("no")}), "NodeResourcesFit")
        attempt = present(made.decide())
        made.add(OTHER)
        assert made.decide() is None
        with errors.active():
            assert not await made.scheduler.cycles.binding.bind(attempt)
        has_raised = bool(errors.injected)
        written = [each.nominated_node_name for each in made.writer.patches if each.nominated_node_name is not None]
        assert (made.queue.nominator.node_of(UID), written[-1:]) == ("", [""] if written else []), errors.injected
        assert made.place_of(POD) in ("errorBackoff", "gated"), errors.injected
        assert made.place_of(OTHER) != "unschedulable", errors.injected
    assert number > 20


OTHER = pod("other", requests={"cpu": "2"})
STAGES = ("permit", "preBind", "bind")


class Stage:
    """A pod whose binding cycle waits at an extension point, and another pod that does not fit beside it."""

    def __init__(self, at: str) -> None:
        Gate.stop_at(at)
        self.journal = Journal()
        names = ("Gate", "Rec", "NodeResourcesFit", *BARE)
        plugins = Plugins(multi_point=plugin_set(*names))
        self.made = rig([Gate, recorder("Rec", self.journal)], defaults=plugins)
        self.made.add(node("n0"), POD)

    async def begin(self) -> None:
        attempt = present(self.made.decide())
        self.task = asyncio.create_task(self.made.scheduler.cycles.binding.bind(attempt))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not self.task.done()
        self.made.add(OTHER)
        assert self.made.decide() is None
        assert self.made.place_of(OTHER) == "unschedulable"

    async def finish(self) -> bool:
        """Open the gate at the point, and return whether the pod is bound."""
        Gate.open(self.made.context.waiting)
        return await self.task

    @property
    def pod_counts(self) -> list[int]:
        """Return the number of pods on each node, as scheduling cycles count them."""
        columns = self.made.columns
        return [int(count) for count in columns.pod_count[columns.alive]]

    @property
    def notes(self) -> list[str]:
        """Return the notes of the pod's events."""
        return [event.note for event in self.made.writer.events if event.regarding.name == "web"]


async def start_stage(at: str) -> Stage:
    stage = Stage(at)
    await stage.begin()
    return stage


@pytest.mark.parametrize("at", STAGES)
async def test_a_pod_that_is_deleted(at: str) -> None:
    """The capacity of a deleted pod is freed at once, Unreserve runs, and no failure is reported."""
    stage = await start_stage(at)
    made = stage.made
    made.writer.fail_binds([NotFoundError("the pod is gone")])
    made.scheduler.feed.pod_deleted(POD)
    assert stage.pod_counts == [0]
    assert made.place_of(OTHER) == "backoff"
    assert not await stage.finish()
    assert stage.journal.plugins_at("unreserve") == ["Rec"]
    assert (made.place_of(POD), stage.notes, stage.pod_counts) == ("", [], [0])
    assert (made.writer.attempted == []) is (at == "permit")
    made.queue.close()
    assert made.clock.pending == 0


@table(
    "at, place, pod_counts, notes",
    ("permit", "permit", "unschedulable", [1], "0/1 nodes are available: 1 removed."),
    ("preBind", "preBind", "errorBackoff", [0], 'running Bind plugin "DefaultBinder": it is being deleted'),
    ("bind", "bind", "errorBackoff", [0], 'running Bind plugin "DefaultBinder": it is being deleted'),
)
async def test_a_pod_whose_deletion_begins(at: str, place: str, pod_counts: list[int], notes: str) -> None:
    """A terminating pod is rejected at Permit; after Permit its capacity is freed at once. It is not retried."""
    stage = await start_stage(at)
    made = stage.made
    made.writer.fail_binds([ConflictError("it is being deleted")])
    made.scheduler.feed.pod_updated(POD, terminating_pod(POD))
    assert (stage.pod_counts, made.place_of(OTHER)) == (pod_counts, "backoff")
    assert not await stage.finish()
    assert (stage.pod_counts, made.place_of(POD), stage.notes) == ([0], place, [notes])
    made.queue.activate([UID])
    while made.queue.find(UID) is not None:
        made.decide()
    assert stage.notes[1:] == ["skip schedule deleting pod: default/web"]


@pytest.mark.parametrize("at", STAGES)
async def test_a_pod_that_changes(at: str) -> None:
    """The attempt continues with the old version of the pod; the next attempt uses the new version."""
    stage = await start_stage(at)
    made = stage.made
    newer = pod("web", requests={"cpu": "3"}, labels={"new": "yes"})
    made.writer.fail_binds([ConflictError("no")])
    made.scheduler.feed.pod_updated(POD, newer)
    assert not await stage.finish()
    queued = present(made.queue.find(UID))
    assert (queued.info.pod, stage.pod_counts) == (newer, [0])


@pytest.mark.parametrize("at", STAGES)
async def test_a_pod_that_is_recreated(at: str) -> None:
    """The attempt of the old pod ends without a report, and the new pod is queued."""
    stage = await start_stage(at)
    made = stage.made
    newer = pod("web", uid="another", requests={"cpu": "1"})
    made.writer.fail_binds([NotFoundError("another UID")])
    made.scheduler.feed.pod_updated(POD, newer)
    assert (made.place_of(newer), stage.pod_counts) == ("active", [0])
    assert not await stage.finish()
    assert (made.place_of(POD), made.place_of(newer), stage.notes) == ("", "active", [])


@table(
    "answer", ("conflict", ConflictError("it is bound already")), ("unavailable", ServerUnavailableError("no answer"))
)
async def test_a_bind_error_after_a_watch_event_of_the_bind(answer: ClusterWriteError) -> None:
    """If the watch has confirmed the bind, an error response is ignored and nothing is released."""
    stage = await start_stage("bind")
    made = stage.made
    made.writer.fail_binds([answer])
    made.scheduler.feed.pod_updated(POD, pod("web", requests={"cpu": "3"}, node_name="n0"))
    assert await stage.finish()
    assert stage.journal.plugins_at("unreserve") == []
    assert (stage.pod_counts, stage.notes) == ([1], ["Successfully assigned default/web to n0"])


async def test_a_pod_that_is_deleted_and_added_again() -> None:
    """The result of the old attempt does not affect a pod that was deleted and added again."""
    stage = await start_stage("preBind")
    made = stage.made
    made.scheduler.feed.pod_deleted(POD)
    made.scheduler.feed.pod_added(POD)
    made.writer.fail_binds([ConflictError("no")])
    again = made.pop()
    assert not await stage.finish()
    assert (made.place_of(POD), made.queue.find(UID), stage.notes) == ("inFlight", again, [])


async def test_a_pod_that_is_bound_after_a_flush_is_counted() -> None:
    """A pod that is bound after a flush counts in scheduled_after_flush, because a queueing hint may be missing."""
    stage = await start_stage("preBind")
    queued = present(stage.made.queue.find(UID))
    queued.was_flushed = True
    assert await stage.finish()
    assert stage.made.queue.scheduled_after_flush == 1
    stage.made.queue.close()


@pytest.mark.parametrize("at", STAGES)
@pytest.mark.parametrize("other_node", ["n0", "n1"])
async def test_a_pod_that_another_scheduler_binds(at: str, other_node: str) -> None:
    """A pod that another scheduler binds counts once, on that scheduler's node, and no failure is reported."""
    stage = await start_stage(at)
    made = stage.made
    made.add(node("n1"))
    made.scheduler.feed.pod_updated(POD, pod("web", requests={"cpu": "3"}, node_name=other_node))
    if other_node == "n1":
        made.writer.fail_binds([ConflictError("it is bound to n1 already")])
    assert await stage.finish() is (other_node == "n0")
    assert (made.place_of(POD), made.context.cache.assumed_count) == ("", 0)
    assert stage.pod_counts == ([1, 0] if other_node == "n0" else [0, 1])
    assert stage.notes == ([f"Successfully assigned {POD.key} to n0"] if other_node == "n0" else [])


@pytest.mark.parametrize("at", STAGES)
@table("is_bound", ("bound", True), ("fails", False))
async def test_a_node_that_is_deleted(at: str, is_bound: bool) -> None:
    """The pod stays assumed until its bind is answered; a node that is added again has only its bound pods."""
    stage = await start_stage(at)
    made = stage.made
    if not is_bound:
        made.writer.fail_binds([ConflictError("no")])
    made.scheduler.feed.node_deleted(node("n0"))
    assert await stage.finish() is is_bound
    assert made.context.cache.assumed_count == int(is_bound)
    made.add(node("n0"))
    assert stage.pod_counts == [int(is_bound)]


@pytest.mark.parametrize("at", STAGES)
async def test_a_profile_that_is_replaced(at: str) -> None:
    """The attempt finishes on the old profile revision, which is closed after it."""
    stage = await start_stage(at)
    made = stage.made
    made.serve(profile())
    assert stage.journal.plugins_at("close") == []
    assert await stage.finish()
    assert stage.journal.plugins_at("close") == ["Rec"]
    assert made.bound == {"web": "n0"}


@pytest.mark.parametrize("at", STAGES)
async def test_a_profile_that_is_withdrawn(at: str) -> None:
    """The pod is parked when its attempt ends."""
    stage = await start_stage(at)
    made = stage.made
    made.writer.fail_binds([ConflictError("no")])
    made.scheduler.withdraw("default-scheduler")
    assert not await stage.finish()
    assert (made.place_of(POD), stage.pod_counts) == ("parked", [0])


@pytest.mark.parametrize("at", STAGES)
async def test_a_scheduler_that_stops(at: str) -> None:
    """When the scheduler stops, the attempt is unwound and no failure of the pod is reported."""
    stage = await start_stage(at)
    made = stage.made
    if at == "permit":
        await made.scheduler.stop(0)
    else:
        stage.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.task
    assert (stage.pod_counts, stage.notes, len(made.context.waiting), len(made.context.services.in_pre_bind)) == (
        [0],
        [],
        0,
        0,
    )
    assert stage.journal.plugins_at("unreserve") == ["Rec"]
    made.queue.close()
    assert made.clock.pending == 0


@table("at, is_stored", ("permit", "permit", True), ("preBind", "preBind", False))
async def test_in_flight_events_are_stored_until_permit_is_passed(at: str, is_stored: bool) -> None:
    """No events are stored after Permit, because a pod that fails later is retried in any case."""
    stage = await start_stage(at)
    made = stage.made
    made.scheduler.feed.node_added(node("n1"))
    assert bool(made.queue.readings.in_flight_events()) is is_stored
    assert await stage.finish()
    assert made.queue.readings.in_flight_events() == {}
