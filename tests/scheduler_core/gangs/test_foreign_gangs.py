"""Pods with marks of other gang schedulers: scheduled in silence, with an event, or held back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import FOREIGN_MARKS, ForeignGangs, described_mark, foreign_gang
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node
from tests.support.gangs import settle
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig

MARKS = [
    *((kind, key) for key in FOREIGN_MARKS for kind in ("labels", "annotations")),
    ("annotations", "scheduling.x-k8s.io/pod-group"),
    ("annotations", "bayplan.dev/pod-group"),
]


def cluster(handling: ForeignGangs) -> Rig:
    """Return a scheduler with one node."""
    return default_rig(node("n"), options=SchedulerOptions(foreign_gangs=handling))


def decoded(made: Rig, name: str, **metadata: Mapping[str, str]) -> Pod:
    """Return a pod as the informer decodes it."""
    body = {"metadata": {"name": name, "namespace": "d", "uid": name, **metadata}, "spec": {"containers": []}}
    return msgspec.json.decode(msgspec.json.encode(body), type=made.scheduler.decoded.pod)


@pytest.mark.parametrize(("kind", "key"), MARKS)
async def test_marked_pods_are_scheduled_with_an_event(kind: str, key: str) -> None:
    """By default a marked pod is scheduled; its event and its condition name the mark and the remedy."""
    made = cluster("Warn")
    await settle(
        made, decoded(made, "a", **{kind: {key: "job-1", "other": "x"}}), decoded(made, "b", annotations={"other": "x"})
    )
    assert sorted(made.bound) == ["a", "b"]
    (event,) = (each for each in made.writer.events if each.reason == "ForeignGang")
    assert (event.type, event.regarding.name) == ("Warning", "a")
    assert f'{kind[:-1]} {key}="job-1"' in event.note
    (patch,) = made.writer.patches
    condition = present(patch.condition)
    assert (patch.name, condition.type, condition.status) == ("a", "bayplan.dev/ForeignGang", "True")
    assert condition.message == event.note


async def test_a_reported_mark_is_not_reported_again() -> None:
    """A restarted scheduler reports a marked pod again only if the mark has changed."""
    made = cluster("Warn")
    marked = decoded(made, "a", labels={"pod-group-name": "job-1"})
    made.add(marked)
    condition = made.condition
    status = msgspec.structs.replace(marked.status, conditions=(condition,))
    for labels, count in (("job-1", 0), ("job-2", 1)):
        restarted = cluster("Warn")
        pod = msgspec.structs.replace(decoded(made, "a", labels={"pod-group-name": labels}), status=status)
        restarted.add(pod)
        assert len(restarted.writer.patches) == count
        assert len(restarted.writer.events) == count


@pytest.mark.parametrize(("kind", "key"), MARKS)
async def test_marked_pods_are_held_back(kind: str, key: str) -> None:
    """With Hold a marked pod waits, with the mark and the remedy in its condition, until the mark is removed."""
    made = cluster("Hold")
    marked = decoded(made, "a", **{kind: {key: "job-1"}})
    await settle(made, marked, decoded(made, "b"))
    made.clock.advance(2.0)
    assert list(made.bound) == ["b"]
    assert made.condition.reason == "SchedulingGated"
    assert made.condition.message == foreign_gang(marked.metadata) != ""
    made.scheduler.feed.pod_updated(marked, decoded(made, "a"))
    await settle(made)
    assert sorted(made.bound) == ["a", "b"]


async def test_marks_are_ignored() -> None:
    """With Ignore annotations are not even decoded."""
    made = cluster("Ignore")
    await settle(
        made, decoded(made, "a", labels={"pod-group-name": "x"}, annotations={"scheduling.k8s.io/group-name": "x"})
    )
    assert list(made.bound) == ["a"]
    assert [each.reason for each in made.writer.events] == ["Scheduled"]


def test_labels_that_are_read_are_no_foreign_marks() -> None:
    """The labels of PodGroups that Bayplan reads are no marks of others."""
    assert described_mark({"bayplan.dev/pod-group": "train", "scheduling.x-k8s.io/pod-group": "train"}, {}) == ""
