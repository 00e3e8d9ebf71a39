"""Problems that users reported for scheduler-plugins' coscheduling: the order of attempts, and waiting times.

Each docstring has the numbers of the threads in kubernetes-sigs/scheduler-plugins and the reported problem. Time is
virtual; if the duration of attempts matters, each takes a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.busy_scheduler import SECONDS, busy_rig, step
from tests.support.gang_traffic import Traffic
from tests.support.gangs import gang_of, group, key, member, members, settle
from tests.support.presence import present
from tests.support.scheduling import Rig
from tests.support.tables import table

# -- the queue's head --------------------------------------------------------------------------------------------


@dataclass
class Churn:
    """A node on which a small pod is replaced every second, so that infeasible pods are requeued again and again.

    Attributes:
        serial: The number of the running pod.
        due: When the running pod is replaced.
    """

    made: Rig
    serial: int = 0
    due: float = 0.0

    def replace_due_pod(self) -> None:
        """Replace the running pod if it is due."""
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
    """Run a scheduler whose attempts take time until a condition holds; return the elapsed seconds."""
    start = made.clock.now()
    while not condition():
        churn.replace_due_pod()
        await step(made)
        assert made.clock.now() < start + seconds, "the condition is not met in time"
    return made.clock.now() - start


def infeasible_gangs(made: Rig, count: int) -> Churn:
    """Add gangs that do not fit on the node with changing pods."""
    made.add(node("a", allocatable={"cpu": "8", "pods": "99"}))
    for number in range(count):
        name = f"old{number}"
        made.scheduler.group_feed.group_changed(group(name, min_member=2))
        made.add(*members(2, name, requests={"cpu": "5"}))
    return Churn(made)


@table(
    "count, limit_seconds",
    ("as many as are attempted during one backoff", 20, 1.0),
    ("more than are attempted during one backoff", 150, 60.0),
)
async def test_110_old_gangs_that_do_not_fit_and_a_feasible_pod(count: int, limit_seconds: float) -> None:
    """#110: infeasible pods, ordered by their first attempt, were retried before newer pods were ever attempted.

    Here gangs keep their order too, but failed gangs back off for so long that they use at most half of the scheduler's
    time. A pod that is created while all of them are retried is bound soon.
    """
    made = busy_rig()
    churn = infeasible_gangs(made, count)
    # By then all gangs have the maximum backoff.
    await run_until(made, churn, lambda: made.clock.now() >= 1100.0, 200.0)
    made.add(pod("late", requests={"cpu": "1"}))
    assert await run_until(made, churn, lambda: "late" in made.bound, 600.0) <= limit_seconds


async def test_874_a_newer_gang_behind_those_that_do_not_fit() -> None:
    """#874, after #110: large PodGroups at the head of the queue blocked all newer ones.

    Here a newer gang and a pod are bound while the older gangs keep failing and keep their order.
    """
    made = busy_rig()
    churn = infeasible_gangs(made, 150)
    await run_until(made, churn, lambda: made.clock.now() >= 1100.0, 200.0)
    made.scheduler.group_feed.group_changed(group("young", min_member=3))
    made.add(*members(3, "young"), pod("single", requests={"cpu": "1"}))
    await run_until(made, churn, lambda: len(made.bound) == 4, 60.0)
    ages = [gang_of(made, f"old{number}").since for number in range(150)]
    assert ages == sorted(ages)
    assert ages[-1] < gang_of(made, "young").since


@table("is_strict, expected", ("Strict", True, True), ("BestEffort", False, False))
async def test_110_a_large_gang_among_small_pods(is_strict: bool, expected: bool) -> None:
    """#110, #874: small pods fill every gap, so capacity for a large gang is never free at one time.

    Here freed capacity is reserved for a Strict gang. Small pods pass a BestEffort gang, as documented.
    """
    traffic = Traffic()
    traffic.nodes({"a": 4, "b": 4})
    for number in range(8):
        traffic.add_running("ab"[number % 2], 1, 5.0 + number * 5)
    traffic.gang("large", 4, 2, is_strict=is_strict)
    for _ in range(200):
        traffic.add_pending(1, 40.0)
        await traffic.step()
    assert traffic.is_scheduled("large") == expected


async def test_658_a_gang_is_one_entry_of_the_queue(cluster: Rig) -> None:
    """#658: each member was queued with its own time, and other pods were attempted between the members.

    Here the gang is one queue entry with one age.
    """
    cluster.scheduler.group_feed.group_changed(group(min_member=4))
    for number in range(4):
        cluster.clock.advance(1.0)
        cluster.add(pod(f"small-{number}", requests={"cpu": "1"}), member(f"train-{number}"))
    cluster.add(node("a", allocatable={"cpu": "6", "pods": "99"}))
    assert cluster.queue.pop() is gang_of(cluster).entry


async def test_658_small_pods_get_the_remaining_capacity(cluster: Rig) -> None:
    """#658: small pods that were created between the members are bound after the gang."""
    cluster.add(node("a", allocatable={"cpu": "6", "pods": "99"}))
    cluster.scheduler.group_feed.group_changed(group(min_member=4))
    for number in range(4):
        cluster.clock.advance(1.0)
        cluster.add(pod(f"small-{number}", requests={"cpu": "1"}), member(f"train-{number}"))
    await settle(cluster)
    assert set(cluster.bound) == {"small-0", "small-1", *(f"train-{number}" for number in range(4))}


