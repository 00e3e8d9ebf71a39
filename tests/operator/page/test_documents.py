"""Tests of the documents of the page for a known cluster."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from bayplan.page.node_map import DeviceCounts, NodeMapDelta, NodeRows, NodesPanel, delta, read_node, whole
from bayplan.page.overview import OverviewPanel
from bayplan.page.pending_work import GangsPanel, PendingPanel
from bayplan.page.rates import RatesPanel, percentile
from bayplan.page.report_documents import WorkReader
from bayplan.page.resource_panels import CONFIGURATION, PlansPanel, ProfilesPanel
from bayplan.page.room import Room, RoomError, RoomQuery, RoomReader, read_room_query
from bayplan.profiles.profile_status import ProfileReading
from bayplan.profiles.revision_store import Origin, StoredRevision

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.taints import Toleration
from scheduler_core.snapshot.indexes.device_index import DeviceUse
from tests.support.affinities import anti_affinity_to, app, term
from tests.support.builders import node, pod
from tests.support.gangs import group, members, settle
from tests.support.page_world import PageWorld
from tests.support.presence import present
from tests.support.rebalance_plans import plan_object
from tests.support.storage import mounts
from tests.support.tables import table

ZONE = "topology.kubernetes.io/zone"
RACK = "example.com/rack"
GPU = "example.com/gpu"


@pytest.fixture
def world() -> PageWorld:
    """Return a cluster with three nodes in two zones, the last one cordoned."""
    made = PageWorld()
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    made.rig.add(
        node("b", allocatable=amounts, labels={ZONE: "east", RACK: "r2"}),
        node("a", allocatable={**amounts, GPU: "2"}, labels={ZONE: "west", RACK: "r1"}),
        node("c", allocatable=amounts, labels={ZONE: "east", RACK: "r2"}, unschedulable=True),
    )
    return made


def nodes_panel(world: PageWorld) -> NodesPanel:
    columns = world.rig.context.cache.columns
    return NodesPanel(world.sources, NodeRows(columns), DeviceCounts(columns.devices, world.clock))


async def test_pending_pods_are_grouped_by_cause(world: PageWorld) -> None:
    """Pending pods are grouped by cause, largest group first, with the remedy for the oldest pod."""
    world.add(*(pod(f"large-{number}", requests={"cpu": "9"}) for number in range(3)))
    world.add(pod("gpu", requests={GPU: "5"}), pod("gated", gates=("example.com/approval",)))
    await settle(world.rig)
    world.add(pod("stranger", scheduler_name="nightly"))
    found = await PendingPanel(world.sources).build(world.turns)
    assert (found.total, found.omitted) == (6, 0)
    causes = {group.cause: (group.place, group.count) for group in found.groups}
    assert causes == {
        "Insufficient cpu": ("unschedulable", 4),
        "waiting for scheduling gates: [example.com/approval]": ("gated", 1),
        'no profile serves schedulerName "nightly"': ("parked", 1),
    }
    helps = {group.place: group.helps for group in found.groups}
    assert helps["parked"] == "a SchedulerProfile that serves schedulerName nightly"
    first = found.groups[0]
    assert first.plugins == ("NodeResourcesFit", "NodeUnschedulable")
    assert first.nearest_miss.startswith("node a: needs ")
    assert first.helps
    assert first.command == f"bayplan explain -n default {first.examples[0].partition('/')[2]}"


async def test_causes_ignore_numbers_of_nodes(world: PageWorld) -> None:
    """The cause is that of the condition without the numbers of nodes."""
    for number in range(2):
        message = f"0/{3 + number} nodes are available: {3 + number} Insufficient cpu."
        condition = PodCondition("PodScheduled", "False", "Unschedulable", message)
        world.add(pod(f"large-{number}", requests={"cpu": "9"}, conditions=(condition,)))
    await settle(world.rig)
    found = await PendingPanel(world.sources).build(world.turns)
    assert [(group.cause, group.count) for group in found.groups] == [("Insufficient cpu", 2)]


def waiting(name: str, message: str, **fields: Any) -> Pod:
    """Return a pod with a condition that states why it waits."""
    condition = PodCondition("PodScheduled", "False", "Unschedulable", message)
    return pod(name, conditions=(condition,), **fields)


CPU_AND_TAINT = (
    "0/9 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s), 6 Insufficient {}."
)


@table(
    "waits, expected",
    (
        "room is missing, and other nodes are reserved",
        waiting("large", CPU_AND_TAINT.format("cpu"), requests={"cpu": "4"}),
        ("Insufficient cpu", "node(s) had untolerated taint(s), node(s) were unschedulable"),
    ),
    (
        "the nodes that have the resource are tainted",
        waiting("infer", CPU_AND_TAINT.format(GPU), requests={GPU: "1"}),
        ("node(s) had untolerated taint(s)", f"Insufficient {GPU}, node(s) were unschedulable"),
    ),
    (
        "a name is shown if only one pod waits for it",
        waiting("claims", '0/9 nodes are available: persistentvolumeclaim "nope" not found.', volumes=mounts("nope")),
        ('persistentvolumeclaim "nope" not found', ""),
    ),
)
async def test_the_decisive_cause(waits: Pod, expected: tuple[str, str]) -> None:
    """The cause is what the nearest node lacks; reasons that hold only on other nodes are apart."""
    world = PageWorld()
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    world.rig.add(
        node("full", allocatable=amounts),
        node("gpu", allocatable={**amounts, GPU: "2"}, taints=[f"{GPU}:NoSchedule"]),
        node("cordoned", allocatable={"cpu": "1", "memory": "8Gi", "pods": "10"}, unschedulable=True),
    )
    world.add(pod("busy", requests={"cpu": "3"}, node_name="full"), waits)
    await settle(world.rig)
    [group] = (await PendingPanel(world.sources).build(world.turns)).groups
    assert (group.cause, group.elsewhere) == expected
    if waits.spec.volumes:
        assert group.helps.startswith("claim default/nope created")


async def test_reasons_of_reserved_nodes_are_apart_before_the_dry_run(world: PageWorld) -> None:
    """Without a dry run, taints and cordons are decisive only if no other reason is stated."""
    world.add(waiting("large", CPU_AND_TAINT.format("cpu"), requests={"cpu": "9"}))
    await settle(world.rig)
    [group] = (await PendingPanel(world.sources, dry_runs=0).build(world.turns)).groups
    assert group.cause == "Insufficient cpu"
    assert group.elsewhere == "node(s) had untolerated taint(s), node(s) were unschedulable"


async def test_long_dry_runs_are_delayed_while_pods_wait(world: PageWorld) -> None:
    """While pods wait for an attempt, a long dry run is delayed by up to 30 s."""
    explained: list[str] = []

    def slow(namespace: str, name: str) -> None:
        del namespace
        explained.append(name)
        world.clock.advance(0.05)

    world.add(pod("large", requests={"cpu": "9"}))
    await settle(world.rig)
    panel = PendingPanel(dataclasses.replace(world.sources, explain_pod=slow))
    await panel.build(world.turns)
    await panel.build(world.turns)
    assert explained == ["large"]
    world.add(pod("next", requests={"cpu": "1"}))
    world.clock.advance(29.5)
    await panel.build(world.turns)
    assert explained == ["large"]
    world.clock.advance(1)
    await panel.build(world.turns)
    assert explained == ["large", "large"]


async def test_groups_beyond_the_limit_are_counted(world: PageWorld) -> None:
    world.add(*(pod(f"stranger-{number}", scheduler_name=f"s{number}") for number in range(5)))
    found = await PendingPanel(world.sources, shown=2).build(world.turns)
    assert (len(found.groups), found.omitted, found.total) == (2, 3, 5)


async def test_ages_do_not_change_a_document(world: PageWorld) -> None:
    """Documents that differ only in elapsed time are equal without ages."""
    world.add(pod("large", requests={"cpu": "9"}))
    await settle(world.rig)
    panel = PendingPanel(world.sources)
    before = await panel.build(world.turns)
    world.clock.advance(3)
    after = await panel.build(world.turns)
    assert before != after
    assert panel.without_ages(before) == panel.without_ages(after)


async def test_gangs_panel(world: PageWorld) -> None:
    """The document of a waiting gang has what it needs and what is missing."""
    world.rig.scheduler.group_feed.group_changed(group("train", 3))
    world.add(*members(2, "train"))
    await settle(world.rig)
    found = await GangsPanel(world.sources).build(world.turns)
    assert (found.total, found.omitted) == (1, 0)
    gang = found.gangs[0]
    assert (gang.gang, gang.min_member, gang.waiting, gang.missing) == ("default/train", 3, 2, 1)
    assert gang.command == "bayplan explain -n default podgroup/train"


async def test_attempts_of_a_gang_and_its_members(world: PageWorld) -> None:
    """Each attempt of a gang is in the history of the gang and of its members, newest first."""
    world.rig.scheduler.group_feed.group_changed(group("train", 2))
    world.add(*members(2, "train", requests={"cpu": "4"}))
    await settle(world.rig)
    assert len(world.history.of(next(iter(world.rig.queue.gangs)).key)) == 1
    world.rig.add(node("roomy", allocatable={"cpu": "16", "memory": "8Gi", "pods": "10"}))
    world.clock.advance(30)
    work = WorkReader(world.sources)
    found = present(work.gang("default", "train", None))
    assert found.kind == "gang"
    assert [each.result for each in found.attempts] == ["Scheduled"]
    member = present(work.pod("default", "train-0"))
    assert sorted(each.result for each in member.attempts) == ["Scheduled", "scheduled"]
    assert work.pod("default", "gone") is None
    assert work.gang("default", "gone", None) is None


async def test_attempts_of_a_pod(world: PageWorld) -> None:
    """The history of a pod has failed attempts with their message, and the bind with its node."""
    world.add(pod("large", requests={"cpu": "9"}))
    await settle(world.rig)
    world.clock.advance(30)
    world.rig.add(node("huge", allocatable={"cpu": "16", "memory": "8Gi", "pods": "10"}))
    world.clock.advance(30)
    await settle(world.rig)
    found = present(WorkReader(world.sources).pod("default", "large"))
    assert [(each.result, each.node, each.profile) for each in found.attempts] == [
        ("scheduled", "huge", "default-scheduler"),
        ("unschedulable", "", "default-scheduler"),
    ]
    assert found.attempts[1].message.startswith("0/3 nodes are available")
    assert found.attempts[1].seconds_ago > found.attempts[0].seconds_ago


async def test_node_map(world: PageWorld) -> None:
    """Nodes are sorted by name, and used shares are in permille."""
    panel = nodes_panel(world)
    found = whole(await panel.read(world.turns))
    assert found.names == ("a", "b", "c")
    zones = {(zone.name, rack.name): rack.nodes for zone in found.zones for rack in zone.racks}
    assert zones == {("east", "r2"): (1, 2), ("west", "r1"): (0,)}
    assert (found.unschedulable, found.not_ready, found.rack_label) == ((2,), (), RACK)
    assert found.used == {"cpu": [0, 0, 0], "memory": [0, 0, 0], GPU: [0, -1, -1], "pods": [0, 0, 0]}
    free = {each.resource: (each.free, each.largest_free, each.unusable_share) for each in found.fragmentation}
    assert free["cpu"] == (8000, 4000, None)


async def test_node_map_changes(world: PageWorld) -> None:
    """Only changed nodes are sent, and a node with another name makes a new version."""
    panel = nodes_panel(world)
    before = await panel.read(world.turns)
    assert delta(before, before) is None
    world.add(pod("one", requests={"cpu": "1"}, node_name="b"))
    after = await panel.read(world.turns)
    changes = delta(before, after)
    assert isinstance(changes, NodeMapDelta)
    assert (changes.version, changes.nodes) == (before.version, ((1, 1, [250, 0, -1, 100]),))
    world.rig.add(node("d", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    assert (await panel.read(world.turns)).version == before.version + 1


async def test_share_unusable_by_waiting_pods(world: PageWorld) -> None:
    """The free amount of a node on which no waiting pod fits is unusable."""
    world.add(pod("one", requests={"cpu": "3"}, node_name="b"), pod("large", requests={"cpu": "3", GPU: "3"}))
    await settle(world.rig)
    found = {each.resource: each for each in (await nodes_panel(world).read(world.turns)).fragmentation}
    assert found["cpu"].unusable_share == 1
    assert found["memory"].unusable_share is None


async def read_room(world: PageWorld, query: RoomQuery) -> Room:
    """Return the room, after the layout of the nodes was read."""
    rows = NodeRows(world.rig.context.cache.columns)
    await rows.update(world.turns)
    return RoomReader(world.sources, rows).read(query)


@pytest.mark.parametrize(
    ("query", "fits", "per_node", "domains"),
    [
        (RoomQuery({"cpu": 2000}, key=ZONE), 3, ((0, 2), (1, 1)), {"west": 2, "east": 1}),
        (RoomQuery({"cpu": 2000}, count=2, key=ZONE), 3, ((0, 2), (1, 1)), {"west": 2}),
        (RoomQuery({GPU: 1}), 2, ((0, 2),), {}),
        (RoomQuery({"example.com/unknown": 1}), 0, (), {}),
        (RoomQuery({"cpu": 1}), 19, ((0, 10), (1, 9)), {}),
    ],
    ids=["by zone", "all in one zone", "extended resource", "unknown resource", "bounded by pods"],
)
async def test_room(
    world: PageWorld, query: RoomQuery, fits: int, per_node: tuple[tuple[int, int], ...], domains: dict[str, int]
) -> None:
    """Cordoned nodes have no room, and the number of pods of a node is bounded."""
    world.add(pod("one", requests={"cpu": "1"}, node_name="b"))
    found = await read_room(world, query)
    assert (found.fits, found.nodes, found.per_node) == (fits, len(per_node), per_node)
    assert {each.name: each.fits for each in found.domains} == domains


async def test_room_honours_what_the_profile_filters_by(world: PageWorld) -> None:
    """A tainted node has room only for a pod that tolerates the taint; selectors of an existing pod count."""
    world.rig.add(node("d", allocatable={"cpu": "64", "memory": "8Gi", "pods": "10"}, taints=["x:NoSchedule"]))
    assert (await read_room(world, RoomQuery({"cpu": 4000}))).fits == 2
    tolerant = pod("tolerant", requests={"cpu": "4"}, tolerations=(Toleration("x", "Exists"),))
    world.add(tolerant, pod("eastern", requests={"cpu": "1"}, node_selector={ZONE: "east"}))
    assert (await read_room(world, RoomQuery({}, pod="default/tolerant"))).fits == 2 + 10
    found = await read_room(world, RoomQuery({}, pod="default/eastern"))
    assert (found.pod, found.fits, found.nodes) == ("default/eastern", 4, 1)
    assert dict(found.rejected)["node(s) didn't match Pod's node affinity/selector"] == 1


async def test_copies_are_dry_run_one_after_another(world: PageWorld) -> None:
    """Copies that must not share a zone fit once in each zone, whatever is free; nothing is changed."""
    labels = {"app": "web"}
    apart = anti_affinity_to(term(app("web"), ZONE))
    world.add(pod("web", requests={"cpu": "1"}, labels=labels, affinity=apart))
    before = world.rig.context.cache.columns.requested.copy()
    found = await read_room(world, RoomQuery({}, pod="default/web", count=3))
    assert found.copies is not None
    assert (found.copies.wanted, found.copies.fits, found.copies.nodes) == (3, 2, (("a", 1), ("b", 1)))
    assert "didn't match pod anti-affinity rules" in found.copies.message
    inside = await read_room(world, RoomQuery({"cpu": 2000}, count=3, key=ZONE))
    assert inside.copies is not None
    assert (inside.copies.domain, inside.copies.fits) == (f"{ZONE}=east", 2)
    assert (world.rig.context.cache.columns.requested == before).all()


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, resources: {requests: {cpu: 1500m}}}]
"""


