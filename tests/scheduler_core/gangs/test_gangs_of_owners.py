"""Gangs by owner: pods without a label are members of the PodGroup of their Job, JobSet or replica."""

from __future__ import annotations

import pytest

from scheduler_core.config.gang_owners import MAX_NAME_LENGTH, GangSettings, owner_instance
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import Problem
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.gangs import group, settle
from tests.support.injected_errors import raising
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, rig
from tests.support.tables import table

JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "u1"}
REPLICA = {"leaderworkerset.sigs.k8s.io/name": "llama", "leaderworkerset.sigs.k8s.io/group-index": "3"}


def settings(*rows: dict[str, object] | str) -> GangSettings:
    """Return the gangs of a profile; a text is a known kind."""
    documents = [{"kind": row} if isinstance(row, str) else row for row in rows]
    return validate(GangSettings, {"fromOwners": documents})


def configured(*rows: dict[str, object] | str) -> ProfileConfig:
    """Return the default profile with rows of ``fromOwners``."""
    return ProfileConfig(scheduler_name=DEFAULT_NAME, gangs=settings(*rows))


def owner(kind: str = "Job", name: str = "train", version: str = "batch/v1", uid: str = "") -> OwnerReference:
    """Return a controller reference."""
    return OwnerReference(kind, name, uid or f"uid-of-{name}", version, controller=True)


def owned(name: str, of: str = "train", **labels: str) -> Pod:
    """Return a pod of a Job that requests one CPU."""
    return pod(name, owners=[owner(name=of)], labels=labels, requests={"cpu": "1"})


def named(each: Pod, *rows: dict[str, object] | str) -> str:
    """Return the name of the PodGroup of a pod; "" for none."""
    found = owner_instance(each, settings(*rows).rules)
    return "" if found is None else found.key.name


def group_of(each: Pod, min_member: int, uid: str = "uid-of-group") -> PodGroup:
    """Return the PodGroup of the Job of a pod."""
    found = present(owner_instance(each, settings("Job").rules))
    return PodGroup(found.key, uid, min_member)


# -- identity ----------------------------------------------------------------------------------------------------------


SAME = {
    "pods of a Job": ("Job", owned("a"), owned("b")),
    "pods of a JobSet": ("JobSet", pod("a", labels=JOB_SET), pod("b", labels=JOB_SET | {"x": "y"})),
    "pods of a replica": (
        "LeaderWorkerSet",
        pod("a", labels=REPLICA | {"leaderworkerset.sigs.k8s.io/group-key": "k"}),
        pod("b", labels=REPLICA | {"leaderworkerset.sigs.k8s.io/group-key": "k"}),
    ),
}


@pytest.mark.parametrize(("kind", "one", "other"), SAME.values(), ids=SAME)
def test_pods_of_one_instance(kind: str, one: Pod, other: Pod) -> None:
    """All pods of an instance have the same PodGroup, whose name begins with that of the owner."""
    assert named(one, kind) == named(other, kind) != ""
    assert named(one, kind).startswith(("train-", "llama-3-"))


DIFFERENT = {
    "runs of a CronJob are Jobs": ("Job", owned("a", "run-1"), owned("b", "run-2")),
    "a recreated Job": (
        "Job",
        pod("a", owners=[owner(uid="u1")]),
        pod("a", owners=[owner(uid="u2")]),
    ),
    "a recreated JobSet": (
        "JobSet",
        pod("a", labels=JOB_SET),
        pod("a", labels=JOB_SET | {"jobset.sigs.k8s.io/jobset-uid": "u2"}),
    ),
    "replicas": (
        "LeaderWorkerSet",
        pod("a", labels=REPLICA | {"leaderworkerset.sigs.k8s.io/group-key": "k1"}),
        pod("b", labels=REPLICA | {"leaderworkerset.sigs.k8s.io/group-key": "k2"}),
    ),
}


