"""Gangs that heal: which room is held, how replacements are recognised, and when holds end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.errors import ForbiddenError
from scheduler_core.gangs.healing import ENDED, EXPIRED, HELD, MOST_OF_ALL, MOST_OF_GANG, REPLACED
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from scheduler_core.queueing.gang_members import RecordedLoss
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import MAX_DEMANDS
from tests.support.builders import node, pod
from tests.support.gang_preemption import small_node, terminating_pod
from tests.support.gangs import INDEX, JOB, add_groups, gang_of, group, indexed, member, members, settle
from tests.support.injected_errors import raising
from tests.support.presence import present
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table

STATEFUL = OwnerReference("StatefulSet", "train", "uid-of-set", "apps/v1", controller=True)
REPLICAS = OwnerReference("ReplicaSet", "train", "uid-of-replicas", "apps/v1", controller=True)
HOLD_SECONDS = 60.0


def training(count: int = 3, **fields: Any) -> Rig:
    """Return a scheduler with a gang that runs on nodes ``a``, ``b`` and so on, and fills them."""
    return running_gang(group(min_member=count, hold_seconds=HOLD_SECONDS, **fields), count)


def running_gang(of: PodGroup, count: int) -> Rig:
    """Return a scheduler with a running gang, one member on each of some nodes of two CPUs."""
    made = gang_rig()
    add_groups(made, of)
    for number, name in enumerate("abcdef"[:count]):
        made.add(small_node(name, rack=name), indexed(f"train-{number}", number, node_name=name))
    return made


def created_again() -> PodGroup:
    """Return another PodGroup of the same name."""
    made = group(min_member=3, hold_seconds=HOLD_SECONDS)
    return PodGroup(made.key, "uid-of-another", made.min_member, hold_seconds=HOLD_SECONDS)


def running_member(made: Rig, number: int) -> Pod:
    """Return a member as the scheduler has it."""
    return gang_of(made).pods[f"uid-of-default-train-{number}"]


def delete(made: Rig, *numbers: int) -> None:
    """Delete members, by default the first one."""
    for number in numbers or (0,):
        made.scheduler.feed.pod_deleted(running_member(made, number))


def fail(made: Rig, number: int = 0) -> None:
    """Let a member fail."""
    before = running_member(made, number)
    made.scheduler.feed.pod_updated(before, replace(before, status=replace(before.status, phase="Failed")))


def terminate_and_delete(made: Rig, number: int = 0) -> None:
    """Delete a member that terminates gracefully."""
    before = running_member(made, number)
    made.scheduler.feed.pod_updated(before, terminating_pod(before))
    delete(made, number)


@table(
    "lose",
    ("deleted", delete),
    ("failed", fail),
    ("terminated", terminate_and_delete),
)
async def test_the_room_of_a_lost_member_is_held(lose: Callable[[Rig], None]) -> None:
    """Others of equal and lower priority do not get the room, before and after the replacement exists."""
    made = training()
    lose(made)
    assert present(gang_of(made).healing).reason == HELD
    await settle(made, *(pod(f"other-{number}", requests={"cpu": "1"}) for number in range(3)))
    assert not made.bound
    assert "node(s) were reserved for Pod default/train-0" in made.condition.message
    await settle(made, indexed("train-0-again", 0))
    assert made.bound == {"train-0-again": "a"}


@table("lose", ("deleted", delete), ("failed", fail), ("terminated", terminate_and_delete))
@table(
    "owner, function",
    ("before the room is held", NodeColumns, "compile_pod"),
    ("while the room is held", GangReservations, "hold"),
    ("after the room is held", Gangs, "changed"),
)
@pytest.mark.parametrize("faults", [1, 2])
def test_room_is_held_although_a_change_raised(
    monkeypatch: pytest.MonkeyPatch, lose: Callable[[Rig], None], owner: type, function: str, faults: int
) -> None:
    """A change that is delivered again after an exception holds the room of the lost member."""
    made = training()
    lost = running_member(made, 0)
    errors: list[BaseException] = [MemoryError() for _ in range(faults)]
    monkeypatch.setattr(owner, function, raising(errors, getattr(owner, function)))
    with pytest.raises(MemoryError):
        lose(made)
    failed = replace(lost, status=replace(lost.status, phase="Failed"))
    for _ in range(faults):
        # The informer delivers the newest version until no exception is raised.
        with suppress(MemoryError):
            if lose is fail:
                made.scheduler.feed.pod_updated(lost, failed)
            else:
                made.scheduler.feed.pod_deleted(lost)
    assert not errors
    assert [each.has_room for each in gang_of(made).lost_members.values()] == [True]
    assert present(gang_of(made).healing).reason == HELD
    made.clock.advance(HOLD_SECONDS + 1.0)
    assert not gang_of(made).lost_members


async def test_the_replacement_returns_although_others_are_first_in_the_queue() -> None:
    """The node of the lost member is tried first, even if another one scores better."""
    made = training()
    made.add(small_node("empty", 64))
    delete(made)
    await settle(made, *(pod(f"other-{number}", requests={"cpu": "1"}) for number in range(3)))
    await settle(made, indexed("train-0-again", 0))
    assert made.bound["train-0-again"] == "a"
    assert {made.bound[f"other-{number}"] for number in range(3)} == {"empty"}


async def test_a_lower_priority_of_the_group_activates_the_pods_that_its_room_blocked() -> None:
    """The change of the PodGroup itself requeues members only."""
    made = training(priority=10)
    delete(made)
    other = pod("other", requests={"cpu": "2"}, priority=5, preemption_policy="Never")
    await settle(made, other)
    assert not made.bound
    add_groups(made, group(min_member=3, hold_seconds=HOLD_SECONDS, priority=1, generation=2))
    await settle(made, after=1)
    assert made.bound == {"other": "a"}


async def test_the_hold_ends_after_its_time() -> None:
    """The time counts from the moment when the room is free, and then others get it."""
    made = training()
    before = running_member(made, 0)
    made.scheduler.feed.pod_updated(before, terminating_pod(before))
    made.clock.advance(10 * HOLD_SECONDS)
    assert gang_of(made).lost_members
    delete(made)
    other = pod("other", requests={"cpu": "2"})
    await settle(made, other, after=HOLD_SECONDS - 1)
    assert not made.bound
    made.clock.advance(2)
    assert not gang_of(made).lost_members
    assert present(gang_of(made).healing).reason == EXPIRED
    await settle(made, after=1)
    assert made.bound == {"other": "a"}


@table(
    "hold_seconds, left",
    ("more", 100.0, 90.0),
    ("less", 30.0, 20.0),
    ("less than has passed", 5.0, 0.0),
)
def test_the_time_of_the_group_is_changed(hold_seconds: float, left: float) -> None:
    """The hold ends when the new time has passed since the room became free."""
    made = training()
    delete(made)
    made.clock.advance(10)
    add_groups(made, group(min_member=3, hold_seconds=hold_seconds, generation=2))
    for seconds in (left - 1, 1.0):
        if seconds > 0:
            assert gang_of(made).lost_members
            made.clock.advance(seconds)
    made.clock.advance(0.1)
    assert not gang_of(made).lost_members
    assert not made.scheduler.reservations.by_gang


async def test_the_hold_ends_with_the_bind_of_the_replacement() -> None:
    """It ends when the replacement is bound, wherever."""
    made = training()
    delete(made)
    made.add(indexed("train-0-again", 0, node_name="b"))
    gang = gang_of(made)
    assert (gang.lost_members, present(gang.healing).reason) == ({}, REPLACED)
    # The event begins with a capital letter, which the namespace may not get.
    message = "pod default/train-0-again is bound to b and replaces default/train-0; room was held on a"
    assert present(gang.healing).message == message
    assert not made.scheduler.reservations.by_gang
    await settle(made, pod("other", requests={"cpu": "2"}))
    assert made.bound == {"other": "a"}


async def test_a_node_that_is_gone_frees_what_it_held() -> None:
    """The replacement gets another node, before others that wait for longer."""
    made = training()
    made.add(pod("other", requests={"cpu": "2"}))
    await settle(made)
    made.scheduler.feed.node_deleted(small_node("a", rack="a"))
    delete(made)
    made.add(indexed("train-0-again", 0))
    await settle(made, small_node("new"))
    assert made.bound == {"train-0-again": "new"}
    assert made.place_of(pod("other"))


async def test_a_member_of_another_index_is_no_replacement() -> None:
    """A further member of the gang does not use the room of the lost one."""
    made = training()
    delete(made)
    await settle(made, indexed("train-7", 7))
    assert not made.bound
    await settle(made, indexed("train-0-again", 0))
    assert made.bound == {"train-0-again": "a"}


@table(
    "lost, other, is_replacement",
    ("same name of a StatefulSet", {"owners": (STATEFUL,)}, {"owners": (STATEFUL,), "name": "m-0"}, True),
    ("other name of a StatefulSet", {"owners": (STATEFUL,)}, {"owners": (STATEFUL,), "name": "m-1"}, False),
    ("equal pod of a ReplicaSet", {"owners": (REPLICAS,)}, {"owners": (REPLICAS,), "name": "m-1"}, True),
    ("pod of another controller", {"owners": (REPLICAS,)}, {"owners": (JOB,), "name": "m-1"}, False),
    ("without a controller", {}, {"name": "m-1"}, True),
    ("other requests", {}, {"name": "m-1", "requests": {"cpu": "1500m"}}, False),
    ("same name with other requests", {}, {"requests": {"cpu": "1500m"}}, True),
    (
        "index of a JobSet whose Jobs are new",
        {
            "labels": {
                "jobset.sigs.k8s.io/jobset-uid": "u",
                "jobset.sigs.k8s.io/replicatedjob-name": "w",
                "jobset.sigs.k8s.io/job-index": "1",
                INDEX: "2",
            },
            "owners": (JOB,),
        },
        {
            "labels": {
                "jobset.sigs.k8s.io/jobset-uid": "u",
                "jobset.sigs.k8s.io/replicatedjob-name": "w",
                "jobset.sigs.k8s.io/job-index": "1",
                INDEX: "2",
            },
            "owners": (replace(JOB, uid="other"),),
        },
        True,
    ),
    (
        "worker of a LeaderWorkerSet",
        {
            "labels": {
                "leaderworkerset.sigs.k8s.io/name": "s",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": "3",
            }
        },
        {
            "labels": {
                "leaderworkerset.sigs.k8s.io/name": "s",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": "2",
            }
        },
        False,
    ),
)
def test_replacements_are_recognised(lost: dict[str, Any], other: dict[str, Any], is_replacement: bool) -> None:
    """By owner and index if the index is known, else by controller and requests."""
    made = training()
    fields = {"name": "m-0", "requests": {"cpu": "2"}, **lost}
    first = member(**{**fields, "node_name": "x"})
    made.add(small_node("x"), first)
    made.scheduler.feed.pod_deleted(first)
    second = member(**{"requests": {"cpu": "2"}, "name": "m-0", "uid": "uid-of-second", **other})
    made.add(second)
    (left,) = gang_of(made).lost_members.values()
    assert (left.replacement == "uid-of-second") is is_replacement


def test_a_deleted_replacement_is_forgotten() -> None:
    """The next one replaces the lost member."""
    made = training()
    delete(made)
    first = indexed("first", 0)
    made.add(first)
    made.scheduler.feed.pod_deleted(first)
    made.add(indexed("second", 0))
    (lost,) = gang_of(made).lost_members.values()
    assert lost.replacement == "uid-of-default-second"


@table(
    "of, lose",
    ("holdSeconds is 0", group(min_member=3), delete),
    ("a member that succeeded", group(min_member=3, hold_seconds=9.0), "Succeeded"),
    ("a preempted member", group(min_member=3, hold_seconds=9.0), "preempted"),
)
def test_no_room_is_held(of: PodGroup, lose: Any) -> None:
    """These members are not replaced, or their room is that of another pod."""
    made = running_gang(of, 3)
    before = running_member(made, 0)
    if lose == "Succeeded":
        made.scheduler.feed.pod_updated(before, replace(before, status=replace(before.status, phase="Succeeded")))
    elif lose == "preempted":
        made.scheduler.feed.pod_updated(before, terminating_pod(before, by_preemption=True))
        delete(made)
    else:
        lose(made)
    assert not gang_of(made).lost_members
    assert not made.scheduler.reservations.by_gang


def test_the_condition_of_a_preemption_may_be_late() -> None:
    """A hold ends when the condition shows that the member was preempted."""
    made = training()
    before = running_member(made, 0)
    made.scheduler.feed.pod_updated(before, terminating_pod(before))
    assert gang_of(made).lost_members
    made.scheduler.feed.pod_updated(terminating_pod(before), terminating_pod(before, by_preemption=True))
    assert present(gang_of(made).healing).reason == ENDED
    assert not made.scheduler.reservations.by_gang


@table(
    "end",
    ("the PodGroup is deleted", lambda made: made.scheduler.group_feed.group_deleted(gang_of(made).key)),
    ("the PodGroup is created again", lambda made: add_groups(made, created_again())),
    ("healing is turned off", lambda made: add_groups(made, group(min_member=3, generation=2))),
    ("no member is left", lambda made: delete(made, 1, 2)),
)
def test_holds_end_with_the_gang(end: Callable[[Rig], None]) -> None:
    """Nothing is held for a gang that does not run any more."""
    made = training()
    delete(made)
    assert made.scheduler.reservations.by_gang
    end(made)
    assert not made.scheduler.reservations.by_gang
    assert not gang_of(made).lost_members


@pytest.mark.parametrize("is_required", [True, False])
async def test_the_node_counts_more_than_the_narrowest_domain(is_required: bool) -> None:
    """A gang with a topology returns to its node, too, although another rack has less room."""
    topology = GroupTopology("zone", ("rack",), is_required=is_required)
    made = gang_rig()
    add_groups(made, group(min_member=2, hold_seconds=HOLD_SECONDS, topology=topology))
    made.add(
        *(
            node(name, labels={"zone": "z", "rack": name}, allocatable={"cpu": cpus, "pods": "9"})
            for name, cpus in (("a", "8"), ("b", "2"), ("c", "3"))
        )
    )
    made.add(indexed("train-0", 0, node_name="a"), indexed("train-1", 1, node_name="b"))
    delete(made)
    await settle(made, indexed("train-0-again", 0))
    assert made.bound == {"train-0-again": "a"}


async def test_a_member_beyond_the_quorum_returns_to_its_node() -> None:
    """It is scheduled by itself, and tries the node of the lost member first."""
    made = running_gang(group(min_member=2, hold_seconds=HOLD_SECONDS), 3)
    made.add(small_node("empty", 64))
    delete(made)
    await settle(made, indexed("train-0-again", 0))
    assert made.bound == {"train-0-again": "a"}


@table(
    "hold_seconds",
    ("held", HOLD_SECONDS),
    ("healing is off", 0.0),
)
async def test_a_bind_that_fails_after_others_were_sent(hold_seconds: float) -> None:
    """The room of the member that is missing is held for it while it backs off; others do not get it."""
    made = gang_rig()
    add_groups(made, group(hold_seconds=hold_seconds))
    made.add(small_node("a"), small_node("b"))
    made.writer.fail_binds([ForbiddenError("no")])
    pods = {f"train-{number}": indexed(f"train-{number}", number) for number in range(2)}
    made.add(*pods.values())
    async with made.running():
        await made.scheduler.until_idle()
        ((bound, node_name),) = made.bound.items()
        (failed,) = pods.keys() - {bound}
        made.scheduler.feed.pod_updated(pods[bound], indexed(bound, int(bound[-1]), node_name=node_name))
        made.add(pod("other", requests={"cpu": "2"}))
        await made.scheduler.until_idle()
        made.clock.advance(30)
        await made.until(lambda: len(made.bound) == 2)
    left = {"a": "b", "b": "a"}[node_name]
    assert made.bound == {bound: node_name, (failed if hold_seconds else "other"): left}
    made.scheduler.feed.pod_updated(pods[failed], indexed(failed, int(failed[-1]), node_name=left))
    assert not made.scheduler.reservations.by_gang
    assert not gang_of(made).lost_members


def test_few_members_have_held_room() -> None:
    """A gang and all gangs together hold a bounded number of rooms, and others are held when these have ended."""
    made = gang_rig()
    held, names = made.scheduler.reservations.held, [f"train-{number}" for number in range(6)]
    add_groups(made, *(group(name, hold_seconds=HOLD_SECONDS) for name in names))
    for name in names:
        made.add(small_node(name, 100), *members(MOST_OF_GANG + 3, name, node_name=name))
        made.scheduler.feed.pod_deleted(gang_of(made, name).pods[f"uid-of-default-{name}-0"])
    assert len(held) == len(names)
    for name in names:
        for number in range(1, MOST_OF_GANG + 2):
            made.scheduler.feed.pod_deleted(gang_of(made, name).pods[f"uid-of-default-{name}-{number}"])
        assert len(gang_of(made, name).lost_members) <= MOST_OF_GANG
    assert len(held) == MOST_OF_ALL
    made.clock.advance(HOLD_SECONDS)
    assert len(held) == 0
    last = gang_of(made, names[0])
    made.scheduler.feed.pod_added(member("late", names[0], node_name=names[0]))
    made.scheduler.feed.pod_deleted(last.pods["uid-of-default-late"])
    assert len(held) == 1


@pytest.mark.parametrize("namespace", ["default", "victim"])
def test_a_gang_with_many_lost_members_leaves_room_to_others(namespace: str) -> None:
    """Each group has its share, and each namespace."""
    made = gang_rig()
    many = [f"many-{number}" for number in range(MOST_OF_ALL // MOST_OF_GANG)]
    add_groups(made, *(group(name, hold_seconds=HOLD_SECONDS) for name in many))
    add_groups(made, group("few", namespace=namespace, hold_seconds=HOLD_SECONDS))
    for name in many:
        made.add(small_node(name, 100), *members(MOST_OF_GANG + 1, name, node_name=name))
        for number in range(MOST_OF_GANG):
            made.scheduler.feed.pod_deleted(gang_of(made, name).pods[f"uid-of-default-{name}-{number}"])
    few = [member(f"few-{number}", "few", namespace=namespace, node_name="few") for number in range(3)]
    made.add(small_node("few", 100), *few)
    for pod_of_few in few[:2]:
        made.scheduler.feed.pod_deleted(pod_of_few)
    (gang,) = (each for each in made.queue.gangs if each.key.name == "few")
    assert [lost.has_room for lost in gang.lost_members.values()] == [True, True]
    assert len(made.scheduler.reservations.held) == MOST_OF_ALL
    gave_up = [len(gang_of(made, name).lost_members) for name in many]
    assert sorted(gave_up) == [MOST_OF_GANG - 1] * 2 + [MOST_OF_GANG] * (len(many) - 2)


def test_room_ends_although_its_report_fails() -> None:
    """Held room ends although a receiver of the report raises."""
    made = training()
    delete(made)

    def fails(*_: object) -> None:
        raise RuntimeError

    made.queue.gangs.on_healing.append(fails)
    made.clock.advance(HOLD_SECONDS)
    made.clock.advance(5.0)
    assert len(made.scheduler.reservations.held) == 0


# -- after a restart --------------------------------------------------------------------------------------------------


def restarted(*, index: int | None = 0, seconds: float = 30.0, waiting: bool = True) -> tuple[Rig, bool]:
    """Return a scheduler that has not seen the lost member of node ``a``, and whether it holds the room again."""
    made = gang_rig()
    add_groups(made, group(min_member=3, hold_seconds=HOLD_SECONDS))
    made.add(small_node("a", rack="a"))
    for number, name in ((1, "b"), (2, "c")):
        made.add(small_node(name, rack=name), indexed(f"train-{number}", number, node_name=name))
    if waiting:
        made.add(indexed("train-0-again", 0))
    until = made.clock.wall() + timedelta(seconds=seconds)
    owner = "" if index is None else f"Job/{JOB.uid}/{index}"
    loss = RecordedLoss("train-0", "a", owner, until)
    return made, made.scheduler.healing.restore(gang_of(made).key, loss)


async def test_room_is_held_again_after_a_restart() -> None:
    """Others do not get the room of the status until its time is over; the replacement does."""
    made, is_held = restarted(waiting=False)
    assert is_held
    await settle(made, pod("other", requests={"cpu": "1"}))
    assert not made.bound
    await settle(made, indexed("train-0-again", 0))
    assert made.bound == {"train-0-again": "a"}


async def test_a_replacement_that_waits_at_the_restart_gets_the_room() -> None:
    made, is_held = restarted()
    assert is_held
    await settle(made, pod("other", requests={"cpu": "1"}))
    assert made.bound == {"train-0-again": "a"}


async def test_room_that_is_held_again_ends_at_the_same_time() -> None:
    made, is_held = restarted(waiting=False)
    assert is_held
    await settle(made, pod("other", requests={"cpu": "2"}), after=29)
    assert not made.bound
    made.clock.advance(2)
    assert present(gang_of(made).healing).reason == EXPIRED
    await settle(made, after=1)
    assert made.bound == {"other": "a"}


@table(
    "fields",
    ("its-time-is-over", {"seconds": 0.0}),
    ("another-index-is-bound", {"index": 1}),
)
def test_room_is_not_held_again(fields: dict[str, Any]) -> None:
    made, is_held = restarted(**fields)
    assert not is_held
    assert not gang_of(made).lost_members
    assert not made.scheduler.reservations.by_gang


def test_room_is_not_held_longer_after_a_restart() -> None:
    """A status may have a later time than the group allows now, after a change of the group or of the clock."""
    made, is_held = restarted(waiting=False, seconds=1000 * HOLD_SECONDS)
    assert is_held
    made.clock.advance(HOLD_SECONDS)
    assert present(gang_of(made).healing).reason == EXPIRED


def test_room_is_not_held_again_for_a_member_whose_requests_are_not_known() -> None:
    """The members of its owner are not equal."""
    made, _ = restarted(waiting=False, seconds=0.0)
    made.add(
        small_node("d"), member("train-3", owners=(JOB,), labels={INDEX: "3"}, requests={"cpu": "1"}, node_name="d")
    )
    loss = RecordedLoss("train-0", "a", f"Job/{JOB.uid}/0", made.clock.wall() + timedelta(seconds=30))
    assert not made.scheduler.healing.restore(gang_of(made).key, loss)


# -- invalid members --------------------------------------------------------------------------------------------------

INVALID = (
    ("demands", {"node_selector": {f"k{number}": "v" for number in range(MAX_DEMANDS + 1)}}),
    ("quantity", {"requests": {"cpu": "lots"}}),
)


@table("fields", *INVALID)
async def test_an_invalid_member_does_not_prevent_that_room_is_held_again(fields: dict[str, Any]) -> None:
    """It is never bound, so that it cannot be like the lost one."""
    made, _ = restarted(waiting=False, seconds=0.0)
    made.add(member("extra", owners=(JOB,), **{"requests": {"cpu": "2"}, **fields}))
    loss = RecordedLoss("train-0", "a", "", made.clock.wall() + timedelta(seconds=30))
    assert made.scheduler.healing.restore(gang_of(made).key, loss)
    await settle(made, pod("other", requests={"cpu": "2"}))
    assert not made.bound


@table("fields", *INVALID)
async def test_an_invalid_member_replaces_none(fields: dict[str, Any]) -> None:
    """It is reported, and the room is held for a valid one."""
    made = gang_rig()
    add_groups(made, group(min_member=2, hold_seconds=HOLD_SECONDS))
    for name in "ab":
        made.add(small_node(name), member(f"m-{name}", owners=(REPLICAS,), requests={"cpu": "2"}, node_name=name))
    made.scheduler.feed.pod_deleted(gang_of(made).pods["uid-of-default-m-a"])
    made.add(member("invalid", owners=(REPLICAS,), **{"requests": {"cpu": "2"}, **fields}))
    assert [event.regarding.name for event in made.writer.events] == ["invalid"]
    await settle(made, member("m-c", owners=(REPLICAS,), requests={"cpu": "2"}))
    assert made.bound == {"m-c": "a"}


async def test_a_bug_in_the_restore_of_one_room_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The scheduler starts, and the log names the lost member."""
    made, _ = restarted(waiting=False, seconds=0.0)
    made.add(small_node("d", rack="d"))
    key, until = gang_of(made).key, made.clock.wall() + timedelta(seconds=30)
    good = RecordedLoss("train-0", "a", f"Job/{JOB.uid}/0", until)
    without_zone = RecordedLoss("train-3", "d", f"Job/{JOB.uid}/3", until.replace(tzinfo=None))
    assert made.scheduler.healing.restore_all([(key, without_zone), (key, good)]) == 1
    assert [each.node_name for each in gang_of(made).lost_members.values()] == ["a"]
    assert "lost member train-3 of group default/train" in caplog.text
