"""What users reported against scheduler-plugins' coscheduling, replayed: who is tried when, and who waits for how long.

Each test names the threads of kubernetes-sigs/scheduler-plugins and what happened there. Time is virtual throughout;
where it matters that attempts take time, they take a tenth of a second each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.busy_scheduler import SECONDS, busy, step
from tests.support.gang_traffic import Traffic
from tests.support.gangs import gang_of, group, key, member, members, settle
from tests.support.scheduling import Rig

# -- the queue's head --------------------------------------------------------------------------------------------


@dataclass
class Churn:
    """A node on which a small pod is replaced by another each second, so that who needs room is woken again and again.

    Attributes:
        made: The scheduler.
        serial: The number of the pod that runs.
        due: When it is replaced.
    """

    made: Rig
    serial: int = 0
    due: float = 0.0

    def turn(self) -> None:
        """Replace the pod every second."""
        if self.made.clock.now() < self.due:
            return
        self.due = self.made.clock.now() + 1.0
        if self.serial:
            self.made.scheduler.feed.pod_deleted(self._pod())
        self.serial += 1
        self.made.add(self._pod())

    def _pod(self) -> Pod:
        return pod(f"churn-{self.serial}", node_name="a", requests={"cpu": "1"})


async def run_until(made: Rig, churn: Churn, condition: Callable[[], bool], seconds: float) -> float:
    """Run a scheduler whose attempts take time until a condition holds; return the seconds that it took."""
    begun = made.clock.now()
    while not condition():
        churn.turn()
        await step(made)
        assert made.clock.now() < begun + seconds, "it takes too long"
    return made.clock.now() - begun


def gangs_that_do_not_fit(made: Rig, count: int) -> Churn:
    """Add gangs for which the churning node is much too small."""
    made.add(node("a", allocatable={"cpu": "8", "pods": "99"}))
    for number in range(count):
        name = f"old{number}"
        made.scheduler.group_feed.group_changed(group(name, min_member=2))
        made.add(*members(2, name, requests={"cpu": "5"}))
    return Churn(made)


@pytest.mark.parametrize(
    ("count", "patience"),
    [
        pytest.param(20, 1.0, id="as many as are tried while the first back off"),
        pytest.param(150, 60.0, id="more than that"),
    ],
)
async def test_110_old_gangs_that_do_not_fit_and_a_pod_that_does(count: int, patience: float) -> None:
    """#110: ordered by the first attempt, old pods that fit nowhere came back before those behind them were ever tried.

    Here gangs keep their turn too, and that is why those that fail back off for so long that they take half of the
    scheduler's time at the most: a pod that comes while all of them are retried is placed soon.
    """
    made = busy()
    churn = gangs_that_do_not_fit(made, count)
    # By then all were tried often, and back off for as long as they ever do.
    await run_until(made, churn, lambda: made.clock.now() >= 1100.0, 200.0)
    made.add(pod("late", requests={"cpu": "1"}))
    assert await run_until(made, churn, lambda: "late" in made.bound, 600.0) <= patience


async def test_874_a_newer_gang_behind_those_that_do_not_fit() -> None:
    """#874, after #110: by age of PodGroups, large ones at the queue's head kept newer ones from being tried at all.

    Here a newer gang and a pod are placed while the older ones go on failing, and the older ones keep their places.
    """
    made = busy()
    churn = gangs_that_do_not_fit(made, 150)
    await run_until(made, churn, lambda: made.clock.now() >= 1100.0, 200.0)
    made.scheduler.group_feed.group_changed(group("young", min_member=3))
    made.add(*members(3, "young"), pod("single", requests={"cpu": "1"}))
    await run_until(made, churn, lambda: len(made.bound) == 4, 60.0)
    standing = [gang_of(made, f"old{number}").since for number in range(150)]
    assert standing == sorted(standing)
    assert standing[-1] < gang_of(made, "young").since


@pytest.mark.parametrize(
    ("is_strict", "expected"), [pytest.param(True, True, id="Strict"), pytest.param(False, False, id="BestEffort")]
)
async def test_110_a_large_gang_among_small_pods(is_strict: bool, expected: bool) -> None:
    """#110, #874, the other way round: where small pods fill every hole, room for a large gang is never free at once.

    The place in the queue does not help there. Here a Strict one has what becomes free kept for it. One that is not is
    passed, as it was asked for.
    """
    traffic = Traffic()
    traffic.nodes({"a": 4, "b": 4})
    for number in range(8):
        traffic.runs("ab"[number % 2], 1, 5.0 + number * 5)
    traffic.gang("large", 4, 2, is_strict=is_strict)
    for _ in range(200):
        traffic.comes(1, 40.0)
        await traffic.step()
    assert traffic.is_placed("large") == expected


async def test_658_a_gang_is_one_entry_of_the_queue(cluster: Rig) -> None:
    """#658: members were queued one by one, each with a time of its own, and other pods came between them.

    Here the gang is taken as a whole, by its own age: small pods that came between its members get what it leaves.
    """
    cluster.scheduler.group_feed.group_changed(group(min_member=4))
    for number in range(4):
        cluster.clock.advance(1.0)
        cluster.add(pod(f"small-{number}", requests={"cpu": "1"}), member(f"train-{number}"))
    cluster.add(node("a", allocatable={"cpu": "6", "pods": "99"}))
    assert cluster.queue.pop() is gang_of(cluster).entry


async def test_658_small_pods_get_what_the_gang_leaves(cluster: Rig) -> None:
    """#658: the same, to the end."""
    cluster.add(node("a", allocatable={"cpu": "6", "pods": "99"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=4))
    for number in range(4):
        cluster.clock.advance(1.0)
        cluster.add(pod(f"small-{number}", requests={"cpu": "1"}), member(f"train-{number}"))
    await settle(cluster)
    assert set(cluster.bound) == {"small-0", "small-1", *(f"train-{number}" for number in range(4))}


# -- failed attempts ---------------------------------------------------------------------------------------------


def irrelevant(made: Rig) -> None:
    """Changes that free no room: pods are added, others deleted without having run, nodes report."""
    for number in range(10):
        held = pod(f"held-{number}", gates=["wait"])
        made.add(held, pod(f"tiny-{made.clock.now()}", node_name="full"))
        made.scheduler.feed.pod_deleted(held)
        before, after = (
            node("full", allocatable={"cpu": "2", "pods": "99"}, labels={"seen": str(more)}) for more in (0, 1)
        )
        made.scheduler.feed.node_updated(before, after)
        made.clock.advance(1.0)


def attempts(made: Rig, count: int) -> set[int]:
    """Return how often each gang was tried."""
    entries = [gang_of(made, f"g{number}").entry for number in range(count)]
    return {entry.attempts for entry in entries if entry is not None}


async def test_682_gangs_that_wait_cause_no_work(cluster: Rig) -> None:
    """#682: each member that passed requeued all its siblings, over and over, until the scheduler did nothing else.

    It did not get to pods that fit. Here a gang that failed is tried again when something happens that may help it,
    once for all its members: neither its own failure nor that of another, nor what makes no room, wakes it.
    """
    cluster.add(node("full", allocatable={"cpu": "2", "pods": "99"}, labels={"seen": "0"}))
    for number in range(20):
        cluster.scheduler.group_feed.group_changed(group(f"g{number}", min_member=16))
        cluster.add(*members(16, f"g{number}"))
    await settle(cluster)
    assert attempts(cluster, 20) == {1}
    for _ in range(3):
        irrelevant(cluster)
        await settle(cluster)
    assert attempts(cluster, 20) == {1}
    cluster.add(pod("fits", requests={"cpu": "1"}))
    await settle(cluster)
    assert (set(cluster.bound), attempts(cluster, 20)) == ({"fits"}, {1})
    cluster.add(node("more", allocatable={"cpu": "2", "pods": "99"}))
    cluster.clock.advance(20.0)
    await settle(cluster)
    assert attempts(cluster, 20) == {2}
    waiting = [pod for number in range(20) for pod in gang_of(cluster, f"g{number}").waiting.values()]
    assert (len(waiting), {pod.attempts for pod in waiting}) == (320, {2})


# -- the way to a quorum -----------------------------------------------------------------------------------------


def last_member(made: Rig) -> None:
    """Add the last member."""
    made.add(member("train-3"))


def last_gate(made: Rig) -> None:
    """Open the last member's gate."""
    made.scheduler.feed.pod_updated(member("train-3", gates=["wait"]), member("train-3"))


def the_group(made: Rig) -> None:
    """Add the PodGroup after its pods."""
    made.scheduler.group_feed.group_changed(group(min_member=4))


def smaller_quorum(made: Rig) -> None:
    """Lower the PodGroup's minMember."""
    made.scheduler.group_feed.group_changed(group(min_member=3, generation=2))


@pytest.mark.parametrize(
    ("pods", "has_group", "completes"),
    [
        pytest.param(members(3), True, last_member, id="#125 the last member comes late"),
        pytest.param([*members(3), member("train-3", gates=["wait"])], True, last_gate, id="#364 a gate opens late"),
        pytest.param(members(4), False, the_group, id="#397 pods before their PodGroup"),
        pytest.param(members(3), True, smaller_quorum, id="#450 fewer are needed"),
    ],
)
async def test_125_364_397_450_a_gang_is_tried_when_its_quorum_exists(
    cluster: Rig, pods: list[Pod], has_group: bool, completes: Callable[[Rig], None]
) -> None:
    """#125, #364, #397, #450: members that came before there were enough were put aside for 60 to 90 s, until a flush.

    By then others had been put aside in their turn. Here they wait without being tried, and the event that makes the
    quorum brings all of them, without time passing and with no backoff from before.
    """
    cluster.add(node("a"))
    if has_group:
        cluster.scheduler.group_feed.group_changed(group(min_member=4))
    for each in pods:
        cluster.add(each)
        await settle(cluster)
        cluster.clock.advance(7.0)
    assert (cluster.bound, gang_of(cluster).last_attempt) == ({}, None)
    now = cluster.clock.now()
    completes(cluster)
    await settle(cluster)
    gang = cluster.queue.gangs.get(key())
    assert gang is not None
    assert (len(cluster.bound), gang.needed, cluster.clock.now()) == (len(gang.pods), 0, now)


async def test_450_members_that_come_one_by_one_are_not_punished(cluster: Rig) -> None:
    """#450: "last failed in 3s, deny": that one member had come too early kept the whole group away for a while.

    Here none of the members was tried before, so that none has anything to back off for.
    """
    cluster.add(node("a"))
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    for each in members(3):
        await settle(cluster)
        cluster.add(each)
    entry = gang_of(cluster).entry
    assert entry is not None
    assert (entry.place.label, entry.attempts, entry.unschedulable_count) == ("active", 0, 0)
    assert {queued.attempts for queued in gang_of(cluster).waiting.values()} == {0}


def test_what_an_attempt_takes() -> None:
    """The tests above need more gangs than can be tried while the first of them backs off."""
    assert 150 * SECONDS > busy().scheduler.options.max_backoff_seconds > 20 * SECONDS
