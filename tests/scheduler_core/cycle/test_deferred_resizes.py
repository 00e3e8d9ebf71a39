"""Preemption for running pods whose in-place resize the kubelet has deferred.

The expected values follow kube-scheduler v1.37.1 with the feature gate InPlacePodVerticalScalingSchedulerPreemption on
(``eventhandlers.go``, ``schedule_one.go``, ``noderesources/fit.go``); ``tests/upstream`` runs its integration test.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node, PodPreemptionPolicy
from scheduler_core.model.pod import ContainerStatus, Pod, PodCondition, ResourceRequirements
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gang_preemption import evicted, running_pod, small_node, terminating_pod
from tests.support.gang_preemption import with_pod_groups as gangs_served
from tests.support.gangs import group, member
from tests.support.presence import present
from tests.support.scheduling import Rig, rig
from tests.support.tables import table

DEFERRED = PodCondition("PodResizePending", "True", "Deferred")


def resized(
    requested: str = "3",
    allocated: str = "1",
    *,
    conditions: tuple[PodCondition, ...] = (DEFERRED,),
    name: str = "resized",
) -> Pod:
    """Return a pod on node a with *allocated* and *requested* CPUs."""
    container_status = ContainerStatus("main", {"cpu": allocated}, ResourceRequirements({"cpu": allocated}))
    return pod(
        name,
        node_name="a",
        requests={"cpu": requested},
        priority=10,
        conditions=conditions,
        container_statuses=[container_status],
    )


def resize_rig(*, on: bool = True) -> Rig:
    """Return a scheduler with the default profile and the feature gate on or off."""
    return rig(defaults=default_plugins(deferred_resizes=on), options=SchedulerOptions(deferred_resizes=on))


def with_policy(each: Node, *owners: str) -> Node:
    """Return the node with preemption for resizes disabled by the owners."""
    return replace(each, spec=replace(each.spec, pod_preemption_policy=PodPreemptionPolicy(owners)))


def schedule_next(made: Rig) -> Rig:
    """Run the scheduling cycle of the next pod, which is not scheduled."""
    assert made.decide() is None
    return made


def test_a_deferred_resize_preempts_on_its_node_only() -> None:
    """Victims are evicted on the pod's node; no nomination, event or condition of the running pod is written."""
    made = resize_rig()
    made.add(
        small_node("a", 3),
        small_node("b", 3),
        running_pod("other", "b"),
        running_pod("v0", "a"),
        running_pod("v1", "a"),
        resized(),
    )
    schedule_next(made)
    assert evicted(made) == {"v0", "v1"}
    assert not made.writer.patches
    assert [event.reason for event in made.writer.events if event.regarding.name == "resized"] == []
    assert not len(made.queue.nominator)
    assert made.columns.requested_amount("cpu", made.columns.row_of("a")) == 5000


def test_a_deferred_resize_evicts_only_needed_victims() -> None:
    """Only one of two possible victims is evicted."""
    made = resize_rig()
    made.add(small_node("a", 4), running_pod("v0", "a"), running_pod("v1", "a"), resized())
    assert len(evicted(schedule_next(made))) == 1


@table(
    "change",
    ("never", lambda each: replace(each, spec=replace(each.spec, preemption_policy="Never"))),
    ("equal-priority", lambda each: replace(each, spec=replace(each.spec, priority=0))),
)
def test_a_deferred_resize_waits_if_it_must_not_preempt(change: Callable[[Pod], Pod]) -> None:
    """The preemption policy and priorities apply as for other pods."""
    made = resize_rig()
    made.add(small_node("a", 3), running_pod("v0", "a"), change(resized()))
    schedule_next(made)
    assert (evicted(made), made.place_of(resized())) == (set(), "unschedulable")


def test_a_node_can_disable_preemption_for_resizes() -> None:
    """A node with a disabling policy rejects the pod before resources are checked; removing it requeues the pod."""
    made = resize_rig()
    disabled = with_policy(small_node("a", 3), "an-operator")
    made.add(disabled, running_pod("v0", "a"), resized())
    schedule_next(made)
    queued = present(made.queue.find(resized().metadata.uid))
    assert queued.rejected_by == {"DeferredPodScheduling", "NodeName"}
    assert not evicted(made)
    made.clock.advance(20)
    made.scheduler.feed.node_updated(disabled, small_node("a", 3))
    assert evicted(schedule_next(made)) == {"v0"}


def test_a_resize_that_fits_waits_for_the_kubelet() -> None:
    """A feasible resize is neither bound nor reported, counts once on its node, and is retried after backoff."""
    made = resize_rig()
    made.add(small_node("a", 3), resized())
    schedule_next(made)
    assert made.place_of(resized()) == "errorBackoff"
    assert (made.bound, made.writer.patches, made.writer.events) == ({}, [], [])
    assert made.columns.requested_amount("cpu", made.columns.row_of("a")) == 3000


