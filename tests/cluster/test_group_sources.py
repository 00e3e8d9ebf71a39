"""PodGroups of all three APIs reach the core's gangs from a real API server that serves the native ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from bayplan.gangs.group_sources import GroupSources
from bayplan.kube.credentials import from_kubeconfig
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock
from bayplan.kube.watches.cluster_informers import ClusterInformers
from bayplan.profiles.desired_profiles import ProfileOwnership
from bayplan.profiles.profile_sources import CustomResourceProfiles, ResourcePorts
from bayplan.settings.operator_settings import load_settings

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.schedulers import await_definitions
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler
from tests.support.background import connections_to, running, until
from tests.support.live_servers import SCHEDULER_PLUGINS_GROUPS, module_plane
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

pytestmark = pytest.mark.cluster
GROUPS = native_groups()
Manifest = dict[str, Any]

plane = module_plane(options=GROUPS.options)
"""The session's has neither the feature gates nor scheduler-plugins' definition."""


@pytest.fixture
def plane_without_plugins(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Return the same control plane; scheduler-plugins' definition is deleted at the end."""
    yield plane
    plane.kubectl("delete", "--ignore-not-found", f"--filename={SCHEDULER_PLUGINS_GROUPS}")


class World:
    """The parts of the operator that read groups, run in the test's event loop."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._stack = AsyncExitStack()
        self.clock = VirtualClock()

    async def __aenter__(self) -> Self:
        real = SystemClock()
        access = await from_kubeconfig(self._plane.kubeconfig)
        connection = ApiConnection(access, ConnectionOptions(), real)
        self.scheduler = Scheduler(real, RecordingWriter())
        self.informers = ClusterInformers(connection, self.scheduler, real)
        self.sources = GroupSources(self.scheduler, self.informers, connection, self.clock)
        ports = ResourcePorts(connection, access, self.sources.bayplan, real, ProfileOwnership(None))
        self._resources = CustomResourceProfiles(self.scheduler, ports, load_settings({}))
        await self.list_resources()
        works = [*(informer.run() for _, informer in self.informers), *self.sources.watches().values()]
        await self._stack.enter_async_context(running(*works))
        # Closes before the watches are cancelled: cancelled watches leave sockets whose TLS shutdown is never awaited.
        await self._stack.enter_async_context(connection)
        async with asyncio.timeout(60):
            await self.informers.synced.wait()
            await self.sources.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        # A TLS shutdown needs an answer of the API server; a socket that is open when the loop ends fails a later test.
        port = urlsplit(self._plane.url).port or 0
        await until(lambda: connections_to(port) == 0)

    async def list_resources(self) -> None:
        """List custom resources, as the operator does before its first cycle and periodically."""
        # kopf's own watch is tested with the operator as a process: it does not close all its sockets.
        await self._resources.read()

    def group(self, source: GroupSource, name: str) -> PodGroup | None:
        """Return the group that the core uses."""
        gang = self.scheduler.context.queue.gangs.get(GroupKey(source, "default", name))
        return None if gang is None else gang.group

    def is_read(self, source: GroupSource) -> bool:
        return self.scheduler.context.queue.gangs.unread(source) is None

    def members(self, source: GroupSource, name: str) -> int:
        gang = self.scheduler.context.queue.gangs.get(GroupKey(source, "default", name))
        return 0 if gang is None else len(gang.pods)

    async def apply(self, *manifests: Manifest) -> None:
        """Apply objects with administrator rights."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        await asyncio.to_thread(self._plane.kubectl, "apply", "--filename=-", input=text)

    async def kubectl(self, *args: str) -> None:
        await asyncio.to_thread(self._plane.kubectl, *args)


def group(api: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def priority_class(name: str, value: int) -> Manifest:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def create(plane: ControlPlane, manifest: Manifest) -> None:
    """Create an object and wait until admission uses it if it is a PriorityClass."""
    with ApiClient(plane) as api:
        api.create(manifest)


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    container = {"name": "c", "image": "i"}
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


async def test_bayplan_groups(plane: ControlPlane) -> None:
    """A group created before the start is read before the first cycle; edits, classes and deletions follow."""
    source, api = GroupSource.BAYPLAN, "bayplan.dev/v1alpha1"
    spec = {"minMember": 2, "priorityClassName": "own-high", "topology": {"key": "zone", "levels": ["rack"]}}
    plane.kubectl("apply", "--filename=-", input=json.dumps(group(api, "own", spec)))
    async with World(plane) as world:
        found = present(world.group(source, "own"))
        assert (found.min_member, found.priority) == (2, None)
        assert found.topology is not None
        assert found.topology.levels == ("rack",)
        await world.apply(
            priority_class("own-high", 1000),
            group(api, "own", {**spec, "minMember": 3}),
            pod("own-a", {"bayplan.dev/pod-group": "own"}),
        )
        await world.list_resources()
        now = present(world.group(source, "own"))
        assert now.min_member == 3
        await until(lambda: (now := world.group(source, "own")) is not None and now.priority == 1000)
        await until(lambda: world.members(source, "own") == 1)
        await world.kubectl("delete", "podgroups.bayplan.dev/own")
        await world.list_resources()
        assert world.group(source, "own") is None


async def test_scheduler_plugins_definition_is_created_after_the_start(plane_without_plugins: ControlPlane) -> None:
    """The operator starts without the definition, and reads its groups and labels once it is created."""
    source = GroupSource.SCHEDULER_PLUGINS
    async with World(plane_without_plugins) as world:
        assert not world.is_read(source)
        await world.apply(pod("late-a", {"scheduling.x-k8s.io/pod-group": "late"}))
        await world.kubectl("apply", f"--filename={SCHEDULER_PLUGINS_GROUPS}")
        await asyncio.to_thread(await_definitions, plane_without_plugins)
        spec = {"minMember": 4, "minResources": {"cpu": "1500m", "memory": "1Gi"}, "scheduleTimeoutSeconds": 30}
        await world.apply(group("scheduling.x-k8s.io/v1alpha1", "late", spec))
        world.clock.advance(30)
        await until(lambda: world.group(source, "late") is not None)
        found = present(world.group(source, "late"))
        assert (found.min_member, found.schedule_timeout_seconds) == (4, 30)
        assert found.min_resources == {"cpu": 1500, "memory": 1 << 30}
        await until(lambda: world.members(source, "late") == 1)


async def test_native_groups(plane: ControlPlane) -> None:
    """With the feature gates on, native groups are read with every field that the core uses."""
    source, api = GroupSource.NATIVE, GROUPS.api_version
    async with World(plane) as world:
        assert world.is_read(source)
        gang = {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
            "disruptionMode": {"all": {}} if api.endswith("v1beta1") else "PodGroup",
            "priorityClassName": "native-high",
        }
        await asyncio.to_thread(create, plane, priority_class("native-high", 5000))
        await world.apply(
            group(api, "native", gang),
            group(api, "plain", {"schedulingPolicy": {"basic": {}}}),
            pod("native-a", schedulingGroup={"podGroupName": "native"}),
        )
        await until(lambda: world.group(source, "native") is not None)
        await until(lambda: world.group(source, "plain") is not None)
        found, plain = world.group(source, "native"), world.group(source, "plain")
        assert found is not None
        assert plain is not None
        assert found.topology is not None
        assert (found.min_member, found.topology.key, found.disrupts_whole) == (3, "example.com/rack", True)
        assert found.priority == 5000
        assert (plain.min_member, plain.disrupts_whole) == (1, False)
        await until(lambda: world.members(source, "native") == 1)
