"""Coscheduling at each extension point with groups in given states, at QueueSort, and its queueing hints."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.pods_to_activate import pods_to_activate
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.plugins.coscheduling import YIELD_SECONDS
from tests.support.builders import PodFields, node, pod
from tests.support.coscheduling import EMPTY_DIAGNOSIS, CoschedulingStage
from tests.support.handles import FakeGroup
from tests.support.presence import present
from tests.support.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)


# -- Permit -------------------------------------------------------------------------------------------------------


@table(
    "states, succeeded, code",
    ("the first of three", [], 0, Code.WAIT),
    ("the second of three", ["waiting"], 0, Code.WAIT),
    ("the third of three", ["waiting", "waiting"], 0, Code.SUCCESS),
    ("one is already bound", ["bound", "waiting"], 0, Code.SUCCESS),
    ("an additional member of a bound group", ["bound", "bound", "bound"], 0, Code.SUCCESS),
    ("a rejected waiting member does not count, #930", ["waiting", "rejected"], 0, Code.WAIT),
    ("a succeeded member counts", ["waiting"], 1, Code.SUCCESS),
)
def test_permit(states: list[str], succeeded: int, code: Code) -> None:
    """A member waits at Permit until the quorum has nodes; then it and all waiting members are allowed."""
    stage = CoschedulingStage()
    group = stage.group()
    group.succeeded = succeeded
    stage.add_members(group, *states)
    result = stage.plugin.permit(CycleState(), stage.member(group, "last", "bound"), "n")
    assert result.status.code is code
    allowed = {name: ["Coscheduling allows"] for name, wait in stage.waits.items() if not wait.is_refused}
    assert stage.calls_on_waiting_pods() == (allowed if code is Code.SUCCESS else {})


@table(
    "own, args, seconds",
    ("by default", None, {}, 60),
    ("timeout of the profile", None, {"permit_waiting_time_seconds": 7}, 7),
    ("the group's timeout overrides the profile's", 5.0, {"permit_waiting_time_seconds": 7}, 5),
    ("0 of the group means unset", 0.0, {"permit_waiting_time_seconds": 7}, 7),
    ("0 of the profile means the default", None, {"permit_waiting_time_seconds": 0}, 60),
)
def test_permit_timeout(own: float | None, args: dict[str, int], seconds: float) -> None:
    """The timeout at Permit is the group's, or else the profile's."""
    stage = CoschedulingStage(**args)
    member = stage.member(stage.group(schedule_timeout_seconds=own), "a", "bound")
    result = stage.plugin.permit(CycleState(), member, "n")
    assert (result.status.code, result.timeout_seconds) == (Code.WAIT, seconds)


@table(
    "states, activated",
    ("the first waiting member activates all, #125", ["queued", "queued"], ["a", "b"]),
    ("also after a restart, with a bound member", ["queued", "bound"], ["a"]),
    ("also if earlier members were rejected", ["queued", "rejected"], ["a"]),
    ("later waiting members activate none, #682", ["queued", "waiting"], []),
)
def test_the_first_waiting_member_activates_the_others(states: list[str], activated: list[str]) -> None:
    """Queued members are activated, so that no member waits at Permit for the backoff of another."""
    stage, state = CoschedulingStage(), CycleState()
    group = stage.group(min_member=4)
    members = stage.add_members(group, *states)
    stage.plugin.permit(state, stage.member(group, "own", "bound"), "n")
    names = {info.uid: info.pod.metadata.name for info in members}
    assert [names[uid] for uid in pods_to_activate(state).take()] == activated


def test_pods_without_a_group_pass() -> None:
    """The plugin accepts a pod without a group at every extension point."""
    stage = CoschedulingStage()
    alone = stage.handle.nodes.compile_pod(pod("alone"))
    assert stage.plugin.pre_enqueue(alone) == SUCCESS
    assert stage.plugin.pre_filter(CycleState(), alone, stage.handle.nodes).status == SUCCESS
    assert stage.plugin.reserve(CycleState(), alone, "n") == SUCCESS
    assert stage.plugin.permit(CycleState(), alone, "n").status == SUCCESS
    assert stage.post_filter_reasons(alone) == ()
    stage.plugin.unreserve(CycleState(), alone, "n")


def test_permit_without_a_pod_group() -> None:
    """A member is rejected at Permit if its PodGroup was deleted while the pod was queued."""
    stage = CoschedulingStage()
    result = stage.plugin.permit(CycleState(), stage.member(stage.group(min_member=0), "a", "bound"), "n")
    assert (result.status.code, result.status.message) == (Code.UNSCHEDULABLE, "PodGroup default/train does not exist")


# -- Unreserve ----------------------------------------------------------------------------------------------------


@table(
    "states, rejected",
    ("the waiting members are rejected too", ["waiting", "waiting", "rejected"], ["a", "b"]),
    ("the quorum is bound without it", ["bound", "bound", "bound", "waiting"], []),
    ("the quorum is not bound", ["bound", "waiting", "rejected"], ["b"]),
)
def test_unreserve(states: list[str], rejected: list[str]) -> None:
    """When a member loses its node, the waiting members are rejected unless the quorum is bound without it."""
    stage = CoschedulingStage()
    group = stage.group()
    stage.add_members(group, *states)
    stage.plugin.unreserve(CycleState(), stage.member(group, "lost", "rejected"), "n")
    expected = ["Coscheduling: member lost of PodGroup default/train lost its node"]
    calls = stage.calls_on_waiting_pods()
    named = {name: reasons for name, reasons in calls.items() if not stage.waits[name].is_refused}
    assert named == dict.fromkeys(rejected, expected)
    assert "lost" not in calls


# -- PreEnqueue and PreFilter -------------------------------------------------------------------------------------


@table(
    "members, message",
    ("enough", [{}, {}, {}], ""),
    ("too few", [{}, {}], "waiting for members of PodGroup default/train: there are 2 of 3"),
    (
        "one is being deleted",
        [{}, {}, {"deleted": NOW}],
        "waiting for members of PodGroup default/train: there are 2 of 3",
    ),
    (
        "one has failed",
        [{}, {}, {"phase": "Failed"}],
        "waiting for members of PodGroup default/train: there are 2 of 3",
    ),
    ("one more than enough is gated", [{}, {}, {"gates": ["g"]}, {}], ""),
    (
        "one of the quorum is gated",
        [{}, {}, {"gates": ["g"]}],
        "1 of 3 members of PodGroup default/train have scheduling gates; 3 members without gates are needed",
    ),
)
def test_quorum_before_scheduling(members: list[PodFields], message: str) -> None:
    """Members are attempted if a quorum exists without scheduling gates; otherwise preemption does not help."""
    stage = CoschedulingStage()
    group = stage.group()
    infos = [stage.member(group, name, **fields) for name, fields in zip("abcd", members, strict=False)]
    for status in (
        stage.plugin.pre_enqueue(infos[0]),
        stage.plugin.pre_filter(CycleState(), infos[0], stage.handle.nodes).status,
    ):
        assert status.message == message
        assert status.code is (Code.UNSCHEDULABLE_AND_UNRESOLVABLE if message else Code.SUCCESS)


def test_members_wait_for_their_pod_group() -> None:
    """Members are not attempted before their PodGroup is created."""
    stage = CoschedulingStage()
    status = stage.plugin.pre_enqueue(stage.member(stage.group(min_member=0), "a"))
    assert status.message == "waiting for PodGroup default/train to be created"


def test_the_member_that_completes_the_quorum_activates_the_others() -> None:
    """The other members are activated immediately, without a flush of the queue (#450)."""
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
    """Members of a group of the same name in another namespace do not count."""
    stage = CoschedulingStage()
    group = stage.group(min_member=2)
    info = stage.member(group, "a")
    other = FakeGroup(GroupKey(GroupSource.BAYPLAN, "elsewhere", "train"), group.group)
    stage.handle.groups.by_key[other.key] = other
    stage.member(other, "b", namespace="elsewhere")
    assert not stage.plugin.pre_enqueue(info).is_success


@table(
    "requested, message",
    ("no minResources", {}, ""),
    ("all free resources, including the members'", {"cpu": 6000}, ""),
    ("more than the free resources", {"cpu": 6001}, "1 of cpu missing"),
    ("one of two", {"cpu": 7000, "memory": 1}, "1000 of cpu missing"),
    ("a resource that no node has", {"example.com/gpu": 2}, "2 of example.com/gpu missing"),
)
def test_min_resources(requested: dict[str, int], message: str) -> None:
    """The cluster must have minResources free. Members' resources count as free, overcommitted nodes as 0."""
    stage = CoschedulingStage()
    nodes = stage.handle.nodes
    for name in ("n", "m"):
        nodes.add_node(node(name, allocatable={"cpu": 4, "memory": "1Gi", "pods": 10}))
    over = nodes.add_node(node("over", allocatable={"cpu": 1, "memory": "1Gi", "pods": 10}))
    group = stage.group(min_resources=requested)
    own = stage.member(group, "a", "bound", requests={"cpu": 1})
    for info, row in (
        (own, 0),
        (nodes.compile_pod(pod("other", requests={"cpu": 2})), 0),
        (nodes.compile_pod(pod("huge", requests={"cpu": 5})), over),
    ):
        nodes.add_pod(info, row)
    stage.member(group, "b")
    status = stage.plugin.pre_filter(CycleState(), stage.member(group, "c"), nodes).status
    assert status.message == (
        f"insufficient free resources in the cluster for PodGroup default/train: {message}" if message else ""
    )


@pytest.mark.parametrize(("succeeded", "is_admitted"), [(0, False), (1, True)])
def test_min_resources_after_a_member_succeeded(succeeded: int, is_admitted: bool) -> None:
    """The whole minResources need not be free again: a part of them was used by the members that have ended."""
    stage = CoschedulingStage()
    stage.handle.nodes.add_node(node("n", allocatable={"cpu": 1, "memory": "1Gi", "pods": 10}))
    group = stage.group(min_resources={"cpu": 2000})
    group.succeeded = succeeded
    members = [stage.member(group, name) for name in ("a", "b")]
    assert stage.plugin.pre_filter(CycleState(), members[0], stage.handle.nodes).status.is_success is is_admitted


def test_every_member_needs_a_pod_slot() -> None:
    """The free pod slots of the nodes must suffice for the quorum."""
    stage = CoschedulingStage()
    stage.handle.nodes.add_node(node("n", allocatable={"cpu": 4, "pods": 2}))
    group = stage.group(min_resources={"cpu": 1})
    info = stage.add_members(group, "", "", "")[0]
    status = stage.plugin.pre_filter(CycleState(), info, stage.handle.nodes).status
    assert status.message.endswith("1 of pods missing")


# -- PostFilter ---------------------------------------------------------------------------------------------------


@table(
    "percentage, waiting, is_rejected",
    ("two of ten are missing", 10, 8, True),
    ("one of ten is not more than 10 percent", 10, 9, False),
    ("0 percent", 0, 9, True),
    ("100 percent", 100, 1, False),
    ("the quorum has nodes", 10, 10, False),
)
def test_waiting_members_of_an_infeasible_member(percentage: int, waiting: int, is_rejected: bool) -> None:
    """All waiting members are rejected if more than the percentage of the quorum has no node."""
    stage = CoschedulingStage(pod_group_reject_percentage=percentage)
    group = stage.group(min_member=10)
    stage.add_members(group, *["waiting"] * waiting)
    reasons = stage.post_filter_reasons(stage.member(group, "big"))
    expected = ("PodGroup default/train is rejected: member big is infeasible",)
    assert reasons == (expected if is_rejected else ())
    assert len(stage.calls_on_waiting_pods()) == (waiting if is_rejected else 0)


def test_a_preview_changes_nothing() -> None:
    """preview() returns the reasons of PostFilter without rejecting members or starting a backoff."""
    stage = CoschedulingStage(pod_group_backoff_seconds=10)
    group = stage.group(min_member=2)
    stage.add_members(group, "waiting")
    big = stage.member(group, "big")
    preview = present(stage.plugin.preview(CycleState(), big, stage.handle.nodes, EMPTY_DIAGNOSIS))
    assert stage.calls_on_waiting_pods() == {}
    assert stage.plugin.pre_enqueue(big).is_success
    assert preview.result.status.reasons == stage.post_filter_reasons(big)


def test_a_rejected_group_backs_off() -> None:
    """No member is attempted during the backoff; members that were requeued during it are activated at its end."""
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


def test_the_default_backoff_of_a_group_equals_that_of_pods() -> None:
    """The backoff doubles from 1 to 10 seconds, so that an infeasible group is not retried constantly (#682)."""
    stage = CoschedulingStage()
    big = stage.add_members(stage.group(min_member=2), "", "")[0]
    for seconds in (1, 2, 4, 8, 10, 10):
        stage.post_filter_reasons(big)
        stage.handle.clock.advance(seconds - 0.1)
        assert not stage.plugin.pre_enqueue(big).is_success
        stage.handle.clock.advance(0.1)
        assert stage.plugin.pre_enqueue(big).is_success


@table(
    "state, since, yields",
    ("an older group waits", "waiting", 900.0, True),
    ("an older group was just rejected", "rejected", 900.0, True),
    ("a newer group waits", "waiting", 1100.0, False),
    ("no group has resources", "queued", 900.0, False),
)
def test_a_rejected_group_yields_to_an_older_one(state: str, since: float, yields: bool) -> None:
    """The newer of two competing groups waits longer, because both would be rejected again (#114, #117)."""
    stage = CoschedulingStage()
    stage.member(stage.group("other", 2, since), "x", state)
    group = stage.group("train", 2)
    big = stage.add_members(group, "", "waiting")[0]
    stage.post_filter_reasons(big)
    stage.handle.clock.advance(1)
    assert stage.plugin.pre_enqueue(big).is_success is not yields
    stage.handle.clock.advance(YIELD_SECONDS)
    assert stage.plugin.pre_enqueue(big).is_success


def test_a_scheduled_group_has_no_backoff() -> None:
    """Backoff and timer are removed when the group is scheduled."""
    stage = CoschedulingStage(pod_group_backoff_seconds=10)
    group = stage.group(min_member=1)
    info = stage.member(group, "a", "bound")
    group.placed.clear()
    stage.post_filter_reasons(info)
    assert stage.handle.clock.pending == 1
    assert stage.plugin.permit(CycleState(), info, "n").status.is_success
    assert stage.handle.clock.pending == 0
    assert stage.plugin.pre_enqueue(info).is_success


# -- dry runs -----------------------------------------------------------------------------------------------------


def test_a_dry_run_of_the_gate_activates_nobody() -> None:
    """A preview of the gate returns what PreEnqueue returns, and neither notes the pod nor activates noted ones."""
    stage = CoschedulingStage()
    group = stage.group(min_member=2)
    first = stage.member(group, "first", "queued")
    assert stage.plugin.preview_gate(first) == stage.plugin.pre_enqueue(first) != SUCCESS
    second = stage.member(group, "second", "queued")
    assert stage.plugin.preview_gate(second) == SUCCESS
    assert stage.handle.activated == []
    assert stage.plugin.pre_enqueue(second) == SUCCESS
    assert stage.handle.activated == [first]


def test_a_dry_run_does_not_spare_the_check_of_resources() -> None:
    """The check of minResources is skipped for later members only after one is reserved."""
    stage, state = CoschedulingStage(), CycleState()
    stage.handle.nodes.add_node(node("n", allocatable={"cpu": "4", "pods": "9"}))
    group = stage.group(min_member=1, min_resources={"cpu": 4000})
    one = stage.member(group, "one", "queued")
    assert stage.plugin.pre_filter(state, one, stage.handle.nodes).status == SUCCESS
    stage.handle.nodes.update_node(node("n", allocatable={"cpu": "1", "pods": "9"}))
    assert not stage.plugin.pre_filter(CycleState(), one, stage.handle.nodes).status.is_success
    stage.plugin.reserve(state, one, "n")
    assert stage.plugin.pre_filter(CycleState(), one, stage.handle.nodes).status == SUCCESS


@table(
    "groups, pods, order",
    ("priority", {"old": 1, "new": 2}, [("old", 0), ("new", 1), ("old", 2), ("new", 3)], "dcba"),
    ("age", {"old": 1, "new": 2}, [("new", 0), ("old", 0), ("new", 0), ("old", 0)], "bdac"),
    ("name", {"b": 1, "a": 1}, [("b", 0), ("a", 0), ("b", 0), ("a", 0)], "bdac"),
    ("a pod without a group", {"old": 1, "new": 9}, [("new", 0), ("", 0), ("old", 0)], "cba"),
)
def test_order(groups: dict[str, float], pods: list[tuple[str, int]], order: str) -> None:
    """Pods are sorted by priority, then by the age of the group or of the pod; members are adjacent."""
    stage = CoschedulingStage()
    made = {name: stage.group(name, since=since) for name, since in groups.items()}
    queue = []
    for sequence, (name, (group, priority)) in enumerate(zip("abcd", pods, strict=False)):
        if group:
            info = stage.member(made[group], name, priority=priority)
        else:
            info = stage.handle.nodes.compile_pod(pod(name, priority=priority))
        queue.append(QueuedPod(info, 5.0, sequence))
    sort = sorted(queue, key=stage.plugin.sort_key)
    assert "".join(queued.info.pod.metadata.name for queued in sort) == order


def test_a_group_has_its_own_priority() -> None:
    """The priority of a group overrides those of its members."""
    stage = CoschedulingStage()
    high = stage.member(stage.group("high", priority=10), "a", priority=1)
    low = stage.member(stage.group("low"), "b", priority=5)
    assert stage.plugin.sort_key(QueuedPod(high, 1.0, 0)) < stage.plugin.sort_key(QueuedPod(low, 1.0, 1))


def test_a_rejected_group_is_sorted_last() -> None:
    """A rejected group is sorted behind groups of equal priority until it is scheduled."""
    stage = CoschedulingStage()
    old, new = stage.group("old", 1, 1.0), stage.group("new", 1, 2.0)
    first, second = stage.member(old, "a"), stage.member(new, "b")

    def order() -> list[str]:
        pods = sorted((QueuedPod(first, 1.0, 0), QueuedPod(second, 1.0, 1)), key=stage.plugin.sort_key)
        return [queued.info.pod.metadata.name for queued in pods]

    assert order() == ["a", "b"]
    stage.post_filter_reasons(first)
    assert order() == ["b", "a"]
    assert stage.plugin.permit(CycleState(), first, "n").status.is_success
    assert order() == ["a", "b"]


def test_records_of_deleted_groups_are_dropped() -> None:
    """The number of records is bounded."""
    stage = CoschedulingStage()
    for index in range(1000):
        group = stage.group(f"group-{index}", 1)
        stage.post_filter_reasons(stage.member(group, "a"))
        del stage.handle.groups.by_key[group.key]
    assert len(stage.plugin._records) <= 256


# -- hints --------------------------------------------------------------------------------------------------------

POD_ADDED = ClusterEvent(Resource.POD, Action.ADD)
GROUP_ADDED = ClusterEvent(Resource.POD_GROUP, Action.ADD)
GROUP_UPDATED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE_OTHER)
POD_DELETED = ClusterEvent(Resource.POD, Action.DELETE)
NODE_ADDED = ClusterEvent(Resource.NODE, Action.ADD)


