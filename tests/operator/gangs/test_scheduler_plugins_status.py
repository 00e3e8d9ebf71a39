"""Tests of the status of scheduler-plugins' PodGroups, with cases that its users reported."""

from __future__ import annotations

from typing import Any

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod_group import GroupSource
from tests.support.group_scenarios import UNSCHEDULABLE, GroupScenario


def plugins_status(train: GroupScenario) -> dict[str, Any]:
    status = train.status()
    status.pop("scheduleStartTime", None)
    return status


def test_issue_166_counts_are_shown_and_no_pods_is_pending() -> None:
    """scheduler-plugins #166: zero counts are written, and a group without pods is Pending again.

    Every count is written, and the phase depends only on the existing members.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=2)
    assert plugins_status(train) == {"phase": "Pending", "running": 0, "succeeded": 0, "failed": 0}
    assert train.add_members("a", "b", node_name="n").phase() == "Running"
    assert plugins_status(train.remove_members("a", "b")) == {
        "phase": "Pending",
        "running": 0,
        "succeeded": 0,
        "failed": 0,
    }


def test_issue_361_evicted_members_are_not_counted() -> None:
    """scheduler-plugins #361: of 10 running members, 8 of which are required, 5 are evicted and recreated.

    Counts are those of the existing members and not a sum over time.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=8)
    train.written["scheduled"] = 0
    first, second = [f"a-{number}" for number in range(5)], [f"b-{number}" for number in range(5)]
    status = train.add_members(*first, *second, node_name="n").status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 10, 10)
    status = train.remove_members(*second).status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Pending", 5, 5)
    status = train.add_members(*(f"c-{number}" for number in range(5)), node_name="n").status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 10, 10)


def test_issue_386_a_failure_beyond_the_quorum_is_not_failed() -> None:
    """scheduler-plugins #386: a group with a failed member is Running if all required members run or succeeded.

    The quorum is checked before failures.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=3)
    train.add_members("a", "b", node_name="n").add_members("c", node_name="n", phase="Succeeded").add_members(
        "d", phase="Failed"
    )
    assert plugins_status(train) == {"phase": "Running", "running": 2, "succeeded": 1, "failed": 1}


def test_issue_386_too_few_members_left_is_failed() -> None:
    """scheduler-plugins #386: a group with fewer members left than required is Failed."""
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=3)
    assert (
        train.add_members("a", "b", node_name="n").add_members("c", node_name="n", phase="Failed").phase() == "Failed"
    )


def test_issue_446_the_phase_is_running_when_all_members_run() -> None:
    """scheduler-plugins #446: a stale status of a group whose three members run is corrected.

    Counts are not computed from an outdated copy of the object.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=3).add_members("a", "b", "c", node_name="n")
    train.written = {"phase": "Scheduling", "running": 3, "scheduled": 1, "scheduleStartTime": "2022-11-07T02:39:33Z"}
    status = train.status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 3, 3)
    assert status["scheduleStartTime"] == "2022-11-07T02:39:33Z"


def test_issue_578_the_agreed_flow() -> None:
    """scheduler-plugins #578: a group recovers from a failure when the failed member is replaced.

    No phase is computed from the previous phase.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=3)
    phases = [train.phase()]
    phases.append(train.add_members("a", "b", "c").phase())
    phases.append(train.add_members("a", "b", "c", node_name="n", phase="Pending").phase())
    phases.append(train.add_members("a", "b", "c", node_name="n").phase())
    phases.append(train.add_members("c", node_name="n", phase="Failed").phase())
    phases.append(train.add_members("d").phase())
    phases.append(train.add_members("d", node_name="n").phase())
    phases.append(train.add_members("a", "b", "d", node_name="n", phase="Succeeded").phase())
    assert phases == ["Pending", "Scheduling", "Scheduling", "Running", "Failed", "Scheduling", "Running", "Finished"]


def test_a_partial_gang_is_unknown() -> None:
    """The phase of a partial gang is Unknown after a failed attempt to schedule the other members."""
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS).add_members("a", "b", node_name="n").add_members("c", "d")
    assert train.phase() == "Scheduling"
    train.gang.outcome = UNSCHEDULABLE
    assert train.phase() == "Unknown"


def test_occupied_by_names_all_owners() -> None:
    """The field occupiedBy names each owner of the members once, and is removed with the members."""
    jobs = [OwnerReference("Job", "workers", "u1"), OwnerReference("Job", "master", "u2")]
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, min_member=3)
    assert "occupiedBy" not in train.status()
    train.add_members("a", "b", owners=[jobs[0]]).add_members("c", owners=[jobs[1]])
    assert train.status()["occupiedBy"] == "default/master,default/workers"
    assert "occupiedBy" not in train.remove_members("a", "b", "c").status()
