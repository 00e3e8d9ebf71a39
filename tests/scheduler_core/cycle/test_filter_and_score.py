"""Node selection: the search for feasible nodes, its order and limit, and ties between scores."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import REGION_LABEL, ZONE_LABEL, Feasible, score_feasible
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, plugin_set, profile, rig
from tests.support.tables import table


def find_feasible(made: Rig, wanted: Pod) -> tuple[Attempt, Feasible]:
    info = made.columns.compile_pod(wanted)
    made.queue.add(info)
    queued = made.pop()
    instance = present(made.context.profiles.get("default-scheduler"))
    attempt = Attempt(queued, info, instance, made.clock.now())
    found = made.scheduler.cycles.selection.find_feasible(attempt)
    made.queue.done(queued.uid)
    return attempt, found


def names(made: Rig, found: Feasible) -> list[str]:
    return [made.columns.node_name(int(row)) for row in found.rows]


def schedule_pods(seed: int, order: list[str], pods: int = 12) -> dict[str, str]:
    """Schedule pods on equal nodes that are added in the given order, and return the node of each pod."""
    made = rig(options=SchedulerOptions(seed=seed))
    made.add(*(node(name) for name in order))
    for number in range(pods):
        made.add(pod(f"p{number}"))
        assert made.decide() is not None
    return {entry.info.pod.metadata.name: entry.info.node_name for entry in made.context.cache.placed_pods()}


NAMES = [f"n{number}" for number in range(10)]


def test_ties_are_resolved_by_the_seed() -> None:
    """Ties are resolved by the seed, and pods are spread over equal nodes."""
    assert schedule_pods(1, NAMES) == schedule_pods(1, NAMES)
    assert schedule_pods(1, NAMES) != schedule_pods(2, NAMES)
    assert len(set(schedule_pods(1, NAMES).values())) > 3


def test_ties_do_not_depend_on_the_order_of_nodes() -> None:
    """The chosen nodes do not depend on the order in which nodes are added."""
    assert schedule_pods(5, NAMES) == schedule_pods(5, NAMES[::-1]) == schedule_pods(5, NAMES[4:] + NAMES[:4])


def test_ties_are_fair() -> None:
    """Every equal node gets about the same number of pods."""
    shares = Counter(schedule_pods(3, NAMES, pods=400).values())
    assert len(shares) == 10
    assert min(shares.values()) > 15


@table(
    "answers, message, rejected_by",
    ("disjoint", {"A": {"n0"}, "B": {"n1"}}, "node(s) didn't satisfy plugin(s) [A B] simultaneously.", {"A", "B"}),
    ("none", {"A": set()}, "node(s) didn't satisfy plugin A.", {"A"}),
    ("unknown", {"A": {"gone"}}, "2 node(s) didn't satisfy plugin(s) [A].", {"A"}),
)
def test_pre_filter_excludes_all_nodes(answers: dict[str, set[str]], message: str, rejected_by: set[str]) -> None:
    """The plugins whose PreFilter excludes all nodes are recorded as rejecting, with kube-scheduler's message."""
    journal = Journal()
    made = rig([recorder(name, journal) for name in ("A", "B")])
    for name, nodes in answers.items():
        journal.results[f"{name}.preFilter"] = PreFilterResult(node_names=frozenset(nodes))
    made.add(node("n0"), node("n1"))
    _, feasible = find_feasible(made, pod())
    assert len(feasible.rows) == 0
    assert feasible.diagnosis.message() == f"0/2 nodes are available: {message}"
    assert feasible.diagnosis.rejected_by == rejected_by


def test_nodes_that_pre_filter_excludes_are_counted_once() -> None:
    """Each excluded node counts once, also with free rows of deleted nodes and in a partial search."""
    journal = Journal(
        results={
            "Rec.preFilter": PreFilterResult(node_names=frozenset({"n0"})),
            "Rec.filter": np.ones(1, dtype=np.int16),
        }
    )
    made = rig([recorder("Rec", journal)], options=SchedulerOptions(percentage_of_nodes_to_score=50))
    made.serve(profile(plugins=Plugins(score=plugin_set(disabled=["*"]))))
    made.add(*(node(name) for name in NAMES[:5]))
    made.scheduler.feed.node_deleted(node("n4"))
    _, feasible = find_feasible(made, pod())
    assert feasible.diagnosis.message() == ("0/4 nodes are available: 1 why, 3 node(s) didn't satisfy plugin(s) [Rec].")


def test_a_nominated_node_that_pre_filter_excludes_has_its_own_reason() -> None:
    """The plugin that rejected the nominated node is listed with the plugins that excluded it."""
    journal = Journal(results={"Rec.preFilter": PreFilterResult(node_names=frozenset({"n1"}))})
    defaults = Plugins(multi_point=plugin_set("Rec", "NodeUnschedulable", "PrioritySort", "DefaultBinder"))
    made = rig([recorder("Rec", journal)], defaults=defaults)
    made.add(node("n0", unschedulable=True), node("n1", unschedulable=True), node("n2"))
    _, feasible = find_feasible(made, pod(nominated_node="n0"))
    assert feasible.diagnosis.message() == (
        "0/3 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeUnschedulable Rec], "
        "2 node(s) were unschedulable."
    )


