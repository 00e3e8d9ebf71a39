"""Pods that name groups of several APIs.

A label counts before a native group of the basic policy, and two gangs conflict. Pods are members of Volcano's
PodGroups by their annotation, if that source is on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, VOLCANO_ANNOTATIONS, GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node
from tests.support.gangs import gang_of, group, member, settle
from tests.support.scheduling import Rig, default_rig

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


# -- Volcano's PodGroups -----------------------------------------------------------------------------------------------


KEY = GroupKey(GroupSource.VOLCANO, "default", "train")


def cluster(*, is_on: bool = True) -> Rig:
    """Return a scheduler with one node."""
    options = SchedulerOptions(foreign_gangs="Warn", volcano_groups=is_on)
    return default_rig(node("n"), options=options, groups=list(GroupSource))


def annotated(
    made: Rig, name: str, key: str = VOLCANO_ANNOTATIONS[0], labels: Mapping[str, str] | None = None, native: str = ""
) -> Pod:
    """Return a pod with Volcano's annotation, as the informer decodes it."""
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": dict(labels or {})}
    spec = {"containers": [], **({"schedulingGroup": {"podGroupName": native}} if native else {})}
    body = {"metadata": {**metadata, "annotations": {key: "train", "other": "x"}}, "spec": spec}
    return msgspec.json.decode(msgspec.json.encode(body), type=made.scheduler.decoded.pod)


@pytest.mark.parametrize("key", VOLCANO_ANNOTATIONS)
async def test_members_wait_for_their_quorum(key: str) -> None:
    """Pods are held until the PodGroup and its quorum exist, and no event reports a foreign gang."""
    made = cluster()
    await settle(made, annotated(made, "a", key), annotated(made, "b", key))
    made.clock.advance(2.0)
    assert made.bound == {}
    assert "no valid PodGroup default/train of scheduling.volcano.sh exists" in made.condition.message
    made.scheduler.group_feed.group_changed(PodGroup(KEY, "u", 3))
    await settle(made)
    assert made.bound == {}
    await settle(made, annotated(made, "c", key))
    assert sorted(made.bound) == ["a", "b", "c"]
    assert [each for each in made.writer.events if each.reason == "ForeignGang"] == []


async def test_the_source_is_off_by_default() -> None:
    """Without it the annotation is a mark of another scheduler, and the pod is scheduled alone with an event."""
    made = cluster(is_on=False)
    made.scheduler.group_feed.group_changed(PodGroup(KEY, "u", 3))
    await settle(made, annotated(made, "a"))
    assert sorted(made.bound) == ["a"]
    assert [each.reason for each in made.writer.events if each.type == "Warning"] == ["ForeignGang"]


async def test_a_label_counts_first() -> None:
    """A pod that names a PodGroup of Bayplan, too, is a member of that one only."""
    made = cluster()
    made.scheduler.group_feed.group_changed(PodGroup(KEY, "u", 3))
    made.scheduler.group_feed.group_changed(group("mine", 1))
    await settle(made, annotated(made, "a", labels={"bayplan.dev/pod-group": "mine"}))
    assert sorted(made.bound) == ["a"]


@pytest.mark.parametrize("is_basic", [True, False])
async def test_with_a_native_group(*, is_basic: bool) -> None:
    """A native group of the basic policy does not count; with one that is a gang, the pod is held."""
    made = cluster()
    made.scheduler.group_feed.group_changed(PodGroup(KEY, "u", 1))
    native = PodGroup(NATIVE, "uid-of-job", 1, waits_for_gated=True, priority=0, is_basic=is_basic)
    made.scheduler.group_feed.group_changed(native)
    await settle(made, annotated(made, "a", native="job"))
    made.clock.advance(2.0)
    assert len(made.bound) == is_basic
    if not is_basic:
        assert "the pod names two gangs" in made.condition.message
