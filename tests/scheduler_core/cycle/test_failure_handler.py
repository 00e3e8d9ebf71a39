"""Writes after a failed attempt, and writes that are not repeated."""

from __future__ import annotations

import msgspec
import pytest

from scheduler_core.cycle.failure_handler import Failure, of_status, too_late
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.framework.status import Code, Status, error, unresolvable, unschedulable
from scheduler_core.model.pod import Pod, PodCondition
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig

SAID = PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: no.")


def failing(wanted: Pod, *reasons: str) -> Rig:
    journal = Journal(answers={"Rec.preFilter": PreFilterResult(unresolvable(*reasons))})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), wanted)
    assert made.decide() is None
    return made


@pytest.mark.parametrize(
    ("status", "message", "rejected_by", "is_error"),
    [
        pytest.param(unschedulable("b", "a").of("P"), "0/1 nodes are available: 1 a, 1 b.", {"P"}, False, id="rejects"),
        pytest.param(
            unschedulable("a", "b", "a").of("P"), "0/1 nodes are available: 1 b, 2 a.", {"P"}, False, id="twice"
        ),
        pytest.param(unresolvable().of("P"), "0/1 nodes are available:", {"P"}, False, id="rejects-without-words"),
        pytest.param(error("broken").of("P"), "broken", set(), True, id="error"),
        pytest.param(Status(Code.WAIT).of("P"), "plugin P answered Wait", set(), True, id="no-words"),
    ],
)
def test_a_status_becomes_a_failure(status: Status, message: str, rejected_by: set[str], is_error: bool) -> None:
    """A rejection counts one node; an error has its own message."""
    failure = of_status(status)
    assert (failure.message, set(failure.rejected_by), failure.is_error) == (message, rejected_by, is_error)


@pytest.mark.parametrize(
    ("code", "pending"),
    [pytest.param(Code.PENDING, {"P"}, id="pending"), pytest.param(Code.UNSCHEDULABLE, set(), id="unschedulable")],
)
def test_pending_plugins_are_recorded(code: Code, pending: set[str]) -> None:
    """An event that helps then ends the wait without backoff."""
    assert set(of_status(Status(code, ("later",), "P")).pending_on) == pending


def test_after_permit_no_plugin_is_recorded_as_rejecting() -> None:
    """No event can help, only the backoff."""
    failure = too_late(unschedulable("full").of("P"))
    assert (failure.message, failure.rejected_by, failure.is_error) == ("full", frozenset(), False)


def test_a_condition_that_stands_already_is_not_written_again() -> None:
    """The event is written again, because it counts attempts."""
    made = failing(pod("web", conditions=[SAID]), "no")
    assert made.writer.patches == []
    reported = [(event.reason, event.reporting_controller) for event in made.writer.events]
    assert reported == [("FailedScheduling", "default-scheduler")]


def test_another_generation_alone_is_no_reason_to_write() -> None:
    """The API server has the same condition already."""
    wanted = pod("web", conditions=[SAID])
    metadata = msgspec.structs.replace(wanted.metadata, generation=7)
    made = failing(msgspec.structs.replace(wanted, metadata=metadata), "no")
    assert made.writer.patches == []


def test_the_condition_names_the_generation_that_was_tried() -> None:
    """A user who changed the pod sees whether the reason is from before."""
    wanted = pod("web")
    metadata = msgspec.structs.replace(wanted.metadata, generation=7)
    made = failing(msgspec.structs.replace(wanted, metadata=metadata), "no")
    assert made.condition == msgspec.structs.replace(SAID, observed_generation=7)


def test_a_changed_reason_is_written() -> None:
    """The condition describes the last attempt."""
    made = failing(pod("web", conditions=[SAID]), "never")
    assert made.condition.message == "0/1 nodes are available: never."


def test_a_nomination_that_is_taken_back_is_written_without_repeating_the_condition() -> None:
    """Each is written only if it changes."""
    journal = Journal(answers={"Rec.reserve": unschedulable("no")})
    made = rig([recorder("Rec", journal)])
    standing = PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 no.")
    made.add(node("n0"), pod("web", conditions=[standing], nominated_node="n0"))
    assert made.decide() is None
    (patch,) = made.writer.patches
    assert (patch.condition, patch.nominated_node_name) == (None, "")


def test_records() -> None:
    """Rejections and errors are counted separately by profile; the last error is stored with its pod."""
    journal = Journal(answers={"Rec.preFilter": PreFilterResult(unresolvable("no"))})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), pod("web"), pod("other"))
    assert made.decide() is None
    journal.answers["Rec.preFilter"] = ValueError("boom")
    assert made.decide() is None
    record = made.context.metrics.records["default-scheduler"]
    assert (record.unschedulable, record.errors, record.scheduled) == (1, 1, 0)
    assert record.last_error == 'default/other: running PreFilter plugin "Rec": raised ValueError: boom'
    made.queue.close()


def test_a_pod_that_is_gone_meanwhile_is_not_spoken_of() -> None:
    """No condition, no event, and it is not requeued."""
    made = rig([recorder("Rec", Journal())])
    wanted = pod("web")
    made.add(node("n0"), wanted)
    attempt = made.decide()
    assert attempt is not None
    made.scheduler.feed.pod_deleted(wanted)
    made.scheduler.cycles.failed.handle(attempt, Failure("no", frozenset({"Rec"})))
    assert (made.place(wanted), made.writer.events, made.writer.patches) == ("", [], [])
