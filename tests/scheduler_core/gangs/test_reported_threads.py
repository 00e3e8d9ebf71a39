"""What users reported against scheduler-plugins' coscheduling, replayed: who is placed, and what is held meanwhile.

Each test names the threads of kubernetes-sigs/scheduler-plugins and what happened there. Who comes when is in
``test_reported_waiting.py``, what status said in ``tests/operator/gangs/test_scheduler_plugins_status.py``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.gang_traffic import Traffic
from tests.support.gangs import gang_of, group, key, member, members, settle
from tests.support.scheduling import Rig

GPU = "example.com/gpu"


def holds_nothing(made: Rig) -> bool:
    """Return whether no pod is assumed without being bound."""
    return made.context.cache.assumed_count == len(made.bound)


async def end(made: Rig, pods: list[Pod]) -> None:
    """Delete pods, and run all backoffs."""
    for each in pods:
        made.scheduler.feed.pod_deleted(each)
    made.clock.advance(20.0)
    await settle(made)


def gpus(name: str, count: int) -> Node:
    """Return a node with a number of GPUs, of which every member needs some."""
    return node(name, allocatable={"cpu": "64", GPU: str(count), "pods": "99"})


async def test_713_members_that_fit_hold_nothing_while_one_does_not(cluster: Rig) -> None:
    """#713: nine of ten members kept their nodes assumed, for good, while the tenth fitted nowhere; others starved.

    Here the nine give back what they took in the same cycle, and a pod that comes then has all of it.
    """
    cluster.add(node("a", allocatable={"cpu": "9", "pods": "99"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=10))
    cluster.add(*members(10))
    await settle(cluster)
    outcome = gang_of(cluster).outcome
    assert outcome is not None
    assert (outcome.fitting, holds_nothing(cluster)) == (9, True)
    cluster.add(pod("other", requests={"cpu": "9"}))
    await settle(cluster)
    assert cluster.bound == {"other": "a"}


async def test_930_no_member_is_let_through_before_all_have_room(cluster: Rig) -> None:
    """#930: of two nodes one was taken; a gang of two had one member bound to the other node, and stayed in halves.

    Here nobody is bound until the pod in the way is gone, and then both are, however often they are tried.
    """
    cluster.add(*(node(name, allocatable={"cpu": "1", "pods": "9"}) for name in ("a", "b")))
    in_the_way = pod("single", node_name="a", requests={"cpu": "1"})
    cluster.add(in_the_way)
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(2))
    for attempts in range(1, 6):
        await settle(cluster)
        entry = gang_of(cluster).entry
        assert entry is not None
        assert (entry.attempts, cluster.writer.attempted, holds_nothing(cluster)) == (attempts, [], True)
        cluster.queue.activate(gang_of(cluster).pods)
    await end(cluster, [in_the_way])
    assert set(cluster.bound) == {"train-0", "train-1"}


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(["x-0", "x-1", "x-2", "y-0", "y-1", "y-2"], id="one after the other"),
        pytest.param(["x-0", "y-0", "x-1", "y-1", "x-2", "y-2"], id="alternating"),
        pytest.param(["x-0", "y-0", "y-1", "y-2", "x-1", "x-2"], id="one within the other"),
    ],
)
async def test_114_two_gangs_of_which_one_fits(cluster: Rig, order: list[str]) -> None:
    """#114: each of two gangs had a part of its members placed and waited for the room that the other one held.

    Here nobody holds a part, however their members alternate: when there is room for one gang it is bound as a whole,
    and the other one when that has ended.
    """
    cluster.add(*(gpus(name, 8) for name in "abcd"))
    in_the_way = [pod(f"before-{name}", node_name=name, requests={GPU: "8"}) for name in "cd"]
    cluster.add(*in_the_way)
    for name in ("x", "y"):
        cluster.scheduler.group_feed.group_changed(group(name, min_member=3))
    for name in order:
        cluster.add(member(name, name[0], requests={GPU: "6"}))
        await settle(cluster)
        assert (cluster.bound, holds_nothing(cluster)) == ({}, True)
    await end(cluster, in_the_way)
    (first,) = {name[0] for name in cluster.bound}
    assert (len(cluster.bound), holds_nothing(cluster)) == (3, True)
    await end(cluster, list(gang_of(cluster, first).pods.values()))
    assert set(cluster.bound) == set(order)


async def test_117_jobs_in_a_row_on_too_few_gpus() -> None:
    """#117: sixty jobs of one to eight GPUs, one every 15 s, on two nodes of eight; in the end none started any more.

    Pods of several jobs waited at Permit for what the others held, when all that ran before had ended. Here each job
    runs, all its pods at once, and none is left.
    """
    traffic = Traffic()
    traffic.nodes({"a": 8, "b": 8})
    sizes = {f"job{number:02}": 1 + number * 5 % 8 for number in range(60)}
    for name, size in sizes.items():
        traffic.gang(name, size, seconds=70.0, is_strict=False)
        for _ in range(3):
            await traffic.step(5.0)
            assert all(count == sizes[job] for job, count in bound_by_job(traffic).items())
    for _ in range(60):
        await traffic.step(15.0)
    assert bound_by_job(traffic) == sizes


def bound_by_job(traffic: Traffic) -> Counter[str]:
    """Return how many pods of each job have been bound."""
    return Counter(name.partition("-")[0] for name in traffic.rig.bound)


@pytest.mark.parametrize(
    ("priority", "gone"),
    [
        pytest.param(0, {"low-a", "low-b"}, id="both nodes can be freed"),
        pytest.param(50, set(), id="only one of them"),
    ],
)
async def test_581_preemption_for_the_whole_gang(cluster: Rig, priority: int, gone: set[str]) -> None:
    """#581: preemption made room for one pod at a time, which is not enough for a gang, and useless if not all fit.

    Here all victims are evicted in one attempt, or nobody.
    """
    cluster.add(*(node(name, allocatable={"cpu": "1", "pods": "9"}) for name in ("a", "b")))
    low: list[Pod] = [
        pod("low-a", node_name="a", requests={"cpu": "1"}),
        pod("low-b", node_name="b", requests={"cpu": "1"}, priority=priority),
    ]
    cluster.add(*low)
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(2, priority=10))
    await settle(cluster)
    entry = gang_of(cluster).entry
    assert entry is not None
    assert (entry.attempts, {deletion.name for deletion in cluster.writer.deletions}) == (1, gone)
    await end(cluster, [each for each in low if each.metadata.name in gone])
    assert len(cluster.bound) == len(gone)


async def test_members_are_counted_in_their_own_namespace(cluster: Rig) -> None:
    """Members were listed by their label wherever they were: a group of the same name elsewhere lent its pods.

    Here a group counts the pods of its own namespace, and each of two groups of one name waits for its own quorum.
    """
    cluster.add(node("a", allocatable={"cpu": "9", "pods": "99"}))
    for namespace in ("default", "other"):
        cluster.scheduler.group_feed.group_changed(group(min_member=3, namespace=namespace))
    cluster.add(*members(2), *members(2, namespace="other"))
    await settle(cluster)
    assert cluster.bound == {}
    cluster.add(member("other-2", namespace="other"))
    await settle(cluster)
    assert {binding.namespace for binding in cluster.writer.bindings} == {"other"}
    other = cluster.queue.gangs.get(key(namespace="other"))
    assert other is not None
    assert (gang_of(cluster).members, other.members, len(cluster.bound)) == (2, 3, 3)


async def test_429_min_resources_that_are_free_in_pieces(cluster: Rig) -> None:
    """``minResources`` was compared with what is free in all nodes together, which says nothing of any one node.

    #429: 6, 2, 2 and 2 GPUs are free, three members need 4 each; they were tried in turn for ever, before all others.
    Here each member must fit on a node, one attempt says so, and pods behind it are placed.
    """
    cluster.add(gpus("a", 6), *(gpus(name, 2) for name in ("b", "c", "d")))
    cluster.scheduler.group_feed.group_changed(group(min_member=3, min_resources={GPU: 12}))
    cluster.add(*members(3, requests={GPU: "4"}), pod("other", requests={GPU: "2"}))
    await settle(cluster)
    gang = gang_of(cluster)
    assert gang.entry is not None
    assert gang.outcome is not None
    assert (set(cluster.bound), gang.entry.attempts, holds_nothing(cluster)) == ({"other"}, 1, True)
    assert gang.outcome.message.startswith("1 of the 3 members that must be placed together fit")
    assert f"Insufficient {GPU}" in gang.outcome.message
