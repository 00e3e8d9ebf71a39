"""Which ended members count for the quorum of a gang, for pods of Jobs, of other controllers and without a controller.

``tests/laws/test_gang_runs.py`` compares random lifetimes with a model; these rows name the situations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupRun
from scheduler_core.queueing.gang_registry import Gangs
from tests.support.gangs import group, member
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = "batch.kubernetes.io/job-completion-index"
BARE, JOB, OTHER = "", "Job batch/v1", "PyTorchJob kubeflow.org/v1"


def a_pod(name: str, state: str, owner: str = BARE, age: int = 0) -> Pod:
    """Return a member of the group ``train`` in a state."""
    owners = []
    if owner:
        kind, _, version = owner.partition(" ")
        version, _, uid = version.partition("#")
        owners = [OwnerReference(kind, "train", f"uid-of-job-{uid}", version, controller=True)]
    phase = {"waiting": "Pending", "running": "Running", "succeeded": "Succeeded", "failed": "Failed"}[state]
    created = START + timedelta(seconds=age)
    node_name = "" if state == "waiting" else "n"
    return member(name, owners=owners, phase=phase, node_name=node_name, created=created)


def needed_at_first_sight(min_member: int, pods: Iterable[Pod], run: GroupRun | None = None) -> tuple[int, int]:
    """Return how many members must be scheduled together, before and after the runs are followed, in both orders."""
    there = list(pods)
    results = set()
    for order in (there, there[::-1]):
        gangs = Gangs(VirtualClock())
        for each in order:
            gangs.saw(each)
        gang = gangs.group_changed(group(min_member=min_member, run=run, is_fresh=run is None))
        before = gang.needed
        gangs.follow_runs()
        results.add((before, gang.needed))
    (result,) = results
    return result


@pytest.mark.parametrize("owner", [BARE, OTHER], ids=["bare", "other-controller"])
@table(
    "members, min_member, needed",
    ("a finished run is used again", "a+ b+ c+ d+ e. f. g. h.", 4, 4),
    ("an unfinished run is used again", "a+ b+ c+ d! e. f. g. h.", 4, 4),
    ("the last member of the run still runs", "a+ b+ c+ d* e. f. g. h.", 4, 3),
    ("one of three failed and is replaced", "a+ b+ c! d.", 3, 1),
    ("a succeeded member is gone, another one is replaced", "b! c* d.", 3, 1),
    ("a succeeded member is gone, two are replaced", "c* d. e.", 4, 2),
    ("nothing runs, a succeeded member is gone", "b! c+ d.", 3, 1),
    ("only a failed member is left", "b! d.", 3, 3),
    ("all failed, and the first one is replaced", "a! b! c! d.", 3, 3),
    ("nothing was ever bound", "a. b.", 3, 3),
    ("a half-bound gang after a restart", "a* b* c. d.", 4, 2),
    ("finished", "a+ b+ c+", 3, 0),
)
def test_members_at_first_sight(owner: str, members: str, min_member: int, needed: int) -> None:
    """The run is inferred from the members: + succeeded, ! failed, * running, . waiting."""
    states = {"+": "succeeded", "!": "failed", "*": "running", ".": "waiting"}
    pods = [a_pod(text[:-1], states[text[-1]], owner) for text in members.split()]
    assert needed_at_first_sight(min_member, pods) == (needed, needed)


@pytest.mark.parametrize(
    ("pods", "min_member", "needed"),
    [
        pytest.param(
            [*(a_pod(f"a{n}", "succeeded", f"{JOB}#1") for n in range(4)),
             *(a_pod(f"b{n}", "waiting", f"{JOB}#2") for n in range(4))],
            4, 4, id="a second Job",
        ),
        pytest.param(
            [a_pod("a0", "succeeded", f"{JOB}#1"), *(a_pod(f"b{n}", "waiting", f"{JOB}#2") for n in range(2))],
            3, 3, id="a second Job after a Job that did not finish",
        ),
        pytest.param(
            [*(a_pod(f"a{n}", "succeeded", f"{JOB}#1") for n in range(6)), a_pod("a6", "waiting", f"{JOB}#1")],
            4, 0, id="more completions of one Job than the quorum",
        ),
        pytest.param(
            [a_pod("a0", "succeeded", f"{JOB}#1"), a_pod("b0", "failed", f"{JOB}#2"),
             a_pod("b1", "running", f"{JOB}#2"), a_pod("b2", "waiting", f"{JOB}#2")],
            3, 1, id="two Jobs of one gang, as of a JobSet",
        ),
    ],
)  # fmt: skip
def test_jobs_at_first_sight(pods: list[Pod], min_member: int, needed: int) -> None:
    """Pods of one Job belong to one run."""
    assert needed_at_first_sight(min_member, pods) == (needed, needed)


@pytest.mark.parametrize(
    ("pods", "run", "needed"),
    [
        pytest.param([a_pod("a3", "waiting", f"{JOB}#1")], GroupRun(("Job.batch/uid-of-job-1",), 2), 1, id="same Job"),
        pytest.param([a_pod("a3", "waiting", f"{JOB}#2")], GroupRun(("Job.batch/uid-of-job-1",), 2), 3, id="other Job"),
        pytest.param([a_pod("a", "waiting")], GroupRun(("none",), 2), 3, id="no pod shows the run"),
        pytest.param([a_pod("a", "waiting"), a_pod("b", "failed")], GroupRun(("none",), 2), 1, id="a failed pod"),
        pytest.param(
            [a_pod("a", "succeeded", age=5), a_pod("b", "running", age=9), a_pod("c", "waiting", age=9)],
            GroupRun(("none",), 0, START + timedelta(seconds=5)), 2, id="a pod of the run before",
        ),
    ],
)  # fmt: skip
def test_recorded_runs(pods: list[Pod], run: GroupRun, needed: int) -> None:
    """A restarted operator reads the record in the status."""
    assert needed_at_first_sight(3, pods, run) == (needed, needed)


def followed(min_member: int, *pods: Pod) -> Gangs:
    """Return gangs whose runs are followed, with the group ``train``."""
    gangs = Gangs(VirtualClock())
    gangs.follow_runs()
    gangs.group_changed(group(min_member=min_member))
    for each in pods:
        gangs.saw(each)
    return gangs


def needed(gangs: Gangs) -> int:
    """Return how many members of the only gang must be scheduled together."""
    (gang,) = gangs
    return gang.needed


def test_a_succeeded_member_counts_after_it_is_gone() -> None:
    """The place of a succeeded member stays taken when its pod is collected."""
    gangs = followed(3, *(a_pod(name, "running") for name in "abc"))
    gangs.saw(a_pod("a", "succeeded"))
    gangs.lost(a_pod("a", "succeeded").metadata.uid)
    gangs.saw(a_pod("b", "failed"))
    gangs.saw(a_pod("d", "waiting"))
    assert needed(gangs) == 1


def test_a_member_that_runs_again_begins_a_new_run() -> None:
    """A pod with the name of a succeeded member repeats it, so nothing of the run before counts."""
    gangs = followed(3, *(a_pod(name, "running") for name in "abc"))
    for name in "ab":
        gangs.saw(a_pod(name, "succeeded"))
        gangs.lost(a_pod(name, "succeeded").metadata.uid)
    gangs.saw(a_pod("c", "failed"))
    again = a_pod("a", "waiting")
    gangs.saw(msgspec.structs.replace(again, metadata=msgspec.structs.replace(again.metadata, uid="2")))
    assert needed(gangs) == 3


def test_pods_without_a_controller_that_are_all_deleted_end_their_run() -> None:
    """A user who deletes all pods and creates them again starts a new run."""
    gangs = followed(3, *(a_pod(name, "running") for name in "abc"))
    gangs.saw(a_pod("a", "succeeded"))
    for name in "abc":
        gangs.lost(a_pod(name, "running").metadata.uid)
    gangs.saw(a_pod("d", "waiting"))
    assert needed(gangs) == 3


def test_an_index_that_two_pods_complete_counts_once() -> None:
    """A terminating pod may still succeed after the Job has replaced it."""
    gangs = followed(3, *(a_pod(name, "running", f"{JOB}#1") for name in "abc"))
    for name in "ab":
        done = a_pod(name, "succeeded", f"{JOB}#1")
        labels = {**done.metadata.labels, INDEX: "0"}
        gangs.saw(msgspec.structs.replace(done, metadata=msgspec.structs.replace(done.metadata, labels=labels)))
    assert needed(gangs) == 1


def test_an_update_of_an_ended_pod_of_an_earlier_run_changes_nothing() -> None:
    """Pods of an earlier run do not count when they are updated or deleted."""
    gangs = followed(2, *(a_pod(name, "running") for name in "ab"))
    for name in "ab":
        gangs.saw(a_pod(name, "succeeded"))
    gangs.saw(a_pod("c", "waiting"))
    assert needed(gangs) == 2
    gangs.saw(msgspec.structs.replace(a_pod("a", "succeeded")))
    gangs.lost(a_pod("b", "succeeded").metadata.uid)
    assert needed(gangs) == 2


def test_a_recreated_podgroup_does_not_inherit_what_is_gone() -> None:
    """The record of a deleted PodGroup does not count for the next one."""
    gangs = followed(3, *(a_pod(name, "running", f"{JOB}#1") for name in "abc"))
    for name in "ab":
        gangs.saw(a_pod(name, "succeeded", f"{JOB}#1"))
        gangs.lost(a_pod(name, "running").metadata.uid)
    (gang,) = gangs
    gangs.group_deleted(gang.key)
    gangs.group_changed(replace(group(min_member=3), uid="another"))
    assert (needed(gangs), gang.succeeded) == (2, 0)
