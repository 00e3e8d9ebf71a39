"""Tests of the phases of gangs, with their reasons and messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import PodFields
from tests.support.group_scenarios import FOUR, NOW, SCHEDULED, UNSCHEDULABLE, GroupScenario
from tests.support.tables import table


@table(
    "members, phase, reason",
    ("none", [], "Pending", "MembersMissing"),
    ("too-few", [("a", {}), ("b", {})], "Pending", "MembersMissing"),
    ("quorum", [(each, {}) for each in FOUR], "Scheduling", "Waiting"),
    ("quorum-gated", [("a", {}), *((each, {"gates": ["x.io/wait"]}) for each in "bcd")], "Pending", "Gated"),
    ("fifth-gated", [*((each, {}) for each in FOUR), ("e", {"gates": ["x.io/wait"]})], "Scheduling", "Waiting"),
    ("all-being-deleted", [(each, {"deleted": NOW}) for each in FOUR], "Pending", "MembersMissing"),
    ("bound", [(each, {"node_name": "n", "phase": "Pending"}) for each in FOUR], "Scheduled", "Scheduled"),
    (
        "bound-and-some-running",
        [("a", {"node_name": "n"}), *((each, {"node_name": "n", "phase": "Pending"}) for each in "bcd")],
        "Scheduled",
        "Scheduled",
    ),
    ("running", [(each, {"node_name": "n"}) for each in FOUR], "Running", "Scheduled"),
    (
        "running-and-more-than-needed",
        [*((each, {"node_name": "n"}) for each in FOUR), ("e", {}), ("f", {})],
        "Running",
        "Scheduled",
    ),
    (
        "running-and-succeeded",
        [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"node_name": "n", "phase": "Succeeded"})],
        "Running",
        "Scheduled",
    ),
    ("succeeded", [(each, {"node_name": "n", "phase": "Succeeded"}) for each in FOUR], "Finished", "Finished"),
    (
        "succeeded-and-one-more-failed",
        [*((each, {"node_name": "n", "phase": "Succeeded"}) for each in FOUR), ("e", {"phase": "Failed"})],
        "Finished",
        "Finished",
    ),
    (
        "failed",
        [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"node_name": "n", "phase": "Failed"})],
        "Failed",
        "MembersFailed",
    ),
    (
        "failed-and-replaced",
        [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"phase": "Failed"}), ("e", {})],
        "Scheduling",
        "Partial",
    ),
    ("failed-before-the-quorum", [("a", {"phase": "Failed"})], "Pending", "MembersMissing"),
    ("partial", [*((each, {"node_name": "n"}) for each in "abc"), ("d", {})], "Scheduling", "Partial"),
    ("partial-and-too-few", [(each, {"node_name": "n"}) for each in "abc"], "Pending", "Partial"),
    (
        "one-is-being-deleted",
        [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"node_name": "n", "deleted": NOW})],
        "Pending",
        "Partial",
    ),
)
def test_phases(members: Iterable[tuple[str, PodFields]], phase: str, reason: str) -> None:
    """The first rule that holds for the existing members determines the phase."""
    train = GroupScenario()
    for name, fields in members:
        train.add_members(name, **fields)
    verdict, status = train.write()
    assert (status["phase"], verdict.reason) == (phase, reason)


@table(
    "members, words",
    ("too-few", [("a", {}), ("b", {})], "2 of 4 members exist; 2 more are needed."),
    ("one-short", [(each, {}) for each in "abc"], "3 of 4 members exist; 1 more is needed."),
    (
        "gated",
        [("a", {}), *((each, {"gates": ["x.io/wait"]}) for each in "bcd")],
        "3 of 4 members are gated by scheduling gates: x.io/wait; 4 members are required.",
    ),
    (
        "partial",
        [("a", {"node_name": "n"}), ("b", {}), ("c", {}), ("d", {})],
        "Only 1 of 4 required members is bound. Not scheduled: b, c, d.",
    ),
    (
        "partial-gated-and-too-few",
        [("a", {"node_name": "n"}), ("b", {"gates": ["x.io/wait"]}), ("c", {})],
        (
            "Only 1 of 4 required members is bound. Not scheduled: b, c. "
            "1 of 3 members is gated by scheduling gates: x.io/wait. 1 more must be created."
        ),
    ),
    (
        "failed",
        [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"phase": "Failed"})],
        "1 member failed (d); 3 of 4 required members are left. Replace the failed pods or delete the PodGroup.",
    ),
    ("scheduled", [(each, {"node_name": "n"}) for each in FOUR], "All 4 required members are scheduled."),
)
def test_messages_without_an_attempt(members: Iterable[tuple[str, PodFields]], words: str) -> None:
    """The message reports what the group waits for, with numbers and names."""
    train = GroupScenario()
    for name, fields in members:
        train.add_members(name, **fields)
    assert train.condition()["message"] == words


def test_many_names_are_counted() -> None:
    """Five members are named and the others are counted."""
    train = (
        GroupScenario(min_member=40)
        .add_members("x", node_name="n")
        .add_members(*(f"m-{number:02}" for number in range(39)))
    )
    assert "Not scheduled: m-00, m-01, m-02, m-03, m-04 and 34 more." in train.condition()["message"]


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", "TimedOut", "Preempting"])
def test_a_failed_attempt_has_its_message(reason: str) -> None:
    """After a failed attempt the group has its reason and message."""
    train = GroupScenario().add_members(*FOUR)
    train.gang.outcome = replace(UNSCHEDULABLE, reason=reason)
    verdict, status = train.write()
    assert (status["phase"], verdict.reason, verdict.message, verdict.is_failure) == (
        "Scheduling",
        reason,
        UNSCHEDULABLE.message,
        True,
    )


def test_a_partial_gang_has_the_message_of_the_attempt() -> None:
    """The message of a partial gang includes the message of the attempt to schedule the other members."""
    train = GroupScenario().add_members("a", "b", "c", node_name="n").add_members("d")
    train.gang.outcome = UNSCHEDULABLE
    verdict, _ = train.write()
    assert verdict.message.endswith(f"Not scheduled: d. {UNSCHEDULABLE.message}")
    assert (verdict.reason, verdict.is_failure, verdict.is_partial) == ("Partial", True, True)


def test_missing_members_precede_the_last_attempt() -> None:
    """While members are missing the reason is MembersMissing, whatever the last attempt."""
    train = GroupScenario().add_members(*FOUR)
    train.gang.outcome = UNSCHEDULABLE
    assert train.remove_members("d").condition()["reason"] == "MembersMissing"


def test_assumed_members_are_being_bound() -> None:
    """A gang with assumed members is neither unschedulable nor partial."""
    train = GroupScenario().add_members("a", node_name="n").add_members("b", "c", "d")
    for name in "bcd":
        train.gangs.assumed(f"uid-of-default-{name}")
    verdict, status = train.write()
    assert (status["phase"], verdict.reason, status["scheduled"]) == ("Scheduling", "Binding", 1)


def test_a_scheduled_gang_has_the_message_of_its_attempt() -> None:
    """The message of a scheduled gang is that of its attempt, with the domain."""
    train = GroupScenario().add_members(*FOUR, node_name="n")
    train.gang.outcome = SCHEDULED
    assert train.condition()["message"] == SCHEDULED.message


def test_finished_stays_until_a_new_member_is_created() -> None:
    """A gang stays Finished while its pods are deleted one by one, until a new member is created."""
    train = GroupScenario().add_members(*FOUR, node_name="n", phase="Succeeded")
    assert train.phase() == "Finished"
    since = train.condition()["lastTransitionTime"]
    train.now += timedelta(hours=1)
    assert train.remove_members("a", "b").phase() == "Finished"
    assert train.remove_members("c", "d").phase() == "Finished"
    assert (train.condition()["status"], train.condition()["lastTransitionTime"]) == ("True", since)
    assert train.add_members("e").phase() == "Pending"