@pytest.mark.parametrize(("kind", "one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_pods_of_different_instances(kind: str, one: Pod, other: Pod) -> None:
    """Each instance has a PodGroup of its own."""
    assert "" != named(one, kind) != named(other, kind) != ""


ALONE = {
    "no owner": ("Job", pod("a")),
    "owner of another kind": ("Job", pod("a", owners=[owner("ReplicaSet", version="apps/v1")])),
    "kind of another API group": ("Job", pod("a", owners=[owner(version="example.com/v1")])),
    "owner that is no controller": ("Job", pod("a", owners=[OwnerReference("Job", "train", "u", "batch/v1")])),
    "opt-out": ("Job", owned("a", **{"bayplan.dev/gang": "false"})),
    "no label": ("JobSet", owned("a")),
    "labels of another operator": ("MPIJob", pod("a", labels={"training.kubeflow.org/job-name": "train"})),
}


@pytest.mark.parametrize(("kind", "each"), ALONE.values(), ids=ALONE)
def test_pods_of_no_instance(kind: str, each: Pod) -> None:
    """A pod to which no rule applies is in no gang."""
    assert named(each, kind) == ""


def test_rows_by_labels_come_first() -> None:
    """The pods of a JobSet, which are pods of Jobs too, are in the gang of the JobSet in any order of the rows."""
    each = pod("a", labels=JOB_SET, owners=[owner()])
    assert named(each, "Job", "JobSet") == named(each, "JobSet", "Job") == named(each, "JobSet") != named(each, "Job")


def test_replicated_jobs() -> None:
    """With per: ReplicatedJob the pods of each replicated job are a gang."""
    row: dict[str, object] = {"kind": "JobSet", "per": "ReplicatedJob"}
    one, two = (pod("a", labels=JOB_SET | {"jobset.sigs.k8s.io/replicatedjob-name": name}) for name in ("ps", "worker"))
    assert named(one, row).startswith("train-ps-")
    assert named(two, row).startswith("train-worker-")


@pytest.mark.parametrize("name", ["a" * 253, "x.y.z", "A_B"])
def test_names_of_groups(name: str) -> None:
    """A name is valid for a PodGroup: at most 63 characters, lower case letters, digits and hyphens."""
    found = named(owned("a", name), "Job")
    assert len(found) <= MAX_NAME_LENGTH
    assert found.replace("-", "").isalnum()
    assert found[0].isalnum()
    assert found == found.lower()


# -- scheduling --------------------------------------------------------------------------------------------------------


async def test_pods_wait_for_the_group_of_their_job(cluster: Rig) -> None:
    """Pods are held until the PodGroup exists, with a condition that names it, and then scheduled together."""
    cluster.serve(configured("Job"))
    await settle(cluster, node("a"), owned("a"), owned("b"), owned("c"))
    cluster.clock.advance(2.0)
    assert cluster.bound == {}
    assert cluster.condition.reason == "SchedulingGated"
    assert "Job default/train does not exist yet; it is being created" in cluster.condition.message
    cluster.scheduler.group_feed.group_changed(group_of(owned("a"), 4))
    await settle(cluster)
    assert cluster.bound == {}
    await settle(cluster, owned("d"))
    assert len(cluster.bound) == 4


async def test_a_reason_why_there_is_no_group(cluster: Rig) -> None:
    """The message has the reason that the operator reports."""
    cluster.serve(configured("Job"))
    cluster.add(node("a"), owned("a"))
    cluster.scheduler.group_feed.group_refused(group_of(owned("a"), 1).key, [Problem("", "jobs cannot be listed")])
    await settle(cluster)
    cluster.clock.advance(2.0)
    assert "cannot be created or used: jobs cannot be listed" in cluster.condition.message


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_profile_that_gets_rows(cluster: Rig, *, is_parked: bool) -> None:
    """Waiting pods are held from the moment on at which the profile has a rule for their owner, and again released."""
    if is_parked:
        cluster.scheduler.withdraw(DEFAULT_NAME)
    await settle(cluster, owned("a"), owned("b"))
    cluster.serve(configured("Job"))
    await settle(cluster, node("a"))
    assert cluster.bound == {}
    gang = present(cluster.queue.gangs.get(group_of(owned("a"), 1).key))
    assert len(gang.pods) == 2
    cluster.serve(configured())
    await settle(cluster)
    assert len(cluster.bound) == 2
    assert len(cluster.queue.gangs) == 0


@pytest.mark.parametrize("at", ["permit", "preBind", "bind"])
async def test_a_row_while_a_pod_is_bound(at: str) -> None:
    """A pod that is on its way to its node when the row is added is bound, and counts in the gang of its owner."""
    cluster = rig([Gate], groups=[GroupSource.BAYPLAN])
    Gate.stop_at(at)
    cluster.add(node("a"), owned("a"))
    async with cluster.running():
        await cluster.until(lambda: cluster.context.cache.assumed_count == 1)
        cluster.serve(configured("Job"))
        gang = present(cluster.queue.gangs.get(group_of(owned("a"), 1).key))
        cluster.scheduler.group_feed.group_changed(group_of(owned("a"), 2))
        cluster.add(owned("b"))
        Gate.open(cluster.context.waiting)
        await cluster.until(lambda: len(cluster.bound) == 2)
    assert (len(gang.pods), len(gang.placed)) == (2, 2)


KUEUE_GROUP = {"kueue.x-k8s.io/pod-group-name": "train"}


@table(
    "kind, owners, labels",
    ("by-controller", "Job", [owner()], {}),
    ("by-labels-without-owner", "KueuePodGroup", [], KUEUE_GROUP),
)
async def test_running_and_ended_pods_join(
    cluster: Rig, kind: str, owners: list[OwnerReference], labels: dict[str, str]
) -> None:
    """A rule that is added later counts pods with a node, and ended ones, that exist already."""
    ended = pod("a", owners=owners, labels=labels, phase="Succeeded", node_name="n")
    running = pod("b", owners=owners, labels=labels, node_name="n", phase="Running", requests={"cpu": "1"})
    cluster.add(node("n"), ended, running)
    cluster.serve(configured(kind))
    [gang] = cluster.queue.gangs
    assert (len(gang.pods), len(gang.placed)) == (2, 1)
    cluster.scheduler.feed.pod_deleted(ended)
    assert len(gang.pods) == 1


async def test_an_exception_while_pods_join(cluster: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods join the gang of their owner although the handling of one raises once."""
    cluster.add(owned("a"), owned("b"))
    saw, failures = cluster.queue.gangs.saw, iter([True])

    def saw_later(each: Pod) -> object:
        if next(failures, False):
            raise RuntimeError("injected")
        return saw(each)

    monkeypatch.setattr(cluster.queue.gangs, "saw", saw_later)
    cluster.serve(configured("Job"))
    [gang] = cluster.queue.gangs
    assert len(gang.pods) == 2


@table(
    "owner, function, is_new, faults",
    ("a new profile", Gangs, "ended_of_owners", True, 1),
    ("an edited one", Gangs, "ended_of_owners", False, 1),
    ("an edited one, and the undoing raises, too", Gangs, "ended_of_owners", False, 2),
    ("when its pods have joined", SchedulingQueue, "profile_changed", False, 1),
)
async def test_a_repeated_swap_lets_pods_join(
    cluster: Rig, monkeypatch: pytest.MonkeyPatch, owner: type, function: str, *, is_new: bool, faults: int
) -> None:
    """No pod is scheduled without the gang of its owner after a swap that has raised and is repeated."""
    if is_new:
        cluster.scheduler.withdraw(DEFAULT_NAME)
    await settle(cluster, owned("a"), owned("b"))
    errors: list[BaseException] = [MemoryError() for _ in range(faults)]
    monkeypatch.setattr(owner, function, raising(errors, getattr(owner, function)))
    with pytest.raises(MemoryError):
        cluster.serve(configured("Job"))
    assert (DEFAULT_NAME in cluster.context.profiles) is not is_new
    cluster.serve(configured("Job"))
    await settle(cluster, node("a"))
    assert cluster.bound == {}
    [gang] = cluster.queue.gangs
    assert len(gang.pods) == 2


async def test_a_label_counts_first(cluster: Rig) -> None:
    """A pod that names a PodGroup is not in the gang of its owner."""
    cluster.serve(configured("Job"))
    labelled = owned("a", **{"bayplan.dev/pod-group": "mine"})
    cluster.add(node("n"), labelled)
    cluster.scheduler.group_feed.group_changed(group("mine", 1))
    await settle(cluster)
    assert len(cluster.bound) == 1


@pytest.mark.parametrize("is_basic", [True, False])
async def test_native_groups_of_the_job_controller(cluster: Rig, *, is_basic: bool) -> None:
    """A native group of the basic policy does not count; with one that is a gang, the pod is held."""
    native = GroupKey(GroupSource.NATIVE, "default", "job")
    cluster.scheduler.group_feed.serve(GroupSource.NATIVE)
    cluster.serve(configured("Job"))
    each = pod("a", owners=[owner()], group="job", requests={"cpu": "1"})
    cluster.add(node("n"), each)
    cluster.scheduler.group_feed.group_changed(group_of(each, 1))
    cluster.scheduler.group_feed.group_changed(
        PodGroup(native, "uid-of-job", 1, waits_for_gated=True, priority=0, is_basic=is_basic)
    )
    await settle(cluster)
    cluster.clock.advance(2.0)
    assert len(cluster.bound) == is_basic
    if not is_basic:
        assert "two gangs, that of Job default/train and PodGroup default/job" in cluster.condition.message
