"""Volcano's PodGroups as a source: pods are members by their annotation, if the source is on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import VOLCANO_ANNOTATIONS, GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node
from tests.support.gangs import group, settle
from tests.support.scheduling import Rig, default_rig

KEY = GroupKey(GroupSource.VOLCANO, "default", "train")
NATIVE = GroupKey(GroupSource.NATIVE, "default", "job")


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
