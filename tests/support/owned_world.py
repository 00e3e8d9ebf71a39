"""The controller of PodGroups by owner and the scheduler, with requests against objects in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Unpack

import msgspec
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.gangs.owner_groups import OwnerGroups, OwnersOfKind
from bayplan.gangs.owner_sizes import OWNER_TYPES
from bayplan.resources.pod_group import PodGroup

from scheduler_core.config.gang_owners import GangSettings, OwnerRule, owner_instance
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from tests.support.builders import PodFields, pod
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig


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


class OwnedWorld:
    """Scheduler, controller and what the watches of owners deliver."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.settings = validate(GangSettings, {"fromOwners": list(rows)})
        self.rig: Rig = default_rig(serve=False)
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
        """Run the controller inside the block, which begins when the controller has handled the pods."""
        task = asyncio.get_running_loop().create_task(self.controller.run())
        try:
            await self.settle()
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

    async def own(self, plural: str, spec: dict[str, Any], **of_owner: Any) -> None:
        """Deliver an owner, and let the controller handle it."""
        self.deliver(plural, spec, **of_owner)
        await self.settle()

    def deliver(self, plural: str, spec: dict[str, Any], name: str = "train", uid: str = "u1", **meta: Any) -> None:
        """Deliver an owner."""
        rule = next(rule for rule in self.settings.rules if rule.plural == plural)
        body = {"metadata": {"name": name, "namespace": "default", "uid": uid, **meta}, "spec": spec}
        self.owners[plural].sink.on_add(msgspec.convert(body, OWNER_TYPES[rule.sizing]))

    def key(self, each: Pod) -> GroupKey:
        """Return the key of the PodGroup of a pod."""
        found = present(owner_instance(each, self.settings.rules))
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


def of_job(name: str, job_uid: str = "u1", job: str = "train", **fields: Unpack[PodFields]) -> Pod:
    """Return a pod of a Job."""
    fields["owners"] = [OwnerReference("Job", job, job_uid, "batch/v1", controller=True)]
    return pod(name, **fields)
