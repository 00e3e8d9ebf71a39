"""The controller of PodGroups by owner, with the scheduler and scripted requests: what is created, changed and held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.gangs.owner_groups import MANAGED_BY, OwnerGroups, OwnersOfKind
from bayplan.gangs.owner_sizes import OWNER_TYPES
from bayplan.resources.pod_group import PodGroup

from scheduler_core.config.gang_owners import GangSettings
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConflictError, ForbiddenError
from scheduler_core.model.gang_owners import OwnerRule, owner_instance
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from tests.support.builders import pod
from tests.support.scheduling import DEFAULT_NAME, Rig, rig

LWS = "leaderworkerset.sigs.k8s.io"
KUEUE = "kueue.x-k8s.io/pod-group-name"
JOB_SET = "jobset.sigs.k8s.io/jobset-name"


class Requests:
    """Requests against objects in memory.

    Attributes:
        objects: PodGroups by key.
        annotated: Annotations by name of the pod.
        log: Requests by name, with the name of the object.
        error: Error of the next requests that create.
    """

    def __init__(self) -> None:
        self.objects: dict[GroupKey, dict[str, Any]] = {}
        self.annotated: dict[str, dict[str, str]] = {}
        self.log: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self._version = 0

    async def annotations(self, namespace: str, pod: str) -> Mapping[str, str]:
        self.log.append(("annotations", pod))
        return self.annotated.get(pod, {})

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        meta = manifest["metadata"]
        self.log.append(("create", meta["name"]))
        if self.error is not None:
            raise self.error
        body = {**manifest, "metadata": {**meta, "uid": f"uid-{len(self.log)}", **self._next()}}
        self.objects[GroupKey(GroupSource.BAYPLAN, meta["namespace"], meta["name"])] = body
        return body

    async def set_spec(self, key: GroupKey, uid: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        self.log.append(("patch", key.name))
        body = self.objects[key]
        assert body["metadata"]["uid"] == uid
        body = {**body, "metadata": {**body["metadata"], **self._next()}, "spec": {**body["spec"], **spec}}
        self.objects[key] = body
        return body

    async def delete(self, key: GroupKey, uid: str) -> None:
        self.log.append(("delete", key.name))
        if self.objects.get(key, {}).get("metadata", {}).get("uid") == uid:
            del self.objects[key]

    def _next(self) -> dict[str, str]:
        self._version += 1
        return {"resourceVersion": str(self._version)}


class World:
    """Scheduler, controller and what the watches of owners deliver."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.settings = validate(GangSettings, {"fromOwners": list(rows)})
        self.rig: Rig = rig(serve=False)
        self.groups = BayplanGroups(self.rig.scheduler.group_feed)
        self.groups.listed(PodGroup, [], "0")
        self.requests = Requests()
        self.owners: dict[str, OwnersOfKind] = {}
        self.controller = OwnerGroups(self.rig.scheduler, self.groups, self.requests, self.rig.clock, self._watch)
        self.rig.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, gangs=self.settings))

    async def _watch(self, rule: OwnerRule, owners: OwnersOfKind) -> None:
        self.owners[rule.plural] = owners
        owners.sink.on_synced()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controller inside the block."""
        task = asyncio.get_running_loop().create_task(self.controller.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settle(self, seconds: float = 0.2) -> None:
        """Let the controller handle all changes, for some seconds of its clock."""
        for _ in range(10):
            for _ in range(10):
                await asyncio.sleep(0)
            self.rig.clock.advance(seconds / 10)
        for _ in range(10):
            await asyncio.sleep(0)

    def own(self, plural: str, spec: dict[str, Any], name: str = "train", uid: str = "u1", **meta: Any) -> None:
        """Deliver an owner."""
        rule = next(rule for rule in self.settings.rules if rule.plural == plural)
        body = {"metadata": {"name": name, "namespace": "default", "uid": uid, **meta}, "spec": spec}
        self.owners[plural].sink.on_add(msgspec.convert(body, OWNER_TYPES[rule.sizing]))

    def key(self, each: Pod) -> GroupKey:
        """Return the key of the PodGroup of a pod."""
        found = owner_instance(each, self.settings.rules)
        assert found is not None
        return found.key

    def size(self, each: Pod) -> int | None:
        """Return ``minMember`` of the PodGroup of a pod; None for no object."""
        body = self.requests.objects.get(self.key(each))
        return None if body is None else body["spec"]["minMember"]

    def obstacle(self, each: Pod) -> str:
        """Return why a pod is held; "" if it is not."""
        return self.rig.queue.gangs.obstacle(self.key(each))

    def collect(self, each: Pod) -> None:
        """Delete the PodGroup of a pod, as the garbage collector does."""
        self.groups.gone(PodGroup, self.requests.objects.pop(self.key(each)))


def of_job(name: str, uid: str = "u1", job: str = "train") -> Pod:
    """Return a pod of a Job."""
    return pod(name, owners=[OwnerReference("Job", job, uid, "batch/v1", controller=True)])


async def test_a_job() -> None:
    """The PodGroup has the size of the Job, the Job as its owner and a label, and follows the Job."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.settle()
        assert "Job default/train is not known" in world.obstacle(each)
        world.own("jobs", {"parallelism": 3})
        await world.settle()
        assert (world.size(each), world.obstacle(each)) == (3, "")
        meta = world.requests.objects[world.key(each)]["metadata"]
        assert meta["labels"] == {MANAGED_BY: "bayplan"}
        assert meta["ownerReferences"] == [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}
        ]
        world.own("jobs", {"parallelism": 5})
        await world.settle()
        assert world.size(each) == 5
        world.own("jobs", {"parallelism": 5, "suspend": True})
        await world.settle()
        assert world.size(each) == 5
    assert [name for name, _ in world.requests.log] == ["create", "patch"]


