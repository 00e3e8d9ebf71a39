"""Phases of gangs, with their reasons and messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import PodFields
from tests.support.group_scenarios import FOUR, LACKS, NOW, PLACED, GroupScenario


@pytest.mark.parametrize(
    ("members", "phase", "reason"),
    [
        pytest.param([], "Pending", "MembersMissing", id="none"),
        pytest.param([("a", {}), ("b", {})], "Pending", "MembersMissing", id="too-few"),
        pytest.param([(each, {}) for each in FOUR], "Scheduling", "Waiting", id="quorum"),
        pytest.param(
            [("a", {}), *((each, {"gates": ["x.io/wait"]}) for each in "bcd")], "Pending", "Gated", id="quorum-gated"
        ),
        pytest.param(
            [*((each, {}) for each in FOUR), ("e", {"gates": ["x.io/wait"]})], "Scheduling", "Waiting", id="fifth-gated"
        ),
        pytest.param([(each, {"deleted": NOW}) for each in FOUR], "Pending", "MembersMissing", id="all-being-deleted"),
        pytest.param(
            [(each, {"node_name": "n", "phase": "Pending"}) for each in FOUR], "Scheduled", "Scheduled", id="bound"
        ),
        pytest.param(
            [("a", {"node_name": "n"}), *((each, {"node_name": "n", "phase": "Pending"}) for each in "bcd")],
            "Scheduled",
            "Scheduled",
            id="bound-and-some-run",
        ),
        pytest.param([(each, {"node_name": "n"}) for each in FOUR], "Running", "Scheduled", id="run"),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in FOUR), ("e", {}), ("f", {})], "Running", "Scheduled", id="more"
        ),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"node_name": "n", "phase": "Succeeded"})],
            "Running",
            "Scheduled",
            id="run-and-succeeded",
        ),
        pytest.param(
            [(each, {"node_name": "n", "phase": "Succeeded"}) for each in FOUR], "Finished", "Finished", id="succeeded"
        ),
        pytest.param(
            [*((each, {"node_name": "n", "phase": "Succeeded"}) for each in FOUR), ("e", {"phase": "Failed"})],
            "Finished",
            "Finished",
            id="succeeded-and-one-failed-beyond",
        ),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"node_name": "n", "phase": "Failed"})],
            "Failed",
            "MembersFailed",
            id="failed",
        ),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"phase": "Failed"}), ("e", {})],
            "Scheduling",
            "Partial",
            id="failed-and-replaced",
        ),
        pytest.param([("a", {"phase": "Failed"})], "Pending", "MembersMissing", id="failed-before-there-were-enough"),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {})], "Scheduling", "Partial", id="in-part"
        ),
        pytest.param([(each, {"node_name": "n"}) for each in "abc"], "Pending", "Partial", id="in-part-and-too-few"),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"node_name": "n", "deleted": NOW})],
            "Pending",
            "Partial",
            id="one-is-being-deleted",
        ),
    ],
)
def test_phases(members: Iterable[tuple[str, PodFields]], phase: str, reason: str) -> None:
    """The first rule that holds for the existing members determines the phase; four members are required."""
    train = GroupScenario()
    for name, fields in members:
        train.has(name, **fields)
    verdict, status = train.write()
    assert (status["phase"], verdict.reason) == (phase, reason)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        pytest.param([("a", {}), ("b", {})], "2 of 4 members exist; 2 more are needed.", id="too-few"),
        pytest.param([(each, {}) for each in "abc"], "3 of 4 members exist; 1 more is needed.", id="one-short"),
        pytest.param(
            [("a", {}), *((each, {"gates": ["x.io/wait"]}) for each in "bcd")],
            "3 of 4 members are gated by scheduling gates: x.io/wait; 4 members are required.",
            id="gated",
        ),
        pytest.param(
            [("a", {"node_name": "n"}), ("b", {}), ("c", {}), ("d", {})],
            "Only 1 of 4 required members is bound. Not scheduled: b, c, d.",
            id="in-part",
        ),
        pytest.param(
            [("a", {"node_name": "n"}), ("b", {"gates": ["x.io/wait"]}), ("c", {})],
            "Only 1 of 4 required members is bound. Not scheduled: b, c. "
            "1 of 3 members is gated by scheduling gates: x.io/wait. 1 more must be created.",
            id="in-part-gated-and-too-few",
        ),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"phase": "Failed"})],
            "1 member failed (d); 3 of 4 required members are left. Replace the failed pods or delete the PodGroup.",
            id="failed",
        ),
        pytest.param(
            [(each, {"node_name": "n"}) for each in FOUR], "All 4 required members are scheduled.", id="scheduled"
        ),
    ],
)
def test_messages_without_an_attempt(members: Iterable[tuple[str, PodFields]], words: str) -> None:
    """The message says what the group waits for, with numbers and names."""
    train = GroupScenario()
    for name, fields in members:
        train.has(name, **fields)
    assert train.condition()["message"] == words


def test_many_names_are_counted() -> None:
    """Five members are named, the others counted."""
    train = GroupScenario(needed=40).has("x", node_name="n").has(*(f"m-{number:02}" for number in range(39)))
    assert "Not scheduled: m-00, m-01, m-02, m-03, m-04 and 34 more." in train.condition()["message"]


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", "TimedOut", "Preempting"])
def test_a_failed_attempt(reason: str) -> None:
    """The message is that of the last attempt, and the verdict is a failure."""
    train = GroupScenario().has(*FOUR)
    train.gang.outcome = replace(LACKS, reason=reason)
    verdict, status = train.write()
    assert (status["phase"], verdict.reason, verdict.message, verdict.is_failure) == (
        "Scheduling",
        reason,
        LACKS.message,
        True,
    )


def test_a_partial_gang_and_a_failed_attempt() -> None:
    """The message of a partial gang includes that of the attempt to schedule the others."""
    train = GroupScenario().has("a", "b", "c", node_name="n").has("d")
    train.gang.outcome = LACKS
    verdict, _ = train.write()
    assert verdict.message.endswith(f"Not scheduled: d. {LACKS.message}")
    assert (verdict.reason, verdict.is_failure, verdict.is_partial) == ("Partial", True, True)


def test_an_earlier_attempt_does_not_matter_if_members_are_missing() -> None:
    """The reason is MembersMissing, whatever the result of an earlier attempt."""
    train = GroupScenario().has(*FOUR)
    train.gang.outcome = LACKS
    assert train.loses("d").condition()["reason"] == "MembersMissing"


def test_assumed_members_are_being_bound() -> None:
    """Between the decision and the last bind the group is neither unschedulable nor partial."""
    train = GroupScenario().has("a", node_name="n").has("b", "c", "d")
    for name in "bcd":
        train.gangs.assumed(f"uid-of-default-{name}")
    verdict, status = train.write()
    assert (status["phase"], verdict.reason, status["scheduled"]) == ("Scheduling", "Binding", 1)


def test_a_scheduled_gang_has_the_message_of_its_attempt() -> None:
    """The message names the domain."""
    train = GroupScenario().has(*FOUR, node_name="n")
    train.gang.outcome = PLACED
    assert train.condition()["message"] == PLACED.message


def test_finished_stays_until_a_new_member_is_created() -> None:
    """Pods of a finished Job are cleaned up one by one; the group stays Finished until a new member is created."""
    train = GroupScenario().has(*FOUR, node_name="n", phase="Succeeded")
    assert train.phase() == "Finished"
    since = train.condition()["lastTransitionTime"]
    train.now += timedelta(hours=1)
    assert train.loses("a", "b").phase() == "Finished"
    assert train.loses("c", "d").phase() == "Finished"
    assert (train.condition()["status"], train.condition()["lastTransitionTime"]) == ("True", since)
    assert train.has("e").phase() == "Pending"
