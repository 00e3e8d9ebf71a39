"""Tests of the fields of a PodGroup's status, and of the urgency of each change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from bayplan.gangs.group_status import (
    GroupStatusWrite,
    GroupStatusWrites,
    OtherProcesses,
    SeenGroup,
    Urgency,
    group_status,
    status_difference,
)
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, DispatcherOptions
from bayplan.resources.pod_group import PodGroupStatus

from scheduler_core.errors import Problem
from scheduler_core.explain.findings import HelpfulNode, NewNodes
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import Gang, HealingOutcome, LostMember
from tests.support.builders import pod
from tests.support.fake_api import FakeApi, Response
from tests.support.group_scenarios import FOUR, NOW, UNSCHEDULABLE, GroupScenario, member
from tests.support.group_world import GroupWorld, running
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock


def test_transition_time_changes_with_the_status() -> None:
    """The transition time changes with the condition's status, and not with its message."""
    train = GroupScenario().add_members("a")
    first = train.condition()["lastTransitionTime"]
    train.now += timedelta(minutes=1)
    train.add_members("b")
    assert (train.condition()["lastTransitionTime"], train.condition()["message"][:1]) == (first, "2")
    train.add_members(*FOUR, node_name="n")
    assert train.condition()["lastTransitionTime"] == "2026-01-01T12:01:00Z"


