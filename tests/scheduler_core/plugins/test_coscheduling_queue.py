"""Coscheduling at QueueSort, and its queueing hints."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from tests.support.builders import node, pod
from tests.support.coscheduling import CoschedulingStage
from tests.support.tables import table


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
