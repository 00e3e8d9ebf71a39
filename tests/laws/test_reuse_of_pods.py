"""Laws of reuse: a pod of a cached class gets the node that a full scheduling cycle chooses, alone or in a gang."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.affinity import Affinity, Requirement
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.pod_group import GroupSource, GroupTopology
from scheduler_core.model.workloads import LabelPairsSpec, Service
from scheduler_core.scheduler import SchedulerOptions
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import node, pod
from tests.support.gangs import LABEL, group
from tests.support.plain_profile import PlainNode, PlainPod, real_objects
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import Rig, default_rig, gang_rig
from tests.support.tables import table

ZONES = ("a", "b", "c")


def _spread(when: str, key: str) -> list[TopologySpreadConstraint]:
    return [TopologySpreadConstraint(1, key, when, app("app-0"))]


def _prefers_zone(zone: str) -> Affinity:
    return node_affinity(preferred=[(30, Requirement("zone", "In", (zone,)))])


SMALL = {"cpu": "500m", "memory": "1Gi"}
SHAPES: tuple[dict[str, object], ...] = (
    {"requests": SMALL},
    {"requests": {"cpu": "700m", "memory": "300Mi"}},
    {"ports": [80]},
    {},
    {"requests": {"cpu": "1900m"}},
    {"requests": SMALL, "spread": _spread("DoNotSchedule", "zone")},
    {"requests": {"cpu": "300m"}, "spread": _spread("DoNotSchedule", "zone")},
    {"requests": SMALL, "spread": _spread("ScheduleAnyway", "kubernetes.io/hostname")},
    {"requests": SMALL, "affinity": affinity_to("app-0")},
    {"requests": {"cpu": "200m"}, "affinity": affinity_to("app-0")},
    {"requests": SMALL, "affinity": anti_affinity_to(term("app-1", "host"))},
    {"requests": SMALL, "affinity": affinity_to(preferred=[(7, "app-1")])},
    {"requests": SMALL, "affinity": _prefers_zone("b")},
    {"requests": {"cpu": "100m", "memory": "1Gi"}, "affinity": _prefers_zone("b")},
    {"requests": SMALL, "node_selector": {"zone": "b"}},
    {"requests": {"cpu": "100m", "memory": "1Gi"}, "node_selector": {"zone": "b"}},
    {"requests": {"memory": "1Mi"}, "node_selector": {"zone": "b"}},
)
SELECTING = 14
LAST = 2 * len(SHAPES) - 1
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add pod"] * 12
            + ["delete pod", "cordon", "taint", "add node", "delete node", "add bound pod", "service", "nominate"]
        ),
        st.integers(0, LAST),
    ),
    min_size=6,
    max_size=40,
)


class ClusterRun:
    """A cluster that changes step by step."""

    def __init__(self, *, reuses: bool) -> None:
        self.rig: Rig = default_rig(options=SchedulerOptions(reuses_results=reuses))
        self.nodes: list[Node] = []
        self.placed: list[Pod] = []
        for number in range(6):
            self._add_node(number)

    def step(self, kind: str, number: int, at: int) -> object:
        """Apply one step; return the node of a new pod, or the note of its event."""
        if kind == "add pod":
            return self._arrive(number, at)
        feed = self.rig.scheduler.feed
        if kind == "delete pod" and self.placed:
            feed.pod_deleted(self.placed.pop(number % len(self.placed)))
        elif kind == "add node":
            self._add_node(100 + at)
        elif kind == "delete node" and len(self.nodes) > 1:
            feed.node_deleted(self.nodes.pop(number % len(self.nodes)))
        elif kind in ("cordon", "taint"):
            self._change(kind, number % len(self.nodes))
        elif kind == "add bound pod":
            name = self.nodes[number % len(self.nodes)].metadata.name
            self.rig.add(pod(f"s{at}", node_name=name, affinity=anti_affinity_to("app-0"), labels={"app": "stranger"}))
        elif kind == "service":
            meta = ObjectMeta(name=f"svc{at}", namespace="default", uid=f"uid-of-svc{at}")
            self.rig.scheduler.workload_feed.added(Service(meta, LabelPairsSpec(selector={"app": "app-1"})))
        elif kind == "nominate":
            name = self.nodes[number % len(self.nodes)].metadata.name
            self.rig.queue.nominator.nominate(
                self.rig.columns.compile_pod(pod(f"n{at}", priority=5, requests={"cpu": "3"})), name
            )
        return None

    def _arrive(self, number: int, at: int) -> object:
        shape = SHAPES[number % len(SHAPES)]
        new = pod(f"p{at}", labels={"app": f"app-{number // len(SHAPES) % 2}"}, **shape)  # type: ignore[arg-type] # a table of fields
        self.rig.add(new)
        attempt = self.rig.decide()
        if attempt is None:
            return self.rig.writer.events[-1].note
        self.placed.append(new)
        return attempt.node_name, attempt.feasible_count

    def _add_node(self, number: int) -> None:
        new = node(
            f"n{number}",
            labels={"zone": ZONES[number % 3], "host": f"n{number}", "kubernetes.io/hostname": f"n{number}"},
            allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"},
        )
        self.nodes.append(new)
        self.rig.add(new)

    def _change(self, kind: str, index: int) -> None:
        old = self.nodes[index]
        if kind == "cordon":
            spec = msgspec.structs.replace(old.spec, unschedulable=not old.spec.unschedulable)
        else:
            spec = node(taints=["dedicated:PreferNoSchedule"]).spec
        self.nodes[index] = msgspec.structs.replace(old, spec=spec)
        self.rig.scheduler.feed.node_updated(old, self.nodes[index])


@given(steps=STEPS, shapes=st.lists(st.integers(0, LAST), min_size=1, max_size=3))
def test_reuse_changes_no_decision(steps: list[tuple[str, int]], shapes: list[int]) -> None:
    """Nodes, counts of feasible nodes and events are equal, whatever changes between pods."""
    reusing, without = ClusterRun(reuses=True), ClusterRun(reuses=False)
    for at, (kind, index) in enumerate(steps):
        # Few shapes, so that classes have several pods.
        number = shapes[index % len(shapes)] if kind == "add pod" else index
        assert reusing.step(kind, number, at) == without.step(kind, number, at)
    for run in (reusing, without):
        run.rig.queue.close()


def _reused(numbers: Sequence[int]) -> list[bool]:
    """Return which pods of the given shapes, one after the other, were scheduled with a cached ranking."""
    run, reused = ClusterRun(reuses=True), []
    (instance,) = run.rig.context.profiles
    for at, number in enumerate(numbers):
        searches = instance.evaluations.pre_filter["NodeAffinity"]
        assert isinstance(run.step("add pod", number, at), tuple)
        reused.append(instance.evaluations.pre_filter["NodeAffinity"] == searches)
    run.rig.queue.close()
    return reused


@table(
    "numbers, expected",
    ("one class", [SELECTING] * 4, [False, False, True, True]),
    ("different requests", [SELECTING, SELECTING + 1, SELECTING + 2], [False, False, True]),
    (
        "different labels, then different requests",
        [SELECTING, SELECTING + len(SHAPES), SELECTING + 2 + len(SHAPES), SELECTING + 1 + len(SHAPES)],
        [False, False, False, True],
    ),
)
def test_which_pods_reuse(numbers: Sequence[int], expected: list[bool]) -> None:
    """Results of the second pod of a class are cached, and the third pod reuses them."""
    assert _reused(numbers) == expected


# -- random clusters ---------------------------------------------------------------------------------------------------


TEMPLATES = st.lists(pods("template"), min_size=1, max_size=3)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add pod"] * 6 + ["delete pod", "cordon", "label", "grow", "add node", "delete node"]),
        st.integers(0, 9),
    ),
    min_size=4,
    max_size=24,
)


class RandomClusterRun:
    """A cluster that changes step by step."""

    def __init__(self, cluster: tuple[PlainNode, ...], *, reuses: bool) -> None:
        self.rig: Rig = default_rig(options=SchedulerOptions(reuses_results=reuses))
        self.nodes: list[Node] = [each.real() for each in cluster]
        self.placed: list[Pod] = []
        self.rig.add(*self.nodes)
        self.rig.add(*(other.real() for each in cluster for other in each.running_pods))

    def step(self, kind: str, number: int, templates: list[PlainPod], at: int) -> object:
        """Apply one step; return the node of a new pod, or the note of its event."""
        feed = self.rig.scheduler.feed
        if kind == "add pod":
            pod = dataclasses.replace(templates[number % len(templates)], name=f"p{at}").real()
            self.rig.add(pod)
            attempt = self.rig.decide()
            if attempt is None:
                return self.rig.writer.events[-1].note
            self.placed.append(pod)
            return attempt.node_name
        if kind == "delete pod" and self.placed:
            feed.pod_deleted(self.placed.pop(number % len(self.placed)))
        elif kind == "add node":
            self._add_node(node(f"late{at}", labels={"zone": "a"}))
        elif self.nodes and kind == "delete node":
            feed.node_deleted(self.nodes.pop(number % len(self.nodes)))
        elif self.nodes and kind in ("cordon", "label", "grow"):
            self._change(kind, number % len(self.nodes))
        return None

    def _add_node(self, new: Node) -> None:
        self.nodes.append(new)
        self.rig.add(new)

    def _change(self, kind: str, index: int) -> None:
        old = new = self.nodes[index]
        if kind == "cordon":
            new = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, unschedulable=True))
        elif kind == "label":
            labels = {"zone": "b", "size": "3"}
            new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=labels))
        else:
            amounts = {"cpu": "8", "memory": "32Gi", "pods": "7"}
            new = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, allocatable=amounts))
        self.nodes[index] = new
        self.rig.scheduler.feed.node_updated(old, new)


@given(cluster=CLUSTERS, templates=TEMPLATES, steps=CHANGES)
def test_reuse_in_random_clusters(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], steps: list[tuple[str, int]]
) -> None:
    """Nodes and events are equal, whatever changes between pods."""
    reusing, without = RandomClusterRun(cluster, reuses=True), RandomClusterRun(cluster, reuses=False)
    for at, (kind, number) in enumerate(steps):
        assert reusing.step(kind, number, templates, at) == without.step(kind, number, templates, at)
    for run in (reusing, without):
        run.rig.queue.close()


# -- members of gangs --------------------------------------------------------------------------------------------------


MEMBERS = st.lists(pods("template"), min_size=1, max_size=2)
COUNTS = st.integers(2, 9)


def member(template: PlainPod, number: int) -> Pod:
    """Return a pod of the template that belongs to the gang."""
    pod = dataclasses.replace(template, name=f"p{number}").real()
    metadata = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, LABEL: "train"})
    return msgspec.structs.replace(pod, metadata=metadata)


async def scheduled_as_gang(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], counts: tuple[int, int, bool], *, reuses: bool
) -> tuple[dict[str, str], list[int], list[str]]:
    """Return the nodes of the members, the sums of the requested columns, and the notes of events."""
    count, needed, in_zone = counts
    made = gang_rig(*real_objects(cluster), options=SchedulerOptions(reuses_results=reuses))
    topology = GroupTopology("zone") if in_zone else None
    made.scheduler.group_feed.group_changed(group(min_member=min(needed, count), topology=topology))
    made.add(*(member(templates[number * len(templates) // count], number) for number in range(count)))
    entry = made.pop()
    assert isinstance(entry, QueuedGang)
    attempts = await made.scheduler.cycles.gangs.schedule(entry)
    made.queue.close()
    columns = made.columns
    return (
        {attempt.info.key: attempt.node_name for attempt in attempts},
        columns.requested.sum(axis=1).tolist(),
        [event.note for event in made.writer.events],
    )


@given(cluster=CLUSTERS, templates=MEMBERS, counts=st.tuples(COUNTS, COUNTS, st.booleans()))
def test_reuse_in_gangs(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], counts: tuple[int, int, bool]
) -> None:
    """Nodes, events and columns are equal with and without cached results."""
    assert asyncio.run(scheduled_as_gang(cluster, templates, counts, reuses=True)) == asyncio.run(
        scheduled_as_gang(cluster, templates, counts, reuses=False)
    )


async def scheduled_as_single_pods(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], count: int
) -> dict[str, str]:
    """Return the nodes of the same pods, scheduled one after the other with their group label ignored."""
    made = default_rig()
    made.queue.gangs.ignore(GroupSource.BAYPLAN)
    made.add(*real_objects(cluster))
    placed: dict[str, str] = {}
    for number in range(count):
        made.add(member(templates[number * len(templates) // count], number))
        attempt = made.decide()
        if attempt is not None:
            placed[attempt.info.key] = attempt.node_name
    made.queue.close()
    return placed


@given(cluster=CLUSTERS, templates=MEMBERS, count=COUNTS)
def test_members_get_the_nodes_of_single_pods(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], count: int
) -> None:
    """If all pods fit one after the other, each gets the same node in its gang."""
    singles = asyncio.run(scheduled_as_single_pods(cluster, templates, count))
    placed, _, _ = asyncio.run(scheduled_as_gang(cluster, templates, (count, count, False), reuses=True))
    if len(singles) == count:
        assert placed == singles