def test_warnings_of_a_valid_spec() -> None:
    """A valid spec that names what does not exist is accepted with a warning."""
    problem = Problem("spec.priorityClassName", 'there is no PriorityClass "high"')
    gang = GroupScenario().gang
    status = group_status(SeenGroup(gang.key, 1, {}, warnings=(problem,)), gang, NOW).fields
    (accepted,) = (each for each in status["conditions"] if each["type"] == "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("True", "ValidWithWarnings")
    assert accepted["message"] == ('The spec is valid, but: spec.priorityClassName: there is no PriorityClass "high".')


def test_fields_of_a_waiting_gang() -> None:
    """The status has counts, times, reservation and victims, and is valid for the resource."""
    train = (
        GroupScenario(min_member=3)
        .add_members("a", node_name="n")
        .add_members("b")
        .add_members("c", gates=["x.io/wait"])
        .add_members("d", phase="Failed")
        .add_members("e", node_name="n")
    )
    train.add_members("e", phase="Succeeded")
    gang = train.gang
    gang.first_attempt, gang.last_attempt = NOW, NOW + timedelta(seconds=5)
    gang.reservation = "zone=a"
    own = tuple((gang.key.namespace, f"v-{number}") for number in range(300))
    gang.victims = (("other", "secret"), *own, ("another", "secret"))
    status = train.status()
    counts = {name: status[name] for name in ("members", "gated", "scheduled", "running", "succeeded", "failed")}
    assert counts == {"members": 5, "gated": 1, "scheduled": 1, "running": 1, "succeeded": 1, "failed": 1}
    assert (status["scheduleStartTime"], status["lastAttemptTime"]) == ("2026-01-01T12:00:00Z", "2026-01-01T12:00:05Z")
    assert (status["nominatedDomain"], status["observedGeneration"], len(status["victims"])) == ("zone=a", 1, 256)
    assert status["victimsOfOtherNamespaces"] == 2
    assert "secret" not in str(status)
    assert PodGroupStatus.model_validate(status).model_dump(mode="json", by_alias=True, exclude_none=True) == status


def test_lost_members() -> None:
    """The status lists lost members, with the end of the hold and the replacement once they are known."""
    train = GroupScenario(min_member=2).add_members("a", "b", node_name="n").add_members("c")
    gang = train.gang
    first, second = (LostMember(gang.pods[f"uid-of-default-{name}"], "n", "") for name in "ab")
    first.index = "Job/u/0"
    gang.lost_members = {"1": first, "2": second}
    first.has_room, first.until, first.replacement = True, NOW + timedelta(seconds=60), "uid-of-default-c"
    status = train.status()
    assert status["lost"] == [
        {
            "name": "a",
            "node": "n",
            "held": True,
            "until": "2026-01-01T12:01:00Z",
            "replacement": "c",
            "index": "Job/u/0",
        },
        {"name": "b", "node": "n", "held": False},
    ]
    held = "room on n is held for default/a until 2026-01-01T12:01:00Z; no room is held for b"
    assert healing_of(train) == ("True", "RoomHeld", f"Members were lost: {held}.")
    del gang.lost_members["1"]
    assert healing_of(train) == ("True", "MembersLost", "Members were lost: no room is held for b.")
    gang.lost_members, gang.healing = {}, HealingOutcome("HoldExpired", "no replacement of default/b was bound in time")
    assert healing_of(train) == ("False", "HoldExpired", "No replacement of default/b was bound in time.")
    gang.healing = None
    assert healing_of(train) == ("False", "HoldExpired", "No replacement of default/b was bound in time.")


def healing_of(train: GroupScenario) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Healing."""
    condition = train.condition("Healing")
    return condition["status"], condition["reason"], condition["message"]


def test_new_nodes_that_would_help() -> None:
    """The status and the message of the condition name the nodes, until there are none."""
    gang = GroupScenario(min_member=4).add_members(*FOUR).gang
    gang.outcome = UNSCHEDULABLE
    found = NewNodes((HelpfulNode("large", 1), HelpfulNode("small", 2)), 2)
    status = group_status(SeenGroup(gang.key, 1, {}, new_nodes=found), gang, NOW).fields
    assert status["newNodes"] == [{"node": "large", "count": 1}, {"node": "small", "count": 2}]
    (scheduled,) = (each for each in status["conditions"] if each["type"] == "Scheduled")
    assert scheduled["message"].endswith("1 lacks cpu. 1 node like large would help, or 2 nodes like small.")
    later = group_status(SeenGroup(gang.key, 1, status, new_nodes=NewNodes()), gang, NOW).fields
    assert status_difference(GroupSource.BAYPLAN, status, later).patch["newNodes"] == []


def test_pods_of_other_namespaces_are_no_members() -> None:
    """A pod with the same label in another namespace is not a member, unlike in scheduler-plugins' controller."""
    train = (
        GroupScenario(min_member=2).add_members("a", node_name="n").add_members("b", node_name="n", namespace="other")
    )
    assert (train.status()["members"], train.phase()) == (1, "Pending")


def test_pods_of_other_apis_are_no_members() -> None:
    """A pod that names the group by the label of another API is not a member."""
    train = GroupScenario(min_member=1)
    train.gangs.serve(GroupSource.SCHEDULER_PLUGINS)
    train.gangs.saw(member(GroupSource.SCHEDULER_PLUGINS, "a", node_name="n"))
    assert train.status()["members"] == 0


def test_problems_are_reported() -> None:
    """The condition of an invalid spec lists every problem, and an accepted group keeps its phase."""
    train = GroupScenario().add_members(*FOUR, node_name="n")
    train.generation = 2
    train.problems = (Problem("spec.minMember", "must be 1 or more"), Problem("spec.topology.key", "is no label key"))
    accepted = train.condition("Accepted")
    assert (accepted["status"], accepted["reason"], accepted["observedGeneration"]) == ("False", "InvalidSpec", 2)
    assert "spec.minMember" in accepted["message"]
    assert "spec.topology.key" in accepted["message"]
    assert train.condition()["status"] == "True"
    train.gang.group = None
    assert (train.condition()["status"], train.condition()["reason"]) == ("False", "InvalidSpec")
    train.gangs.group_changed(PodGroup(train.key, "uid-of-train", 4))
    train.problems = ()
    assert train.condition("Accepted")["status"] == "True"


@table(
    "written, keeps_start, first, expected",
    ("no-attempt", None, False, None, None),
    ("first-attempt", None, False, NOW, "2026-01-01T12:00:00Z"),
    ("written-by-the-previous-process", "2025-12-31T08:00:00Z", True, None, "2025-12-31T08:00:00Z"),
    ("attempt-after-a-restart", "2025-12-31T08:00:00Z", True, NOW, "2025-12-31T08:00:00Z"),
    ("new-start", "2025-12-31T08:00:00Z", False, NOW, "2026-01-01T12:00:00Z"),
    ("no-attempt-after-the-start", "2025-12-31T08:00:00Z", False, None, "2025-12-31T08:00:00Z"),
)
@pytest.mark.parametrize("source", [GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS])
def test_start_of_scheduling(
    source: GroupSource, written: str | None, *, keeps_start: bool, first: datetime | None, expected: str | None
) -> None:
    """The start is the time of the first attempt, and a restart of the operator does not change it."""
    train = GroupScenario(source).add_members(*FOUR)
    train.written = {} if written is None else {"scheduleStartTime": written}
    train.keeps_start = keeps_start
    train.gang.first_attempt = first
    assert train.status().get("scheduleStartTime") == expected


def condition(status: str = "False", reason: str = "Gated", message: str = "m") -> dict[str, Any]:
    return {"type": "Scheduled", "status": status, "reason": reason, "message": message}


@table(
    "change, urgency",
    ("none", {}, Urgency.NEVER),
    ("attempt", {"lastAttemptTime": "2026-01-01T00:00:01Z"}, Urgency.LATER),
    ("count", {"members": 3}, Urgency.SOON),
    ("count-and-attempt", {"members": 3, "lastAttemptTime": "2026-01-01T00:00:01Z"}, Urgency.SOON),
    ("message", {"conditions": [condition(message="n")]}, Urgency.SOON),
    ("reason", {"conditions": [condition(reason="Waiting")]}, Urgency.IMMEDIATE),
    ("condition", {"conditions": [condition("True")]}, Urgency.IMMEDIATE),
    ("phase", {"phase": "Running"}, Urgency.IMMEDIATE),
    ("generation", {"observedGeneration": 2}, Urgency.IMMEDIATE),
    ("reservation", {"nominatedDomain": "zone=a"}, Urgency.IMMEDIATE),
    ("victims", {"victims": [{"namespace": "n", "name": "v"}]}, Urgency.IMMEDIATE),
)
def test_urgency(change: Mapping[str, Any], urgency: Urgency) -> None:
    """Phases and reasons are written immediately, counts and messages soon, and an attempt's time later."""
    written = {"phase": "Pending", "members": 2, "observedGeneration": 1, "conditions": [condition()]}
    difference = status_difference(GroupSource.BAYPLAN, written, {**written, **change})
    assert difference.urgency is urgency
    assert difference.patch == change


def test_only_own_fields_are_removed() -> None:
    """A field of the operator that is no longer desired is removed; a field of another controller stays."""
    written = {"phase": "Scheduling", "nominatedDomain": "zone=a", "foreign": 1}
    difference = status_difference(GroupSource.BAYPLAN, written, {"phase": "Scheduling"})
    assert difference.patch == {"nominatedDomain": None}


NAME = "default-scheduler"


class OtherProcessesState:
    """Assignment of scheduler names to processes, and the status of the object."""

    def __init__(self) -> None:
        self.serves: dict[str, bool] = {}
        self.status: dict[str, Any] = {}

    @property
    def processes(self) -> OtherProcesses:
        return OtherProcesses(lambda _: self.status, self.serves.get)


@pytest.fixture
def others() -> OtherProcessesState:
    return OtherProcessesState()


@pytest.fixture
async def world(others: OtherProcessesState) -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld(others=others.processes)):
        yield made


