"""How members of a gang are requeued when their binding fails, and what happens to their nominations."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
import pytest

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.framework.queued_pod import Place, QueuedGang
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.gang_preemption import terminating_pod
from tests.support.gangs import gang_of, group, member, members
from tests.support.scheduling import Rig, profile, rig


@pytest.fixture
def cluster(cluster: Rig) -> Rig:
    """Return a scheduler for gangs with one node."""
    cluster.add(node("a"))
    return cluster


async def schedule_gang(cluster: Rig) -> list[Attempt]:
    """Run the cycle of the next gang, and bind no pod."""
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    return await cluster.scheduler.cycles.gangs.schedule(entry)


def fail_binding(cluster: Rig, attempt: Attempt) -> None:
    """Fail the binding cycle of an attempt."""
    cluster.scheduler.cycles.assumed.release(attempt)
    cluster.scheduler.cycles.failed.handle(attempt, Failure("out of order", is_error=True))


async def test_all_members_of_more_than_the_quorum_fail(cluster: Rig) -> None:
    """A member that fails while the others meet the quorum waits with them after they have failed too."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(3))
    attempts = await schedule_gang(cluster)
    for attempt in attempts:
        fail_binding(cluster, attempt)
    assert [attempt.queued.place for attempt in attempts] == [Place.GROUPED] * 3
    assert len(gang_of(cluster).waiting) == 3


async def test_the_profile_of_a_gang_in_flight_is_withdrawn(cluster: Rig) -> None:
    """The members are parked, and the gang's entry is dropped; it is created again from the members."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(2))
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    cluster.scheduler.withdraw(entry.profile)
    cluster.queue.failed(entry)
    assert cluster.queue.find(entry.uid) is None
    assert cluster.queue.readings.parked_count == 2


async def test_the_group_of_a_gang_in_flight_is_deleted_and_its_profile_swapped(cluster: Rig) -> None:
    """The members are gated, and no entry without members is left in the queue; a recreated group has one again."""
    feed = cluster.scheduler.group_feed
    feed.group_changed(group(min_member=2))
    cluster.add(*members(2))
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    feed.group_deleted(entry.gang_key)
    cluster.serve(profile())
    cluster.queue.failed(entry)
    assert cluster.queue.find(entry.uid) is None
    assert [cluster.place_of(each) for each in members(2)] == ["gated", "gated"]
    feed.group_changed(group(min_member=2))
    assert cluster.queue.find(entry.uid) is not None


async def test_members_are_bound_while_their_gang_is_attempted(cluster: Rig) -> None:
    """A failed attempt leaves no queue entry if the members were bound during it."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    pods = members(2)
    cluster.add(*pods)
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    for each in pods:
        spec = msgspec.structs.replace(each.spec, node_name="a")
        cluster.scheduler.feed.pod_updated(each, msgspec.structs.replace(each, spec=spec))
    cluster.queue.failed(entry)
    assert cluster.queue.find(entry.uid) is None
    assert gang_of(cluster).entry is None


async def test_nominated_members_count_once(cluster: Rig) -> None:
    """The nomination of a member does not count once the member is assumed, nor that of the entry's copy."""
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    pods = members(3, nominated_node="a")
    cluster.add(*pods)
    attempts = await schedule_gang(cluster)
    assert len(attempts) == 3
    row = cluster.context.cache.columns.row_of("a")
    assert sorted(cluster.context.cache.columns.pods[row]) == sorted(each.metadata.uid for each in pods)


async def test_an_assumed_pod_has_no_nomination(cluster: Rig) -> None:
    """A pod whose copy is assumed counts once on its node, although it was nominated."""
    member = cluster.context.cache.columns.compile_pod(pod("a-member", priority=5))
    cluster.queue.nominator.nominate(member, "a")
    cluster.context.cache.assume(copy.copy(member), "a")
    cluster.add(pod("another"))
    assert cluster.decide() is not None
    columns = cluster.context.cache.columns
    assert member.uid in columns.pods[columns.row_of("a")]


def test_a_gang_that_lost_its_quorum_leaves_the_queue_although_its_requeueing_raises(
    cluster: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member is deleted during an attempt whose end raises."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    pods = members(2)
    cluster.add(*pods)
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    cluster.scheduler.feed.pod_deleted(pods[1])

    def broken(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(cluster.queue, "_requeue_failed", broken)
        cluster.queue.failed(entry)
    assert entry.place is Place.NOWHERE
    cluster.add(pods[1])
    assert cluster.queue.find(entry.uid) is not None


def _delete(cluster: Rig, first: Pod) -> None:
    cluster.scheduler.feed.pod_deleted(first)


def _terminate(cluster: Rig, first: Pod) -> None:
    cluster.scheduler.feed.pod_updated(first, terminating_pod(first))


def _bind(cluster: Rig, first: Pod) -> None:
    """Report that another scheduler has bound the member, to a gang of three."""
    cluster.scheduler.feed.pod_updated(
        first, msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, node_name="n"))
    )


def _withdraw(cluster: Rig, first: Pod) -> None:
    cluster.scheduler.withdraw(first.spec.scheduler_name)


@pytest.mark.parametrize("when", [0, 1, 2], ids=["active", "unschedulable", "backing off"])
@pytest.mark.parametrize("end", [_delete, _terminate, _bind, _withdraw])
async def test_a_gang_whose_first_member_had_another_profile(end: Callable[[Rig, Pod], None], when: int) -> None:
    """When the member that represented the gang does not wait any more, the profile of the others schedules them."""
    cluster = rig(groups=[GroupSource.BAYPLAN], serve=False)
    cluster.serve(profile(), profile("second"))
    cluster.add(node("n"))
    cluster.scheduler.group_feed.group_changed(group(min_member=3 if end is _bind else 2))
    first, *others = member("first", scheduler_name="second"), *members(2)
    cluster.add(first, *others)
    async with cluster.running():
        if when:
            await cluster.scheduler.until_idle()
        if when == 2:
            cluster.add(node("m"))
        end(cluster, first)
        for _ in range(5):
            await cluster.scheduler.until_idle()
            cluster.clock.advance(30.0)
    assert set(cluster.bound) == {"train-0", "train-1"}
