"""Coscheduling, point by point, on groups as a table describes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.pods_to_activate import take_pods_to_activate
from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.plugins.coscheduling import YIELD_SECONDS
from tests.support.builders import PodFields, node, pod
from tests.support.coscheduling import EMPTY_DIAGNOSIS, CoschedulingStage
from tests.support.handles import FakeGroup

NOW = datetime(2026, 1, 1, tzinfo=UTC)


# -- Permit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "succeeded", "code"),
    [
        pytest.param([], 0, Code.WAIT, id="the first of three"),
        pytest.param(["waits"], 0, Code.WAIT, id="the second of three"),
        pytest.param(["waits", "waits"], 0, Code.SUCCESS, id="the third of three"),
        pytest.param(["bound", "waits"], 0, Code.SUCCESS, id="one is bound already"),
        pytest.param(["bound", "bound", "bound"], 0, Code.SUCCESS, id="one that joins a group that is whole"),
        pytest.param(["waits", "refused"], 0, Code.WAIT, id="one whose wait was refused does not count, #930"),
        pytest.param(["waits"], 1, Code.SUCCESS, id="one that has ended well had its node"),
    ],
)
def test_permit(states: list[str], succeeded: int, code: Code) -> None:
    """A member goes on when its quorum has nodes, and with it all that wait; until then it waits."""
    stage = CoschedulingStage()
    group = stage.group()
    group.succeeded = succeeded
    stage.add_members(group, *states)
    result = stage.plugin.permit(CycleState(), stage.member(group, "last", "bound"), "n")
    assert result.status.code is code
    allowed = {name: ["Coscheduling allows"] for name, wait in stage.waits.items() if not wait.is_refused}
    assert stage.calls_on_waiting_pods() == (allowed if code is Code.SUCCESS else {})


@pytest.mark.parametrize(
    ("own", "args", "seconds"),
    [
        pytest.param(None, {}, 60, id="by default"),
        pytest.param(None, {"permit_waiting_time_seconds": 7}, 7, id="the profile's"),
        pytest.param(5.0, {"permit_waiting_time_seconds": 7}, 5, id="the group's before the profile's"),
        pytest.param(0.0, {"permit_waiting_time_seconds": 7}, 7, id="0 is no time"),
        pytest.param(None, {"permit_waiting_time_seconds": 0}, 60, id="0 of the profile is the default"),
    ],
)
def test_how_long_members_wait(own: float | None, args: dict[str, int], seconds: float) -> None:
    """As long as the group says, else as the profile does."""
    stage = CoschedulingStage(**args)
    member = stage.member(stage.group(schedule_timeout_seconds=own), "a", "bound")
    result = stage.plugin.permit(CycleState(), member, "n")
    assert (result.status.code, result.timeout_seconds) == (Code.WAIT, seconds)


@pytest.mark.parametrize(
    ("states", "called"),
    [
        pytest.param(["queued", "queued"], ["a", "b"], id="the first that waits calls all, #125"),
        pytest.param(["queued", "bound"], ["a"], id="also after a restart, when others run"),
        pytest.param(["queued", "refused"], ["a"], id="also when those before it were refused"),
        pytest.param(["queued", "waits"], [], id="those after it call nobody, #682"),
    ],
)
def test_the_first_that_waits_calls_its_siblings(states: list[str], called: list[str]) -> None:
    """Wherever in the queue they are, so that nobody's backoff is waited for at Permit."""
    stage, state = CoschedulingStage(), CycleState()
    group = stage.group(min_member=4)
    members = stage.add_members(group, *states)
    stage.plugin.permit(state, stage.member(group, "own", "bound"), "n")
    names = {info.uid: info.pod.metadata.name for info in members}
    assert [names[uid] for uid in take_pods_to_activate(state)] == called


