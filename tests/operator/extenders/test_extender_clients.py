"""Tests of ExtenderClients: stored objects, reported states, and closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bayplan.extenders.extender_clients import ClusterObjects, ExtenderClients
from bayplan.extenders.http_extender import (
    CircuitOptions,
    CircuitState,
    ExtenderReading,
    extender_states,
    extenders_skipped_notice,
)
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.watches.informer import Informer, Resource
from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.recording import RecordDirectory
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.serving.bayplan_metrics import extender_metrics
from prometheus_client import CollectorRegistry

from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.errors import ConfigError, ExtenderError
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.record_assembly import header_of, recorded_scheduler
from scheduler_core.recording.recorded_ports import RecordedPort
from scheduler_core.recording.recorder import Recorder
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from tests.support.builders import node, pod
from tests.support.extender_server import ExtenderServer, passes_only
from tests.support.fake_api import FakeApi, IgnoringSink, Response
from tests.support.fake_cluster_objects import FakeRevisions, FakeStatuses
from tests.support.manifests import profile_manifest
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

POD = pod("p", scheduler_name="batch")


class World:
    """Scheduler with extenders, and informers that a test fills."""

    def __init__(self, api: FakeApi, connection: ApiConnection) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.pods: Informer[Pod] = Informer(connection, Resource("/pods"), Pod, IgnoringSink(), self.clock)
        self.nodes: Informer[Node] = Informer(connection, Resource("/nodes"), Node, IgnoringSink(), self.clock)
        self.objects = ClusterObjects(connection, self.nodes, self.pods)
        self.changed = asyncio.Event()
        options = CircuitOptions(failures=2, seed=1)
        self.clients = ExtenderClients(self.objects, self.clock, options, on_change=self.changed.set)
        ports = SchedulerPorts(make_extender=self.clients.make)
        self.scheduler = Scheduler(self.clock, RecordingWriter(), ports=ports)

    def build(self, *extenders: dict[str, Any]) -> FrameworkInstance:
        read = tuple(Extender.model_validate(extender) for extender in extenders)
        return self.scheduler.build(ProfileConfig(scheduler_name="batch", extenders=read))

    @property
    def are_stored(self) -> tuple[bool, bool]:
        """Return whether JSON of pods and of nodes is stored."""
        return self.pods._raw_handler is not None, self.nodes._raw_handler is not None


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), VirtualClock()) as connection:
        world = World(api, connection)
        yield world
        await world.clients.close()


def extender(url: str = "http://x", **fields: Any) -> dict[str, Any]:
    return {"urlPrefix": url, "filterVerb": "filter", **fields}


@table(
    "config, are_stored",
    ("nodes-are-sent", extender(), (True, True)),
    ("node-names-are-sent", extender(nodeCacheCapable=True), (True, False)),
    ("binds-only", {"urlPrefix": "http://x", "bindVerb": "bind"}, (True, False)),
    ("no-extender", None, (False, False)),
)
async def test_only_needed_objects_are_stored(
    world: World, config: dict[str, Any] | None, are_stored: tuple[bool, bool]
) -> None:
    """Objects are stored only while an instance has an extender that needs them."""
    instance = world.build(*([] if config is None else [config]))
    assert world.are_stored == are_stored
    instance.retire()
    await world.scheduler.stop(0)
    assert world.are_stored == (False, False)


@table(
    "candidate, preempts, stored",
    ("pending", pod(scheduler_name="batch"), False, True),
    ("pending-for-another-scheduler", pod(scheduler_name="other"), False, False),
    ("running", pod(scheduler_name="batch", node_name="n"), False, False),
    ("possible-victim", pod(scheduler_name="other", node_name="n"), True, True),
    ("terminated", pod(node_name="n", phase="Succeeded"), True, False),
)
async def test_only_needed_pods_are_stored(world: World, candidate: Pod, preempts: bool, stored: bool) -> None:
    """Pending pods of the profile are stored, and running pods only if the extender takes part in preemption."""
    world.build(extender(preemptVerb="preempt" if preempts else ""))
    assert world.objects.raw_pods._is_needed(candidate) is stored


async def test_bad_certificates_reject_the_profile(world: World) -> None:
    """A profile with an unreadable certificate is rejected, and nothing is stored for its other extenders."""
    bad = extender("https://y", tlsConfig={"caFile": "/nonexistent/ca.crt"})
    with pytest.raises(ConfigError, match=r"tlsConfig\.caFile: cannot be read") as caught:
        world.build(extender(), bad)
    assert caught.value.problems[0].path.startswith("extenders[1]")
    await world.scheduler.stop(0)
    assert world.are_stored == (False, False)


async def test_objects_are_found_in_the_informers(world: World) -> None:
    """Nodes are found by name, and pods by UID and node."""
    running = pod("r", uid="u", node_name="n")
    world.pods.known["default/r"] = running
    world.nodes.known["/n"] = node("n")
    assert (world.objects.has_node("n"), world.objects.has_node("m")) == (True, False)
    assert world.objects.pod_on("n", "u") is running
    assert world.objects.pod_on("m", "u") is None
    assert world.objects.pod_on("n", "v") is None


async def test_the_states_have_the_order_of_the_profile(world: World) -> None:
    """The states have the order of the extenders in the profile."""
    instance = world.build(extender("http://b", ignorable=True), extender("http://a"))
    assert [state.url_prefix for state in extender_states(instance)] == ["http://b", "http://a"]


async def test_the_states_are_shown_while_decisions_are_recorded(world: World, tmp_path: Path) -> None:
    """The states of extenders are reported while decisions are recorded."""
    ports = SchedulerPorts(make_extender=world.clients.make)
    options, registry = SchedulerOptions(), in_tree_registry()
    header = header_of(options, ports, registry, "1.0")
    directory = RecordDirectory(tmp_path, header, 1 << 20, 3600.0, lambda: datetime.now(UTC))
    recorder = Recorder(world.clock, directory)
    world.scheduler = recorded_scheduler(recorder, RecordingWriter(), options, registry, ports=ports)
    instance = world.build(extender("http://b"))
    assert isinstance(instance.extenders[0].client, RecordedPort)
    assert extender_states(instance) == (ExtenderReading("http://b", CircuitState.CLOSED, "", None),)
    directory.close()


async def _fail_calls(world: World, instance: FrameworkInstance, times: int) -> None:
    (runner,) = instance.extenders
    for _ in range(times):
        with pytest.raises(ExtenderError):
            await runner.client.filter(POD, ["n"])


def _serve_pod(world: World) -> None:
    metadata = {"name": "p", "namespace": "default", "uid": POD.metadata.uid}
    world.api.on("GET", "/api/v1/namespaces/default/pods/p", Response(body={"metadata": metadata}))


async def test_metrics_of_extenders(world: World) -> None:
    """The metrics have durations and errors by verb, and the state of the circuit."""
    registry = CollectorRegistry()
    registry.register(extender_metrics(world.clients))
    assert list(registry.collect()) == []
    _serve_pod(world)
    with ExtenderServer() as server:
        server.rules["filter"] = passes_only("n")
        instance = world.build(extender(server.url, nodeCacheCapable=True))
        (runner,) = instance.extenders
        await runner.client.filter(POD, ["n"])
        labels = {"extender": server.url, "verb": "filter"}
        value: Callable[..., float | None] = registry.get_sample_value
        assert value("bayplan_extender_errors_total", labels) == 0
        assert value("bayplan_extender_circuit_open", {"extender": server.url}) == 0
        del server.rules["filter"]
        await _fail_calls(world, instance, 2)
    assert value("bayplan_extender_request_duration_seconds_count", labels) == 3
    assert value("bayplan_extender_request_duration_seconds_bucket", {**labels, "le": "+Inf"}) == 3
    assert value("bayplan_extender_errors_total", labels) == 2
    assert value("bayplan_extender_circuit_open", {"extender": server.url}) == 1
    assert value("bayplan_extender_object_bytes", {"resource": "pods"}) == 0
    instance.retire()
    await world.scheduler.stop(0)
    assert value("bayplan_extender_circuit_open", {"extender": server.url}) is None
    assert value("bayplan_extender_errors_total", labels) == 2


async def test_an_open_circuit_is_reported_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An opened circuit is logged and reported in the profile's status at once; an error alone is not."""
    _serve_pod(world)
    statuses = FakeStatuses()
    controller = ProfileController(world.scheduler, ControllerPorts(FakeRevisions(), statuses, world.clock))
    with ExtenderServer() as server:
        spec = {"extenders": [extender(server.url, nodeCacheCapable=True)]}
        controller.seen(SchedulerProfile, profile_manifest("batch", spec))
        controller.reconcile()
        await controller.publish()
        assert statuses.profile("batch")["extenders"] == [{"urlPrefix": server.url, "state": "Closed"}]
        instance = present(world.scheduler.context.profiles.get("batch"))
        await _fail_calls(world, instance, 1)
        assert not world.changed.is_set()
        await _fail_calls(world, instance, 1)
        assert world.changed.is_set()
        await controller.publish()
    (entry,) = statuses.profile("batch")["extenders"]
    assert (entry["state"], entry["since"]) == ("Open", "2026-01-01T00:00:00Z")
    assert entry["lastError"] == f"failed filter with extender at URL {server.url}/filter, code 404"
    assert f"extender {server.url} of profile batch is not called until " in caplog.text


def test_the_notice_about_skipped_extenders() -> None:
    """The notice about skipped extenders names their URLs, and is empty without extenders."""
    read = Extender.model_validate(extender())
    assert (
        extenders_skipped_notice([read]) == "Extenders are not called here, unlike in the running operator: http://x."
    )
    assert extenders_skipped_notice([]) == ""
