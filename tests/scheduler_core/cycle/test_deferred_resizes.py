"""Running pods whose in-place resize the kubelet has deferred.

The expectations were read in kube-scheduler v1.37.1 with the gate InPlacePodVerticalScalingSchedulerPreemption on
(``eventhandlers.go``, ``schedule_one.go``, ``noderesources/fit.go``); ``tests/upstream`` runs its integration test.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node, PodPreemptionPolicy
from scheduler_core.model.pod import ContainerStatus, Pod, PodCondition, ResourceRequirements
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gang_preemption import ending, evicted, runs, small
from tests.support.gang_preemption import served as gangs_served
from tests.support.gangs import group, member
from tests.support.scheduling import Rig, rig

DEFERRED = PodCondition("PodResizePending", "True", "Deferred")


def resized(
    wants: str = "3", has: str = "1", *, conditions: tuple[PodCondition, ...] = (DEFERRED,), name: str = "resized"
) -> Pod:
    """A pod that runs on node a with some CPUs and wants more."""
    granted = ContainerStatus("main", {"cpu": has}, ResourceRequirements({"cpu": has}))
    return pod(
        name,
        node_name="a",
        requests={"cpu": wants},
        priority=10,
        conditions=conditions,
        container_statuses=[granted],
    )


def served(*, on: bool = True) -> Rig:
    """A scheduler with the default profile."""
    return rig(defaults=default_plugins(deferred_resizes=on), options=SchedulerOptions(deferred_resizes=on))


def with_policy(each: Node, *owners: str) -> Node:
    """The node with preemption for resizes disabled by these owners."""
    return replace(each, spec=replace(each.spec, pod_preemption_policy=PodPreemptionPolicy(owners)))


def tried(made: Rig) -> Rig:
    """Try the next pod, which is not scheduled."""
    assert made.decide() is None
    return made


def test_it_preempts_on_its_node_only() -> None:
    """Victims of lower priority leave; nothing is nominated, recorded or written about a pod that runs."""
    made = served()
    made.add(small("a", 3), small("b", 3), runs("other", "b"), runs("v0", "a"), runs("v1", "a"), resized())
    tried(made)
    assert evicted(made) == {"v0", "v1"}
    assert not made.writer.patches
    assert [event.reason for event in made.writer.events if event.regarding.name == "resized"] == []
    assert not len(made.queue.nominator)
    assert made.context.cache.columns.requested_amount("cpu", made.context.cache.columns.row_of("a")) == 5000


def test_it_leaves_victims_that_need_not_go() -> None:
    """Of two pods that would do, one is evicted."""
    made = served()
    made.add(small("a", 4), runs("v0", "a"), runs("v1", "a"), resized())
    assert len(evicted(tried(made))) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda each: replace(each, spec=replace(each.spec, preemption_policy="Never")), id="never"),
        pytest.param(lambda each: replace(each, spec=replace(each.spec, priority=0)), id="equal-priority"),
    ],
)
def test_it_waits_if_it_may_not_preempt(change: Callable[[Pod], Pod]) -> None:
    """The rules of preemption are those of other pods."""
    made = served()
    made.add(small("a", 3), runs("v0", "a"), change(resized()))
    tried(made)
    assert (evicted(made), made.place(resized())) == (set(), "unschedulable")


def test_a_node_may_disable_it() -> None:
    """The policy of the node is judged before its room, and a change of it makes the pod try again."""
    made = served()
    disabled = with_policy(small("a", 3), "an-operator")
    made.add(disabled, runs("v0", "a"), resized())
    tried(made)
    queued = made.queue.find(resized().metadata.uid)
    assert queued is not None
    assert queued.rejected_by == {"DeferredPodScheduling", "NodeName"}
    assert not evicted(made)
    made.clock.advance(20)
    made.scheduler.feed.node_updated(disabled, small("a", 3))
    assert evicted(tried(made)) == {"v0"}


def test_a_resize_that_fits_waits_for_the_kubelet() -> None:
    """It is neither bound nor reported, stays on its node once, and is tried again after backoff."""
    made = served()
    made.add(small("a", 3), resized())
    tried(made)
    assert made.place(resized()) == "errorBackoff"
    assert (made.bound, made.writer.patches, made.writer.events) == ({}, [], [])
    assert made.context.cache.columns.requested_amount("cpu", made.context.cache.columns.row_of("a")) == 3000


def test_filters_that_judge_placement_are_left_out() -> None:
    """A cordon and a taint on its own node are no reason to evict nobody."""
    made = served()
    cordoned = node("a", allocatable={"cpu": "3", "pods": "9"}, unschedulable=True, taints=["gone=soon:NoSchedule"])
    made.add(cordoned, runs("v0", "a"), resized())
    assert evicted(tried(made)) == {"v0"}


@pytest.mark.parametrize("on", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_life_in_the_queue(on: bool) -> None:
    """A pod is queued while its resize is deferred, and only with the gate."""
    made = served(on=on)
    plain, deferred = resized(conditions=()), resized()
    made.add(small("a", 3), plain)
    assert made.place(plain) == ""
    made.scheduler.feed.pod_updated(plain, deferred)
    assert made.place(deferred) == ("active" if on else "")
    made.scheduler.feed.pod_updated(deferred, plain)
    assert made.place(plain) == ""
    assert not made.queue.pop()


def test_it_is_queued_when_first_seen_and_leaves_with_the_pod() -> None:
    """A scheduler that starts later sees it too; a deleted or ended pod is not tried."""
    made = served()
    made.add(small("a", 3), resized(), resized(name="ended"))
    assert made.place(resized()) == "active"
    made.scheduler.feed.pod_deleted(resized())
    ended = resized(name="ended")
    made.scheduler.feed.pod_updated(ended, replace(ended, status=replace(ended.status, phase="Failed")))
    assert not made.queue.pop()


def test_a_nomination_in_its_status_counts_for_nothing() -> None:
    """A running pod has its room; an API server that keeps the nomination of a bound pod does not double it."""
    made = served()
    each = resized()
    made.add(small("a", 3), replace(each, status=replace(each.status, nominated_node_name="a")))
    assert not len(made.queue.nominator)


def test_a_member_of_a_gang_is_tried_alone() -> None:
    """A running member does not wait for the members that are missing."""
    made = gangs_served(served())
    made.scheduler.group_feed.group_changed(group("gang", min_member=3))
    each = resized()
    made.add(small("a", 3), runs("v0", "a"), replace(each, metadata=member("resized", "gang").metadata))
    assert evicted(tried(made)) == {"v0"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(runs("high", "a", 20, 2), None, id="a-pod-leaves-its-node"),
        pytest.param(runs("high", "a", 20, 2), runs("high", "a", 20, 1), id="a-pod-of-its-node-shrinks"),
        pytest.param(runs("high", "a", 20, 2), runs("high", "a", 20, 3), id="a-pod-of-its-node-grows"),
        pytest.param(small("a", 3), small("a", 4), id="its-node-grows"),
        pytest.param(resized(), resized("2"), id="it-wants-less"),
        pytest.param(resized(), resized("4"), id="it-wants-more"),
    ],
)
def test_events_that_may_help(old: Pod | Node, new: Pod | Node | None) -> None:
    """A change on its own node makes it try again."""
    assert _place_after(old, new) in {"active", "backoff"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(runs("other", "b", 20, 2), None, id="a-pod-leaves-another-node"),
        pytest.param(runs("other", "b", 20, 2), runs("other", "b", 20, 1), id="a-pod-shrinks-elsewhere"),
        pytest.param(runs("other", "b", 20, 2), runs("other", "b", 20, 3), id="a-pod-grows-elsewhere"),
        pytest.param(small("b", 3), small("b", 9), id="another-node-grows"),
        pytest.param(runs("high", "a", 20, 2), runs("high", "a", 20, 2, labels={"x": "y"}), id="labels"),
        pytest.param(small("a", 3), with_policy(small("a", 3), "x"), id="its-node-disables-preemption"),
    ],
)
def test_events_that_cannot_help(old: Pod | Node, new: Pod | Node | None) -> None:
    """Changes elsewhere, or of other things, do not."""
    assert _place_after(old, new) == "unschedulable"


def _place_after(old: Pod | Node, new: Pod | Node | None) -> str:
    made = served()
    made.add(small("a", 3), small("b", 3), runs("high", "a", 20, 2), runs("other", "b", 20, 2), resized())
    tried(made)
    assert made.place(resized()) == "unschedulable"
    feed = made.scheduler.feed
    if isinstance(old, Node):
        assert isinstance(new, Node)
        feed.node_updated(old, new)
    elif new is None:
        feed.pod_deleted(old)
    else:
        assert isinstance(new, Pod)
        feed.pod_updated(old, new)
    return made.place(resized())


def test_a_node_that_counts_less_than_it_wants() -> None:
    """What the node does not count yet must be free: the queue may have a newer state of the pod than the cache."""
    made = served()
    made.add(small("a", 3), runs("v", "a"), resized("1"))
    newer = made.context.cache.columns.compile_pod(resized("3"))
    made.queue.update(newer)
    assert evicted(tried(made)) == {"v"}


def test_a_pod_being_deleted_is_not_tried() -> None:
    """It needs no room any more."""
    made = served()
    gone = ending(resized())
    made.add(small("a", 3), runs("v0", "a"), replace(gone, status=resized().status))
    tried(made)
    assert evicted(made) == set()
