"""PodGroups by owner: what the controller creates, changes and holds, and the sizes that it reads from specs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bayplan.gangs.owner_groups import MANAGED_BY
from bayplan.gangs.owner_sizes import OWNER_TYPES, SuspendedError, UnknownSizeError, check_startup, parsed_size, size_of
from bayplan.kube.http.api_request import InvalidRequestError
from bayplan.resources.pod_group import PodGroup

from scheduler_core.config.gang_owners import GangOwner
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConflictError, ForbiddenError
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from tests.support.builders import pod
from tests.support.injected_errors import raising
from tests.support.owned_world import OwnedWorld, of_job
from tests.support.presence import present

LWS = "leaderworkerset.sigs.k8s.io"
KUEUE = "kueue.x-k8s.io/pod-group-name"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"


def world_of_a_job() -> tuple[OwnedWorld, Pod]:
    """Return a cluster in which Jobs have gangs, and the first pod of a Job that is not known yet."""
    world, each = OwnedWorld({"kind": "Job"}), of_job("a")
    world.rig.add(each)
    return world, each


async def test_a_job() -> None:
    """The PodGroup has the size of the Job, the Job as its owner and a label, and follows the Job."""
    world, each = world_of_a_job()
    async with world.running():
        assert "Job default/train is not known" in world.obstacle(each)
        await world.own("jobs", {"parallelism": 3})
        assert (world.size(each), world.obstacle(each)) == (3, "")
        meta = world.requests.objects[world.key(each)]["metadata"]
        assert meta["labels"] == {MANAGED_BY: "bayplan"}
        assert meta["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}
        ]
        await world.own("jobs", {"parallelism": 5})
        assert world.size(each) == 5
        await world.own("jobs", {"parallelism": 5, "suspend": True})
        assert world.size(each) == 5
    assert [name for name, _ in world.requests.log] == ["create", "patch"]


async def test_other_fields_are_those_of_users() -> None:
    """A change of the size keeps the other fields, and an edit of minMember is reverted."""
    world, each = world_of_a_job()
    async with world.running():
        await world.own("jobs", {"parallelism": 3})
        spec = {"minMember": 2, "queueing": "Strict"}
        body = world.requests.objects[world.key(each)]
        edited = await world.requests.set_spec(world.key(each), body["metadata"]["uid"], spec)
        world.groups.seen(PodGroup, edited)
        await world.settle()
    assert world.requests.objects[world.key(each)]["spec"] == {"minMember": 3, "queueing": "Strict"}


async def test_fields_of_new_groups() -> None:
    """A row sets the topology and the queueing of PodGroups when they are created, and not afterwards."""
    zone = {"key": "topology.kubernetes.io/zone", "mode": "Preferred"}
    world, each = OwnedWorld({"kind": "Job", "topology": zone, "queueing": "Strict"}), of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.own("jobs", {"parallelism": 3})
        body = world.requests.objects[world.key(each)]
        assert body["spec"] == {"minMember": 3, "topology": zone, "queueing": "Strict"}
        edited = await world.requests.set_spec(world.key(each), body["metadata"]["uid"], {"queueing": "BestEffort"})
        world.groups.seen(PodGroup, edited)
        await world.own("jobs", {"parallelism": 4})
    spec = {"minMember": 4, "topology": zone, "queueing": "BestEffort"}
    assert world.requests.objects[world.key(each)]["spec"] == spec


async def test_a_group_of_a_user() -> None:
    """A PodGroup of that name that the controller did not create is used and not changed."""
    world = OwnedWorld({"kind": "Job"})
    each = of_job("a")
    key = world.key(each)
    meta = {"name": key.name, "namespace": key.namespace, "uid": "mine", "resourceVersion": "1"}
    world.groups.seen(PodGroup, {"metadata": meta, "spec": {"minMember": 7}})
    world.rig.add(each)
    async with world.running():
        await world.own("jobs", {"parallelism": 3})
    assert (world.requests.log, world.obstacle(each)) == ([], "")


async def test_one_pod() -> None:
    """An instance of one pod is scheduled without an object; a larger size creates one."""
    world, each = world_of_a_job()
    async with world.running():
        await world.own("jobs", {"parallelism": 1})
        assert (world.requests.log, world.obstacle(each)) == ([], "")
        await world.own("jobs", {"parallelism": 2})
        assert world.size(each) == 2
        gang = present(world.rig.queue.gangs.get(world.key(each)))
        assert gang.needed == 2
        world.collect(each)
        await world.own("jobs", {"parallelism": 1})
        assert (world.size(each), world.obstacle(each)) == (None, "")
        world.rig.scheduler.feed.pod_deleted(each)
        await world.settle()
    assert len(world.rig.queue.gangs) == 0


async def test_a_refused_request() -> None:
    """If the PodGroup cannot be created, the condition has the reason with a remedy; it is tried again, ever later."""
    world, each = world_of_a_job()
    world.requests.error = ForbiddenError("podgroups is forbidden")
    async with world.running():
        world.deliver("jobs", {"parallelism": 3})
        await world.settle(0.4)
        assert "podgroups is forbidden; grant this process's account the verbs create" in world.obstacle(each)
        assert len(world.requests.log) == 1
        await world.settle(30.0)
        tries = len(world.requests.log)
        assert 3 <= tries <= 8
        world.requests.error = None
        await world.settle(40.0)
    assert (world.size(each), world.obstacle(each)) == (3, "")


@pytest.mark.parametrize("error", [None, ForbiddenError("podgroups is forbidden")], ids=["no owner", "failed request"])
async def test_an_exception_of_the_core(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that the core does not handle is reported again, and the other PodGroups are created meanwhile."""
    world, each = world_of_a_job()
    other = of_job("b", "u2", "other")
    world.rig.add(other)
    feed, failures = world.rig.scheduler.group_feed, iter([True, True, True])
    refuse = feed.group_refused

    def refuse_later(*given: Any) -> None:
        if next(failures, False):
            raise RuntimeError("injected")
        refuse(*given)

    monkeypatch.setattr(feed, "group_refused", refuse_later)
    async with world.running():
        if error is not None:
            world.requests.error = error
            await world.own("jobs", {"parallelism": 3})
            world.requests.error = None
        await world.own("jobs", {"parallelism": 2}, name="other", uid="u2")
        await world.settle(20.0)
        assert world.size(other) == 2
        assert world.size(each) == (None if error is None else 3)
        assert world.obstacle(each) == "" or "is not known" in world.obstacle(each)


