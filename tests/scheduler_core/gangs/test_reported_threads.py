"""Problems that users reported for scheduler-plugins' coscheduling: which gangs are bound, and what stays assumed.

Each docstring has the numbers of the threads in kubernetes-sigs/scheduler-plugins and the reported problem. Problems of
order and waiting are in ``test_reported_waiting.py``, of the status in
``tests/operator/gangs/test_scheduler_plugins_status.py``.
"""

from __future__ import annotations

from collections import Counter

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.gang_traffic import Traffic
from tests.support.gangs import gang_of, group, key, member, members, settle, settle_gang
from tests.support.presence import present
from tests.support.scheduling import Rig
from tests.support.tables import table

GPU = "example.com/gpu"


def has_no_unbound_assumed_pod(made: Rig) -> bool:
    """Return whether no pod is assumed without being bound."""
    return made.context.cache.assumed_count == len(made.bound)


async def end(made: Rig, pods: list[Pod]) -> None:
    """Delete pods, and run the scheduler after all backoffs."""
    for each in pods:
        made.scheduler.feed.pod_deleted(each)
    await settle(made, after=20.0)


def gpus(name: str, count: int) -> Node:
    """Return a node with the given number of GPUs."""
    return node(name, allocatable={"cpu": "64", GPU: str(count), "pods": "99"})


async def test_713_members_that_fit_hold_nothing_while_one_does_not(cluster: Rig) -> None:
    """#713: nine of ten members stayed assumed forever while the tenth was infeasible, and other pods starved.

    Here the nine members are released in the same cycle, and a pod that is created later is bound.
    """
    cluster.add(node("a", allocatable={"cpu": "9", "pods": "99"}))
    await settle_gang(cluster, *members(10), of=group(min_member=10))
    outcome = present(gang_of(cluster).outcome)
    assert (outcome.fitting, has_no_unbound_assumed_pod(cluster)) == (9, True)
    await settle(cluster, pod("other", requests={"cpu": "9"}))
    assert cluster.bound == {"other": "a"}


async def test_930_no_member_is_bound_before_all_are_feasible(cluster: Rig) -> None:
    """#930: one of two nodes was full; one member of a gang of two was bound to the other node, the second never.

    Here no member is bound until the blocking pod is deleted, however often the gang is attempted; then both are.
    """
    cluster.add(*(node(name, allocatable={"cpu": "1", "pods": "9"}) for name in ("a", "b")))
    blocking = pod("single", node_name="a", requests={"cpu": "1"})
    cluster.add(blocking)
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*members(2))
    for attempts in range(1, 6):
        await settle(cluster)
        entry = present(gang_of(cluster).entry)
        assert (entry.attempts, cluster.writer.attempted, has_no_unbound_assumed_pod(cluster)) == (attempts, [], True)
        cluster.queue.activate(gang_of(cluster).pods)
    await end(cluster, [blocking])
    assert set(cluster.bound) == {"train-0", "train-1"}


@table(
    "order",
    ("one after the other", ["x-0", "x-1", "x-2", "y-0", "y-1", "y-2"]),
    ("alternating", ["x-0", "y-0", "x-1", "y-1", "x-2", "y-2"]),
    ("nested", ["x-0", "y-0", "y-1", "y-2", "x-1", "x-2"]),
)
async def test_114_two_gangs_of_which_one_fits(cluster: Rig, order: list[str]) -> None:
    """#114: two gangs were each assumed in part and waited for the capacity that the other one used.

    Here no gang is assumed in part, in any order of members. When one gang is feasible it is bound as a whole, and the
    other one after the first has ended.
    """
    cluster.add(*(gpus(name, 8) for name in "abcd"))
    blocking = [pod(f"before-{name}", node_name=name, requests={GPU: "8"}) for name in "cd"]
    cluster.add(*blocking)
    for name in ("x", "y"):
        cluster.scheduler.group_feed.group_changed(group(name, min_member=3))
    for name in order:
        await settle(cluster, member(name, name[0], requests={GPU: "6"}))
        assert (cluster.bound, has_no_unbound_assumed_pod(cluster)) == ({}, True)
    await end(cluster, blocking)
    (first,) = {name[0] for name in cluster.bound}
    assert (len(cluster.bound), has_no_unbound_assumed_pod(cluster)) == (3, True)
    await end(cluster, list(gang_of(cluster, first).pods.values()))
    assert set(cluster.bound) == set(order)