def _hint(stage: CoschedulingStage, waits: str, event: ClusterEvent, old: object | None, new: object | None) -> Hint:
    """Return the plugin's hint for the pod with this name, or Skip if the event is not registered."""
    named = [member for group in stage.handle.groups.by_key.values() for member in group.pods.values()]
    waiting = next(member for member in named if member.metadata.name == waits)
    for registration in stage.plugin.events_to_register():
        if registration.event.covers(event):
            assert registration.hint is not None
            return registration.hint(waiting, old, new)
    return Hint.SKIP


@table(
    "members, newcomer, hint",
    ("the member that completes the quorum", 2, "train", Hint.QUEUE),
    ("the quorum is still incomplete", 1, "train", Hint.SKIP),
    ("a member of another group", 2, "other", Hint.SKIP),
    ("a pod without a group", 2, "", Hint.SKIP),
)
def test_added_pod(members: int, newcomer: str, hint: Hint) -> None:
    """Only a member that completes the quorum requeues the others (#682)."""
    stage = CoschedulingStage()
    groups = {name: stage.group(name) for name in ("train", "other")}
    stage.add_members(groups["train"], *[""] * members)
    new = stage.member(groups[newcomer], "new").pod if newcomer else pod("new")
    assert _hint(stage, "a", POD_ADDED, None, new) is hint


