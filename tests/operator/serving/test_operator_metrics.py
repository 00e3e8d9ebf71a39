"""Tests of the operator's own metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import ElectionOptions, LeaderElection, WriteFence
from bayplan.kube.watches.cluster_informers import PodArrivals
from bayplan.resources.conditions import ConditionState
from bayplan.serving.bayplan_metrics import OperatorSources, metrics_registry, operator_metrics
from prometheus_client import CollectorRegistry

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, PodSpec
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.fake_api import FakeApi
from tests.support.gangs import group, members
from tests.support.scheduling import DEFAULT_NAME, rig
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
    made = rig(defaults=default_plugins(), groups=[GroupSource.BAYPLAN])
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
