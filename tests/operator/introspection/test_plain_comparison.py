"""Tests of the comparison of the cache with plain JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
from bayplan.introspection.cache_debugger import plain_differences

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig
from tests.support.tables import table

NODE = node("a", labels={"zone": "1"}, taints=["dedicated=x:NoSchedule"])
BOUND = pod("bound", node_name="a", labels={"app": "x"}, requests={"cpu": "1"})
WAITING = pod("waiting", requests={"cpu": "2"})
TEXTS: dict[str, Any] = {
    name: json.loads(msgspec.json.encode(each)) for name, each in (("a", NODE), ("bound", BOUND), ("waiting", WAITING))
}


def made(*objects: Node | Pod) -> Rig:
    cluster = rig()
    cluster.add(*objects)
    return cluster


def found(cluster: Rig, changed: str = "", path: tuple[str | int, ...] = (), value: object = None) -> list[str]:
    """Return the differences if the API server has another value of one field."""
    texts = copy.deepcopy(TEXTS)
    if changed:
        parent: Any = texts[changed]
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = value
    nodes, pods = [json.dumps(texts["a"]).encode()], [json.dumps(texts[name]).encode() for name in ("bound", "waiting")]
    return [str(each) for each in plain_differences(cluster.context, nodes, pods)]


def test_an_equal_cache_has_no_difference() -> None:
    """Objects as they were delivered do not differ."""
    assert found(made(NODE, BOUND, WAITING)) == []


@table(
    "changed, path, value, text",
    ("cordon", "a", ("spec", "unschedulable"), True, "Node a: spec.unschedulable is True"),
    ("taints", "a", ("spec", "taints"), [], "Node a: spec.taints is []"),
    ("taints null", "a", ("spec", "taints"), None, "Node a: spec.taints is []"),
    ("taints of a wrong type", "a", ("spec", "taints"), "x", "Node a: spec.taints is x"),
    ("labels", "a", ("metadata", "labels", "zone"), "2", "Node a: metadata.labels is"),
    ("amounts", "a", ("status", "allocatable", "cpu"), "9", "Node a: status.allocatable is"),
    ("other node", "bound", ("spec", "nodeName"), "b", "is bound to node b, the cache has it on a"),
    ("bound", "waiting", ("spec", "nodeName"), "b", "is bound to node b and not in the cache"),
    ("pod labels", "bound", ("metadata", "labels"), None, "bound: metadata.labels is {}"),
    (
        "requests",
        "bound",
        ("spec", "containers", 0, "resources", "requests", "cpu"),
        "7",
        "spec.containers[].resources is",
    ),
)
def test_a_field_differs(changed: str, path: tuple[str | int, ...], value: object, text: str) -> None:
    """A field that the cache has in another version is reported, also one that its decoder does not accept."""
    differences = found(made(NODE, BOUND, WAITING), changed, path, value)
    assert len(differences) == 1
    assert text in differences[0]


def test_missing_objects() -> None:
    """Objects that the cache does not have are reported."""
    assert found(made()) == [
        "Node a: is not in the cache",
        "Pod default/bound: is bound to node a and not in the cache",
        "Pod default/waiting: is pending and not in the queue",
    ]


def test_a_node_that_cannot_be_decoded() -> None:
    """A node that fails closed is a difference, with the reason."""
    cluster = made(NODE, BOUND, WAITING)
    cluster.scheduler.feed.node_unreadable(NODE, "Expected `bool`")
    assert found(cluster) == ["Node a: accepts no pods: node(s) could not be decoded: Expected `bool`"]