def test_members_are_not_requeued_without_a_pod_group() -> None:
    """No number of added members requeues the others."""
    stage = CoschedulingStage()
    group = stage.group(min_member=0)
    stage.add_members(group, "", "", "")
    assert _hint(stage, "a", POD_ADDED, None, stage.member(group, "new").pod) is Hint.SKIP


@pytest.mark.parametrize("event", [GROUP_ADDED, GROUP_UPDATED], ids=lambda event: event.name)
@table(
    "namespace, source, hint",
    ("the pod's group", "default", GroupSource.BAYPLAN, Hint.QUEUE),
    ("same name in another namespace", "elsewhere", GroupSource.BAYPLAN, Hint.SKIP),
    ("same name in another API", "default", GroupSource.NATIVE, Hint.SKIP),
)
def test_changed_pod_group(event: ClusterEvent, namespace: str, source: GroupSource, hint: Hint) -> None:
    """An added or updated PodGroup requeues its members, because it may require less."""
    stage = CoschedulingStage()
    stage.add_members(stage.group(), "")
    changed = PodGroup(GroupKey(source, namespace, "train"), "uid", 1)
    assert _hint(stage, "a", event, None, changed) is hint


@table("min_resources, hint", ("with minResources", {"cpu": 1000}, Hint.QUEUE), ("without minResources", {}, Hint.SKIP))
def test_freed_resources(min_resources: dict[str, int], hint: Hint) -> None:
    """Added nodes and deleted pods requeue members of groups with minResources."""
    stage = CoschedulingStage()
    stage.add_members(stage.group(min_resources=min_resources), "")
    assert _hint(stage, "a", NODE_ADDED, None, node("new")) is hint
    assert _hint(stage, "a", POD_DELETED, pod("gone", node_name="n"), None) is hint


@table(
    "event, new",
    ("the pod left its group", ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL), pod("a")),
    ("the event has no object", GROUP_ADDED, None),
    ("the pod's group was deleted", NODE_ADDED, node("new")),
)
def test_pods_are_requeued_in_doubt(event: ClusterEvent, new: object | None) -> None:
    """The hint is Queue if the event cannot be evaluated, because Skip could leave the pod waiting."""
    stage = CoschedulingStage()
    registrations = [each for each in stage.plugin.events_to_register() if each.event.covers(event)]
    assert [each.hint(pod("a"), None, new) for each in registrations if each.hint] == [Hint.QUEUE]


@table(
    "event",
    ("taints", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)),
    ("deleted node", ClusterEvent(Resource.NODE, Action.DELETE)),
)
def test_events_that_are_not_registered(event: ClusterEvent) -> None:
    """The plugin does not register events that only other plugins can evaluate."""
    registrations = CoschedulingStage().plugin.events_to_register()
    assert not any(registration.event.covers(event) for registration in registrations)