async def test_other_fields_are_those_of_users() -> None:
    """A change of the size keeps the other fields, and an edit of minMember is reverted."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 3})
        await world.settle()
        spec = {"minMember": 2, "queueing": "Strict"}
        body = world.requests.objects[world.key(each)]
        edited = await world.requests.set_spec(world.key(each), body["metadata"]["uid"], spec)
        world.groups.seen(PodGroup, edited)
        await world.settle()
    assert world.requests.objects[world.key(each)]["spec"] == {"minMember": 3, "queueing": "Strict"}


async def test_a_group_of_a_user() -> None:
    """A PodGroup of that name that the controller did not create is used and not changed."""
    world = World({"kind": "Job"})
    each = of_job("a")
    key = world.key(each)
    meta = {"name": key.name, "namespace": key.namespace, "uid": "mine", "resourceVersion": "1"}
    world.groups.seen(PodGroup, {"metadata": meta, "spec": {"minMember": 7}})
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 3})
        await world.settle()
    assert (world.requests.log, world.obstacle(each)) == ([], "")


async def test_one_pod() -> None:
    """An instance of one pod is scheduled without an object; a larger size creates one."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 1})
        await world.settle()
        assert (world.requests.log, world.obstacle(each)) == ([], "")
        world.own("jobs", {"parallelism": 2})
        await world.settle()
        assert world.size(each) == 2
        gang = world.rig.queue.gangs.get(world.key(each))
        assert gang is not None
        assert gang.needed == 2
        world.collect(each)
        world.own("jobs", {"parallelism": 1})
        await world.settle()
        assert (world.size(each), world.obstacle(each)) == (None, "")
        world.rig.scheduler.feed.pod_deleted(each)
        await world.settle()
    assert len(world.rig.queue.gangs) == 0


async def test_a_refused_request() -> None:
    """If the PodGroup cannot be created, the condition has the reason with a remedy; it is tried again, ever later."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    world.requests.error = ForbiddenError("podgroups is forbidden")
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 3})
        await world.settle(0.4)
        assert "podgroups is forbidden; grant this process's account the verbs create" in world.obstacle(each)
        assert len(world.requests.log) == 1
        await world.settle(30.0)
        tries = len(world.requests.log)
        assert 3 <= tries <= 8
        world.requests.error = None
        await world.settle(40.0)
    assert (world.size(each), world.obstacle(each)) == (3, "")


async def test_a_name_that_is_taken() -> None:
    """An object that the watch has not delivered yet is no error in the end."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    world.requests.error = ConflictError("exists")
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 3})
        await world.settle()
        world.requests.error = None
        await world.settle(10.0)
    assert world.size(each) == 3


