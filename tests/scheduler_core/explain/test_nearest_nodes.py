"""The nearest nodes of an infeasible pod, and everything that they lack."""

from __future__ import annotations

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.explain.findings import NodeLacks
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.framework.extension_points import NodeFilterPlugin, Shortage
from scheduler_core.framework.status import Status, unschedulable
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Taint
from tests.support.affinities import named, node_affinity
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, default_rig, plugin_set, rig
from tests.support.tables import table


def nearest(made: Rig, wanted: Pod, limit: int = 5) -> tuple[NodeLacks, ...]:
    """Return the nearest nodes of a pod."""
    instance = present(made.context.profiles.get(wanted.spec.scheduler_name))
    found = made.scheduler.cycles.examiner.examine(instance, made.columns.compile_pod(wanted))
    return near_misses(made.columns, instance, found, limit)


def test_every_plugin_is_called_for_a_node() -> None:
    """The result has the rejections of all plugins, in their order and with amounts, not only the first one."""
    made = default_rig(
        node("n", unschedulable=True, taints=["a:NoSchedule"]), pod("full", node_name="n", requests={"cpu": "3"})
    )
    (miss,) = nearest(made, pod(requests={"cpu": "1500m", "memory": "1Gi"}, node_selector={"disk": "ssd"}))
    assert miss.node == "n"
    assert [rejection.plugin for rejection in miss.lacks] == [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
    ]
    fit = miss.lacks[-1]
    assert (fit.amounts, fit.preemption_may_help) == ((Shortage("cpu", 1500, 1000),), True)
    assert not any(rejection.amounts or rejection.preemption_may_help for rejection in miss.lacks[:-1])


SMALL = {"cpu": "1", "memory": "16Gi", "pods": "110"}


@table(
    "objects, names",
    (
        "a taint before a node that is too small when it is empty",
        [node("a", allocatable=SMALL), node("b", taints=["x:NoSchedule"])],
        ["b", "a"],
    ),
    (
        "fewest reasons first",
        [node("a", taints=["x:NoSchedule"], allocatable=SMALL), node("b", allocatable=SMALL)],
        ["b", "a"],
    ),
    (
        "resolvable by removing pods first",
        [node("a", taints=["x:NoSchedule"]), node("b"), pod("p", node_name="b", requests={"cpu": "4"})],
        ["b", "a"],
    ),
    (
        "smallest missing amount first",
        [
            node("a"),
            node("b"),
            pod("p", node_name="a", requests={"cpu": "4"}),
            pod("q", node_name="b", requests={"cpu": "3"}),
        ],
        ["b", "a"],
    ),
    ("by name", [node("b", allocatable=SMALL), node("a", allocatable=SMALL)], ["a", "b"]),
    (
        "two amounts count as two reasons",
        [node("a", allocatable={"cpu": "1", "memory": "1", "pods": "1"}), node("b", allocatable=SMALL)],
        ["b", "a"],
    ),
)
def test_ranks_nodes(objects: list[Node | Pod], names: list[str]) -> None:
    """The nearest node is first."""
    wanted = pod(requests={"cpu": "2", "memory": "1Gi"})
    assert [miss.node for miss in nearest(default_rig(*objects), wanted)] == names


def test_the_limit_applies() -> None:
    """No more nodes are returned than the limit."""
    made = default_rig(*(node(f"n{number}") for number in range(9)))
    assert [miss.node for miss in nearest(made, pod(requests={"cpu": "64"}), 2)] == ["n0", "n1"]


def test_the_number_of_pods_is_an_amount() -> None:
    """A node that may run no more pods has a shortage of one of the resource ``pods``."""
    made = default_rig(node("n", allocatable={"cpu": "4", "memory": "1Gi", "pods": "0"}))
    (miss,) = nearest(made, pod())
    assert miss.lacks[0].amounts == (Shortage("pods", 1, 0),)


def test_nodes_that_pre_filter_excluded() -> None:
    """A node that PreFilter excluded is listed with the plugin that excluded it."""
    only = pod(affinity=node_affinity(named("b")))
    misses = nearest(default_rig(node("a"), node("b", unschedulable=True)), only)
    assert [(miss.node, miss.lacks[0].plugin) for miss in misses] == [("b", "NodeUnschedulable"), ("a", "NodeAffinity")]


