"""Invalid waiting pods: reported once, by the scheduler whose profile they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import msgspec
import pytest

from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_constraint_limit import MAX_DEMANDS
from tests.support.builders import PodFields, node, pod
from tests.support.scheduling import Rig, profile, rig


def greedy(**fields: Unpack[PodFields]) -> Pod:
    """A pod that exceeds the limit of demands, by default of the live profile."""
    fields["node_selector"] = {f"k{number}": "v" for number in range(MAX_DEMANDS + 1)}
    return pod("greedy", **fields)


def with_status(wanted: Pod, *conditions: PodCondition) -> Pod:
    """Return the pod with what was written to its status."""
    return msgspec.structs.replace(wanted, status=msgspec.structs.replace(wanted.status, conditions=conditions))


def notes(made: Rig) -> list[str]:
    """Return the notes of the events."""
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
def test_it_is_reported_to_its_owner(wanted: Pod, problem: str) -> None:
    """An event and a condition say what is wrong and what to do."""
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
    assert event.note.endswith("Correct its manifest and create the pod again")


def test_a_report_is_not_repeated() -> None:
    """Neither its own writes nor an edit of labels cause another report."""
    made = rig()
    wanted = greedy()
    made.add(wanted)
    written = with_status(wanted, made.condition)
    made.scheduler.feed.pod_updated(wanted, written)
    made.scheduler.feed.pod_updated(written, with_status(greedy(labels={"a": "b"}), made.condition))
    assert (len(made.writer.events), len(made.writer.patches)) == (1, 1)


def test_another_version_is_reported() -> None:
    """The earlier report may not apply to it."""
    made = rig()
    wanted = greedy()
    made.add(wanted)
    made.scheduler.feed.pod_updated(wanted, greedy(requests={"cpu": "1", "memory": "1"}))
    assert ["501 demands" in notes(made)[0], "503 demands" in notes(made)[1]] == [True, True]


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
    """They are only logged."""
    made = rig()
    made.add(node("n0"), wanted)
    assert (made.writer.events, made.writer.patches) == ([], [])


def test_nothing_is_written_before_the_profile_is_live() -> None:
    """A standby has no live profiles and writes nothing; it reports once when it becomes the leader."""
    made = rig(serve=False)
    made.add(greedy())
    assert (made.writer.events, made.writer.patches) == ([], [])
    made.serve(profile())
    made.serve(profile(percentage=50))
    assert (len(made.writer.events), len(made.writer.patches)) == (1, 1)


def test_a_live_profile_reports_only_its_own_pods() -> None:
    """A profile that becomes live does not report pods of other names."""
    made = rig()
    made.add(greedy(scheduler_name="other"))
    made.serve(profile("another"))
    assert notes(made) == []


def test_a_pod_that_is_changed_for_the_worse_is_not_tried_as_it_was() -> None:
    """It leaves the queue, and is requeued when it is corrected."""
    made = rig()
    good = pod("greedy")
    made.add(good)
    made.scheduler.feed.pod_updated(good, greedy())
    assert made.place_of(good) == ""
    made.scheduler.feed.pod_updated(greedy(), good)
    assert (made.place_of(good), len(made.scheduler.feed.invalid_pods)) == ("active", 0)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(lambda made: made.scheduler.feed.pod_deleted(greedy()), id="deleted"),
        pytest.param(lambda made: made.scheduler.feed.pod_updated(greedy(), greedy(phase="Failed")), id="ended"),
        pytest.param(lambda made: made.scheduler.feed.pod_updated(greedy(), greedy(node_name="n0")), id="bound"),
    ],
)
def test_none_is_kept_for_longer_than_it_waits(ended: Callable[[Rig], None]) -> None:
    """The structure is bounded by the existing pods."""
    made = rig()
    made.add(node("n0"), greedy())
    assert len(made.scheduler.feed.invalid_pods) == 1
    ended(made)
    assert len(made.scheduler.feed.invalid_pods) == 0


def test_a_pod_of_the_same_name_is_reported_too() -> None:
    """It is another pod, and replaces the deleted one."""
    made = rig()
    made.add(greedy())
    made.scheduler.feed.pod_updated(greedy(), greedy(uid="another"))
    assert [event.regarding.uid for event in made.writer.events] == [greedy().metadata.uid, "another"]
    assert len(made.scheduler.feed.invalid_pods) == 1