async def test_117_jobs_in_a_row_on_too_few_gpus() -> None:
    """#117: sixty jobs of one to eight GPUs, one every 15 s, on two nodes of eight GPUs; in the end no job started.

    Pods of several jobs waited at Permit for each other's GPUs. Here the pods of each job are bound together, and all
    jobs run.
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
    """Return the number of bound pods of each job."""
    return Counter(name.partition("-")[0] for name in traffic.rig.bound)


@table("priority, victims", ("victims on both nodes", 0, {"low-a", "low-b"}), ("a victim on one node only", 50, set()))
async def test_581_preemption_for_the_whole_gang(cluster: Rig, priority: int, victims: set[str]) -> None:
    """#581: preemption freed capacity for one pod at a time, which does not help a gang unless all members fit.

    Here all victims are evicted in one attempt, or no pod is.
    """
    cluster.add(*(node(name, allocatable={"cpu": "1", "pods": "9"}) for name in ("a", "b")))
    low: list[Pod] = [
        pod("low-a", node_name="a", requests={"cpu": "1"}),
        pod("low-b", node_name="b", requests={"cpu": "1"}, priority=priority),
    ]
    cluster.add(*low)
    await settle_gang(cluster, *members(2, priority=10), of=group(min_member=2))
    entry = present(gang_of(cluster).entry)
    assert (entry.attempts, {deletion.name for deletion in cluster.writer.deletions}) == (1, victims)
    await end(cluster, [each for each in low if each.metadata.name in victims])
    assert len(cluster.bound) == len(victims)


async def test_members_are_counted_in_their_own_namespace(cluster: Rig) -> None:
    """Members were counted by label in all namespaces, so pods of another group with the same name counted too.

    Here a group counts the pods of its own namespace only.
    """
    cluster.add(node("a", allocatable={"cpu": "9", "pods": "99"}))
    for namespace in ("default", "other"):
        cluster.scheduler.group_feed.group_changed(group(min_member=3, namespace=namespace))
    await settle(cluster, *members(2), *members(2, namespace="other"))
    assert cluster.bound == {}
    await settle(cluster, member("other-2", namespace="other"))
    assert {binding.namespace for binding in cluster.writer.bindings} == {"other"}
    other = present(cluster.queue.gangs.get(key(namespace="other")))
    assert (gang_of(cluster).members, other.members, len(cluster.bound)) == (2, 3, 3)


async def test_429_min_resources_that_are_free_on_no_single_node(cluster: Rig) -> None:
    """#429: ``minResources`` was compared with the sum of free resources on all nodes.

    With 6, 2, 2 and 2 free GPUs three members of 4 GPUs were attempted forever, before all other pods. Here each member
    must fit on a node, the gang is attempted once, and the pods behind it are bound.
    """
    cluster.add(gpus("a", 6), *(gpus(name, 2) for name in ("b", "c", "d")))
    await settle_gang(
        cluster,
        *members(3, requests={GPU: "4"}),
        pod("other", requests={GPU: "2"}),
        of=group(min_member=3, min_resources={GPU: 12}),
    )
    entry, outcome = present(gang_of(cluster).entry), present(gang_of(cluster).outcome)
    assert (set(cluster.bound), entry.attempts, has_no_unbound_assumed_pod(cluster)) == ({"other"}, 1, True)
    assert outcome.message.startswith("1 of the 3 members that must be placed together fit")
    assert f"Insufficient {GPU}" in outcome.message
