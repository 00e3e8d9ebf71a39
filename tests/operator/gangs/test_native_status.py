"""Tests of the condition of a native PodGroup in both versions of the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bayplan.gangs.group_status import status_difference

from scheduler_core.errors import Problem
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing.gang_members import GangOutcome
from tests.support.group_scenarios import FOUR, SCHEDULED, UNSCHEDULABLE, GroupScenario
from tests.support.tables import table

OLDER = "v1alpha2"
CONDITIONS = {"v1beta1": "PodGroupInitiallyScheduled", OLDER: "PodGroupScheduled"}
QUORUM = "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining"
OTHER = {
    "type": "Other",
    "status": "True",
    "reason": "Other",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
in_both_versions = pytest.mark.parametrize("version", list(CONDITIONS))


def scenario(version: str) -> GroupScenario:
    return GroupScenario(GroupSource.NATIVE, version=version)


def condition(train: GroupScenario) -> dict[str, Any]:
    """Write the status and return the condition of the version."""
    return train.condition(CONDITIONS[train.version])


@in_both_versions
@table(
    "outcome, reason",
    ("unschedulable", UNSCHEDULABLE, "Unschedulable"),
    ("timed-out", replace(UNSCHEDULABLE, reason="TimedOut"), "Unschedulable"),
    ("preempting", replace(UNSCHEDULABLE, reason="Preempting"), "Unschedulable"),
    ("error", replace(UNSCHEDULABLE, reason="SchedulerError"), "SchedulerError"),
)
def test_reasons_of_failures(version: str, outcome: GangOutcome, reason: str) -> None:
    """The condition has one of the two reasons of its API, and Bayplan's message."""
    train = scenario(version).add_members(*FOUR)
    train.gang.outcome = outcome
    found = condition(train)
    assert (found["status"], found["reason"], found["observedGeneration"]) == ("False", reason, 1)
    assert found["message"] == UNSCHEDULABLE.message


def test_before_the_first_attempt() -> None:
    """The older version reports what the group waits for; in the newer one kube-scheduler writes nothing yet."""
    found = condition(scenario(OLDER).add_members("a"))
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    for names in (("a",), FOUR):
        assert scenario("v1beta1").add_members(*names).status() == {}


def test_a_failure_begins_with_the_message_of_kube_scheduler() -> None:
    """The newer version begins with kube-scheduler's message; the older version has only Bayplan's."""
    for version, message in (("v1beta1", f"{QUORUM}; {UNSCHEDULABLE.message}"), (OLDER, UNSCHEDULABLE.message)):
        train = scenario(version).add_members(*FOUR)
        train.gang.outcome = replace(UNSCHEDULABLE, quorum=QUORUM)
        assert condition(train)["message"] == message


def test_a_scheduled_group_has_an_empty_message() -> None:
    """The newer condition of a scheduled group has an empty message, as in kube-scheduler."""
    found = condition(scenario("v1beta1").add_members(*FOUR, node_name="n"))
    assert (found["status"], found["reason"], found["message"]) == ("True", "Scheduled", "")
    assert condition(scenario(OLDER).add_members(*FOUR, node_name="n"))["message"]


@in_both_versions
def test_true_stays_while_members_are_missing(version: str) -> None:
    """True stays while members are missing; a failed attempt resets it only in the older version."""
    train = scenario(version).add_members(*FOUR, node_name="n")
    assert condition(train)["status"] == "True"
    assert condition(train.remove_members("d"))["status"] == "True"
    train.add_members("e")
    assert condition(train)["status"] == "True"
    train.gang.outcome = UNSCHEDULABLE
    assert condition(train)["status"] == ("False" if version == OLDER else "True")


def test_a_failure_stays_while_members_are_missing() -> None:
    """The newer condition changes only with the next attempt."""
    train = scenario("v1beta1").add_members(*FOUR)
    train.gang.outcome = UNSCHEDULABLE
    before = condition(train)
    assert condition(train.remove_members("d")) == before


@in_both_versions
def test_members_beyond_the_quorum_do_not_change_the_condition(version: str) -> None:
    """A fifth member that no node fits does not affect a scheduled gang of four."""
    train = scenario(version).add_members(*FOUR, node_name="n")
    before = condition(train)
    train.add_members("e")
    train.gang.outcome = SCHEDULED
    after = condition(train)
    assert (after["status"], after["lastTransitionTime"]) == ("True", before["lastTransitionTime"])


@in_both_versions
def test_conditions_of_other_types_stay_and_are_not_sent(version: str) -> None:
    """DisruptionTarget stays in the desired status, and the patch has only Bayplan's condition."""
    other = {**OTHER, "type": "DisruptionTarget", "observedGeneration": 1}
    train = scenario(version).add_members(*FOUR)
    train.gang.outcome = UNSCHEDULABLE
    written: dict[str, Any] = {"conditions": [other], "resourceClaimStatuses": []}
    train.written = dict(written)
    wanted = train.status()
    assert other in wanted["conditions"]
    patch = status_difference(GroupSource.NATIVE, written, wanted).patch
    assert [each["type"] for each in patch["conditions"]] == [CONDITIONS[version]]


@in_both_versions
def test_conditions_of_other_types_before_the_first_attempt(version: str) -> None:
    """A patch before the first attempt does not remove conditions of other types."""
    train = scenario(version).add_members(*FOUR)
    written: dict[str, Any] = {"conditions": [OTHER]}
    train.written = dict(written)
    patch = status_difference(GroupSource.NATIVE, written, train.status()).patch
    assert [each["type"] for each in patch.get("conditions", [])] == ([CONDITIONS[OLDER]] if version == OLDER else [])


def test_an_unsupported_spec_is_an_error() -> None:
    """The condition of an unsupported spec has the problem, although there was no attempt."""
    train = scenario("v1beta1")
    train.add_members("a")
    train.gangs.group_deleted(train.key)
    train.problems = (Problem("spec.resourceClaims", "not supported"),)
    found = condition(train)
    assert (found["status"], found["reason"]) == ("False", "SchedulerError")
    assert "spec.resourceClaims" in found["message"]