async def test_the_group_of_another_process_is_not_written(world: GroupWorld, others: OtherProcessesState) -> None:
    """No status and no event is written for a group of another process."""
    others.serves[NAME] = False
    world.add_group()
    world.add_members("a", "b")
    await world.advance(30.0, step=0.5)
    assert world.statuses.sent == []
    assert world.writer.events == []


async def test_a_group_without_members_is_written_by_every_process(
    world: GroupWorld, others: OtherProcessesState
) -> None:
    """Every process writes the same status of a group without members."""
    others.serves[NAME] = False
    world.add_group()
    await world.advance()
    assert world.sent() == ["Pending"]


async def test_a_group_that_moves_to_this_process_is_compared_again(
    world: GroupWorld, others: OtherProcessesState
) -> None:
    """After a group moves to this process, its status is compared with that of the other process."""
    world.add_group()
    await world.advance()
    others.serves[NAME] = False
    world.add_members("a", "b", node="n")
    await world.advance()
    others.status = {**world.statuses.sent[0][1], "phase": "Running", "members": 7, "running": 7}
    others.serves[NAME] = True
    world.controller.reconcile_all()
    await world.advance(2.0)
    assert world.sent("members") == [0, 2]
    assert world.sent() == ["Pending"]


async def test_a_takeover_reads_the_current_status(world: GroupWorld, others: OtherProcessesState) -> None:
    """The first write of a new leader is compared with the status that the last leader wrote."""
    world.add_group(status={"phase": "Pending"})
    others.status = {"phase": "Running", "members": 3}
    world.controller.take_over()
    await world.advance()
    assert world.sent() == ["Pending"]


