"""Tests of the operator's own metrics, and of those of a real scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import ElectionOptions, LeaderElection, WriteFence
from bayplan.kube.watches.cluster_informers import PodArrivals
from bayplan.kube.watches.informer import Informer, Resource
from bayplan.resources.conditions import ConditionState
from bayplan.serving.bayplan_metrics import OperatorSources, metrics_registry, operator_metrics
from prometheus_client import CollectorRegistry

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, PodSpec
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.fake_api import FakeApi, IgnoringSink
from tests.support.gangs import group, members
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import DEFAULT_NAME, Rig, gang_rig, rig
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

CONDITIONS = (
    ConditionState("schedulerprofiles", "batch", "Ready", "True"),
    ConditionState("pluginconfigs", "pack", "Valid", "False"),
)
RECONCILES: Mapping[tuple[str, str], int] = {("schedulerprofiles", "success"): 3, ("statuses", "error"): 2}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def registry_of(clock: VirtualClock, election: LeaderElection | None = None) -> CollectorRegistry:
    registry = CollectorRegistry()
    sources = OperatorSources(election, clock, lambda: RECONCILES, lambda: CONDITIONS, PodArrivals(clock, lambda: True))
    registry.register(operator_metrics(sources))
    return registry


@pytest.fixture
async def election(clock: VirtualClock) -> AsyncIterator[LeaderElection]:
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), clock) as connection:
        options = ElectionOptions("ops", "bayplan")
        yield LeaderElection(connection, options, clock, WriteFence(clock, options.lease))


@table(
    "name, labels, value",
    ("leader without election", "bayplan_leader", {"lease": ""}, 1),
    ("no master status without election", "leader_election_master_status", {"name": ""}, None),
    ("successful reconciles", "bayplan_reconciles_total", {"resource": "schedulerprofiles", "result": "success"}, 3),
    ("failed writes", "bayplan_reconciles_total", {"resource": "statuses", "result": "error"}, 2),
    ("condition status", "bayplan_profile_condition", {"profile": "batch", "type": "Ready", "status": "True"}, 1),
    ("other status", "bayplan_profile_condition", {"profile": "batch", "type": "Ready", "status": "False"}, 0),
    (
        "plugin config condition",
        "bayplan_plugin_config_condition",
        {"plugin_config": "pack", "type": "Valid", "status": "False"},
        1,
    ),
)
def test_values_of_the_sources(clock: VirtualClock, name: str, labels: dict[str, str], value: float | None) -> None:
    """The metrics have the values of their sources."""
    assert registry_of(clock).get_sample_value(name, labels) == value


async def test_a_standby_has_no_leader_status(clock: VirtualClock, election: LeaderElection) -> None:
    """The leader metrics of a standby are 0, Bayplan's and component-base's."""
    registry = registry_of(clock, election)
    assert registry.get_sample_value("bayplan_leader", {"lease": "ops/bayplan"}) == 0
    assert registry.get_sample_value("leader_election_master_status", {"name": "bayplan"}) == 0
    assert registry.get_sample_value("bayplan_leader_transitions_total", {"lease": "ops/bayplan"}) == 0


def test_arrival_latency_of_pending_pods(clock: VirtualClock) -> None:
    """The arrival latency covers pending pods, but not bound pods or pods of the first list."""
    is_listed, added = asyncio.Event(), list[str]()
    arrivals = PodArrivals(clock, is_listed.is_set)
    add = arrivals.counting(lambda pod: added.append(pod.metadata.name))

    def pod(name: str, age: float, node_name: str = "") -> Pod:
        created = clock.wall() - timedelta(seconds=age)
        return Pod(ObjectMeta(name=name, creation_timestamp=created), PodSpec(node_name=node_name))

    add(pod("listed", 100))
    is_listed.set()
    add(pod("new", 3))
    add(pod("from the future", -5))
    add(pod("bound", 50, "n1"))
    add(Pod(ObjectMeta(name="without time")))
    assert added == ["listed", "new", "from the future", "bound", "without time"]
    assert (arrivals.seconds.count, arrivals.seconds.total) == (2, 3.0)


async def test_gang_wait_is_observed() -> None:
    """The wait of a gang starts with its quorum and ends when the gang is scheduled."""
    made = gang_rig()
    made.scheduler.group_feed.group_changed(group(min_member=3))
    made.add(*members(3))
    waits = made.context.metrics.profiles[DEFAULT_NAME].gang_waits
    async with made.running():
        await made.until(lambda: any(made.context.metrics.profiles[DEFAULT_NAME].groups["unschedulable"].counts))
        made.clock.advance(40.0)
        made.add(node("a"))
        await made.until(lambda: bool(waits.count))
    registry = metrics_registry(made.scheduler, {})
    assert registry.get_sample_value("bayplan_gang_wait_seconds_count", {"profile": DEFAULT_NAME}) == 1
    assert 40.0 <= waits.total < 80.0


def test_contested_nodes_are_counted_by_rival() -> None:
    """The gauge has the nodes of the last ten minutes, the counter the pods since the start."""
    made = rig()
    made.context.contested.is_scheduling = True
    for name in ("a", "b"):
        made.add(node(name, allocatable={"cpu": "1", "pods": "10"}))
        for number in range(3):
            made.add(pod(f"{name}{number}", requests={"cpu": "1"}, node_name=name, scheduler_name="rival"))
    registry = metrics_registry(made.scheduler, {})
    assert registry.get_sample_value("bayplan_contested_nodes", {"rival": "rival"}) == 2
    assert registry.get_sample_value("bayplan_rival_overcommits_total", {"rival": "rival"}) == 4
    made.clock.advance(600)
    assert registry.get_sample_value("bayplan_contested_nodes", {"rival": "rival"}) == 0
    assert registry.get_sample_value("bayplan_rival_overcommits_total", {"rival": "rival"}) == 4


@pytest.fixture
async def scheduler() -> Scheduler:
    scheduler = Scheduler(VirtualClock(), RecordingWriter())
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="batch"))])
    scheduler.feed.node_added(node("n1"))
    scheduler.feed.pod_added(pod("bound", node_name="n1", scheduler_name="batch"))
    scheduler.feed.pod_added(pod("pending", scheduler_name="batch"))
    scheduler.feed.pod_added(pod("gated", scheduler_name="batch", gates=["g"]))
    scheduler.feed.pod_added(pod("parked", scheduler_name="none"))
    record = scheduler.context.metrics.records["batch"]
    record.scheduled, record.unschedulable, record.errors = 3, 2, 1
    record.lost_binds = 4
    scheduler.context.metrics.profiles["batch"].reuse_errors["Unstable"] = 5
    scheduler.context.metrics.internal_errors = 6
    return scheduler


@table(
    "name, labels, value",
    ("active", "scheduler_pending_pods", {"queue": "active"}, 1),
    ("gated", "scheduler_pending_pods", {"queue": "gated"}, 1),
    ("unschedulable", "scheduler_pending_pods", {"queue": "unschedulable"}, 0),
    ("scheduled", "scheduler_schedule_attempts_total", {"profile": "batch", "result": "scheduled"}, 3),
    ("error", "scheduler_schedule_attempts_total", {"profile": "batch", "result": "error"}, 1),
    ("rejected", "scheduler_schedule_attempts_total", {"profile": "batch", "result": "unschedulable"}, 2),
    ("nodes", "scheduler_cache_size", {"type": "nodes"}, 1),
    ("pods", "scheduler_cache_size", {"type": "pods"}, 1),
    ("assumed", "scheduler_cache_size", {"type": "assumed_pods"}, 0),
    ("parked", "bayplan_parked_pods", {}, 1),
    ("lost", "bayplan_binds_lost_total", {"profile": "batch"}, 4),
    ("reuse", "bayplan_reuse_errors_total", {"profile": "batch", "plugin": "Unstable"}, 5),
    ("internal", "bayplan_internal_errors_total", {}, 6),
)
def test_scheduler_metrics(scheduler: Scheduler, name: str, labels: dict[str, str], value: float) -> None:
    """Each scrape returns the current values."""
    assert metrics_registry(scheduler, {}).get_sample_value(name, labels) == value


def test_live_revisions(scheduler: Scheduler) -> None:
    """The revision metric has the live revision as label and no longer reports the previous one."""
    registry = metrics_registry(scheduler, {})
    first = {"profile": "batch", "revision": revision(scheduler)}
    assert registry.get_sample_value("bayplan_profile_revision_info", first) == 1
    config = ProfileConfig(scheduler_name="batch", percentage_of_nodes_to_score=50)
    scheduler.activate([scheduler.build(config)])
    assert registry.get_sample_value("bayplan_profile_revision_info", first) is None
    second = {"profile": "batch", "revision": revision(scheduler)}
    assert registry.get_sample_value("bayplan_profile_revision_info", second) == 1


async def test_informer_metrics(scheduler: Scheduler) -> None:
    """The metrics of an informer have its resource as label."""
    clock = VirtualClock()
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), clock) as connection:
        informer: Informer[Pod] = Informer(connection, Resource("/api/v1/pods"), Pod, IgnoringSink(), clock)
        informer.events, informer.relists = 7, 2
        registry = metrics_registry(scheduler, {"pods": informer})
        assert sample(registry, "bayplan_informer_events_total") == 7
        assert sample(registry, "bayplan_informer_relists_total") == 2
        assert sample(registry, "bayplan_informer_synced") == 0


def sample(registry: CollectorRegistry, name: str) -> float | None:
    return registry.get_sample_value(name, {"resource": "pods"})


def revision(scheduler: Scheduler) -> str:
    instance = present(scheduler.context.profiles.get("batch"))
    return instance.revision


ATTEMPTS = "scheduler_podgroup_schedule_attempts_total"
DURATION = "scheduler_podgroup_scheduling_attempt_duration_seconds"
ALGORITHM = "scheduler_podgroup_scheduling_algorithm_duration_seconds"


def rig_with_gang(size: int, *, priority: int = 0, running: int = 0) -> Rig:
    """Return a scheduler with a node of 4 CPUs, running pods of one CPU, and a gang of such pods."""
    made = gang_rig(
        node("a"), *(pod(f"old-{number}", requests={"cpu": "1"}, node_name="a") for number in range(running))
    )
    made.scheduler.group_feed.group_changed(group(min_member=size))
    made.add(*members(size, priority=priority))
    return made


@table(
    "size, priority, running, result",
    ("scheduled", 3, 0, 0, "scheduled"),
    ("too large", 5, 0, 0, "unschedulable"),
    ("preemption", 4, 10, 2, "waiting_on_preemption"),
)
async def test_attempts_are_counted_by_result(size: int, priority: int, running: int, result: str) -> None:
    """An attempt is counted by its result and observed in both histograms."""
    made = rig_with_gang(size, priority=priority, running=running)
    async with made.running():
        await made.until(lambda: any(made.context.metrics.profiles[DEFAULT_NAME].groups[result].counts))
    registry = metrics_registry(made.scheduler, {})
    labels = {"result": result, "profile": DEFAULT_NAME}
    assert registry.get_sample_value(ATTEMPTS, labels) == 1
    assert registry.get_sample_value(f"{DURATION}_count", labels) == 1
    assert registry.get_sample_value(f"{ALGORITHM}_count") == 1


def test_buckets_are_those_of_the_reference() -> None:
    """The buckets are kube-scheduler's: 1 ms, doubled fourteen times."""
    registry = metrics_registry(rig_with_gang(1).scheduler, {})
    bounds = [f"{2**power / 1000:g}" for power in range(15)]
    assert [registry.get_sample_value(f"{ALGORITHM}_bucket", {"le": bound}) for bound in bounds] == [0.0] * 15