async def test_room_for_a_manifest(world: PageWorld) -> None:
    """The pod template of a manifest is used."""
    found = await read_room(world, RoomQuery({}, manifest=MANIFEST))
    assert (found.pod, found.requests, found.fits) == ("shop/web", {"cpu": "1.5"}, 4)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (RoomQuery({}, pod="shop/gone"), "pod shop/gone not found"),
        (RoomQuery({"cpu": 1}, profile="none"), 'profile: no profile serves schedulerName "none"; live profiles: '),
        (RoomQuery({}, manifest="a: ["), "manifest: is not valid YAML"),
        (RoomQuery({}, manifest="a: 1\n---\nb: 2"), "manifest: must be one object"),
        (RoomQuery({}, manifest="kind: Service\nspec: {}"), "manifest: kind Service has no pod template"),
        (RoomQuery({}, manifest="kind: Pod\nspec: {containers: 5}"), "manifest: "),
        (RoomQuery({}, manifest="#" * 70_000), "manifest: must have at most 64 KiB"),
    ],
)
async def test_room_that_cannot_be_computed(world: PageWorld, query: RoomQuery, message: str) -> None:
    """The error names what to correct."""
    with pytest.raises(RoomError) as error:
        await read_room(world, query)
    assert str(error.value).startswith(message)