def test_pods_of_no_group_are_left_alone() -> None:
    """At every point."""
    stage = CoschedulingStage()
    alone = stage.handle.nodes.compile_pod(pod("alone"))
    assert stage.plugin.pre_enqueue(alone) == SUCCESS
    assert stage.plugin.pre_filter(CycleState(), alone, stage.handle.nodes).status == SUCCESS
    assert stage.plugin.reserve(CycleState(), alone, "n") == SUCCESS
    assert stage.plugin.permit(CycleState(), alone, "n").status == SUCCESS
    assert stage.post_filter_reasons(alone) == ()
    stage.plugin.unreserve(CycleState(), alone, "n")


def test_permit_without_a_pod_group() -> None:
    """It was deleted while the pod stood in the queue."""
    stage = CoschedulingStage()
    result = stage.plugin.permit(CycleState(), stage.member(stage.group(min_member=0), "a", "bound"), "n")
    assert (result.status.code, result.status.message) == (
        Code.UNSCHEDULABLE,
        "PodGroup default/train does not exist",
    )


# -- Unreserve ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "refused"),
    [
        pytest.param(["waits", "waits", "refused"], ["a", "b"], id="those that wait go with it"),
        pytest.param(["bound", "bound", "bound", "waits"], [], id="the quorum stands without it"),
        pytest.param(["bound", "waits", "refused"], ["b"], id="the quorum does not stand"),
    ],
)
def test_unreserve(states: list[str], refused: list[str]) -> None:
    """A member that loses its node takes those along that wait for it."""
    stage = CoschedulingStage()
    group = stage.group()
    stage.add_members(group, *states)
    stage.plugin.unreserve(CycleState(), stage.member(group, "lost", "refused"), "n")
    expected = ["Coscheduling: member lost of PodGroup default/train lost its node"]
    named = {name: said for name, said in stage.calls_on_waiting_pods().items() if not stage.waits[name].is_refused}
    assert named == dict.fromkeys(refused, expected)
    assert "lost" not in stage.calls_on_waiting_pods()


# -- PreEnqueue and PreFilter -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "says"),
    [
        pytest.param([{}, {}, {}], "", id="enough"),
        pytest.param([{}, {}], "waiting for members of PodGroup default/train: there are 2 of 3", id="too few"),
        pytest.param(
            [{}, {}, {"deleted": NOW}],
            "waiting for members of PodGroup default/train: there are 2 of 3",
            id="one is being deleted",
        ),
        pytest.param(
            [{}, {}, {"phase": "Failed"}],
            "waiting for members of PodGroup default/train: there are 2 of 3",
            id="one has failed",
        ),
        pytest.param([{}, {}, {"gates": ["g"]}, {}], "", id="one more than enough is gated"),
        pytest.param(
            [{}, {}, {"gates": ["g"]}],
            "1 of 3 members of PodGroup default/train have scheduling gates; 3 members without gates are needed",
            id="one of the quorum is gated",
        ),
    ],
)
def test_who_may_try(members: list[PodFields], says: str) -> None:
    """Members are tried when enough of them exist and are free to go; else no preemption helps."""
    stage = CoschedulingStage()
    group = stage.group()
    infos = [stage.member(group, name, **fields) for name, fields in zip("abcd", members, strict=False)]
    for status in (
        stage.plugin.pre_enqueue(infos[0]),
        stage.plugin.pre_filter(CycleState(), infos[0], stage.handle.nodes).status,
    ):
        assert status.message == says
        assert status.code is (Code.UNSCHEDULABLE_AND_UNRESOLVABLE if says else Code.SUCCESS)


def test_without_a_pod_group_nobody_tries() -> None:
    """It may be created later than the pods."""
    stage = CoschedulingStage()
    status = stage.plugin.pre_enqueue(stage.member(stage.group(min_member=0), "a"))
    assert status.message == "waiting for PodGroup default/train to be created"


