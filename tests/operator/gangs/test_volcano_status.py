"""Tests of the status of Volcano's PodGroups, in that API's phases."""

from __future__ import annotations

from typing import Any

from bayplan.gangs.group_status import RecordedEvent, recorded_event, status_difference

from scheduler_core.errors import Problem
from scheduler_core.model.pod_group import GroupSource
from tests.support.group_scenarios import UNSCHEDULABLE, GroupScenario


def scenario(min_member: int = 3) -> GroupScenario:
    return GroupScenario(GroupSource.VOLCANO, min_member=min_member)


def condition(status: dict[str, Any]) -> tuple[str, str, str]:
    (found,) = status["conditions"]
    return found["type"], found["status"], found["reason"]


def test_phases() -> None:
    """The phases of a group from its creation to its end."""
    train = scenario()
    statuses = [train.status(), train.add_members("a", "b", "c").status()]
    statuses.append(train.add_members("a", "b", "c", node_name="n", phase="Pending").status())
    statuses.append(train.add_members("a", "b", "c", node_name="n").status())
    statuses.append(train.add_members("c", node_name="n", phase="Failed").status())
    statuses.append(train.add_members("d", node_name="n").status())
    statuses.append(train.add_members("a", "b", "d", node_name="n", phase="Succeeded").status())
    phases = [(each["phase"], each["running"], each["succeeded"], each["failed"]) for each in statuses]
    assert phases == [
        ("Inqueue", 0, 0, 0),
        ("Inqueue", 0, 0, 0),
        ("Running", 0, 0, 0),
        ("Running", 3, 0, 0),
        ("Unknown", 2, 0, 1),
        ("Running", 3, 0, 1),
        ("Completed", 0, 3, 1),
    ]
    assert "conditions" not in statuses[0]
    assert condition(statuses[3]) == ("Scheduled", "True", "Scheduled")


def test_a_failed_attempt() -> None:
    """The condition of a gang that does not fit is Unschedulable, with its message; its time stays as it was."""
    train = scenario().add_members("a", "b", "c")
    train.gang.outcome = UNSCHEDULABLE
    first = train.status()
    assert first["phase"] == "Inqueue"
    assert condition(first) == ("Unschedulable", "True", "Unschedulable")
    assert UNSCHEDULABLE.message in first["conditions"][0]["message"]
    train.now = train.now.replace(hour=13)
    assert train.status() == first
    assert recorded_event(first) == RecordedEvent("FailedScheduling", first["conditions"][0]["message"])
    bound = train.add_members("a", "b", "c", node_name="n").status()
    assert condition(bound) == ("Scheduled", "True", "Scheduled")
    assert bound["conditions"][0]["lastTransitionTime"] != first["conditions"][0]["lastTransitionTime"]


def test_a_gang_in_part() -> None:
    """The phase is Unknown while some members are bound and the others do not fit."""
    train = scenario().add_members("a", "b", node_name="n").add_members("c")
    assert train.phase() == "Inqueue"
    train.gang.outcome = UNSCHEDULABLE
    assert train.phase() == "Unknown"


def test_an_unsupported_spec() -> None:
    """A spec that is not supported is Pending, with the problem in the condition."""
    train = scenario()
    train.gang.group = None
    train.problems = (Problem("spec.minTaskMember", "is not supported"),)
    status = train.status()
    assert status["phase"] == "Pending"
    assert condition(status) == ("Unschedulable", "True", "InvalidSpec")
    assert "spec.minTaskMember" in status["conditions"][0]["message"]


def test_fields_of_others_stay() -> None:
    """The patch has only what differs, and removes no field that it does not write."""
    wanted = scenario().add_members("a").status()
    assert status_difference(GroupSource.VOLCANO, {**wanted, "other": 1}, wanted).patch == {}
    assert status_difference(GroupSource.VOLCANO, {**wanted, "running": 2}, wanted).patch == {"running": 0}
