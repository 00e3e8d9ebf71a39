"""Tests of the operator's status: the place of every pod, and the text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import msgspec
import pytest
import yaml
from bayplan.introspection.cache_debugger import dump
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.introspection.status_model import ExtenderState, InformerState, Status
from bayplan.introspection.status_rendering import RENDERERS, read_status
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from msgspec.structs import replace

from scheduler_core.errors import Problem, ServerUnavailableError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult
from scheduler_core.framework.status import Code
from scheduler_core.framework.status import Status as Answer
from scheduler_core.in_tree import default_plugins
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gang_preemption import add_gang, running_pod, small_node
from tests.support.gangs import group, key, members, settle
from tests.support.presence import present
from tests.support.rebalance_plans import plan_object
from tests.support.scheduling import Rig, default_rig, gang_rig, plugin_set, profile, rig


class Patient(PermitPlugin):
    """Plugin that lets pods wait for two minutes if their name begins with ``waiting``."""

    name = "Patient"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Return WAIT for the pods of this test that wait."""
        del state, node_name
        return PermitResult(Answer(Code.WAIT), 120.0) if pod.key.startswith("default/waiting") else PermitResult()


@pytest.fixture
async def world() -> AsyncIterator[Rig]:
    """Yield a scheduler with a pod in each place of the queue."""
    made = default_rig(plugins=[Patient], serve=False)
    made.serve(profile(plugins=default_plugins().model_copy(update={"permit": plugin_set("Patient")})))
    made.add(node("a", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    made.add(pod("waiting", requests={"cpu": "1"}))
    attempt = present(made.decide())
    binding = asyncio.create_task(made.scheduler.cycles.binding.bind(attempt))
    made.add(pod("large", requests={"cpu": "100"}, priority=7))
    assert await made.attempt() == ""
    made.add(pod("gated", gates=("example.com/approval",)))
    made.add(pod("stranger", scheduler_name="nightly"))
    made.add(pod("next", requests={"cpu": "1"}), pod("another", requests={"cpu": "1"}))
    made.queue.nominator.nominate(made.context.cache.columns.compile_pod(pod("nominated")), "a")
    made.clock.advance(5)
    yield made
    binding.cancel()
    await asyncio.gather(binding, return_exceptions=True)


def status_of(made: Rig, limit: int = 0, extenders: tuple[ExtenderState, ...] = (), namespace: str = "") -> Status:
    """Return the status five seconds after the start of the process."""
    sources = StatusSources(made.scheduler, Readiness(()), extenders=lambda _: extenders)
    return operator_status(sources, made.clock.now() - 5, limit, namespace)


async def test_the_pods_of_one_namespace(world: Rig) -> None:
    """With a namespace, pods, places and nominations are those of it; profiles and nodes are the same."""
    world.add(pod("next", namespace="shop"), pod("gated", namespace="shop", gates=("example.com/approval",)))
    every, shop = status_of(world), status_of(world, namespace="shop")
    assert {entry.pod: entry.place for entry in shop.queue} == {"shop/next": "active", "shop/gated": "gated"}
    assert (shop.places, shop.parked, shop.waiting, shop.nominations) == ({"active": 1, "gated": 1}, {}, (), ())
    assert (shop.profiles, shop.cache.nodes) == (every.profiles, every.cache.nodes)
    assert {entry.pod for entry in every.queue} > {entry.pod for entry in shop.queue}
    assert "pods and gangs below are those of namespace shop" in " ".join(RENDERERS["table"](shop).split())


async def test_every_pod_has_its_place(world: Rig) -> None:
    """The status lists every pod with its place and what it waits for."""
    status = status_of(world)
    places = {entry.pod: entry.place for entry in status.queue}
    assert places == {
        "default/waiting": "inFlight",
        "default/large": "unschedulable",
        "default/gated": "gated",
        "default/stranger": "parked",
        "default/next": "active",
        "default/another": "active",
    }
    by_name = {entry.pod: entry for entry in status.queue}
    assert by_name["default/large"].rejected_by == ("NodeResourcesFit",)
    assert by_name["default/large"].seconds == 5.0
    assert by_name["default/gated"].gated_by == "SchedulingGates"
    assert status.parked == {"nightly": 1}
    assert status.uptime_seconds == 5.0


async def test_waiting_pods_and_nominations(world: Rig) -> None:
    """Waiting pods have their node, the plugins they wait for, and the remaining time."""
    status = status_of(world)
    (waiting,) = status.waiting
    assert (waiting.pod, waiting.node, waiting.plugins) == ("default/waiting", "a", {"Patient": 115.0})
    assert [(each.pod, each.node) for each in status.nominations] == [("default/nominated", "a")]
    assert [(each.pod, each.node) for each in status.cache.assumed] == [("default/waiting", "a")]
    (profile_state,) = status.profiles
    assert (profile_state.active, profile_state.unschedulable, profile_state.gated) == (2, 1, 1)
    assert (profile_state.in_flight, profile_state.rejected) == (1, 1)


async def test_a_process_with_a_profile_selector(world: Rig) -> None:
    """The status has the selector, and other pods are without a live profile only in this process."""
    sources = StatusSources(world.scheduler, Readiness(()), selector="tier=a")
    status = operator_status(sources, world.clock.now() - 5, 0)
    assert status.selector == "tier=a"
    text = RENDERERS["table"](status)
    assert "serves the profiles that match tier=a" in text
    assert "Pods without a live profile in this process  nightly (1)" in text
    assert "match" not in RENDERERS["table"](status_of(world))


async def test_the_limit_applies_to_each_place(world: Rig) -> None:
    """The limit applies to each place, and the text has the number of omitted pods."""
    status = status_of(world, limit=1)
    assert [entry.place for entry in status.queue].count("active") == 1
    assert "and 1 active more; --all shows them" in RENDERERS["table"](status)


async def test_the_table(world: Rig) -> None:
    """The table has one row for each pod, with the reason."""
    text = RENDERERS["table"](status_of(world, extenders=(ExtenderState("http://x", "Open", "refused"),)))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "Scheduling"
    assert lines[1].endswith("; 1 node, 1 pod, 1 of them assumed; 0 binding")
    assert "unschedulable default/large default-scheduler 7 5.0s 1 rejected by NodeResourcesFit" in lines
    assert "default/waiting a 5.0s Patient (115s)" in lines
    assert "Pods without a live profile nightly (1)" in lines
    assert "default-scheduler http://x Open refused" in lines


async def test_missing_resources_of_the_api_server(world: Rig) -> None:
    """The text names an unsupported API server and each resource that it does not serve."""
    status = status_of(world)
    assert "API server" not in RENDERERS["table"](status)
    lacking = replace(status, server=ServerSupport("v1.34.9", is_supported=False, missing=("pod groups: they wait",)))
    lines = RENDERERS["table"](lacking).splitlines()
    assert "API server: Kubernetes v1.34.9, Bayplan is tested with 1.37, 1.36, 1.35" in lines
    assert "API server: Kubernetes v1.34.9 does not have pod groups: they wait" in lines
    assert json.loads(RENDERERS["json"](lacking))["server"]["isSupported"] is False


async def test_group_versions_that_are_read(world: Rig) -> None:
    """The text names the PodGroup resources of other APIs with their versions."""
    versions = ("podgroups.scheduling.k8s.io/v1beta1", "compositepodgroups.scheduling.k8s.io/v1alpha3")
    reading = replace(status_of(world), server=ServerSupport("v1.37.1", group_versions=versions))
    assert f"Groups of other APIs that are read: {', '.join(versions)}" in " ".join(RENDERERS["table"](reading).split())
    assert json.loads(RENDERERS["json"](reading))["server"]["groupVersions"] == list(versions)


async def test_waiting_gangs() -> None:
    """Waiting gangs are listed by priority with their reason, and scheduled gangs are not."""
    made = gang_rig(small_node("a", 2), *members(2, "lost"))
    add_gang(made, *members(1, "whole"), of=group("whole", 1))
    add_gang(made, *members(3, "large", priority=5), of=group("large", 3))
    add_gang(made, *members(1, "lacking"), of=group("lacking", 2))
    await settle(made)
    made.clock.advance(70)
    status = status_of(made)
    assert status.waiting_gangs == 3
    assert [(gang.gang, gang.place, gang.needed, gang.waiting, gang.reason) for gang in status.gangs] == [
        ("default/large", "unschedulable", 3, 3, "Unschedulable"),
        ("default/lacking", "", 2, 1, "MembersMissing"),
        ("default/lost", "", 0, 2, "NoGroup"),
    ]
    lines = [" ".join(line.split()) for line in RENDERERS["table"](status_of(made, limit=1)).splitlines()]
    start = lines.index("Waiting gangs (3)")
    assert lines[start + 1] == "GANG PLACE PRIORITY NEEDED WAITING AGE RESERVED REASON MESSAGE"
    assert lines[start + 2].startswith(
        "default/large unschedulable 5 3 3 70s - Unschedulable 2 of the 3 members that must be placed together fit; "
    )
    assert lines[start + 3] == "and 2 more; --all shows them"


async def test_a_gang_with_an_invalid_group() -> None:
    """The reason of a gang with an invalid PodGroup is InvalidSpec, with the field in the message."""
    made = gang_rig(small_node("a", 2), *members(2, "held"))
    made.scheduler.group_feed.group_refused(key("held"), [Problem("spec.policy", "unknown")])
    await settle(made)
    (gang,) = status_of(made).gangs
    assert (gang.reason, gang.message) == ("InvalidSpec", "spec.policy: unknown")


async def test_the_reservation_of_a_gang() -> None:
    """The status of a gang has its reserved nodes."""
    made = gang_rig(small_node("a"), running_pod("v", "a"))
    add_gang(made, *members(2), of=group(min_member=2, is_strict=True))
    async with made.running():
        await made.scheduler.until_idle()
        made.clock.advance(61.0)
        await made.scheduler.until_idle()
    (gang,) = status_of(made).gangs
    assert gang.reservation == "a"


async def test_json_and_yaml_are_the_document(world: Rig) -> None:
    """JSON and YAML contain the same document, which decodes to the same status."""
    status = status_of(world)
    document = json.loads(RENDERERS["json"](status))
    assert document == yaml.safe_load(RENDERERS["yaml"](status))
    assert read_status(msgspec.json.encode(status)) == status
    assert document["places"]["active"] == 2


def test_another_response_is_an_error() -> None:
    """A response that is not a status is an error."""
    with pytest.raises(ServerUnavailableError, match="is --server a Bayplan of this version"):
        read_status(b"{}")


async def test_the_dump_has_a_line_for_each_node_and_pod(world: Rig) -> None:
    """The cache dump has a line for each node and pod."""
    lines = list(dump(world.context))
    amounts = "cpu 1000/4000, memory 0/8589934592, pods 1/10"
    assert f"node a: requested of allocatable {amounts}, nominated default/nominated" in lines
    assert "waiting pod default/waiting: node a, for Patient" in lines
    assert "queue unschedulable: pod default/large, attempts 1, rejected by NodeResourcesFit" in lines


def test_watches_that_a_user_may_not_read_are_one_line() -> None:
    """Each resource without permission is named once, and other failures of watches keep their lines."""
    message = (
        'WATCH /x: HTTP 403: forbidden: User "me" cannot watch resource "{}" in API group "{}" at the cluster scope'
    )
    errors = {
        "nodes": message.format("nodes", ""),
        "replicasets": message.format("replicasets", "apps"),
        "pods": "away",
    }
    made = rig(serve=False)
    missing = (f"{name} are being listed: {error}" for name, error in errors.items())
    informers = tuple(InformerState(name, 0, synced=False, last_error=error) for name, error in errors.items())
    shown = replace(status_of(made), missing=(*missing, "profiles are being read"), informers=informers)
    text = " ".join(RENDERERS["table"](shown).split())
    assert "Not ready: profiles are being read; nodes, replicasets, pods are being listed; the reasons follow" in text
    assert 'User "me" may not list and watch nodes, replicasets.apps. Grant both verbs in a ClusterRole' in text
    assert text.count("403") == 0
    assert text.count("Watch of pods: away") == 1


async def test_contested_nodes() -> None:
    """The last overcommitted node is first; the text shows the rival, its pods and the state now."""
    made = default_rig(options=SchedulerOptions(contested_node_seconds=10.0))
    made.context.contested.is_scheduling = True
    for name in ("a", "b"):
        made.add(node(name, allocatable={"cpu": "1", "pods": "10"}))
        for number in range(2):
            theirs = pod(f"{name}{number}", requests={"cpu": "1"}, node_name=name, scheduler_name="rival")
            made.add(theirs)
        made.clock.advance(20)
    made.scheduler.feed.pod_deleted(theirs)
    status = status_of(made)
    assert status.contested == 2
    last, first = status.contested_nodes
    assert (last.node, last.rivals, last.pods, last.count) == ("b", ("rival",), ("default/b1",), 1)
    assert (first.node, first.seconds, first.is_overcommitted, first.is_avoided) == ("a", 40.0, True, False)
    assert not last.is_overcommitted
    text = RENDERERS["table"](status)
    for words in ("Contested nodes (2)", "rival", "default/b1", "overcommitted"):
        assert words in text
    assert "and 1 more" in RENDERERS["table"](status_of(made, limit=1))
    assert status_of(made, namespace="other").contested_nodes[0].pods == ()


async def test_plans_of_moves(world: Rig) -> None:
    """The status has the plans by name, with progress, result and the first moves."""
    moves = [(f"default/p{number}", "a", "b", "Moved" if number < 2 else "Pending") for number in range(5)]
    condition = {
        "type": "Completed",
        "status": "False",
        "reason": "Moving",
        "message": "The moves are made: 1 node would be empty after 5 moves",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    plans = [plan_object("night", *moves, moved=2, conditions=[condition]), plan_object("day", phase="Planned")]
    sources = StatusSources(world.scheduler, Readiness(()), plans=lambda: plans)
    status = operator_status(sources, world.clock.now() - 5, 3)
    assert [(each.name, each.phase, each.moved, each.planned) for each in status.plans] == [
        ("day", "Planned", 0, 0),
        ("night", "Moving", 2, 5),
    ]
    night = status.plans[1]
    assert ([each.state for each in night.moves], night.omitted) == (["Moved", "Moved", "Pending"], 2)
    text = RENDERERS["table"](status)
    assert "Plans of moves" in text
    assert "2 of 5" in text
    assert "The moves are made: 1 node would be empty after 5 moves" in " ".join(text.split())
    assert "Plans of moves" not in RENDERERS["table"](status_of(world))
