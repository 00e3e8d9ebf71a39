"""Law of reuse: a pod of a cached class gets the node that a full scheduling cycle chooses."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import Affinity, Requirement
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.workloads import LabelPairsSpec, Service
from scheduler_core.scheduler import SchedulerOptions
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig
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
        self.rig: Rig = rig(defaults=default_plugins(), options=SchedulerOptions(reuses_results=reuses))
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
                self.rig.context.cache.columns.compile_pod(pod(f"n{at}", priority=5, requests={"cpu": "3"})), name
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
