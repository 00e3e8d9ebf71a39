"""The nearest nodes of a pod, and everything that they lack."""

from __future__ import annotations

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.explain.nearest_nodes import NearMiss, near_misses
from scheduler_core.framework.extension_points import NodeFilterPlugin, Shortage
from scheduler_core.framework.status import Status, unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, Rig, plugin_set, rig


def missed(made: Rig, waiting: Pod, limit: int = 5) -> tuple[NearMiss, ...]:
    """Return the nearest nodes of a pod."""
    instance = made.context.profiles.get(waiting.spec.scheduler_name)
    assert instance is not None
    found = made.scheduler.cycles.examiner.examine(instance, made.context.cache.columns.compile_pod(waiting))
    return near_misses(made.context.cache.columns, instance, found, limit)


def served(*objects: Node | Pod) -> Rig:
    """Return a scheduler with the default plugins."""
    made = rig(defaults=default_plugins())
    made.add(*objects)
    return made


def test_every_plugin_is_asked_about_a_node() -> None:
    """A cycle stores the first rejection of a node; here are all, in the order of plugins, with amounts."""
    made = served(
        node("n", unschedulable=True, taints=["a:NoSchedule"]), pod("full", node_name="n", requests={"cpu": "3"})
    )
    (miss,) = missed(made, pod(requests={"cpu": "1500m", "memory": "1Gi"}, node_selector={"disk": "ssd"}))
    assert miss.node_name == "n"
    assert [lack.plugin for lack in miss.lacks] == [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
    ]
    fit = miss.lacks[-1]
    assert (fit.shortages, fit.is_resolvable) == ((Shortage("cpu", 1500, 1000),), True)
    assert not any(lack.shortages or lack.is_resolvable for lack in miss.lacks[:-1])


SMALL = {"cpu": "1", "memory": "16Gi", "pods": "110"}
RANKS = [
    pytest.param(
        [node("a", taints=["x:NoSchedule"], allocatable=SMALL), node("b", allocatable=SMALL)],
        ["b", "a"],
        id="fewest things first",
    ),
    pytest.param(
        [node("a", taints=["x:NoSchedule"]), node("b"), pod("p", node_name="b", requests={"cpu": "4"})],
        ["b", "a"],
        id="what removing pods may mend first",
    ),
    pytest.param(
        [
            node("a"),
            node("b"),
            pod("p", node_name="a", requests={"cpu": "4"}),
            pod("q", node_name="b", requests={"cpu": "3"}),
        ],
        ["b", "a"],
        id="the least missing first",
    ),
    pytest.param([node("b", allocatable=SMALL), node("a", allocatable=SMALL)], ["a", "b"], id="else by name"),
    pytest.param(
        [node("a", allocatable={"cpu": "1", "memory": "1", "pods": "1"}), node("b", allocatable=SMALL)],
        ["b", "a"],
        id="two amounts are two things",
    ),
]


@pytest.mark.parametrize(("objects", "names"), RANKS)
def test_ranks_nodes(objects: list[Node | Pod], names: list[str]) -> None:
    """The nearest is first."""
    waiting = pod(requests={"cpu": "2", "memory": "1Gi"})
    assert [miss.node_name for miss in missed(served(*objects), waiting)] == names


def test_gives_no_more_than_asked_for() -> None:
    """The limit applies."""
    made = served(*(node(f"n{number}") for number in range(9)))
    assert [miss.node_name for miss in missed(made, pod(requests={"cpu": "64"}), 2)] == ["n0", "n1"]


def test_a_place_is_an_amount() -> None:
    """A node that may run no more pods lacks one of ``pods``."""
    made = served(node("n", allocatable={"cpu": "4", "memory": "1Gi", "pods": "0"}))
    (miss,) = missed(made, pod())
    assert miss.lacks[0].shortages == (Shortage("pods", 1, 0),)


def test_nodes_that_pre_filter_left_out() -> None:
    """The plugin that named other nodes is listed."""
    term = NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", ("b",)),))
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector((term,))))
    misses = missed(served(node("a"), node("b", unschedulable=True)), pod(affinity=affinity))
    assert [(miss.node_name, miss.lacks[0].plugin) for miss in misses] == [
        ("b", "NodeUnschedulable"),
        ("a", "NodeAffinity"),
    ]


def test_a_nomination_is_reported() -> None:
    """A node that is infeasible only beside a nominated pod lists what it lacks with that pod."""
    made = served(node("n"))
    made.add(pod("nominated", nominated_node="n", priority=5, requests={"cpu": "3"}))
    (miss,) = missed(made, pod(requests={"cpu": "2"}))
    assert [(lack.plugin, lack.reasons) for lack in miss.lacks] == [("NodeResourcesFit", ("Insufficient cpu",))]


def test_nothing_for_a_pod_that_pre_filter_rejects() -> None:
    """No node was evaluated."""
    assert missed(served(node("n")), pod(gates=["wait"])) == ()


class Picky(NodeFilterPlugin):
    """Raises for nodes that an earlier plugin rejects."""

    name = "Picky"

    def filter_node(self, state: object, pod: object, node: object) -> Status:
        del state, pod
        if getattr(node, "name", "") == "cordoned":
            raise RuntimeError
        return unschedulable("no")


def test_a_plugin_that_cannot_stand_a_node_is_left_out() -> None:
    """In a cycle it is called for fewer nodes; the results of the others stay."""
    names = ("NodeUnschedulable", "Picky", *BARE)
    made = rig((Picky,), defaults=Plugins(multi_point=plugin_set(*names)))
    made.add(node("cordoned", unschedulable=True), node("plain"))
    plugins = {miss.node_name: [lack.plugin for lack in miss.lacks] for miss in missed(made, pod())}
    assert plugins == {"cordoned": ["NodeUnschedulable"], "plain": ["Picky"]}