async def test_an_exception_of_the_core_for_one_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of one member whose delivery raises halfway is delivered again, although the core has it already."""
    world, each = world_of_a_job()
    queue = world.rig.queue
    errors: list[BaseException] = [KeyError("once"), KeyError("twice")]
    async with world.running():
        monkeypatch.setattr(queue, "on_event", raising(errors, queue.on_event))
        await world.own("jobs", {"parallelism": 1})
        await world.settle(20.0)
        assert (errors, world.obstacle(each)) == ([], "")


async def test_owners_that_cannot_be_listed() -> None:
    """Pods wait, and the message has the error of the list with its remedy, until the list succeeds."""
    world, each = world_of_a_job()
    async with world.running():
        owners = world.owners["jobs"]
        owners.is_listed = False
        owners.sink.on_trouble("forbidden; grant it")
        await world.settle()
        assert "the jobs.v1.batch cannot be listed: forbidden; grant it" in world.obstacle(each)
        await world.own("jobs", {"parallelism": 2})
    assert world.obstacle(each) == ""


async def test_a_collected_group_is_created_again() -> None:
    """A PodGroup that is deleted while its Job has pods is created again; with a deleted Job it is not."""
    world, each = world_of_a_job()
    async with world.running():
        await world.own("jobs", {"parallelism": 3})
        world.collect(each)
        await world.settle()
        assert world.size(each) == 3
        world.deliver("jobs", {"parallelism": 3}, deletionTimestamp="2026-01-01T00:00:00Z")
        world.collect(each)
        await world.settle()
    assert world.size(each) is None
    assert "is being deleted" in world.obstacle(each)


async def test_an_owner_of_the_same_name() -> None:
    """The PodGroup of a deleted owner is replaced by that of the new one, whose pods do not carry a UID."""
    world = OwnedWorld({"kind": "JobSet"})
    each = pod("a", labels={JOB_SET: "train"})
    spec = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]}
    world.rig.add(each)
    async with world.running():
        await world.own("jobsets", spec, uid="u1")
        first = world.requests.objects[world.key(each)]
        await world.own("jobsets", spec, uid="u2")
    second = world.requests.objects[world.key(each)]
    assert [each["metadata"]["ownerReferences"][0]["uid"] for each in (first, second)] == ["u1", "u2"]
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


def replica(name: str, index: int, group: str = "k0") -> Pod:
    """Return a pod of a replica; the one with index 0 is the leader."""
    labels = {f"{LWS}/name": "llama", f"{LWS}/group-index": group[1:], f"{LWS}/group-key": group}
    return pod(name, labels={**labels, f"{LWS}/worker-index": str(index)})


async def test_replicas_of_a_leader_worker_set() -> None:
    """Each replica has a PodGroup that its leader owns; without the leader its workers wait."""
    world = OwnedWorld({"kind": "LeaderWorkerSet"})
    leader, worker, other = replica("l-0", 0), replica("l-0-1", 1), replica("l-1", 0, "k1")
    world.requests.annotated = {name: {f"{LWS}/size": "4"} for name in ("l-0", "l-0-1", "l-1")}
    world.rig.add(worker, other)
    async with world.running():
        await world.own("leaderworkersets", {"startupPolicy": "LeaderCreated"}, name="llama")
        assert "the leader pod of the replica is not known yet" in world.obstacle(worker)
        assert world.size(other) == 4
        world.rig.add(leader)
        await world.settle()
    assert world.size(worker) == 4
    (reference,) = world.requests.objects[world.key(worker)]["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"]) == ("Pod", "l-0")
    assert world.key(worker) != world.key(other)


async def test_pod_groups_of_kueue() -> None:
    """The pods own their PodGroup, whose size is their annotation; a replacement does not replace the PodGroup."""
    world = OwnedWorld({"kind": "KueuePodGroup"})
    one, two = (pod(name, labels={KUEUE: "mine"}) for name in "ab")
    world.requests.annotated = {name: {"kueue.x-k8s.io/pod-group-total-count": "2"} for name in "abc"}
    world.rig.add(one, two)
    async with world.running():
        assert world.size(one) == 2
        owners = world.requests.objects[world.key(one)]["metadata"]["ownerReferences"]
        assert [each["name"] for each in owners] == ["a", "b"]
        world.rig.add(pod("c", labels={KUEUE: "mine"}))
        world.rig.scheduler.feed.pod_deleted(one)
        await world.settle()
    assert [name for name, _ in world.requests.log if name in {"create", "delete"}] == ["create"]


@pytest.mark.parametrize("text", ["", "many"])
async def test_annotations_that_are_no_size(text: str) -> None:
    """Pods without a usable size wait, and the message names the annotation."""
    world = OwnedWorld({"kind": "KueuePodGroup"})
    each = pod("a", labels={KUEUE: "mine"})
    world.requests.annotated = {"a": {"kueue.x-k8s.io/pod-group-total-count": text}} if text else {}
    world.rig.add(each)
    async with world.running():
        await world.settle()
    assert f'pod-group-total-count of its pods must be the number of pods, not "{text}"' in world.obstacle(each)
    assert len(world.requests.log) == 1


async def test_an_orphan() -> None:
    """A PodGroup whose owner was deleted without its pods is deleted."""
    world, each = world_of_a_job()
    async with world.running():
        await world.own("jobs", {"parallelism": 3})
        world.rig.scheduler.feed.pod_updated(each, pod("a"))
        await world.settle()
        body = world.requests.objects[world.key(each)]
        meta = {name: value for name, value in body["metadata"].items() if name != "ownerReferences"}
        world.groups.seen(PodGroup, {**body, "metadata": {**meta, "resourceVersion": "99"}})
        await world.settle(12.0)
    assert world.requests.log[-1][0] == "delete"
    assert len(world.rig.queue.gangs) == 0


async def test_an_orphan_of_an_earlier_process() -> None:
    """A PodGroup that has neither owner nor pods when the process starts is deleted; one of a user is not."""
    world = OwnedWorld({"kind": "Job"})
    for name, labels in (("orphan", {MANAGED_BY: "bayplan"}), ("user", {})):
        meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "labels": labels}
        body = {"metadata": meta, "spec": {"minMember": 2}}
        world.requests.objects[GroupKey(GroupSource.BAYPLAN, "default", name)] = body
        world.groups.seen(PodGroup, body)
    async with world.running():
        await world.settle(12.0)
    assert world.requests.log == [("delete", "orphan")]


async def test_an_invalid_group() -> None:
    """The reason of a PodGroup that the API server rejects recommends no permission."""
    world, each = world_of_a_job()
    world.requests.error = InvalidRequestError("spec.topology.key: Invalid value")
    async with world.running():
        world.deliver("jobs", {"parallelism": 3})
        await world.settle(0.4)
        assert "spec.topology.key: Invalid value; the label bayplan.dev/gang" in world.obstacle(each)


REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
SOLVER = {"kind": "Solver", "apiVersion": "example.com/v1"}


def size(row: dict[str, Any], spec: dict[str, Any], **labels: str) -> int:
    """Return the size of the gang of an owner with a spec."""
    rule = validate(GangOwner, row).rule
    owner = msgspec.convert({"metadata": {"name": "o"}, "spec": spec}, OWNER_TYPES[rule.sizing])
    return size_of(rule, owner, labels)


def replicated(name: str, replicas: int | None, parallelism: int, completions: int | None = None, **more: Any) -> Any:
    """Return an entry of ``replicatedJobs``."""
    job = {"parallelism": parallelism, "completions": completions}
    return {"name": name, "replicas": replicas, "template": {"spec": job}, **more}


SIZES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "Job": ({"kind": "Job"}, {"parallelism": 4, "completions": 4}, 4),
    "Job without fields": ({"kind": "Job"}, {}, 1),
    "Job with nulls": ({"kind": "Job"}, {"parallelism": None, "completions": None, "suspend": None}, 1),
    "Job with a work queue": ({"kind": "Job"}, {"parallelism": 3}, 3),
    "Job with fewer completions": ({"kind": "Job"}, {"parallelism": 8, "completions": 5}, 5),
    "Job with more completions": ({"kind": "Job"}, {"parallelism": 2, "completions": 50}, 2),
    "JobSet": ({"kind": "JobSet"}, {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 2, 3, 3)]}, 7),
    "JobSet without replicas": ({"kind": "JobSet"}, {"replicatedJobs": [replicated("a", None, 2)]}, 2),
    "PyTorchJob": (
        {"kind": "PyTorchJob"},
        {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}},
        4,
    ),
    "elastic PyTorchJob": (
        {"kind": "PyTorchJob"},
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 6}}, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 6}},
        2,
    ),
    "TFJob with minAvailable": (
        {"kind": "TFJob"},
        {"tfReplicaSpecs": {"Worker": {"replicas": 6}}, "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
        5,
    ),
    "MPIJob": ({"kind": "MPIJob"}, {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}, 3),
    "MPIJob whose launcher waits": (
        {"kind": "MPIJob"},
        {
            "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        2,
    ),
    "RayCluster": (
        {"kind": "RayCluster"},
        {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4}, {"replicas": 1}, {"replicas": 9, "suspend": True}]},
        10,
    ),
    "RayCluster that scales": (
        {"kind": "RayCluster"},
        {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 5, "minReplicas": 1}, {}]},
        2,
    ),
    "custom fields": (
        {**SOLVER, "size": {"ownerFields": ["spec.workers.count", "spec.masters"]}},
        {"workers": {"count": 3}, "masters": 2},
        5,
    ),
    "absent custom field": ({**SOLVER, "size": {"ownerFields": ["spec.workers"]}}, {}, 1),
}


@pytest.mark.parametrize(("row", "spec", "expected"), SIZES.values(), ids=SIZES)
def test_sizes(row: dict[str, Any], spec: dict[str, Any], expected: int) -> None:
    """The size is the number of pods that exist at the same time at first."""
    assert size(row, spec) == expected


def test_replicated_jobs_in_order() -> None:
    """The jobs of a JobSet that starts in order have sizes of their own."""
    row = {"kind": "JobSet", "per": "ReplicatedJob"}
    spec = {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": [replicated("ps", 1, 2), replicated("worker", 3, 2)],
    }
    assert size(row, spec, **{REPLICATED: "worker"}) == 6
    with pytest.raises(UnknownSizeError, match="it has no replicated job"):
        size(row, spec, **{REPLICATED: "other"})


UNKNOWN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "JobSet in order": (
        {"kind": "JobSet"},
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [replicated("a", 1, 1)]},
        "start one after the other",
    ),
    "JobSet with dependencies": (
        {"kind": "JobSet"},
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 1, 1, dependsOn=[{"name": "a"}])]},
        "start one after the other",
    ),
    "custom field that is no number": (
        {**SOLVER, "size": {"ownerFields": ["spec.workers"]}},
        {"workers": "3"},
        "must be a number of pods",
    ),
    "missing label": ({**SOLVER, "size": {"podLabel": "example.com/size"}}, {}, "label example.com/size"),
}


@pytest.mark.parametrize(("row", "spec", "text"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_sizes(row: dict[str, Any], spec: dict[str, Any], text: str) -> None:
    """The reason names the field and a remedy."""
    with pytest.raises(UnknownSizeError, match=text):
        size(row, spec)


SUSPENDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Job": ({"kind": "Job"}, {"parallelism": 3, "suspend": True}),
    "Job without pods": ({"kind": "Job"}, {"parallelism": 0}),
    "JobSet": ({"kind": "JobSet"}, {"suspend": True, "replicatedJobs": [replicated("a", 1, 1)]}),
    "PyTorchJob": ({"kind": "PyTorchJob"}, {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": {}}}),
    "RayCluster": ({"kind": "RayCluster"}, {"suspend": True}),
}


@pytest.mark.parametrize(("row", "spec"), SUSPENDED.values(), ids=SUSPENDED)
def test_suspended_owners(row: dict[str, Any], spec: dict[str, Any]) -> None:
    """An owner that creates no pods has no size."""
    with pytest.raises(SuspendedError):
        size(row, spec)


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "9" * 400, "²"])
def test_texts_that_are_no_size(text: str) -> None:
    """A size in a label or annotation is a positive number."""
    with pytest.raises(UnknownSizeError, match="must be the number of pods"):
        parsed_size(text, "annotation x")


@pytest.mark.parametrize("policy", ["LeaderReady", "LeaderCreated"])
def test_startup_of_replicas(policy: str) -> None:
    """The workers of a LeaderWorkerSet must be created with the leader."""
    rule = validate(GangOwner, {"kind": "LeaderWorkerSet"}).rule
    owner = msgspec.convert({"metadata": {"name": "o"}, "spec": {"startupPolicy": policy}}, OWNER_TYPES[rule.sizing])
    if policy == "LeaderCreated":
        check_startup(rule, owner)
        return
    with pytest.raises(UnknownSizeError, match="set LeaderCreated"):
        check_startup(rule, owner)


async def test_a_name_that_is_taken() -> None:
    """An object that the watch has not delivered yet is no error in the end."""
    world, each = world_of_a_job()
    world.requests.error = ConflictError("exists")
    async with world.running():
        await world.own("jobs", {"parallelism": 3})
        world.requests.error = None
        await world.settle(10.0)
    assert world.size(each) == 3
