"""The status of scheduler-plugins' PodGroups: its own fields, and cases that its users reported."""

from __future__ import annotations

from typing import Any

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod_group import GroupSource
from tests.support.group_scenarios import LACKS, GroupScenario


def plugins_status(train: GroupScenario) -> dict[str, Any]:
    status = train.status()
    status.pop("scheduleStartTime", None)
    return status


def test_thread_166_counts_are_shown_and_no_pods_is_pending() -> None:
    """scheduler-plugins #166: counts are shown also when they are zero, and a group without pods is Pending again.

    Here every count is written, and the phase follows from the existing members alone.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=2)
    assert plugins_status(train) == {"phase": "Pending", "running": 0, "succeeded": 0, "failed": 0}
    assert train.has("a", "b", node_name="n").phase() == "Running"
    assert plugins_status(train.loses("a", "b")) == {"phase": "Pending", "running": 0, "succeeded": 0, "failed": 0}


def test_thread_361_evicted_members_are_not_counted() -> None:
    """scheduler-plugins #361: 10 run and 8 are required; 5 are evicted: Pending with 5; then 10 again.

    Here counts are those of the existing members and not a sum over time.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=8)
    train.written["scheduled"] = 0
    first, second = [f"a-{number}" for number in range(5)], [f"b-{number}" for number in range(5)]
    status = train.has(*first, *second, node_name="n").status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 10, 10)
    status = train.loses(*second).status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Pending", 5, 5)
    status = train.has(*(f"c-{number}" for number in range(5)), node_name="n").status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 10, 10)


def test_thread_386_a_failure_beyond_the_quorum_fails_nothing() -> None:
    """scheduler-plugins #386: one member failed, but all required members run or succeeded: Running, not Failed.

    Here the quorum is checked before failures.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=3)
    train.has("a", "b", node_name="n").has("c", node_name="n", phase="Succeeded").has("d", phase="Failed")
    assert plugins_status(train) == {"phase": "Running", "running": 2, "succeeded": 1, "failed": 1}


def test_thread_386_too_few_left_is_failed() -> None:
    """scheduler-plugins #386: with fewer members left than required it is Failed."""
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=3)
    assert train.has("a", "b", node_name="n").has("c", node_name="n", phase="Failed").phase() == "Failed"


def test_thread_446_all_run_and_the_phase_says_so() -> None:
    """scheduler-plugins #446: all 3 run while the phase stays Scheduling and ``scheduled`` 1.

    Here counts are not computed from an outdated copy of the object; a wrong ``scheduled`` is corrected.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=3).has("a", "b", "c", node_name="n")
    train.written = {"phase": "Scheduling", "running": 3, "scheduled": 1, "scheduleStartTime": "2022-11-07T02:39:33Z"}
    status = train.status()
    assert (status["phase"], status["running"], status["scheduled"]) == ("Running", 3, 3)
    assert status["scheduleStartTime"] == "2022-11-07T02:39:33Z"


def test_thread_578_the_agreed_flow() -> None:
    """scheduler-plugins #578: the agreed flow, in which a group recovers from a failure.

    Pending, Scheduling when the pods exist, Running, Failed, Scheduling when replaced, Running, Finished. Here no phase
    is computed from the previous one, and Failed ends when its reason does.
    """
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=3)
    flow = [train.phase()]
    flow.append(train.has("a", "b", "c").phase())
    flow.append(train.has("a", "b", "c", node_name="n", phase="Pending").phase())
    flow.append(train.has("a", "b", "c", node_name="n").phase())
    flow.append(train.has("c", node_name="n", phase="Failed").phase())
    flow.append(train.has("d").phase())
    flow.append(train.has("d", node_name="n").phase())
    flow.append(train.has("a", "b", "d", node_name="n", phase="Succeeded").phase())
    assert flow == ["Pending", "Scheduling", "Scheduling", "Running", "Failed", "Scheduling", "Running", "Finished"]


def test_unknown_is_a_partial_gang() -> None:
    """Its API's ``Unknown``: some of minMember members are scheduled, and an attempt to schedule others failed."""
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS).has("a", "b", node_name="n").has("c", "d")
    assert train.phase() == "Scheduling"
    train.gang.outcome = LACKS
    assert train.phase() == "Unknown"


def test_occupied_by_all_owners() -> None:
    """The owners of the members, each once, as ``namespace/name``; removed with the members."""
    jobs = [OwnerReference("Job", "workers", "u1"), OwnerReference("Job", "master", "u2")]
    train = GroupScenario(GroupSource.SCHEDULER_PLUGINS, needed=3)
    assert "occupiedBy" not in train.status()
    train.has("a", "b", owners=[jobs[0]]).has("c", owners=[jobs[1]])
    assert train.status()["occupiedBy"] == "default/master,default/workers"
    assert "occupiedBy" not in train.loses("a", "b", "c").status()
