"""Waiting pods that cannot be taken: their owners are told, once, by who serves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import msgspec
import pytest

from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_demands import MAX_DEMANDS
from tests.support.builders import PodFields, node, pod
from tests.support.scheduling import Rig, profile, rig


def greedy(**fields: Unpack[PodFields]) -> Pod:
    """A pod that makes more demands than are judged, by default of the profile that is served."""
    fields["node_selector"] = {f"k{number}": "v" for number in range(MAX_DEMANDS + 1)}
    return pod("greedy", **fields)


def with_status(wanted: Pod, *conditions: PodCondition) -> Pod:
    """The pod as it is once what was written of it is stored."""
    return msgspec.structs.replace(wanted, status=msgspec.structs.replace(wanted.status, conditions=conditions))


def told(made: Rig) -> list[str]:
    """The notes of the events."""
    return [event.note for event in made.writer.events]


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        pytest.param(
            greedy(), "it makes 501 demands of nodes and neighbours, but at most 500 are judged", id="demands"
        ),
        pytest.param(pod("greedy", requests={"cpu": "lots"}), '"lots" is not a quantity', id="quantity"),
    ],
)
def test_its_owner_is_told(wanted: Pod, problem: str) -> None:
    """By an event and a condition, with what is wrong and what to do."""
    made = rig()
    made.add(wanted)
    event, condition = made.writer.events[0], made.condition
    assert (event.regarding.name, event.type, event.reason, event.action, event.reporting_controller) == (
        "greedy",
        "Warning",
        "FailedScheduling",
        "Scheduling",
        "default-scheduler",
    )
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "SchedulerError")
    assert condition.message == event.note
    assert problem in event.note
    assert event.note.endswith("Correct its manifest and create it anew")


def test_what_is_told_already_is_not_told_again() -> None:
    """Neither for what was written itself, nor for an edit of labels."""
    made = rig()
    wanted = greedy()
    made.add(wanted)
    written = with_status(wanted, made.condition)
    made.scheduler.feed.pod_updated(wanted, written)
    made.scheduler.feed.pod_updated(written, with_status(greedy(labels={"a": "b"}), made.condition))
    assert (len(made.writer.events), len(made.writer.patches)) == (1, 1)


def test_another_version_is_told() -> None:
    """Since what was said of the one before may be wrong."""
    made = rig()
    wanted = greedy()
    made.add(wanted)
    made.scheduler.feed.pod_updated(wanted, greedy(requests={"cpu": "1", "memory": "1"}))
    assert ["501 demands" in told(made)[0], "503 demands" in told(made)[1]] == [True, True]


def test_a_condition_that_stands_is_not_written_again() -> None:
    """As after a restart of the scheduler."""
    before, after = rig(), rig()
    before.add(greedy())
    after.add(with_status(greedy(), before.condition))
    assert (len(after.writer.events), after.writer.patches) == (1, [])


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(greedy(scheduler_name="other"), id="of another scheduler"),
        pytest.param(pod("greedy", node_name="n0", requests={"cpu": "lots"}), id="on a node"),
        pytest.param(greedy(phase="Failed"), id="ended"),
    ],
)
def test_pods_that_are_not_ours_to_schedule_are_not_written_to(wanted: Pod) -> None:
    """The log alone tells of them."""
    made = rig()
    made.add(node("n0"), wanted)
    assert (made.writer.events, made.writer.patches) == ([], [])


def test_nothing_is_written_before_the_profile_is_live() -> None:
    """So a standby, which has no live profiles, writes nothing; when it leads it tells, once."""
    made = rig(serve=False)
    made.add(greedy())
    assert (made.writer.events, made.writer.patches) == ([], [])
    made.serve(profile())
    made.serve(profile(percentage=50))
    assert (len(made.writer.events), len(made.writer.patches)) == (1, 1)


def test_a_name_that_others_wait_for_tells_only_its_own_pods() -> None:
    """A profile that goes live does not tell of pods of other names."""
    made = rig()
    made.add(greedy(scheduler_name="other"))
    made.serve(profile("another"))
    assert told(made) == []


def test_a_pod_that_is_changed_for_the_worse_is_not_tried_as_it_was() -> None:
    """It leaves the queue, and comes back when it is mended."""
    made = rig()
    good = pod("greedy")
    made.add(good)
    made.scheduler.feed.pod_updated(good, greedy())
    assert made.place(good) == ""
    made.scheduler.feed.pod_updated(greedy(), good)
    assert (made.place(good), len(made.scheduler.feed.left_out)) == ("active", 0)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(lambda made: made.scheduler.feed.pod_deleted(greedy()), id="deleted"),
        pytest.param(lambda made: made.scheduler.feed.pod_updated(greedy(), greedy(phase="Failed")), id="ended"),
        pytest.param(lambda made: made.scheduler.feed.pod_updated(greedy(), greedy(node_name="n0")), id="bound"),
    ],
)
def test_none_is_kept_for_longer_than_it_waits(ended: Callable[[Rig], None]) -> None:
    """What is kept is bounded by the pods that there are."""
    made = rig()
    made.add(node("n0"), greedy())
    assert len(made.scheduler.feed.left_out) == 1
    ended(made)
    assert len(made.scheduler.feed.left_out) == 0


def test_a_pod_of_the_same_name_is_told_too() -> None:
    """It is another pod, and takes the place of the one that is gone."""
    made = rig()
    made.add(greedy())
    made.scheduler.feed.pod_updated(greedy(), greedy(uid="another"))
    assert [event.regarding.uid for event in made.writer.events] == [greedy().metadata.uid, "another"]
    assert len(made.scheduler.feed.left_out) == 1
