"""Pods that name several groups: a label counts before a native group of the basic policy, two gangs conflict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from tests.support.builders import node
from tests.support.gangs import gang_of, group, member, settle
from tests.support.scheduling import Rig

NATIVE = GroupKey(GroupSource.NATIVE, "default", "job")


@pytest.fixture(autouse=True)
def _served(cluster: Rig) -> None:
    cluster.scheduler.group_feed.serve(GroupSource.NATIVE)


def native(*, is_basic: bool) -> PodGroup:
    """Return the native group ``job``."""
    return PodGroup(NATIVE, "uid-of-job", 1 if is_basic else 2, waits_for_gated=True, priority=0, is_basic=is_basic)


def pods(count: int) -> list[Pod]:
    """Return members of the gang ``train`` that are in the native group ``job`` too."""
    return [member(f"train-{number}", group="job") for number in range(count)]


async def reported(cluster: Rig) -> str:
    """Return the message of a gated pod."""
    await settle(cluster)
    cluster.clock.advance(2.0)
    return cluster.condition.message


@pytest.mark.parametrize("order", ["groups first", "native group last", "groups last"])
async def test_a_label_counts_before_a_basic_group(cluster: Rig, order: str) -> None:
    """The gang of the label is scheduled as a whole, in whatever order its objects arrive."""
    feed = cluster.scheduler.group_feed
    steps: list[Callable[[], None]] = [
        lambda: feed.group_changed(group(min_member=5)),
        lambda: feed.group_changed(native(is_basic=True)),
        lambda: cluster.add(*pods(5)),
    ]
    order_of = {"groups first": (0, 1, 2), "native group last": (0, 2, 1), "groups last": (2, 1, 0)}
    cluster.add(node("a", allocatable={"cpu": 4, "pods": 10}))
    for number in order_of[order]:
        steps[number]()
        await settle(cluster)
    assert cluster.bound == {}
    assert gang_of(cluster).needed == 5
    cluster.add(node("b"))
    await settle(cluster, after=20.0)
    assert len(cluster.bound) == 5


async def test_pods_in_two_gangs_are_held_back(cluster: Rig) -> None:
    """A pod that names two gangs is gated, with both in the message, until one of them is no gang."""
    feed = cluster.scheduler.group_feed
    cluster.add(node("a"))
    feed.group_changed(group(min_member=2))
    feed.group_changed(native(is_basic=False))
    cluster.add(*pods(2))
    message = await reported(cluster)
    assert message == (
        "the pod names two gangs, PodGroups default/train of bayplan.dev (label bayplan.dev/pod-group) and default/job "
        "of scheduling.k8s.io (spec.schedulingGroup); create it with one of them"
    )
    assert cluster.bound == {}
    feed.group_deleted(NATIVE)
    feed.group_changed(native(is_basic=True))
    await settle(cluster)
    assert len(cluster.bound) == 2


async def test_an_unknown_native_group_holds_its_pods_back(cluster: Rig) -> None:
    """Before the native group is known, nothing shows whether it is a gang."""
    cluster.add(node("a"))
    cluster.scheduler.group_feed.group_changed(group(min_member=2))
    cluster.add(*pods(2))
    assert (await reported(cluster)).startswith('waiting for pods\'s pod group "job" to appear in scheduling queue')
    assert cluster.bound == {}


async def test_labels_of_two_apis(cluster: Rig) -> None:
    """Labels of two APIs name two gangs."""
    labels = {POD_GROUP_LABELS[GroupSource.SCHEDULER_PLUGINS]: "other"}
    cluster.add(node("a"))
    cluster.scheduler.group_feed.group_changed(group(min_member=1))
    cluster.add(member("train-0", labels=labels))
    assert (await reported(cluster)).startswith("the pod names two gangs, PodGroups default/train of bayplan.dev")
    assert cluster.bound == {}