async def test_the_card_of_a_node(world: PageWorld) -> None:
    """The card has amounts, taints, labels and pods; there is none of an unknown node."""
    world.rig.add(node("t", taints=["x=y:NoSchedule"], allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    world.add(pod("low", requests={"cpu": "1"}, node_name="t"), pod("high", requests={}, node_name="t", priority=5))
    found = present(read_node(world.sources, "t", (DeviceUse("gpu.example.com", "t", devices=4, in_use=1),)))
    assert [(each.resource, each.used, each.allocatable, each.free) for each in found.amounts] == [
        ("pods", "2", "10", "8"),
        ("cpu", "1", "4", "3"),
        ("memory", "0", "8Gi", "8Gi"),
        ("devices of gpu.example.com", "1", "4", "3"),
    ]
    assert [(each.pod, each.requests) for each in found.pods] == [("default/high", ""), ("default/low", "1 cpu")]
    assert found.taints == ("x=y:NoSchedule",)
    assert read_node(world.sources, "gone", ()) is None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "requests: specify an amount above 0"),
        ({"requests": "cpu"}, 'requests: "cpu" is not RESOURCE=QUANTITY'),
        ({"requests": "cpu=x"}, 'requests: cpu: "x" is not a quantity'),
        ({"requests": "cpus=1"}, "requests: unknown resource cpus"),
        ({"requests": "cpu=0"}, "requests: specify an amount above 0"),
        ({"requests": "cpu=1", "count": "-1"}, "count: must be a number of pods"),
        ({"requests": "cpu=1", "count": "9" * 5000}, "requests, pod, profile, count, key have at most"),
        ({"requests": "cpu=1", "count": "9" * 9}, "count: must be a number of pods"),
        ({"pod": "web"}, 'pod: "web" is not NAMESPACE/NAME'),
        ({"pod": "a/b", "requests": "cpu=1"}, "specify either requests, or pod, or a manifest"),
        ({"requests": "cpu=1" + "," * 5000}, "requests, pod, profile, count, key have at most"),
    ],
)
def test_invalid_shapes(query: dict[str, str], message: str) -> None:
    """The error message names the parameter."""
    with pytest.raises(RoomError) as error:
        read_room_query(query)
    assert str(error.value).startswith(message)


