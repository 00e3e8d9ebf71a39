"""PodGroup statuses on a real API server, which must accept and store each field, of the APIs that have them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from bayplan.gangs.group_status import (
    GroupStatusWrite,
    GroupStatusWrites,
    SeenGroup,
    Urgency,
    group_status,
    status_difference,
)
from bayplan.gangs.group_status_controller import GroupController, GroupPace
from bayplan.gangs.group_translation import NATIVE_VERSIONS
from bayplan.kube.credentials import from_kubeconfig
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock
from bayplan.kube.writes.api_dispatcher import ApiDispatcher
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions

from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.schedulers import await_definitions
from scheduler_core.errors import ClusterWriteError, Problem
from scheduler_core.model.pod_group import NEWEST_VERSIONS, GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import GangOutcome
from scheduler_core.queueing.gang_registry import Gangs
from tests.support.group_scenarios import member
from tests.support.live_servers import module_plane

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
GROUPS = native_groups()
VERSIONS = {**NEWEST_VERSIONS, GroupSource.NATIVE: GROUPS.api_version.rpartition("/")[2]}
NAMESPACE = "default"
COUNT = {"type": "integer", "format": "int32"}
SCHEDULER_PLUGINS_STATUS = {
    "phase": {"type": "string"},
    "occupiedBy": {"type": "string"},
    "running": COUNT,
    "succeeded": COUNT,
    "failed": COUNT,
    "scheduleStartTime": {"type": "string", "format": "date-time"},
}
"""Status fields of scheduler-plugins v0.34.7, ``manifests/coscheduling/crd.yaml``."""
SPECS: dict[GroupSource, dict[str, Any]] = {
    GroupSource.BAYPLAN: {"minMember": 2},
    GroupSource.SCHEDULER_PLUGINS: {"minMember": 2},
    GroupSource.NATIVE: {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


def scheduler_plugins_definition() -> dict[str, Any]:
    """Return a definition with the status schema of scheduler-plugins."""
    group = GroupSource.SCHEDULER_PLUGINS.value
    properties = {
        "spec": {"type": "object", "properties": {"minMember": {**COUNT, "minimum": 1}}},
        "status": {"type": "object", "properties": SCHEDULER_PLUGINS_STATUS},
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
    approval = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": approval},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def serve_scheduler_plugins(plane: ControlPlane) -> None:
    plane.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(scheduler_plugins_definition()))
    await_definitions(plane)


plane = module_plane(serve_scheduler_plugins, options=GROUPS.options)
"""It serves PodGroups of all three APIs."""


class AnsweredStatuses(GroupStatusWrites):
    """Group status writes whose results are put into ``answers``."""

    def __init__(self, connection: ApiConnection, dispatcher: ApiDispatcher) -> None:
        super().__init__(connection, dispatcher)
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write."""

        def done(error: Exception | None) -> None:
            write.done(error)
            self.answers.put_nowait(error)

        super().write(replace(write, done=done))


def shown(plane: ControlPlane, key: GroupKey) -> dict[str, Any]:
    """Return the object from the API server."""
    read: dict[str, Any] = json.loads(
        plane.kubectl("get", f"podgroups.{VERSIONS[key.source]}.{key.source}", key.name, "-o", "json", "-n", NAMESPACE)
    )
    return read


def create(plane: ControlPlane, key: GroupKey) -> str:
    """Create an object and return its UID."""
    body = {
        "apiVersion": f"{key.source.value}/{VERSIONS[key.source]}",
        "kind": "PodGroup",
        "metadata": {"name": key.name, "namespace": NAMESPACE},
        "spec": SPECS[key.source],
    }
    plane.kubectl("create", "--filename=-", input=json.dumps(body))
    return str(shown(plane, key)["metadata"]["uid"])


