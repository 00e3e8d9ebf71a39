"""What exactly nodes lack by topology spread constraints."""

from __future__ import annotations

import pytest

from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Taint
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, Rig, rig

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
    instance = made.context.profiles.get(DEFAULT_NAME)
    assert instance is not None
    columns = made.context.cache.columns
    found = made.scheduler.cycles.examiner.examine(instance, columns.compile_pod(wanted))
    [miss] = [each for each in near_misses(columns, instance, found, 9) if each.node == name]
    return tuple(detail for lack in miss.lacks for detail in lack.details)


@pytest.mark.parametrize(
    ("nodes", "constraint", "expected"),
    [
        pytest.param(
            [host("a"), host("b")],
            spread(),
            f"{HOST}=a has 1 matching pod (2 with this pod), maxSkew 1, the minimum is 0 in empty domain b",
            id="an empty domain",
        ),
        pytest.param(
            [host("a"), host("b", CONTROL_PLANE), host("c")],
            spread(),
            f"{HOST}=a has 1 matching pod (2 with this pod), maxSkew 1, the minimum is 0 in empty domain b; the pod "
            "tolerates no node of b: nodeTaintsPolicy: Honor would not count it, and the node would be admitted",
            id="an empty domain whose taints are not tolerated",
        ),
        pytest.param(
            [host("a"), host("c")],
            spread(min_domains=3),
            f"{HOST}=a has 1 matching pod (2 with this pod), maxSkew 1, the minimum is 0 because there are 2 of "
            "minDomains 3 domains; minDomains 2 would admit the node",
            id="fewer domains than minDomains",
        ),
        pytest.param(
            [host("a"), node("unlabeled")],
            spread(),
            f"the node has no label {HOST}",
            id="no label",
        ),
    ],
)
def test_topology_spread(nodes: list[Node], constraint: TopologySpreadConstraint, expected: str) -> None:
    """The details name the domain, its count, maxSkew, the minimum, who sets it, and the policy that would help."""
    made = rig(defaults=default_plugins())
    made.add(*nodes, web("first", "a"))
    if any(each.metadata.name == "c" for each in nodes):
        made.add(web("third", "c"))
    wanted = web("wanted", "", constraint)
    shown = "unlabeled" if expected.startswith("the node has no label") else "a"
    assert details_of(made, wanted, shown) == (expected,)