# -- failed attempts ---------------------------------------------------------------------------------------------


def apply_irrelevant_events(made: Rig) -> None:
    """Apply events that free no capacity: pods are added or deleted without having run, and a node's label changes."""
    for number in range(10):
        held = pod(f"held-{number}", gates=["wait"])
        made.add(held, pod(f"tiny-{made.clock.now()}", node_name="full"))
        made.scheduler.feed.pod_deleted(held)
        before, after = (
            node("full", allocatable={"cpu": "2", "pods": "99"}, labels={"seen": str(more)}) for more in (0, 1)
        )
        made.scheduler.feed.node_updated(before, after)
        made.clock.advance(1.0)


def attempt_counts(made: Rig, count: int) -> set[int]:
    """Return the distinct numbers of attempts of the gangs."""
    entries = [gang_of(made, f"g{number}").entry for number in range(count)]
    return {entry.attempts for entry in entries if entry is not None}


async def test_682_gangs_that_wait_cause_no_work(cluster: Rig) -> None:
    """#682: each feasible member requeued all its siblings in a loop, and the scheduler did not reach other pods.

    Here only events that may make a failed gang feasible requeue it, once for all its members. Neither a failed attempt
    nor an event that frees no capacity does.
    """
    cluster.add(node("full", allocatable={"cpu": "2", "pods": "99"}, labels={"seen": "0"}))
    for number in range(20):
        cluster.scheduler.group_feed.group_changed(group(f"g{number}", min_member=16))
        cluster.add(*members(16, f"g{number}"))
    await settle(cluster)
    assert attempt_counts(cluster, 20) == {1}
    for _ in range(3):
        apply_irrelevant_events(cluster)
        await settle(cluster)
    assert attempt_counts(cluster, 20) == {1}
    await settle(cluster, pod("fits", requests={"cpu": "1"}))
    assert (set(cluster.bound), attempt_counts(cluster, 20)) == ({"fits"}, {1})
    cluster.add(node("more", allocatable={"cpu": "2", "pods": "99"}))
    await settle(cluster, after=20.0)
    assert attempt_counts(cluster, 20) == {2}
    waiting = [pod for number in range(20) for pod in gang_of(cluster, f"g{number}").waiting.values()]
    assert (len(waiting), {pod.attempts for pod in waiting}) == (320, {2})


# -- events that complete a quorum -------------------------------------------------------------------------------


def last_member(made: Rig) -> None:
    """Add the last member."""
    made.add(member("train-3"))


def last_gate(made: Rig) -> None:
    """Remove the last member's scheduling gate."""
    made.scheduler.feed.pod_updated(member("train-3", gates=["wait"]), member("train-3"))


def pod_group(made: Rig) -> None:
    """Add the PodGroup after its pods."""
    made.scheduler.group_feed.group_changed(group(min_member=4))


def smaller_quorum(made: Rig) -> None:
    """Lower the PodGroup's minMember."""
    made.scheduler.group_feed.group_changed(group(min_member=3, generation=2))


@table(
    "pods, has_group, complete_quorum",
    ("#125 the last member is created late", members(3), True, last_member),
    ("#364 a gate is removed late", [*members(3), member("train-3", gates=["wait"])], True, last_gate),
    ("#397 pods are created before their PodGroup", members(4), False, pod_group),
    ("#450 minMember is lowered", members(3), True, smaller_quorum),
)
async def test_125_364_397_450_a_gang_is_attempted_when_its_quorum_exists(
    cluster: Rig, pods: list[Pod], has_group: bool, complete_quorum: Callable[[Rig], None]
) -> None:
    """#125, #364, #397, #450: members that were created before the quorum existed waited 60 to 90 s for a flush.

    Here members below the quorum are not attempted, and the event that completes the quorum queues all of them at once,
    without a backoff.
    """
    cluster.add(node("a"))
    if has_group:
        cluster.scheduler.group_feed.group_changed(group(min_member=4))
    for each in pods:
        await settle(cluster, each)
        cluster.clock.advance(7.0)
    assert (cluster.bound, gang_of(cluster).last_attempt) == ({}, None)
    now = cluster.clock.now()
    complete_quorum(cluster)
    await settle(cluster)
    gang = present(cluster.queue.gangs.get(key()))
    assert (len(cluster.bound), gang.needed, cluster.clock.now()) == (len(gang.pods), 0, now)


async def test_450_members_that_are_created_one_by_one_have_no_backoff(cluster: Rig) -> None:
    """#450: "last failed in 3s, deny": a member that was created before the others blocked the whole group for a while.

    Here no member was attempted before the quorum existed, so none has a backoff.
    """
    cluster.add(node("a"))
    cluster.scheduler.group_feed.group_changed(group(min_member=3))
    for each in members(3):
        await settle(cluster)
        cluster.add(each)
    entry = present(gang_of(cluster).entry)
    assert (entry.place.label, entry.attempts, entry.unschedulable_count) == ("active", 0, 0)
    assert {queued.attempts for queued in gang_of(cluster).waiting.values()} == {0}


def test_the_duration_of_an_attempt() -> None:
    """150 gangs take longer than the maximum backoff and 20 gangs do not, as the tests above require."""
    assert 150 * SECONDS > busy_rig().scheduler.options.max_backoff_seconds > 20 * SECONDS