def test_the_one_that_completes_the_quorum_lets_the_others_in() -> None:
    """At once and by itself: nobody waits for a flush (#450)."""
    stage = CoschedulingStage()
    group = stage.group()
    first, second = (stage.member(group, name) for name in "ab")
    assert not stage.plugin.pre_enqueue(first).is_success
    assert not stage.plugin.pre_enqueue(second).is_success
    assert stage.handle.activated == []
    assert stage.plugin.pre_enqueue(stage.member(group, "c")).is_success
    assert stage.handle.activated == [first, second]
    assert stage.plugin.pre_enqueue(stage.member(group, "d")).is_success
    assert stage.handle.activated == [first, second]


def test_members_are_counted_in_their_namespace() -> None:
    """A group of the same name elsewhere has nothing to do with it."""
    stage = CoschedulingStage()
    group = stage.group(min_member=2)
    info = stage.member(group, "a")
    other = FakeGroup(GroupKey(GroupSource.BAYPLAN, "elsewhere", "train"), group.group)
    stage.handle.groups.by_key[other.key] = other
    stage.member(other, "b", namespace="elsewhere")
    assert not stage.plugin.pre_enqueue(info).is_success


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"cpu": 6000}, "", id="all that is free, of members too"),
        pytest.param({"cpu": 6001}, "1 of cpu missing", id="more than is free"),
        pytest.param({"cpu": 7000, "memory": 1}, "1000 of cpu missing", id="one of two"),
        pytest.param({"example.com/gpu": 2}, "2 of example.com/gpu missing", id="what no node has"),
    ],
)
def test_min_resources(asked: dict[str, int], says: str) -> None:
    """They must be free in the cluster; what members have counts as free, and no node's excess hides another's room."""
    stage = CoschedulingStage()
    nodes = stage.handle.nodes
    for name in ("n", "m"):
        nodes.add_node(node(name, allocatable={"cpu": 4, "memory": "1Gi", "pods": 10}))
    over = nodes.add_node(node("over", allocatable={"cpu": 1, "memory": "1Gi", "pods": 10}))
    group = stage.group(min_resources=asked)
    own = stage.member(group, "a", "bound", requests={"cpu": 1})
    for info, row in (
        (own, 0),
        (nodes.compile_pod(pod("stranger", requests={"cpu": 2})), 0),
        (nodes.compile_pod(pod("huge", requests={"cpu": 5})), over),
    ):
        nodes.add_pod(info, row)
    stage.member(group, "b")
    status = stage.plugin.pre_filter(CycleState(), stage.member(group, "c"), nodes).status
    assert status.message == (
        f"insufficient free resources in the cluster for PodGroup default/train: {says}" if says else ""
    )


def test_every_member_needs_a_place() -> None:
    """Nodes take so many pods, whatever these ask for."""
    stage = CoschedulingStage()
    stage.handle.nodes.add_node(node("n", allocatable={"cpu": 4, "pods": 2}))
    group = stage.group(min_resources={"cpu": 1})
    info = stage.add_members(group, "", "", "")[0]
    status = stage.plugin.pre_filter(CycleState(), info, stage.handle.nodes).status
    assert status.message.endswith("1 of pods missing")


# -- PostFilter ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percentage", "waiting", "is_turned_away"),
    [
        pytest.param(10, 8, True, id="two of ten are missing"),
        pytest.param(10, 9, False, id="a tenth is not more than 10 per cent"),
        pytest.param(0, 9, True, id="any"),
        pytest.param(100, 1, False, id="none"),
        pytest.param(10, 10, False, id="the quorum has nodes"),
    ],
)
def test_who_goes_when_one_does_not_fit(percentage: int, waiting: int, is_turned_away: bool) -> None:
    """All that wait, if more than a share of the quorum has no node yet."""
    stage = CoschedulingStage(pod_group_reject_percentage=percentage)
    group = stage.group(min_member=10)
    stage.add_members(group, *["waits"] * waiting)
    reasons = stage.post_filter_reasons(stage.member(group, "big"))
    said = ("PodGroup default/train is rejected: member big is infeasible",)
    assert reasons == (said if is_turned_away else ())
    assert len(stage.calls_on_waiting_pods()) == (waiting if is_turned_away else 0)