def test_shape() -> None:
    """Amounts of a shape are in the scheduler's units."""
    query = {"requests": "cpu=1500m, memory=1Gi", "count": "8", "key": ZONE}
    assert read_room_query(query) == RoomQuery({"cpu": 1500, "memory": 1 << 30}, count=8, key=ZONE)


async def test_overview(world: PageWorld) -> None:
    """The overview counts pods by place and sums resources."""
    world.add(pod("one", requests={"cpu": "1"}, node_name="b"), pod("large", requests={"cpu": "9"}))
    await settle(world.rig)
    devices = DeviceCounts(world.rig.context.cache.columns.devices, world.clock)
    rates = RatesPanel(world.sources)
    panel = OverviewPanel(world.sources, GangsPanel(world.sources), rates, devices)
    found = await panel.build(world.turns)
    assert (found.nodes, found.pods, found.pending, found.places["unschedulable"]) == (3, 1, 1, 1)
    texts = {each.resource: each.text for each in found.utilisation}
    assert texts == {"pods": "1 / 30", "cpu": "1 / 12 cores", "memory": "0 / 24Gi", GPU: "0 / 2"}
    assert found.cluster.version == "v1.37.1"


async def test_sums_of_a_large_cluster(world: PageWorld) -> None:
    """Sums of the overview have thousands separators, as the other numbers of the page."""
    world.rig.add(node("large", allocatable={"cpu": "550000", "memory": "1280Gi", "pods": "2000"}))
    world.add(pod("one", requests={"cpu": "93500500m", "memory": "1100Gi"}, node_name="large"))
    devices = DeviceCounts(world.rig.context.cache.columns.devices, world.clock)
    panel = OverviewPanel(world.sources, GangsPanel(world.sources), RatesPanel(world.sources), devices)
    texts = {each.resource: each.text for each in (await panel.build(world.turns)).utilisation}
    assert texts["pods"] == "1 / 2,030"
    assert texts["cpu"] == "93,500.5 / 550,012 cores"
    assert texts["memory"] == "1,100Gi / 1,304Gi"


