"""How members of a gang are requeued when their binding fails, and what happens to their nominations."""

from __future__ import annotations

import copy

import msgspec
import pytest

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.framework.queued_pod import Place, QueuedGang
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, members
from tests.support.scheduling import Rig


@pytest.fixture
def cluster(cluster: Rig) -> Rig:
    """A scheduler for gangs with one node."""
    cluster.add(node("a"))
    return cluster


async def place(cluster: Rig) -> list[Attempt]:
    """Run the cycle of the next gang, and bind no pod."""
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    return await cluster.scheduler.cycles.gangs.schedule(entry)


def give_back(cluster: Rig, attempt: Attempt) -> None:
    """Let a binding fail."""
    cluster.scheduler.cycles.assumed.release(attempt)
    cluster.scheduler.cycles.failed.handle(attempt, Failure("out of order", is_error=True))


async def test_the_first_to_fail_of_more_than_the_quorum(cluster: Rig) -> None:
    """It fails while the gang is whole without it, and still waits with the others when they have failed."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(3))
    attempts = await place(cluster)
    for attempt in attempts:
        give_back(cluster, attempt)
    assert [attempt.queued.place for attempt in attempts] == [Place.GROUPED] * 3
    assert len(gang_of(cluster).waiting) == 3


async def test_a_gang_in_flight_whose_profile_goes(cluster: Rig) -> None:
    """Its entry is not parked with the profile: its members are, and create the entry again."""
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(2))
    entry = cluster.queue.pop()
    assert isinstance(entry, QueuedGang)
    cluster.scheduler.withdraw(entry.profile)
    cluster.queue.failed(entry)
    assert cluster.queue.find(entry.uid) is None
    assert cluster.queue.readings.parked_count == 2


async def test_a_gang_that_becomes_whole_while_it_is_tried(cluster: Rig) -> None:
    """Its members were bound meanwhile: a failed attempt leaves no entry behind."""
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


async def test_a_member_that_is_nominated(cluster: Rig) -> None:
    """Its nomination does not count once it is assumed, not even that of the copy in the gang's entry."""
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    pods = members(3, nominated_node="a")
    cluster.add(*pods)
    attempts = await place(cluster)
    assert len(attempts) == 3
    row = cluster.context.cache.columns.row_of("a")
    assert sorted(cluster.context.cache.columns.pods[row]) == sorted(each.metadata.uid for each in pods)


async def test_an_assumed_pod_has_no_nomination(cluster: Rig) -> None:
    """A member that is tried with another priority is a copy, and still counts once on its node."""
    member = cluster.context.cache.columns.compile_pod(pod("a-member", priority=5))
    cluster.queue.nominator.nominate(member, "a")
    cluster.context.cache.assume(copy.copy(member), "a")
    cluster.add(pod("another"))
    assert cluster.decide() is not None
    columns = cluster.context.cache.columns
    assert member.uid in columns.pods[columns.row_of("a")]