def test_a_preview_changes_nothing() -> None:
    """It says the same."""
    stage = CoschedulingStage(pod_group_backoff_seconds=10)
    group = stage.group(min_member=2)
    stage.add_members(group, "waits")
    big = stage.member(group, "big")
    preview = stage.plugin.preview(CycleState(), big, stage.handle.nodes, EMPTY_DIAGNOSIS)
    assert preview is not None
    assert stage.calls_on_waiting_pods() == {}
    assert stage.plugin.pre_enqueue(big).is_success
    assert preview.result.status.reasons == stage.post_filter_reasons(big)


def test_a_group_that_was_turned_away_backs_off() -> None:
    """None of its members is tried until the time is up; then those are that something has woken meanwhile."""
    stage = CoschedulingStage(pod_group_backoff_seconds=10)
    group = stage.group(min_member=2)
    small, big = stage.member(group, "small", "queued"), stage.member(group, "big")
    stage.post_filter_reasons(big)
    for info in (small, big):
        status = stage.plugin.pre_enqueue(info)
        assert status.message == "PodGroup default/train was rejected recently and is backing off"
    stage.handle.clock.advance(6)
    stage.post_filter_reasons(big)
    assert stage.handle.activated == []
    stage.handle.clock.advance(4)
    assert stage.handle.activated == [small, big]
    assert stage.plugin.pre_enqueue(big).is_success


def test_without_a_backoff_of_its_own_a_group_backs_off_as_pods_do() -> None:
    """A second, then twice as long each time, up to 10: else one that never fits would be tried for ever (#682)."""
    stage = CoschedulingStage()
    big = stage.add_members(stage.group(min_member=2), "", "")[0]
    for seconds in (1, 2, 4, 8, 10, 10):
        stage.post_filter_reasons(big)
        stage.handle.clock.advance(seconds - 0.1)
        assert not stage.plugin.pre_enqueue(big).is_success
        stage.handle.clock.advance(0.1)
        assert stage.plugin.pre_enqueue(big).is_success


@pytest.mark.parametrize(
    ("state", "since", "yields"),
    [
        pytest.param("waits", 900.0, True, id="one that came earlier waits"),
        pytest.param("refused", 900.0, True, id="even if it was rejected just now"),
        pytest.param("waits", 1100.0, False, id="one that came later waits"),
        pytest.param("queued", 900.0, False, id="nobody holds anything"),
    ],
)
def test_of_two_groups_that_meet_one_lets_the_other_go_first(state: str, since: float, yields: bool) -> None:
    """Two groups that were rejected together would be retried together (#114, #117)."""
    stage = CoschedulingStage()
    stage.member(stage.group("other", 2, since), "x", state)
    group = stage.group("train", 2)
    big = stage.add_members(group, "", "waits")[0]
    stage.post_filter_reasons(big)
    stage.handle.clock.advance(1)
    assert stage.plugin.pre_enqueue(big).is_success is not yields
    stage.handle.clock.advance(YIELD_SECONDS)
    assert stage.plugin.pre_enqueue(big).is_success


def test_a_group_that_is_placed_has_a_clean_record() -> None:
    """Neither backoff nor timer is left."""
    stage = CoschedulingStage(pod_group_backoff_seconds=10)
    group = stage.group(min_member=1)
    info = stage.member(group, "a", "bound")
    group.placed.clear()
    stage.post_filter_reasons(info)
    assert stage.handle.clock.pending == 1
    assert stage.plugin.permit(CycleState(), info, "n").status.is_success
    assert stage.handle.clock.pending == 0
    assert stage.plugin.pre_enqueue(info).is_success
