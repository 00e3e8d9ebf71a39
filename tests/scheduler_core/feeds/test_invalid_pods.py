"""Invalid pending pods, which are reported once by the scheduler with their profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import msgspec

from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.snapshot.pod_info import MAX_DEMANDS
from tests.support.builders import PodFields, node, pod
from tests.support.scheduling import Rig, profile, rig
from tests.support.tables import table


def invalid_pod(**fields: Unpack[PodFields]) -> Pod:
    """Return a pod that exceeds the limit of constraints."""
    fields["node_selector"] = {f"k{number}": "v" for number in range(MAX_DEMANDS + 1)}
    return pod("invalid-pod", **fields)


def with_status(wanted: Pod, *conditions: PodCondition) -> Pod:
    return msgspec.structs.replace(wanted, status=msgspec.structs.replace(wanted.status, conditions=conditions))


def notes(made: Rig) -> list[str]:
    """Return the notes of all events."""
    return [event.note for event in made.writer.events]


@table(
    "wanted, problem",
    ("demands", invalid_pod(), "it makes 501 demands of nodes and neighbours, but at most 500 are evaluated"),
    ("quantity", pod("invalid-pod", requests={"cpu": "lots"}), '"lots" is not a quantity'),
)
def test_an_invalid_pod_is_reported(wanted: Pod, problem: str) -> None:
    """An invalid pod gets an event and a condition with the problem and the remedy."""
    made = rig()
    made.add(wanted)
    event, condition = made.writer.events[0], made.condition
    assert (event.regarding.name, event.type, event.reason, event.action, event.reporting_controller) == (
        "invalid-pod",
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
    """Neither the written condition nor a change of labels causes another report."""
    made = rig()
    wanted = invalid_pod()
    made.add(wanted)
    written = with_status(wanted, made.condition)
    made.scheduler.feed.pod_updated(wanted, written)
    made.scheduler.feed.pod_updated(written, with_status(invalid_pod(labels={"a": "b"}), made.condition))
    assert (len(made.writer.events), len(made.writer.patches)) == (1, 1)


def test_a_changed_spec_is_reported_again() -> None:
    """A changed spec is reported again, because the earlier report may not apply."""
    made = rig()
    wanted = invalid_pod()
    made.add(wanted)
    made.scheduler.feed.pod_updated(wanted, invalid_pod(requests={"cpu": "1", "memory": "1"}))
    assert ["501 demands" in notes(made)[0], "503 demands" in notes(made)[1]] == [True, True]


def test_an_unchanged_condition_is_not_written_again() -> None:
    """After a restart of the scheduler, an unchanged condition is not written again."""
    before, after = rig(), rig()
    before.add(invalid_pod())
    after.add(with_status(invalid_pod(), before.condition))
    assert (len(after.writer.events), after.writer.patches) == (1, [])


@table(
    "wanted",
    ("another scheduler", invalid_pod(scheduler_name="other")),
    ("on a node", pod("invalid-pod", node_name="n0", requests={"cpu": "lots"})),
    ("change", invalid_pod(phase="Failed")),
)
def test_pods_of_others_are_not_reported(wanted: Pod) -> None:
    """Invalid pods that this scheduler does not schedule get no event and no condition."""
    made = rig()
    made.add(node("n0"), wanted)
    assert (made.writer.events, made.writer.patches) == ([], [])


def test_nothing_is_written_before_the_profile_is_live() -> None:
    """A standby, which has no live profiles, reports nothing; it reports once when it becomes the leader."""
    made = rig(serve=False)
    made.add(invalid_pod())
    assert (made.writer.events, made.writer.patches) == ([], [])
    made.serve(profile())
    made.serve(profile(percentage=50))
    assert (len(made.writer.events), len(made.writer.patches)) == (1, 1)


def test_a_live_profile_reports_only_its_own_pods() -> None:
    """A profile that becomes live does not report pods of other profiles."""
    made = rig()
    made.add(invalid_pod(scheduler_name="other"))
    made.serve(profile("another"))
    assert notes(made) == []


def test_a_pod_that_becomes_invalid_leaves_the_queue() -> None:
    """A queued pod that becomes invalid leaves the queue, and is queued again when it is corrected."""
    made = rig()
    valid = pod("invalid-pod")
    made.add(valid)
    made.scheduler.feed.pod_updated(valid, invalid_pod())
    assert made.place_of(valid) == ""
    made.scheduler.feed.pod_updated(invalid_pod(), valid)
    assert (made.place_of(valid), len(made.scheduler.feed.invalid_pods)) == ("active", 0)


@table(
    "change",
    ("deleted", lambda made: made.scheduler.feed.pod_deleted(invalid_pod())),
    ("change", lambda made: made.scheduler.feed.pod_updated(invalid_pod(), invalid_pod(phase="Failed"))),
    ("bound", lambda made: made.scheduler.feed.pod_updated(invalid_pod(), invalid_pod(node_name="n0"))),
)
def test_an_invalid_pod_is_removed_when_it_no_longer_waits(change: Callable[[Rig], None]) -> None:
    """Only pending pods are stored as invalid."""
    made = rig()
    made.add(node("n0"), invalid_pod())
    assert len(made.scheduler.feed.invalid_pods) == 1
    change(made)
    assert len(made.scheduler.feed.invalid_pods) == 0


def test_a_pod_of_the_same_name_is_reported_too() -> None:
    """A recreated pod with another UID is reported, and replaces the deleted one."""
    made = rig()
    made.add(invalid_pod())
    made.scheduler.feed.pod_updated(invalid_pod(), invalid_pod(uid="another"))
    assert [event.regarding.uid for event in made.writer.events] == [invalid_pod().metadata.uid, "another"]
    assert len(made.scheduler.feed.invalid_pods) == 1