async def test_rates(world: PageWorld) -> None:
    """A point has the rates since the previous point, and the objectives cover all measurements."""
    panel = RatesPanel(world.sources, points=2)
    world.add(pod("one", requests={"cpu": "1"}), pod("large", requests={"cpu": "9"}))
    await settle(world.rig)
    for _ in range(3):
        world.clock.advance(5)
        panel.sample()
    found = await panel.build(world.turns)
    assert len(found.points) == 2
    assert [each.met for each in found.objectives] == [None, None]
    other = RatesPanel(world.sources)
    other.sample()
    document = await other.build(world.turns)
    _, bound, attempts, waiting, _, _ = document.points[0]
    assert (bound > 0, attempts > bound, waiting) == (True, True, 1)
    assert [each.met for each in document.objectives] == [True, True]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((0, 0, 0), None), ((100, 0, 0), 0.99), ((0, 100, 0), 1.99), ((0, 0, 5), 2.0), ((50, 50, 0), 1.98)],
)
def test_percentile(counts: tuple[int, ...], expected: float | None) -> None:
    """A percentile is interpolated within its bucket."""
    assert percentile((1.0, 2.0), counts, 0.99) == expected


def stored(number: int, seconds: int, manager: str = "kubectl-edit") -> StoredRevision:
    """Return a stored revision with a maximum backoff."""
    config = ProfileConfig(scheduler_name="pack", pod_max_backoff_seconds=seconds)
    origin = Origin(cause="faster" if number == 2 else "", manager=manager)
    return StoredRevision(
        f"pack-{number}", "", f"uid-{number}", number, None, "pack", "uid", config.revision(), config, origin
    )