async def test_owners_that_cannot_be_listed() -> None:
    """Pods wait, and the message has the error of the list with its remedy, until the list succeeds."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.settle()
        owners = world.owners["jobs"]
        owners.is_listed = False
        owners.sink.on_trouble("forbidden; grant it")
        await world.settle()
        assert "the jobs.v1.batch cannot be listed: forbidden; grant it" in world.obstacle(each)
        world.own("jobs", {"parallelism": 2})
        await world.settle()
    assert world.obstacle(each) == ""


async def test_a_collected_group_is_created_again() -> None:
    """A PodGroup that is deleted while its Job has pods is created again; with a deleted Job it is not."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 3})
        await world.settle()
        world.collect(each)
        await world.settle()
        assert world.size(each) == 3
        world.own("jobs", {"parallelism": 3}, deletionTimestamp="2026-01-01T00:00:00Z")
        world.collect(each)
        await world.settle()
    assert world.size(each) is None
    assert "is being deleted" in world.obstacle(each)


async def test_an_owner_of_the_same_name() -> None:
    """The PodGroup of a deleted owner is replaced by that of the new one, whose pods do not carry a UID."""
    world = World({"kind": "JobSet"})
    each = pod("a", labels={JOB_SET: "train"})
    spec = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]}
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobsets", spec, uid="u1")
        await world.settle()
        first = world.requests.objects[world.key(each)]
        world.own("jobsets", spec, uid="u2")
        await world.settle()
    second = world.requests.objects[world.key(each)]
    assert [each["metadata"]["ownerReferences"][0]["uid"] for each in (first, second)] == ["u1", "u2"]
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_job_set_in_order() -> None:
    """The pods of a JobSet whose jobs start in order are held with the reason."""
    world = World({"kind": "JobSet"})
    each = pod("a", labels={JOB_SET: "train"})
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobsets", {"startupPolicy": {"startupPolicyOrder": "InOrder"}})
        await world.settle()
    assert "use per: ReplicatedJob in the profile" in world.obstacle(each)


def replica(name: str, index: int, group: str = "k0") -> Pod:
    """Return a pod of a replica; the one with index 0 is the leader."""
    labels = {f"{LWS}/name": "llama", f"{LWS}/group-index": group[1:], f"{LWS}/group-key": group}
    return pod(name, labels={**labels, f"{LWS}/worker-index": str(index)})


async def test_replicas_of_a_leader_worker_set() -> None:
    """Each replica has a PodGroup that its leader owns; without the leader its workers wait."""
    world = World({"kind": "LeaderWorkerSet"})
    leader, worker, other = replica("l-0", 0), replica("l-0-1", 1), replica("l-1", 0, "k1")
    world.requests.annotated = {name: {f"{LWS}/size": "4"} for name in ("l-0", "l-0-1", "l-1")}
    world.rig.add(worker, other)
    async with world.running():
        await world.settle()
        world.own("leaderworkersets", {"startupPolicy": "LeaderCreated"}, name="llama")
        await world.settle()
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
    world = World({"kind": "KueuePodGroup"})
    one, two = (pod(name, labels={KUEUE: "mine"}) for name in "ab")
    world.requests.annotated = {name: {"kueue.x-k8s.io/pod-group-total-count": "2"} for name in "abc"}
    world.rig.add(one, two)
    async with world.running():
        await world.settle()
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
    world = World({"kind": "KueuePodGroup"})
    each = pod("a", labels={KUEUE: "mine"})
    world.requests.annotated = {"a": {"kueue.x-k8s.io/pod-group-total-count": text}} if text else {}
    world.rig.add(each)
    async with world.running():
        await world.settle()
        await world.settle()
    assert f'pod-group-total-count of its pods must be the number of pods, not "{text}"' in world.obstacle(each)
    assert len(world.requests.log) == 1


async def test_an_orphan() -> None:
    """A PodGroup whose owner was deleted without its pods is deleted."""
    world = World({"kind": "Job"})
    each = of_job("a")
    world.rig.add(each)
    async with world.running():
        await world.settle()
        world.own("jobs", {"parallelism": 3})
        await world.settle()
        world.rig.scheduler.feed.pod_updated(each, pod("a"))
        await world.settle()
        body = world.requests.objects[world.key(each)]
        meta = {name: value for name, value in body["metadata"].items() if name != "ownerReferences"}
        world.groups.seen(PodGroup, {**body, "metadata": {**meta, "resourceVersion": "99"}})
        await world.settle(12.0)
    assert world.requests.log[-1][0] == "delete"
    assert len(world.rig.queue.gangs) == 0
