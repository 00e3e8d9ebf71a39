"""Law: an autoscaler that reads only conditions and nominations buys what the pods need, and little more.

Two autoscalers, by the rules of their sources, add nodes of one template until no pod needs one. Both count pods
with PodScheduled=False, reason Unschedulable and no nominated node, and place them one by one in a simulation without
gangs: first on present and coming nodes, then on new ones.

- cluster-autoscaler counts nominated pods on their nominated nodes; Karpenter ignores them.

The law, for random clusters, gangs and pods:

- nodes that are bought are at most one more than the least number with which the scheduler places the same pods;
- no gang is ever scheduled in part;
- unless a pod or gang may use certain nodes only, at the end all pods are scheduled that the least number of nodes
  helps, and no pod is evicted if new nodes help all pods, because they come within the delay of preemption.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import PluginConfig, Plugins
from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.cycle import failure_handler as pod_failure_handler
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.gangs import failure_handler
from scheduler_core.model.node import HOSTNAME, Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gangs import group, member, settle
from tests.support.scheduling import DEFAULT_NAME, gang_rig, plugin_set
from tests.support.tables import table

ROUND_SECONDS = 15
NODE_SECONDS = 45
RESERVED_AFTER_SECONDS = 20
DELAY_SECONDS = 180
MOST_ROUNDS = 40
MOST_NODES = 16
"""One more than the largest shape needs: two gangs of six and three pods, each of the size of a new node."""
QUIET_ROUNDS = 14
"""Rounds without a request after which nothing more is expected: longer than the delay, backoffs and reports."""


@dataclass(frozen=True)
class Gang:
    """A gang of equal pods.

    Attributes:
        count: Members that exist; fewer than ``least`` cannot be scheduled.
        in_one_zone: Whether they must be in one zone.
        is_strict: Whether nodes are reserved for it when it has waited for a while.
        pinned: How many of them may only use node ``n0``, so that no new node helps these.
    """

    least: int
    count: int
    cpus: int
    priority: int
    in_one_zone: bool = False
    is_strict: bool = False
    pinned: int = 0


@dataclass(frozen=True)
class Shape:
    """A cluster and what waits in it.

    Attributes:
        nodes: CPUs of each present node; all are in zone ``a``.
        used: CPUs of each of these nodes that a pod of priority 0 uses.
        template: CPUs of a new node, in zone ``b``.
        gangs: Gangs, in the order of their creation.
        singles: CPUs and priorities of pods without a gang, and whether they may only use zone ``a``.
    """

    nodes: tuple[int, ...]
    used: tuple[int, ...]
    template: int
    gangs: tuple[Gang, ...]
    singles: tuple[tuple[int, int, bool], ...]

    def objects(self) -> tuple[list[Node], list[Pod], list[PodGroup], list[Pod]]:
        """Return the nodes, running pods, groups and waiting pods."""
        nodes = [_node(f"n{number}", cpus, "a") for number, cpus in enumerate(self.nodes)]
        running = [
            pod(f"v{number}", node_name=f"n{number}", requests={"cpu": str(cpus)}, priority=0)
            for number, cpus in enumerate(self.used)
            if cpus
        ]
        groups, waiting = list[PodGroup](), list[Pod]()
        for number, of in enumerate(self.gangs):
            name = f"g{number}"
            topology = GroupTopology("zone") if of.in_one_zone else None
            groups.append(group(name, of.least, topology=topology, is_strict=of.is_strict))
            waiting += (
                member(
                    f"{name}-{each}",
                    name,
                    requests={"cpu": str(of.cpus)},
                    priority=of.priority,
                    node_selector={HOSTNAME: "n0"} if each < of.pinned else {},
                )
                for each in range(of.count)
            )
        waiting += (
            pod(
                f"s{number}",
                requests={"cpu": str(cpus)},
                priority=priority,
                node_selector={"zone": "a"} if is_in_zone else {},
            )
            for number, (cpus, priority, is_in_zone) in enumerate(self.singles)
        )
        return nodes, running, groups, waiting


@dataclass
class Cluster:
    """The API server, as the autoscaler reads it, with the scheduler beside it."""

    shape: Shape
    delay: int = DELAY_SECONDS
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = SchedulerOptions(gang_reservation_seconds=RESERVED_AFTER_SECONDS)
        self.made = gang_rig(serve=False, options=options)
        strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
        self.made.serve(
            ProfileConfig(
                scheduler_name=DEFAULT_NAME,
                preemption=PreemptionSettings(delay_seconds=self.delay),
                # It packs as the simulation of an autoscaler: a spread gang leaves no node empty for a large pod.
                plugins=Plugins(score=plugin_set("NodeResourcesFit=100", disabled=["NodeResourcesBalancedAllocation"])),
                plugin_config=(PluginConfig(name="NodeResourcesFit", args={"scoringStrategy": strategy}),),
            )
        )
        nodes, running, groups, waiting = self.shape.objects()
        for node in nodes:
            self.add_node(node)
        for of in groups:
            self.made.scheduler.group_feed.group_changed(of)
        for each in (*running, *waiting):
            self.pods[each.metadata.name] = each
            self.made.add(each)

    def add_node(self, node: Node) -> None:
        self.nodes[node.metadata.name] = node
        self.made.add(node)

    def add_new_nodes(self, count: int) -> None:
        for _ in range(count):
            self.add_node(_node(f"new{len(self.nodes)}", self.shape.template, "b"))

    async def run(self, seconds: float) -> None:
        """Let time pass, and let the watches show what was written."""
        await settle(self.made, after=seconds)
        self._store()
        await settle(self.made)
        self._store()

    def _store(self) -> None:
        made = self.made
        patches, bindings, deletions = (
            list(made.writer.patches),
            list(made.writer.bindings),
            list(made.writer.deletions),
        )
        for written in (made.writer.patches, made.writer.bindings, made.writer.deletions):
            written.clear()
        for patch in patches:
            now = self.pods.get(patch.name)
            if now is None:
                continue
            status = now.status
            if patch.condition is not None:
                others = tuple(each for each in status.conditions if each.type != patch.condition.type)
                status = replace(status, conditions=(*others, patch.condition))
            if patch.nominated_node_name is not None:
                status = replace(status, nominated_node_name=patch.nominated_node_name)
            self._update(replace(now, status=status))
        for binding in bindings:
            now = self.pods[binding.name]
            self._update(replace(now, spec=replace(now.spec, node_name=binding.node_name)))
        for deletion in deletions:
            self.evicted.append(deletion.name)
            made.scheduler.feed.pod_deleted(self.pods.pop(deletion.name))

    def _update(self, after: Pod) -> None:
        before, self.pods[after.metadata.name] = self.pods[after.metadata.name], after
        self.made.scheduler.feed.pod_updated(before, after)

    @property
    def scheduled(self) -> set[str]:
        """Names of the pods that have a node."""
        return {name for name, each in self.pods.items() if each.spec.node_name}

    def check_gangs(self) -> None:
        """Assert that each gang has no node, or its quorum, unless members were evicted."""
        for number, of in enumerate(self.shape.gangs):
            if any(name.startswith(f"g{number}-") for name in self.evicted):
                continue
            count = sum(name.startswith(f"g{number}-") for name in self.scheduled)
            assert count == 0 or count >= of.least, f"{count} of {of.least} members of g{number} are scheduled"


def _node(name: str, cpus: int, zone: str) -> Node:
    return small_node(name, cpus, **{"zone": zone, HOSTNAME: name})


def _cpus(each: Pod) -> int:
    return int(each.spec.containers[0].resources.requests["cpu"])


@dataclass
class Autoscaler:
    """An autoscaler that reads only pods and nodes.

    Attributes:
        counts_nominated: Whether nominated pods count on their nodes.
        coming: Times at which bought nodes come.
    """

    cluster: Cluster
    counts_nominated: bool
    coming: list[float] = field(default_factory=list)
    bought: int = 0

    def unschedulable(self) -> list[Pod]:
        """Return the pods for which it adds nodes."""
        return [
            each
            for each in self.cluster.pods.values()
            if not each.spec.node_name
            and not each.status.nominated_node_name
            and any(
                one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
                for one in each.status.conditions
            )
        ]

    def needed(self, pods: Iterable[Pod]) -> int:
        """Return how many new nodes the simulation needs for some pods, beside those that come."""
        cluster, template = self.cluster, self.cluster.shape.template
        free = {name: int(node.status.allocatable["cpu"]) for name, node in cluster.nodes.items()}
        for each in cluster.pods.values():
            name = each.spec.node_name or (each.status.nominated_node_name if self.counts_nominated else "")
            if name in free:
                free[name] -= _cpus(each)
        made = _node("new", template, "b").metadata.labels
        rooms = [(node.metadata.labels, free[name]) for name, node in cluster.nodes.items()]
        rooms += [(made, template) for _ in self.coming]
        count = len(rooms)
        for each in sorted(pods, key=_cpus, reverse=True):
            cpus, wanted = _cpus(each), each.spec.node_selector.items()
            at = next(
                (at for at, (labels, room) in enumerate(rooms) if room >= cpus and wanted <= labels.items()), None
            )
            if at is not None:
                rooms[at] = (rooms[at][0], rooms[at][1] - cpus)
            elif cpus <= template and wanted <= made.items():
                rooms.append((made, template - cpus))
        return len(rooms) - count

    async def run(self) -> None:
        """Add nodes until no pod needs one any more."""
        cluster, quiet = self.cluster, 0
        await cluster.run(0)
        for _ in range(MOST_ROUNDS):
            now = cluster.made.clock.now()
            count = self.needed(self.unschedulable())
            self.bought += count
            assert self.bought <= MOST_NODES, "the autoscaler does not come to rest"
            self.coming += [now + NODE_SECONDS] * count
            quiet = 0 if count or self.coming else quiet + 1
            if quiet > QUIET_ROUNDS:
                return
            await cluster.run(ROUND_SECONDS)
            come = [due for due in self.coming if due <= cluster.made.clock.now()]
            self.coming = self.coming[len(come) :]
            cluster.add_new_nodes(len(come))
            await cluster.run(0)
            cluster.check_gangs()


def scheduled_with(shape: Shape, new_nodes: int) -> set[str]:
    """Return the pods that have a node if some new nodes exist from the start and no pod may be evicted."""

    async def run() -> set[str]:
        cluster = Cluster(shape, delay=10_000)
        cluster.add_new_nodes(new_nodes)
        for _ in range(3):
            await cluster.run(ROUND_SECONDS)
        cluster.made.queue.close()
        return cluster.scheduled

    return asyncio.run(run())


def optimum(shape: Shape) -> tuple[int, set[str]]:
    """Return the least number of new nodes with which most pods are scheduled, and these pods."""
    most = scheduled_with(shape, MOST_NODES)
    for count in range(MOST_NODES):
        found = scheduled_with(shape, count)
        if len(found) >= len(most):
            return count, found
    return MOST_NODES, most


def check(shape: Shape, counts_nominated: bool) -> None:
    """Assert the law for one cluster and autoscaler."""
    least, expected = optimum(shape)

    async def run() -> Autoscaler:
        autoscaler = Autoscaler(Cluster(shape), counts_nominated)
        await autoscaler.run()
        autoscaler.cluster.made.queue.close()
        return autoscaler

    autoscaler = asyncio.run(run())
    cluster = autoscaler.cluster
    room_on_n0 = shape.nodes[0] - shape.used[0]
    if any(of.in_one_zone and of.pinned and of.pinned * of.cpus <= room_on_n0 for of in shape.gangs):
        # A node in the zone of n0 helps, and the autoscaler adds nodes of another one.
        return
    if sum(of.pinned > 0 for of in shape.gangs) < 2:
        # New nodes help each of several gangs that compete for n0, as long as none of them has its place there.
        assert autoscaler.bought <= least + 1, f"{autoscaler.bought} nodes are bought, {least} suffice"
    is_alone = len(shape.gangs) + len(shape.singles) == 1
    if any(of.in_one_zone or (of.pinned and not is_alone) for of in shape.gangs) or any(
        is_in_zone for *_, is_in_zone in shape.singles
    ):
        # An autoscaler takes free nodes of another zone for room of a gang, and a pod that may use any node may have
        # the place of one that may not.
        return
    waiting = {name for name in cluster.pods if not name.startswith("v")}
    if waiting <= expected:
        assert not cluster.evicted, f"{cluster.evicted} are evicted, although {least} nodes suffice for all"
    assert len(cluster.scheduled) >= len(expected), f"{expected - cluster.scheduled} have no node"


SIZES = st.sampled_from((1, 1, 2))
GANGS = st.builds(
    lambda least, missing, cpus, priority, kind, is_strict: Gang(
        least,
        least - missing,
        cpus,
        priority,
        in_one_zone=kind.endswith("zone"),
        is_strict=is_strict,
        pinned=kind.startswith("node"),
    ),
    st.integers(2, 5),
    st.sampled_from((0, 0, 0, 1, -1)),
    SIZES,
    st.sampled_from((0, 5)),
    # A gang whose zone is set by a node of one member is not helped by the template, which autoscalers do not see.
    st.sampled_from(("any", "any", "zone", "node", "node in zone")),
    st.booleans(),
)


@st.composite
def shapes(draw: Callable[..., object]) -> Shape:
    """Return random clusters."""
    nodes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    assert isinstance(nodes, tuple)
    used = tuple(draw(st.integers(0, cpus)) for cpus in nodes)
    template = draw(st.sampled_from((2, 4)))
    gangs = draw(st.lists(GANGS, max_size=2).map(tuple))
    singles = draw(st.lists(st.tuples(SIZES, st.sampled_from((0, 5)), st.booleans()), max_size=3).map(tuple))
    return Shape(nodes, used, template, gangs, singles)  # type: ignore[arg-type]  # Hypothesis draws objects


@table("counts_nominated", ("cluster-autoscaler", True), ("karpenter", False))
@settings(max_examples=25, deadline=None)
@given(shape=shapes())
def test_nodes_are_bought_for_what_they_help(shape: Shape, counts_nominated: bool) -> None:
    """The law holds for random clusters."""
    check(shape, counts_nominated)


def test_the_largest_shape_is_below_the_most_nodes() -> None:
    """The largest shape that is generated needs fewer nodes than the law allows."""
    gang = Gang(5, 6, 2, 0)
    check(Shape((1,), (0,), 2, (gang, gang), ((2, 0, False),) * 3), counts_nominated=True)


FULL = Shape((2, 2), (2, 2), 2, (), ())


@table(
    "owner, name, planted, shape, problem",
    (
        "nodes-for-a-gang-without-its-quorum",
        Failure,
        "reason",
        "Unschedulable",
        dataclasses.replace(FULL, gangs=(Gang(4, 3, 2, 0),)),
        "3 nodes are bought, 0 suffice",
    ),
    (
        "nodes-for-a-gang-of-a-full-node-in-one-zone",
        failure_handler,
        "is_pinned",
        lambda _: False,
        dataclasses.replace(FULL, gangs=(Gang(3, 3, 2, 0, in_one_zone=True, pinned=1),)),
        "nodes are bought, 0 suffice",
    ),
    (
        "no-node-for-a-gang-whose-pinned-member-has-room",
        failure_handler,
        "_room_of",
        lambda *_: 0,
        Shape((2,), (0,), 2, (Gang(3, 3, 1, 0, pinned=1),), ()),
        "have no node",
    ),
    (
        "an-eviction-that-a-node-makes-needless",
        pod_failure_handler,
        "seconds_left",
        lambda *_: 0.0,
        dataclasses.replace(FULL, singles=((2, 5, False),)),
        "are evicted, although 1 nodes suffice",
    ),
)
def test_the_law_finds_planted_bugs(
    owner: object, name: str, planted: object, shape: Shape, problem: str, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law holds for these clusters, and does not with the bug."""
    check(shape, counts_nominated=True)
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError, match=problem):
        check(shape, counts_nominated=True)