async def test_revisions_of_a_profile() -> None:
    """A revision has the differences from the one before, who changed it, and the command that compares them."""
    new, old = stored(2, 20, "argocd"), stored(1, 10)
    world = PageWorld([ProfileReading("pack", "pack", new.hash, "", (), (new, old))])
    panel = ProfilesPanel(world.sources)
    [shown] = (await panel.build(world.turns)).profiles
    first, last = shown.revisions
    assert (first.number, first.live, first.cause, first.manager) == (2, True, "faster", "argocd")
    assert first.changes == ("podMaxBackoffSeconds: 10 → 20",)
    assert first.diff.startswith("--- revision 1")
    assert "-podMaxBackoffSeconds: 10\n+podMaxBackoffSeconds: 20\n" in first.diff
    assert first.command == "bayplan history pack --diff 1 2 --resolved"
    assert (last.changes, last.diff, last.command) == ((), "", "")
    assert await panel.build(world.turns) == await panel.build(world.turns)


async def test_profiles_of_a_file(world: PageWorld) -> None:
    """Profiles of a configuration file have no conditions and no revisions."""
    found = await ProfilesPanel(world.sources).build(world.turns)
    assert found.source == CONFIGURATION
    assert [(each.name, each.conditions, each.revisions) for each in found.profiles] == [("default-scheduler", (), ())]


async def test_without_plans() -> None:
    """A process that makes no plans has no panel."""
    world = PageWorld()
    assert not (await PlansPanel(world.sources).build(world.turns)).is_served


@table(
    "phase, nodes",
    ("moves that are not made", "Moving", [("a", 2, 1), ("b", 1, 2)]),
    ("a dry run", "Planned", [("a", 2, 1), ("b", 1, 2)]),
    ("a plan that has stopped", "Stopped", []),
)
async def test_nodes_before_and_after(phase: str, nodes: list[tuple[str, int, int]]) -> None:
    """A plan shows the pods of each node now, and after the moves that are not made yet."""
    world = PageWorld()
    world.rig.add(*(node(name, allocatable={"cpu": "9", "memory": "9Gi", "pods": "10"}) for name in "ab"))
    world.add(pod("p", node_name="a"), pod("q", node_name="a"), pod("moved", node_name="b"))
    plan = plan_object(
        "night",
        ("default/moved", "a", "b", "Moved"),
        ("default/p", "a", "b", "Pending"),
        phase=phase,
        moved=1,
        leftAlone=[{"reason": "it has local volumes", "count": 1, "pods": ["default/q"]}],
    )
    document = await PlansPanel(replace(world.sources, plans=lambda: [plan])).build(world.turns)
    (shown,) = document.plans
    assert document.is_served
    assert [(each.node, each.pods_before, each.pods_after) for each in shown.nodes] == nodes
    assert [(left.reason, left.pods) for left in shown.state.left_alone] == [("it has local volumes", ("default/q",))]
    assert shown.command == "kubectl get rebalanceplan night -o yaml"