@table(
    "names, serves, is_of_another_process",
    ("no members", [], {}, False),
    ("no process", ["x"], {}, False),
    ("this process", ["x"], {"x": True}, False),
    ("another process", ["x"], {"x": False}, True),
    ("first name decides", ["b", "a"], {"a": True, "b": False}, False),
    ("first served name decides", ["b", "a"], {"b": False}, True),
)
def test_which_process_writes_a_status(names: list[str], serves: dict[str, bool], is_of_another_process: bool) -> None:
    """All processes agree on the process that writes the status."""
    world = GroupWorld()
    gang = Gang(world.key(), 0.0)
    gang.pods = {name: pod(name, scheduler_name=name) for name in names}
    assert OtherProcesses(lambda _: None, serves.get).write(gang) is is_of_another_process


@table(
    "source, path, content_type, body",
    (
        "bayplan",
        GroupSource.BAYPLAN,
        "/apis/bayplan.dev/v1alpha1/namespaces/default/podgroups/train/status",
        "application/json-patch+json",
        [
            {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
            {"op": "add", "path": "/status", "value": {"members": 3, "phase": "Pending"}},
        ],
    ),
    (
        "native",
        GroupSource.NATIVE,
        "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/train/status",
        "application/strategic-merge-patch+json",
        {"metadata": {"uid": "uid-1"}, "status": {"phase": "Pending", "gated": None}},
    ),
)
async def test_a_write_as_sent(source: GroupSource, path: str, content_type: str, body: object) -> None:
    """A write is one patch with the UID, computed when it is sent, and is not sent if it is empty."""
    clock = VirtualClock()
    dispatcher = ApiDispatcher(DispatcherOptions(), clock, lambda: False)
    ended: list[Exception | None] = []
    all_ended = asyncio.Event()

    def end(error: Exception | None) -> None:
        ended.append(error)
        if len(ended) == 2:
            all_ended.set()

    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), clock) as connection:
        api.on("PATCH", path, Response())
        writes = GroupStatusWrites(connection, dispatcher)
        key = GroupKey(source, "default", "train")
        writes.write(GroupStatusWrite(key, "uid-1", dict, end))
        patch, written = {"phase": "Pending", "gated": None}, {"members": 3, "gated": 1}
        writes.write(GroupStatusWrite(key, "uid-1", lambda: patch, end, written=lambda: written))
        async with asyncio.timeout(60):
            await all_ended.wait()
        await dispatcher.close()
    assert ended == [None, None]
    (request,) = api.requests("PATCH")
    assert request.json == body
    assert request.headers["Content-Type"] == content_type
