"""PreEnqueue gates of a gang's members, and the nominations of gated members."""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, key, member, members
from tests.support.queue_world import NameGate
from tests.support.scheduling import default_rig, gang_rig, rig


async def test_gates_are_checked_when_a_bound_member_is_deleted() -> None:
    """A member whose gate closed after it was queued does not block the others or count for the quorum."""
    NameGate.closed = set()
    made = rig([NameGate], groups=[GroupSource.BAYPLAN])
    made.add(node("n0"))
    made.scheduler.group_feed.group_changed(group(min_member=1))
    runs = member("runs", node_name="n0")
    made.add(runs, *members(2))
    NameGate.closed = {"train-0"}
    made.scheduler.feed.pod_deleted(runs)
    gang = gang_of(made)
    assert [pod.info.pod.metadata.name for pod in gang.waiting.values()] == ["train-1"]
    assert made.place_of(members(1)[0]) == "gated"
    assert isinstance(made.pop(), QueuedGang)
    assert made.queue.pop() is None


async def test_a_nomination_that_was_listed_before_the_group() -> None:
    """Nominations count although pods are listed before their PodGroups after a restart."""
    made = default_rig(node("n0"), *members(2, nominated_node="n0"))
    assert not len(made.queue.nominator)
    made.scheduler.group_feed.group_changed(group(min_member=2))
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    assert len(tuple(made.queue.nominator.nominated_pods("n0"))) == 2


async def test_a_nomination_has_the_current_priority_of_the_group() -> None:
    """When the group's priority becomes lower, the pods that its nominations rejected are requeued."""
    made = gang_rig()
    made.scheduler.group_feed.group_changed(group(min_member=3, priority=100))
    low = pod("low", requests={"cpu": "3"}, priority=50)
    made.add(node("n0"), *members(2, nominated_node="n0"), low)
    assert made.decide() is None
    assert made.place_of(low) == "unschedulable"
    made.scheduler.group_feed.group_changed(group(min_member=3, priority=10))
    assert [info.priority for info in made.queue.nominator.nominated_pods("n0")] == [10, 10]
    assert made.place_of(low) == "backoff"


async def test_a_nomination_of_a_gang_whose_group_is_deleted_during_its_attempt() -> None:
    """The nomination ends with the attempt, and requeues rejected pods."""
    made = gang_rig()
    made.scheduler.group_feed.group_changed(group(min_member=2, priority=10))
    low = pod("low", requests={"cpu": "3"})
    made.add(node("n0"), *members(2, nominated_node="n0"), low)
    entry = made.pop()
    assert isinstance(entry, QueuedGang)
    assert made.decide() is None
    assert made.place_of(low) == "unschedulable"
    made.scheduler.group_feed.group_deleted(key())
    assert len(made.queue.nominator) == 2
    made.queue.failed(entry)
    assert (len(made.queue.nominator), made.place_of(low)) == (0, "backoff")


async def test_a_nomination_of_a_gang_whose_group_is_deleted() -> None:
    """The nomination ends with the group and requeues rejected pods; a new group of the name restores it."""
    made = gang_rig()
    made.scheduler.group_feed.group_changed(group(min_member=3, priority=10))
    low = pod("low", requests={"cpu": "3"})
    made.add(node("n0"), *members(2, nominated_node="n0"), low)
    assert made.decide() is None
    made.scheduler.group_feed.group_deleted(key())
    assert (len(made.queue.nominator), made.place_of(low)) == (0, "backoff")
    first = members(1, nominated_node="n0")[0]
    made.scheduler.feed.pod_updated(first, replace(first, status=replace(first.status, phase="Pending")))
    assert not len(made.queue.nominator)
    made.scheduler.group_feed.group_changed(group(min_member=3, priority=10))
    assert len(made.queue.nominator) == 2