def test_filters_for_new_pods_are_not_called() -> None:
    """A cordon and a taint on the pod's own node do not prevent preemption."""
    made = resize_rig()
    cordoned = node("a", allocatable={"cpu": "3", "pods": "9"}, unschedulable=True, taints=["gone=soon:NoSchedule"])
    made.add(cordoned, running_pod("v0", "a"), resized())
    assert evicted(schedule_next(made)) == {"v0"}


@table("on", ("on", True), ("off", False))
def test_a_pod_is_queued_while_its_resize_is_deferred(on: bool) -> None:
    """A pod is queued while its resize is deferred, if the feature gate is on."""
    made = resize_rig(on=on)
    plain, deferred = resized(conditions=()), resized()
    made.add(small_node("a", 3), plain)
    assert made.place_of(plain) == ""
    made.scheduler.feed.pod_updated(plain, deferred)
    assert made.place_of(deferred) == ("active" if on else "")
    made.scheduler.feed.pod_updated(deferred, plain)
    assert made.place_of(plain) == ""
    assert not made.queue.pop()


def test_a_listed_pod_is_queued_and_removed_with_the_pod() -> None:
    """A pod that is listed with a deferred resize is queued; a deleted or ended pod is removed from the queue."""
    made = resize_rig()
    made.add(small_node("a", 3), resized(), resized(name="ended"))
    assert made.place_of(resized()) == "active"
    made.scheduler.feed.pod_deleted(resized())
    ended = resized(name="ended")
    made.scheduler.feed.pod_updated(ended, replace(ended, status=replace(ended.status, phase="Failed")))
    assert not made.queue.pop()


def test_the_nomination_of_a_running_pod_does_not_count() -> None:
    """A nomination in the status of a running pod is ignored, so that its requests do not count twice."""
    made = resize_rig()
    each = resized()
    made.add(small_node("a", 3), replace(each, status=replace(each.status, nominated_node_name="a")))
    assert not len(made.queue.nominator)


def test_a_running_gang_member_is_attempted_alone() -> None:
    """A running gang member with a deferred resize does not wait for missing members."""
    made = gangs_served(resize_rig())
    made.scheduler.group_feed.group_changed(group("gang", min_member=3))
    each = resized()
    made.add(small_node("a", 3), running_pod("v0", "a"), replace(each, metadata=member("resized", "gang").metadata))
    assert evicted(schedule_next(made)) == {"v0"}


HIGH, OTHER = running_pod("high", "a", 20, 2), running_pod("other", "b", 20, 2)


@table(
    "old, new, is_requeued",
    ("pod-on-its-node-is-deleted", HIGH, None, True),
    ("requests-on-its-node-decrease", HIGH, running_pod("high", "a", 20, 1), True),
    ("requests-on-its-node-increase", HIGH, running_pod("high", "a", 20, 3), True),
    ("capacity-of-its-node-increases", small_node("a", 3), small_node("a", 4), True),
    ("its-requests-decrease", resized(), resized("2"), True),
    ("its-requests-increase", resized(), resized("4"), True),
    ("pod-on-another-node-is-deleted", OTHER, None, False),
    ("requests-on-another-node-decrease", OTHER, running_pod("other", "b", 20, 1), False),
    ("requests-on-another-node-increase", OTHER, running_pod("other", "b", 20, 3), False),
    ("capacity-of-another-node-increases", small_node("b", 3), small_node("b", 9), False),
    ("labels", HIGH, running_pod("high", "a", 20, 2, labels={"x": "y"}), False),
    ("its-node-disables-preemption", small_node("a", 3), with_policy(small_node("a", 3), "x"), False),
)
def test_events(old: Pod | Node, new: Pod | Node | None, is_requeued: bool) -> None:
    """A relevant change on the pod's own node requeues the pod; other changes do not."""
    made = resize_rig()
    made.add(
        small_node("a", 3),
        small_node("b", 3),
        running_pod("high", "a", 20, 2),
        running_pod("other", "b", 20, 2),
        resized(),
    )
    schedule_next(made)
    assert made.place_of(resized()) == "unschedulable"
    feed = made.scheduler.feed
    if isinstance(old, Node):
        assert isinstance(new, Node)
        feed.node_updated(old, new)
    elif new is None:
        feed.pod_deleted(old)
    else:
        assert isinstance(new, Pod)
        feed.pod_updated(old, new)
    assert made.place_of(resized()) in ({"active", "backoff"} if is_requeued else {"unschedulable"})


def test_a_resize_that_the_cache_does_not_count_yet() -> None:
    """Requests that the cache does not count yet must fit, because the queue may have a newer version of the pod."""
    made = resize_rig()
    made.add(small_node("a", 3), running_pod("v", "a"), resized("1"))
    newer = made.columns.compile_pod(resized("3"))
    made.queue.update(newer)
    assert evicted(schedule_next(made)) == {"v"}


def test_a_terminating_pod_does_not_preempt() -> None:
    """A terminating pod with a deferred resize evicts no pod."""
    made = resize_rig()
    terminating = terminating_pod(resized())
    made.add(small_node("a", 3), running_pod("v0", "a"), replace(terminating, status=resized().status))
    schedule_next(made)
    assert evicted(made) == set()
