"""The law of resource columns: what was cached before a resource changed its column decides nothing afterwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import PluginConfig
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.table_bounds import SnapshotBounds
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, rig

RESOURCES = ("example.com/a", "example.com/b", "example.com/c", "ignored.example.com/d")
REQUESTS: tuple[dict[str, str], ...] = (
    {"cpu": "100m"},
    *({"cpu": "100m", name: "1"} for name in RESOURCES),
    {"cpu": "100m", RESOURCES[0]: "1", RESOURCES[2]: "2"},
)
OFFERS = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(["3", "9"]), max_size=3)
NODES = 3
KINDS = st.integers(0, len(REQUESTS) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), KINDS, st.just({})),
        st.tuples(st.just("bound"), KINDS, st.just({})),
        st.tuples(st.just("leave"), KINDS, st.just({})),
        st.tuples(st.sampled_from(["offer", "replace"]), st.integers(0, NODES - 1), OFFERS),
        st.tuples(st.just("offer everywhere"), st.just(0), OFFERS),
    ),
    min_size=6,
    max_size=40,
)
IGNORING = PluginConfig(name="NodeResourcesFit", args={"ignoredResourceGroups": ["ignored.example.com"]})


class Life:
    """A cluster whose nodes begin and cease to offer resources."""

    def __init__(self, *, reuses: bool, bounds: SnapshotBounds) -> None:
        options = SchedulerOptions(reuses_results=reuses, bounds=bounds)
        self.rig = rig(defaults=default_plugins(), options=options, serve=False)
        self.rig.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, plugin_config=(IGNORING,)))
        self.nodes: list[Node] = []
        self.pods: list[Pod] = []
        for number in range(NODES):
            self.nodes.append(self._node(f"n{number}", {}))
            self.rig.add(self.nodes[-1])

    def step(self, what: str, number: int, offers: dict[str, str], at: int) -> object:
        """Apply one step; return the node of a pod, or why it has none."""
        feed = self.rig.scheduler.feed
        if what == "arrive":
            # The third of a kind is the first that is placed by what the others left.
            return [self._arrive(pod(f"p{at}-{turn}", requests=REQUESTS[number])) for turn in range(3)]
        if what == "bound":
            self.pods.append(pod(f"p{at}", requests=REQUESTS[number], node_name=self.nodes[0].metadata.name))
            self.rig.add(self.pods[-1])
        elif what == "leave" and self.pods:
            feed.pod_deleted(self.pods.pop(number % len(self.pods)))
        elif what == "offer":
            self._offer(number, offers)
        elif what == "offer everywhere":
            for each in range(NODES):
                self._offer(each, offers)
        elif what == "replace":
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
            # Later steps are about others: this one must not be tried again.
            self.rig.scheduler.feed.pod_deleted(new)
            return self.rig.writer.events[-1].note
        self.pods.append(new)
        return attempt.node_name, attempt.feasible_count

    @staticmethod
    def _node(name: str, offers: dict[str, str]) -> Node:
        return node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": "30", **offers})


@given(steps=STEPS, limit=st.sampled_from([3, 1024]))
def test_cached_results_follow_the_columns(steps: list[tuple[str, int, dict[str, str]]], limit: int) -> None:
    """The same nodes and the same words with and without caches, at tiny bounds and at real ones."""
    bounds = SnapshotBounds(changes=3, label_columns=3, taint_lists=3, queries=3, idle_checks=3, resources=limit)
    lives = (
        Life(reuses=True, bounds=bounds),
        Life(reuses=False, bounds=SnapshotBounds(resources=limit)),
    )
    for at, (what, number, offers) in enumerate(steps):
        first, second = (life.step(what, number, offers, at) for life in lives)
        assert first == second
    for life in lives:
        life.rig.queue.close()


def test_a_prepared_class_is_dropped_with_its_columns() -> None:
    """A resource loses its column to another one and gets a new one between pods of the same class."""
    life, asked = Life(reuses=True, bounds=SnapshotBounds()), 1
    life.step("offer everywhere", 0, {RESOURCES[0]: "9"}, 0)
    life.step("arrive", asked, {}, 1)
    for at, offers in enumerate(({RESOURCES[2]: "9"}, {RESOURCES[1]: "9", RESOURCES[2]: "9"}), start=2):
        life.step("offer everywhere", 0, offers, at)
    for number in (0, 1):
        life.step("offer", number, {RESOURCES[0]: "9", **({RESOURCES[1]: "9"} if number else {})}, 4)
        name = life.nodes[number].metadata.name
        life.rig.add(pod(f"heavy-{number}", requests={"cpu": "2"}, node_name=name))
    found = life.step("arrive", asked, {}, 5)
    assert isinstance(found, list)
    assert {node_name for node_name, _ in found} <= {"n0", "n1"}
