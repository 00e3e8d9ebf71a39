"""The law of alike pods: one that is served by what another left is placed as if it had gone the whole way."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import LabelPairsSpec, Service
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

ZONES = ("a", "b", "c")
KINDS: tuple[dict[str, object], ...] = (
    {"requests": {"cpu": "500m", "memory": "1Gi"}},
    {"requests": {"cpu": "700m", "memory": "300Mi"}},
    {"ports": [80]},
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive"] * 12 + ["leave", "cordon", "taint", "come", "go", "stranger", "service", "promise"]),
        st.integers(0, 8),
    ),
    min_size=6,
    max_size=40,
)


def _anti(app: str) -> Affinity:
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key="zone")
    return Affinity(pod_anti_affinity=PodAffinity(required=(term,)))


class Life:
    """A cluster that is changed step by step."""

    def __init__(self, *, remembers: bool) -> None:
        self.rig: Rig = rig(defaults=default_plugins())
        self.rig.context.remembers = remembers
        self.nodes: list[Node] = []
        self.placed: list[Pod] = []
        for number in range(6):
            self._come(number)

    def step(self, what: str, number: int, at: int) -> object:
        """Do one thing; where a pod went, or what was said of it."""
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
        elif what == "promise":
            name = self.nodes[number % len(self.nodes)].metadata.name
            self.rig.queue.nominator.nominate(
                self.rig.context.cache.columns.compile_pod(pod(f"n{at}", priority=5, requests={"cpu": "3"})), name
            )
        return None

    def _arrive(self, number: int, at: int) -> object:
        kind = KINDS[number % len(KINDS)]
        new = pod(f"p{at}", labels={"app": f"app-{number % 2}"}, **kind)  # type: ignore[arg-type] # a table of fields
        self.rig.add(new)
        attempt = self.rig.decide()
        if attempt is None:
            return self.rig.writer.events[-1].note
        self.placed.append(new)
        return attempt.node_name, attempt.feasible_count

    def _come(self, number: int) -> None:
        new = node(
            f"n{number}", labels={"zone": ZONES[number % 3]}, allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"}
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


@settings(max_examples=300, deadline=None)
@given(steps=STEPS)
def test_alike_pods_are_placed_as_each_alone(steps: list[tuple[str, int]]) -> None:
    """The same nodes, the same words, through any changes between, whoever else comes."""
    with_memory, without = Life(remembers=True), Life(remembers=False)
    for at, (what, number) in enumerate(steps):
        assert with_memory.step(what, number, at) == without.step(what, number, at)
    for life in (with_memory, without):
        life.rig.queue.close()


def test_the_third_alike_pod_is_served_by_the_second() -> None:
    """What the law holds equal is really used: a ranking of the rows stands from the third pod on."""
    life, is_ranked = Life(remembers=True), []
    (instance,) = life.rig.context.profiles
    for at in range(4):
        life.step("arrive", 0, at)
        info = life.rig.context.cache.columns.compile_pod(life.placed[-1])
        kind = life.rig.context.kinds_of(instance).find(info)
        is_ranked.append(kind is not None and kind.ranking is not None)
    life.rig.queue.close()
    assert is_ranked == [False, False, True, True]


def test_where_scores_depend_on_who_fits_there_is_no_ranking() -> None:
    """A soft taint on one node makes a score relative: nothing is prepared again before a Node object changes."""
    life, is_prepared = Life(remembers=True), []
    life.step("taint", 0, 0)
    (instance,) = life.rig.context.profiles
    for at in range(5):
        life.step("arrive", 0, at)
        info = life.rig.context.cache.columns.compile_pod(life.placed[-1])
        kind = life.rig.context.kinds_of(instance).find(info)
        is_prepared.append(kind is not None and kind.state is not None)
    life.rig.queue.close()
    assert is_prepared == [False, True, False, False, False]