def test_an_infeasible_nominated_node() -> None:
    """All nodes are evaluated if the nominated node is infeasible or deleted."""
    made = rig(defaults=Plugins(multi_point=plugin_set("NodeUnschedulable", "PrioritySort", "DefaultBinder")))
    made.add(node("n0"), node("n1", unschedulable=True), node("n2"))
    assert names(made, find_feasible(made, pod(nominated_node="n1"))[1]) == ["n0", "n2"]
    assert names(made, find_feasible(made, pod("other", nominated_node="gone"))[1]) == ["n0", "n2"]


def test_only_feasible_rows_are_scored() -> None:
    """Scores have the order of the feasible rows."""
    journal = Journal(results={"Rec.filter": np.array([0, 1, 0], dtype=np.int16)})
    journal.results["Rec.score"] = np.array([10, 20], dtype=np.int64)
    made = rig([recorder("Rec", journal)])
    made.add(*(node(name) for name in NAMES[:3]))
    attempt, feasible = find_feasible(made, pod())
    table = score_feasible(made.columns, attempt, feasible.rows, keep_parts=True)
    assert feasible.rows.tolist() == [0, 2]
    assert table.totals.tolist() == [10, 20]
    assert table.parts["Rec"].raw.tolist() == [10, 20]


class PlainSearch:
    """Model of a partial search: nodes of the zones alternate, and each search starts where the previous one ended."""

    def __init__(self, nodes: list[Node], percentage: int) -> None:
        zones: dict[tuple[str, str], list[Node]] = {}
        for each in nodes:
            labels = each.metadata.labels
            zones.setdefault((labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")), []).append(each)
        self.order: list[Node] = []
        while any(zones.values()):
            self.order += [members.pop(0) for members in zones.values() if members]
        self.start = 0
        self.percentage = percentage

    def limit(self) -> int:
        """Return the number of feasible nodes at which the search ends."""
        count = len(self.order)
        if count < 100:
            return count
        percentage = self.percentage or max(5, 50 - count // 125)
        return max(100, count * percentage // 100)

    def find(self) -> set[str]:
        """Return the names of the first feasible nodes."""
        found: set[str] = set()
        position = self.start
        for looked_at in range(len(self.order)):
            if len(found) == self.limit():
                break
            each = self.order[(self.start + looked_at) % len(self.order)]
            position = self.start + looked_at + 1
            if not each.spec.unschedulable:
                found.add(each.metadata.name)
        self.start = position % len(self.order)
        return found


@settings(max_examples=15)
@given(
    count=st.integers(90, 260),
    zones=st.integers(1, 4),
    cordoned=st.sets(st.integers(0, 259), max_size=60),
    percentage=st.sampled_from([0, 1, 40, 70, 99]),
)
def test_partial_search(count: int, zones: int, cordoned: set[int], percentage: int) -> None:
    """Three consecutive searches find the same nodes as the model."""
    nodes = [
        node(f"n{number}", labels={ZONE_LABEL: f"z{number * number % zones}"}, unschedulable=number in cordoned)
        for number in range(count)
    ]
    made = rig(
        defaults=Plugins(multi_point=plugin_set("NodeUnschedulable", "ImageLocality", "PrioritySort", "DefaultBinder")),
        serve=False,
    )
    made.serve(profile(percentage=percentage))
    made.add(*nodes)
    plain = PlainSearch(nodes, percentage)
    for turn in range(3):
        assert set(names(made, find_feasible(made, pod(f"p{turn}"))[1])) == plain.find()


def test_a_search_without_scores_ends_at_the_first_node() -> None:
    """Without Score plugins a partial search ends at the first feasible node, and the next one continues there."""
    made = rig(options=SchedulerOptions(percentage_of_nodes_to_score=50))
    made.add(*(node(name) for name in NAMES[:3]))
    assert [names(made, find_feasible(made, pod(f"p{turn}"))[1]) for turn in range(4)] == [
        ["n0"],
        ["n1"],
        ["n2"],
        ["n0"],
    ]


@table(
    "of_profile, of_scheduler, found",
    ("unset-finds-all", None, None, 200),
    ("hundred-finds-all", 100, None, 200),
    ("profile", 60, None, 120),
    ("scheduler", None, 60, 120),
    ("profile-overrides-scheduler", 100, 60, 200),
    ("at-least-100-nodes", 10, None, 100),
    ("adaptive", 0, None, 100),
)
def test_percentage(of_profile: int | None, of_scheduler: int | None, found: int) -> None:
    """The percentage limits how many of 200 equal nodes are found."""
    made = rig(
        defaults=Plugins(multi_point=plugin_set("ImageLocality", "PrioritySort", "DefaultBinder")),
        options=SchedulerOptions(percentage_of_nodes_to_score=of_scheduler),
        serve=False,
    )
    made.serve(profile(percentage=of_profile))
    made.add(*(node(f"n{number}") for number in range(200)))
    assert len(find_feasible(made, pod())[1].rows) == found


def test_the_start_after_a_search_that_pre_filter_narrowed() -> None:
    """A search among the nodes of PreFilter moves the start by the number of evaluated nodes."""
    journal = Journal()
    made = rig([recorder("Rec", journal)], options=SchedulerOptions(percentage_of_nodes_to_score=50))
    made.serve(profile(plugins=Plugins(score=plugin_set(disabled=["*"]))))
    made.add(*(node(name) for name in NAMES))
    made.context.node_order.next_start = 5
    journal.results["Rec.preFilter"] = PreFilterResult(node_names=frozenset({"n0", "n1"}))
    find_feasible(made, pod())
    assert made.context.node_order.next_start == 6