@pytest.mark.parametrize("source", SPECS)
async def test_every_status_of_a_run(plane: ControlPlane, source: GroupSource) -> None:
    """Each status from pending to finished is accepted and read back without a difference; events are recorded."""
    key = GroupKey(source, NAMESPACE, "train")
    uid = create(plane, key)
    gangs = Gangs(CLOCK)
    gangs.serve(source)
    access = await from_kubeconfig(plane.kubeconfig)
    async with ApiConnection(access, ConnectionOptions(), CLOCK) as connection:
        writer = KubeWriter(connection, WriterOptions(), CLOCK)
        statuses = AnsweredStatuses(connection, writer.dispatcher)
        controller = GroupController(gangs, statuses, writer, CLOCK, pace=GroupPace(count_seconds=0.05))
        running = asyncio.create_task(controller.run())

        async def stored_status() -> dict[str, Any]:
            async with asyncio.timeout(60):
                assert await statuses.answers.get() is None
            status: dict[str, Any] = status_of(await asyncio.to_thread(shown, plane, key))
            seen = SeenGroup(key, 1, status, version=VERSIONS[source])
            wanted = group_status(seen, gang, datetime.now(UTC)).fields
            assert status_difference(source, status, wanted).urgency is Urgency.NEVER
            return status

        gang = gangs.group_changed(PodGroup(key, uid, 2, generation=1, version=VERSIONS[source]))
        controller.known(key, uid, 1, {}, version=VERSIONS[source])
        # kube-scheduler v1.37 writes that condition after attempts only, and never after it is True.
        is_only_of_attempts = source is GroupSource.NATIVE and NATIVE_VERSIONS[VERSIONS[source]].keeps_scheduled
        if not is_only_of_attempts:
            await stored_status()

        gang.first_attempt = gang.last_attempt = datetime.now(UTC)
        gang.outcome = GangOutcome("Unschedulable", "1 of 2 members fit, 1 lacks cpu.", fitting=1)
        gang.reservation, gang.victims = "zone=a", tuple(("other", f"v-{number}") for number in range(300))
        for name in ("a", "b"):
            gangs.saw(member(source, name))
        await stored_status()

        gang.reservation, gang.victims = "", ()
        for name in ("a", "b"):
            gangs.saw(member(source, name, node_name="n"))
        running_status = await stored_status()
        if source is GroupSource.BAYPLAN:
            assert (running_status["phase"], running_status["running"]) == ("Running", 2)
            assert not {"nominatedDomain", "victims"} & {name for name, value in running_status.items() if value}

        for name in ("a", "b"):
            gangs.saw(member(source, name, node_name="n", phase="Succeeded"))
        if not is_only_of_attempts:
            await stored_status()
        running.cancel()
        await writer.stop(60.0)
    listed = plane.kubectl("events", "-n", NAMESPACE, "-o", "json")
    regarding = {(event["involvedObject"].get("uid"), event["reason"]) for event in json.loads(listed)["items"]}
    assert {(uid, "FailedScheduling"), (uid, "Scheduled")} <= regarding


async def test_the_status_of_an_invalid_spec(plane: ControlPlane) -> None:
    """A status that only reports problems of the spec is accepted, without a gang in the queue."""
    key = GroupKey(GroupSource.BAYPLAN, NAMESPACE, "bad")
    uid = create(plane, key)
    access = await from_kubeconfig(plane.kubeconfig)
    async with ApiConnection(access, ConnectionOptions(), CLOCK) as connection:
        writer = KubeWriter(connection, WriterOptions(), CLOCK)
        statuses = AnsweredStatuses(connection, writer.dispatcher)
        controller = GroupController(Gangs(CLOCK), statuses, writer, CLOCK)
        running = asyncio.create_task(controller.run())
        controller.invalid(key, uid, 1, [Problem("spec.topology.key", "is no label key")])
        async with asyncio.timeout(60):
            assert await statuses.answers.get() is None
        running.cancel()
        await writer.stop(60.0)
    columns = plane.kubectl("get", "bpg", "bad", "-n", NAMESPACE)
    assert "InvalidSpec" in columns
    assert "Pending" in columns


async def test_the_native_api_refuses_another_uid(plane: ControlPlane) -> None:
    """A write for an earlier object of the same name is rejected by its UID."""
    key = GroupKey(GroupSource.NATIVE, NAMESPACE, "again")
    create(plane, key)
    access = await from_kubeconfig(plane.kubeconfig)
    async with ApiConnection(access, ConnectionOptions(), CLOCK) as connection:
        writer = KubeWriter(connection, WriterOptions(), CLOCK)
        statuses = AnsweredStatuses(connection, writer.dispatcher)
        statuses.write(
            GroupStatusWrite(key, "another", lambda: {"conditions": []}, lambda _: None, VERSIONS[key.source])
        )
        async with asyncio.timeout(60):
            error = await statuses.answers.get()
        await writer.stop(60.0)
    assert isinstance(error, ClusterWriteError)
