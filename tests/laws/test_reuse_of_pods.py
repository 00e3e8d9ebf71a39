"""The law of reuse: a pod whose class is known gets the node that the full scheduling cycle chooses."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Requirement,
    WeightedPodAffinityTerm,
)
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.workloads import LabelPairsSpec, Service
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

ZONES = ("a", "b", "c")


def _term(app: str, key: str = "zone") -> PodAffinityTerm:
    return PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=key)


def _spread(when: str, key: str) -> list[TopologySpreadConstraint]:
    selector = LabelSelector(match_labels={"app": "app-0"})
    return [TopologySpreadConstraint(1, key, when, selector)]


def _prefers_zone(zone: str) -> Affinity:
    term = NodeSelectorTerm(match_expressions=(Requirement("zone", "In", (zone,)),))
    return Affinity(node_affinity=NodeAffinity(preferred=(PreferredSchedulingTerm(30, term),)))


SMALL = {"cpu": "500m", "memory": "1Gi"}
KINDS: tuple[dict[str, object], ...] = (
    {"requests": SMALL},
    {"requests": {"cpu": "700m", "memory": "300Mi"}},
    {"ports": [80]},
    {},
    {"requests": {"cpu": "1900m"}},
    {"requests": SMALL, "spread": _spread("DoNotSchedule", "zone")},
    {"requests": {"cpu": "300m"}, "spread": _spread("DoNotSchedule", "zone")},
    {"requests": SMALL, "spread": _spread("ScheduleAnyway", "kubernetes.io/hostname")},
    {"requests": SMALL, "affinity": Affinity(pod_affinity=PodAffinity(required=(_term("app-0"),)))},
    {"requests": {"cpu": "200m"}, "affinity": Affinity(pod_affinity=PodAffinity(required=(_term("app-0"),)))},
    {"requests": SMALL, "affinity": Affinity(pod_anti_affinity=PodAffinity(required=(_term("app-1", "host"),)))},
    {
        "requests": SMALL,
        "affinity": Affinity(pod_affinity=PodAffinity(preferred=(WeightedPodAffinityTerm(7, _term("app-1")),))),
    },
    {"requests": SMALL, "affinity": _prefers_zone("b")},
    {"requests": {"cpu": "100m", "memory": "1Gi"}, "affinity": _prefers_zone("b")},
    {"requests": SMALL, "node_selector": {"zone": "b"}},
    {"requests": {"cpu": "100m", "memory": "1Gi"}, "node_selector": {"zone": "b"}},
    {"requests": {"memory": "1Mi"}, "node_selector": {"zone": "b"}},
)
SELECTING = 14
LAST = 2 * len(KINDS) - 1
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["arrive"] * 12 + ["leave", "cordon", "taint", "come", "go", "stranger", "service", "nominate"]
        ),
        st.integers(0, LAST),
    ),
    min_size=6,
    max_size=40,
)


def _anti(app: str) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(required=(_term(app),)))


class Life:
    """A cluster that changes step by step."""

    def __init__(self, *, reuses: bool) -> None:
        self.rig: Rig = rig(defaults=default_plugins(), options=SchedulerOptions(reuses_results=reuses))
        self.nodes: list[Node] = []
        self.placed: list[Pod] = []
        for number in range(6):
            self._come(number)

    def step(self, what: str, number: int, at: int) -> object:
        """Apply one step; return the node of a pod that arrives, or the note of its event."""
        if what == "arrive":
            return self._arrive(number, at)
        feed = self.rig.scheduler.feed
        if what == "leave" and self.placed:
            feed.pod_deleted(self.placed.pop(number % len(self.placed)))
        elif what == "come":
            self._come(100 + at)
        elif what == "go" and len(self.nodes) > 1:
            feed.node_deleted(self.nodes.pop(number % len(self.nodes)))
        elif what in ("cordon", "taint"):
            self._change(what, number % len(self.nodes))
        elif what == "stranger":
            name = self.nodes[number % len(self.nodes)].metadata.name
            self.rig.add(pod(f"s{at}", node_name=name, affinity=_anti("app-0"), labels={"app": "stranger"}))
        elif what == "service":
            meta = ObjectMeta(name=f"svc{at}", namespace="default", uid=f"uid-of-svc{at}")
            self.rig.scheduler.workload_feed.added(Service(meta, LabelPairsSpec(selector={"app": "app-1"})))
        elif what == "nominate":
            name = self.nodes[number % len(self.nodes)].metadata.name
            self.rig.queue.nominator.nominate(
                self.rig.context.cache.columns.compile_pod(pod(f"n{at}", priority=5, requests={"cpu": "3"})), name
            )
        return None

    def _arrive(self, number: int, at: int) -> object:
        kind = KINDS[number % len(KINDS)]
        new = pod(f"p{at}", labels={"app": f"app-{number // len(KINDS) % 2}"}, **kind)  # type: ignore[arg-type] # a table of fields
        self.rig.add(new)
        attempt = self.rig.decide()
        if attempt is None:
            return self.rig.writer.events[-1].note
        self.placed.append(new)
        return attempt.node_name, attempt.feasible_count

    def _come(self, number: int) -> None:
        new = node(
            f"n{number}",
            labels={"zone": ZONES[number % 3], "host": f"n{number}", "kubernetes.io/hostname": f"n{number}"},
            allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"},
        )
        self.nodes.append(new)
        self.rig.add(new)

    def _change(self, what: str, index: int) -> None:
        old = self.nodes[index]
        if what == "cordon":
            spec = msgspec.structs.replace(old.spec, unschedulable=not old.spec.unschedulable)
        else:
            spec = node(taints=["dedicated:PreferNoSchedule"]).spec
        self.nodes[index] = msgspec.structs.replace(old, spec=spec)
        self.rig.scheduler.feed.node_updated(old, self.nodes[index])


@given(steps=STEPS, among=st.lists(st.integers(0, LAST), min_size=1, max_size=3))
def test_reuse_changes_no_decision(steps: list[tuple[str, int]], among: list[int]) -> None:
    """Nodes, counts of feasible nodes and events are equal with and without reuse, whatever changes in between."""
    reusing, without = Life(reuses=True), Life(reuses=False)
    for at, (what, drawn) in enumerate(steps):
        # A few templates, so that classes have several pods.
        number = among[drawn % len(among)] if what == "arrive" else drawn
        assert reusing.step(what, number, at) == without.step(what, number, at)
    for life in (reusing, without):
        life.rig.queue.close()


def _reused(numbers: Sequence[int]) -> list[bool]:
    """Return which pods of some classes, one after the other, were placed by a ranking."""
    life, reused = Life(reuses=True), []
    (instance,) = life.rig.context.profiles
    for at, number in enumerate(numbers):
        searches = instance.evaluations.pre_filter["NodeAffinity"]
        assert isinstance(life.step("arrive", number, at), tuple)
        reused.append(instance.evaluations.pre_filter["NodeAffinity"] == searches)
    life.rig.queue.close()
    return reused


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param([SELECTING] * 4, [False, False, True, True], id="one class"),
        pytest.param([SELECTING, SELECTING + 1, SELECTING + 2], [False, False, True], id="different requests"),
        pytest.param(
            [SELECTING, SELECTING + len(KINDS), SELECTING + 2 + len(KINDS), SELECTING + 1 + len(KINDS)],
            [False, False, False, True],
            id="different labels, then different requests",
        ),
    ],
)
def test_which_pods_reuse(numbers: Sequence[int], expected: list[bool]) -> None:
    """Reuse happens: the second pod of a class is learned from, the third reuses."""
    assert _reused(numbers) == expected