def test_a_nomination_is_reported() -> None:
    """A node that is infeasible only because of a nominated pod is listed with what it lacks."""
    made = default_rig(node("n"), pod("nominated", nominated_node="n", priority=5, requests={"cpu": "3"}))
    (miss,) = nearest(made, pod(requests={"cpu": "2"}))
    assert [(rejection.plugin, rejection.reasons) for rejection in miss.lacks] == [
        ("NodeResourcesFit", ("Insufficient cpu",))
    ]


class RaisesForCordoned(NodeFilterPlugin):
    """Filter plugin that raises for a node that an earlier plugin rejects."""

    name = "RaisesForCordoned"

    def filter_node(self, state: object, pod: object, node: object) -> Status:
        del state, pod
        if getattr(node, "name", "") == "cordoned":
            raise RuntimeError
        return unschedulable("no")


def test_a_plugin_that_raises_for_a_rejected_node_is_ignored() -> None:
    """A plugin that raises for a node that a cycle would not pass to it is ignored for that node."""
    names = ("NodeUnschedulable", "RaisesForCordoned", *BARE)
    made = rig((RaisesForCordoned,), defaults=Plugins(multi_point=plugin_set(*names)))
    made.add(node("cordoned", unschedulable=True), node("plain"))
    plugins = {miss.node: [rejection.plugin for rejection in miss.lacks] for miss in nearest(made, pod())}
    assert plugins == {"cordoned": ["NodeUnschedulable"], "plain": ["RaisesForCordoned"]}


HOST = "kubernetes.io/hostname"
CONTROL_PLANE = Taint("control-plane", "NoSchedule")


def spread(max_skew: int = 1, **fields: object) -> TopologySpreadConstraint:
    """Return a required constraint on host names that counts pods labelled ``app=web``."""
    selector = LabelSelector(match_labels={"app": "web"})
    return TopologySpreadConstraint(max_skew, HOST, "DoNotSchedule", label_selector=selector, **fields)  # type: ignore[arg-type]


def host(name: str, *taints: Taint) -> Node:
    """Return a node with its host name as a label."""
    return node(name, labels={HOST: name}, taints=taints)


def web(name: str, node_name: str = "", *constraints: TopologySpreadConstraint) -> Pod:
    """Return a pod that constraints count."""
    return pod(name, node_name=node_name, labels={"app": "web"}, spread=constraints)


def details_of(made: Rig, wanted: Pod, name: str) -> tuple[str, ...]:
    """Return the details of what a node lacks for a pod."""
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    columns = made.columns
    found = made.scheduler.cycles.examiner.examine(instance, columns.compile_pod(wanted))
    [miss] = [each for each in near_misses(columns, instance, found, 9) if each.node == name]
    return tuple(detail for lack in miss.lacks for detail in lack.details)


@table(
    "nodes, constraint, expected",
    (
        "an empty domain",
        [host("a"), host("b")],
        spread(),
        f"{HOST}=a has 1 matching pod (2 with this pod), maxSkew 1, the minimum is 0 in empty domain b",
    ),
    (
        "an empty domain whose taints are not tolerated",
        [host("a"), host("b", CONTROL_PLANE), host("c")],
        spread(),
        (
            f"{HOST}=a has 1 matching pod (2 with this pod), maxSkew 1, the minimum is 0 in empty domain b; the pod "
            "tolerates no node of b: nodeTaintsPolicy: Honor would not count it, and the node would be admitted"
        ),
    ),
    (
        "fewer domains than minDomains",
        [host("a"), host("c")],
        spread(min_domains=3),
        (
            f"{HOST}=a has 1 matching pod (2 with this pod), maxSkew 1, the minimum is 0 because there are 2 of "
            "minDomains 3 domains; minDomains 2 would admit the node"
        ),
    ),
    ("no label", [host("a"), node("unlabeled")], spread(), f"the node has no label {HOST}"),
)
def test_topology_spread(nodes: list[Node], constraint: TopologySpreadConstraint, expected: str) -> None:
    """The details name the domain, its count, maxSkew, the minimum, who sets it, and the policy that would help."""
    made = default_rig(*nodes, web("first", "a"))
    if any(each.metadata.name == "c" for each in nodes):
        made.add(web("third", "c"))
    wanted = web("wanted", "", constraint)
    shown = "unlabeled" if expected.startswith("the node has no label") else "a"
    assert details_of(made, wanted, shown) == (expected,)
