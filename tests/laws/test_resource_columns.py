"""Law of resource columns: results that were cached before a resource changed its column are not used afterwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import PluginConfig
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.interning import SnapshotBounds
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, default_rig

RESOURCES = ("example.com/a", "example.com/b", "example.com/c", "ignored.example.com/d")
REQUESTS: tuple[dict[str, str], ...] = (
    {"cpu": "100m"},
    *({"cpu": "100m", name: "1"} for name in RESOURCES),
    {"cpu": "100m", RESOURCES[0]: "1", RESOURCES[2]: "2"},
)
OFFERS = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(["3", "9"]), max_size=3)
NODES = 3
SHAPES = st.integers(0, len(REQUESTS) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add pods"), SHAPES, st.just({})),
        st.tuples(st.just("add bound pod"), SHAPES, st.just({})),
        st.tuples(st.just("delete pod"), SHAPES, st.just({})),
        st.tuples(st.sampled_from(["offer", "replace node"]), st.integers(0, NODES - 1), OFFERS),
        st.tuples(st.just("offer everywhere"), st.just(0), OFFERS),
    ),
    min_size=6,
    max_size=40,
)
IGNORING = PluginConfig(name="NodeResourcesFit", args={"ignoredResourceGroups": ["ignored.example.com"]})


class ClusterRun:
    """A cluster whose nodes start and stop to offer resources."""

    def __init__(self, *, reuses: bool, bounds: SnapshotBounds) -> None:
        options = SchedulerOptions(reuses_results=reuses, bounds=bounds)
        self.rig = default_rig(options=options, serve=False)
        self.rig.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, plugin_config=(IGNORING,)))
        self.nodes: list[Node] = []
        self.pods: list[Pod] = []
        for number in range(NODES):
            self.nodes.append(self._node(f"n{number}", {}))
            self.rig.add(self.nodes[-1])

    def step(self, kind: str, number: int, offers: dict[str, str], at: int) -> object:
        """Apply one step; return the node of each new pod, or why it has none."""
        feed = self.rig.scheduler.feed
        if kind == "add pods":
            # The third pod of a class is the first that is scheduled with cached results.
            return [self._arrive(pod(f"p{at}-{turn}", requests=REQUESTS[number])) for turn in range(3)]
        if kind == "add bound pod":
            self.pods.append(pod(f"p{at}", requests=REQUESTS[number], node_name=self.nodes[0].metadata.name))
            self.rig.add(self.pods[-1])
        elif kind == "delete pod" and self.pods:
            feed.pod_deleted(self.pods.pop(number % len(self.pods)))
        elif kind == "offer":
            self._offer(number, offers)
        elif kind == "offer everywhere":
            for each in range(NODES):
                self._offer(each, offers)
        elif kind == "replace node":
            feed.node_deleted(self.nodes[number])
            self.nodes[number] = self._node(f"n{at}-{number}", offers)
            self.rig.add(self.nodes[number])
        return None

    def _offer(self, number: int, offers: dict[str, str]) -> None:
        old = self.nodes[number]
        self.nodes[number] = replace(old, status=self._node("", offers).status)
        self.rig.scheduler.feed.node_updated(old, self.nodes[number])

    def _arrive(self, new: Pod) -> object:
        self.rig.add(new)
        attempt = self.rig.decide()
        if attempt is None:
            # Later steps must not try this pod again.
            self.rig.scheduler.feed.pod_deleted(new)
            return self.rig.writer.events[-1].note
        self.pods.append(new)
        return attempt.node_name, attempt.feasible_count

    @staticmethod
    def _node(name: str, offers: dict[str, str]) -> Node:
        return node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": "30", **offers})


@given(steps=STEPS, limit=st.sampled_from([3, 1024]))
def test_cached_results_follow_the_columns(steps: list[tuple[str, int, dict[str, str]]], limit: int) -> None:
    """Nodes and messages are equal with and without cached results, with tiny and real bounds."""
    bounds = SnapshotBounds(changes=3, label_columns=3, taint_lists=3, queries=3, idle_checks=3, resources=limit)
    runs = (
        ClusterRun(reuses=True, bounds=bounds),
        ClusterRun(reuses=False, bounds=SnapshotBounds(resources=limit)),
    )
    for at, (kind, number, offers) in enumerate(steps):
        first, second = (run.step(kind, number, offers, at) for run in runs)
        assert first == second
    for run in runs:
        run.rig.queue.close()


def test_a_prepared_class_is_dropped_with_its_columns() -> None:
    """A resource loses its column to another one and gets a new column between pods of the same class."""
    run, shape = ClusterRun(reuses=True, bounds=SnapshotBounds()), 1
    run.step("offer everywhere", 0, {RESOURCES[0]: "9"}, 0)
    run.step("add pods", shape, {}, 1)
    for at, offers in enumerate(({RESOURCES[2]: "9"}, {RESOURCES[1]: "9", RESOURCES[2]: "9"}), start=2):
        run.step("offer everywhere", 0, offers, at)
    for number in (0, 1):
        run.step("offer", number, {RESOURCES[0]: "9", **({RESOURCES[1]: "9"} if number else {})}, 4)
        name = run.nodes[number].metadata.name
        run.rig.add(pod(f"heavy-{number}", requests={"cpu": "2"}, node_name=name))
    found = run.step("add pods", shape, {}, 5)
    assert isinstance(found, list)
    assert {node_name for node_name, _ in found} <= {"n0", "n1"}
