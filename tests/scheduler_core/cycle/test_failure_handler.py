"""Conditions, events and nominations that are written after a failed attempt."""

from __future__ import annotations

import msgspec

from scheduler_core.cycle.failure_handler import of_status, too_late
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.framework.status import Code, Status, error, unresolvable, unschedulable
from scheduler_core.model.pod import Pod, PodCondition
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig
from tests.support.tables import table

CURRENT_CONDITION = PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: no.")


def rig_after_rejection(wanted: Pod, *reasons: str) -> Rig:
    journal = Journal(results={"Rec.preFilter": PreFilterResult(unresolvable(*reasons))})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), wanted)
    assert made.decide() is None
    return made


@table(
    "status, message, rejected_by, is_error",
    ("rejects", unschedulable("b", "a").of("P"), "0/1 nodes are available: 1 a, 1 b.", {"P"}, False),
    ("repeated-reasons", unschedulable("a", "b", "a").of("P"), "0/1 nodes are available: 1 b, 2 a.", {"P"}, False),
    ("rejects-without-a-reason", unresolvable().of("P"), "0/1 nodes are available:", {"P"}, False),
    ("error", error("broken").of("P"), "broken", set(), True),
    ("unexpected-code", Status(Code.WAIT).of("P"), "plugin P answered Wait", set(), True),
)
def test_a_status_becomes_a_failure(status: Status, message: str, rejected_by: set[str], is_error: bool) -> None:
    """The message of a rejection counts one node; the message of an error is the status message."""
    failure = of_status(status)
    assert (failure.message, set(failure.rejected_by), failure.is_error) == (message, rejected_by, is_error)


@table("code, pending", ("pending", Code.PENDING, {"P"}), ("unschedulable", Code.UNSCHEDULABLE, set()))
def test_pending_plugins_are_recorded(code: Code, pending: set[str]) -> None:
    """The plugin of a Pending status is recorded, so that its events requeue the pod without backoff."""
    assert set(of_status(Status(code, ("later",), "P")).pending_on) == pending


def test_after_permit_no_plugin_is_recorded_as_rejecting() -> None:
    """A pod that is rejected after Permit is retried after backoff, not by events."""
    failure = too_late(unschedulable("full").of("P"))
    assert (failure.message, failure.rejected_by, failure.is_error) == ("full", frozenset(), False)


def test_an_unchanged_condition_is_not_written_again() -> None:
    """An unchanged condition is not written again, but the event of the attempt is."""
    made = rig_after_rejection(pod("web", conditions=[CURRENT_CONDITION]), "no")
    assert made.writer.patches == []
    reported = [(event.reason, event.reporting_controller) for event in made.writer.events]
    assert reported == [("FailedScheduling", "default-scheduler")]


def test_a_new_generation_alone_does_not_write_the_condition() -> None:
    """A condition that differs only in observedGeneration is not written."""
    wanted = pod("web", conditions=[CURRENT_CONDITION])
    metadata = msgspec.structs.replace(wanted.metadata, generation=7)
    made = rig_after_rejection(msgspec.structs.replace(wanted, metadata=metadata), "no")
    assert made.writer.patches == []


def test_the_condition_has_the_observed_generation() -> None:
    """The condition has the pod's generation of the failed attempt."""
    wanted = pod("web")
    metadata = msgspec.structs.replace(wanted.metadata, generation=7)
    made = rig_after_rejection(msgspec.structs.replace(wanted, metadata=metadata), "no")
    assert made.condition == msgspec.structs.replace(CURRENT_CONDITION, observed_generation=7)


def test_a_changed_reason_is_written() -> None:
    """A condition with another message is written."""
    made = rig_after_rejection(pod("web", conditions=[CURRENT_CONDITION]), "never")
    assert made.condition.message == "0/1 nodes are available: never."


def test_a_cleared_nomination_is_written_without_the_condition() -> None:
    """A cleared nomination is written although the condition is unchanged."""
    journal = Journal(results={"Rec.reserve": unschedulable("no")})
    made = rig([recorder("Rec", journal)])
    condition = PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 no.")
    made.add(node("n0"), pod("web", conditions=[condition], nominated_node="n0"))
    assert made.decide() is None
    (patch,) = made.writer.patches
    assert (patch.condition, patch.nominated_node_name) == (None, "")


def test_results_by_profile() -> None:
    """Rejections and errors are counted separately by profile; the last error is stored with its pod."""
    journal = Journal(results={"Rec.preFilter": PreFilterResult(unresolvable("no"))})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), pod("web"), pod("other"))
    assert made.decide() is None
    journal.results["Rec.preFilter"] = ValueError("boom")
    assert made.decide() is None
    record = made.context.metrics.records["default-scheduler"]
    assert (record.unschedulable, record.errors, record.scheduled) == (1, 1, 0)
    assert record.last_error == 'default/other: running PreFilter plugin "Rec": raised ValueError: boom'
    assert record.last_error_at == made.clock.wall()
    assert (record.faults, record.last_fault, record.last_fault_at) == (1, record.last_error, record.last_error_at)
