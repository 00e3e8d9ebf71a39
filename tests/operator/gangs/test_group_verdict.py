"""How far a gang has come, and in which words that is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import PodFields
from tests.support.told_groups import FOUR, LACKS, NOW, PLACED, ToldGroup


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
    """The first rule that holds for the members that there are gives the phase; four are needed."""
    train = ToldGroup()
    for name, fields in members:
        train.has(name, **fields)
    verdict, status = train.told()
    assert (status["phase"], verdict.reason) == (phase, reason)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        pytest.param([("a", {}), ("b", {})], "2 of 4 members exist; 2 more are needed.", id="too-few"),
        pytest.param([(each, {}) for each in "abc"], "3 of 4 members exist; 1 more is needed.", id="one-short"),
        pytest.param(
            [("a", {}), *((each, {"gates": ["x.io/wait"]}) for each in "bcd")],
            "3 of 4 members are held back by scheduling gates (x.io/wait); 4 are needed.",
            id="gated",
        ),
        pytest.param(
            [("a", {"node_name": "n"}), ("b", {}), ("c", {}), ("d", {})],
            "Only 1 of 4 members that are needed is bound. Without a node: b, c, d.",
            id="in-part",
        ),
        pytest.param(
            [("a", {"node_name": "n"}), ("b", {"gates": ["x.io/wait"]}), ("c", {})],
            "Only 1 of 4 members that are needed is bound. Without a node: b, c. "
            "1 of 3 members is held back by scheduling gates (x.io/wait). 1 more must be created.",
            id="in-part-gated-and-too-few",
        ),
        pytest.param(
            [*((each, {"node_name": "n"}) for each in "abc"), ("d", {"phase": "Failed"})],
            "1 member failed (d) and 3 of the 4 that are needed are left. Replace what failed, or delete the group.",
            id="failed",
        ),
        pytest.param(
            [(each, {"node_name": "n"}) for each in FOUR], "All 4 members that are needed have nodes.", id="placed"
        ),
    ],
)
def test_words_without_an_attempt(members: Iterable[tuple[str, PodFields]], words: str) -> None:
    """The condition says what the group waits for, with numbers and names."""
    train = ToldGroup()
    for name, fields in members:
        train.has(name, **fields)
    assert train.condition()["message"] == words


def test_many_names_are_counted() -> None:
    """Five members are named, the others counted."""
    train = ToldGroup(needed=40).has("x", node_name="n").has(*(f"m-{number:02}" for number in range(39)))
    assert "Without a node: m-00, m-01, m-02, m-03, m-04 and 34 more." in train.condition()["message"]


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", "TimedOut", "Preempting"])
def test_an_attempt_in_vain(reason: str) -> None:
    """What the last attempt found is told as it is, and counts as a failure."""
    train = ToldGroup().has(*FOUR)
    train.gang.outcome = replace(LACKS, reason=reason)
    verdict, status = train.told()
    assert (status["phase"], verdict.reason, verdict.message, verdict.is_failure) == (
        "Scheduling",
        reason,
        LACKS.message,
        True,
    )


def test_a_partial_gang_tells_why_it_stays_so() -> None:
    """A gang in part tells also what the attempt to place the others found."""
    train = ToldGroup().has("a", "b", "c", node_name="n").has("d")
    train.gang.outcome = LACKS
    verdict, _ = train.told()
    assert verdict.message.endswith(f"Without a node: d. {LACKS.message}")
    assert (verdict.reason, verdict.is_failure, verdict.is_partial) == ("Partial", True, True)


def test_an_old_attempt_is_not_told_of_other_members() -> None:
    """Once members are missing it does not matter what an attempt found before."""
    train = ToldGroup().has(*FOUR)
    train.gang.outcome = LACKS
    assert train.loses("d").condition()["reason"] == "MembersMissing"


def test_assumed_members_are_being_bound() -> None:
    """Between the decision and the last bind the group is neither unschedulable nor in part."""
    train = ToldGroup().has("a", node_name="n").has("b", "c", "d")
    for name in "bcd":
        train.gangs.assumed(f"uid-of-default-{name}")
    verdict, status = train.told()
    assert (status["phase"], verdict.reason, status["scheduled"]) == ("Scheduling", "Binding", 1)


def test_the_placed_tell_where() -> None:
    """The words of the attempt that placed them are kept: they name the domain."""
    train = ToldGroup().has(*FOUR, node_name="n")
    train.gang.outcome = PLACED
    assert train.condition()["message"] == PLACED.message


def test_finished_stays_while_nothing_new_comes() -> None:
    """Pods of a finished Job are cleaned up one by one; the group stays Finished until a new member comes."""
    train = ToldGroup().has(*FOUR, node_name="n", phase="Succeeded")
    assert train.phase() == "Finished"
    since = train.condition()["lastTransitionTime"]
    train.now += timedelta(hours=1)
    assert train.loses("a", "b").phase() == "Finished"
    assert train.loses("c", "d").phase() == "Finished"
    assert (train.condition()["status"], train.condition()["lastTransitionTime"]) == ("True", since)
    assert train.has("e").phase() == "Pending"
