"""Differences between the cache and the API server that the cache check reports."""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.cluster_cache import ClusterCache, differences
from tests.support.builders import node, pod
from tests.support.tables import table


def cache_of(nodes: list[Node], pods: list[Pod]) -> ClusterCache:
    cache = ClusterCache()
    for each in nodes:
        cache.add_node(each)
    for bound in pods:
        cache.add_pod(bound)
    return cache


def running(name: str, node_name: str = "a", cpu: str = "1") -> Pod:
    return pod(name, node_name=node_name, requests={"cpu": cpu})


def test_equal_caches_have_no_differences() -> None:
    """The order in which nodes and pods were added is no difference."""
    ours = cache_of([node("a"), node("b")], [running("p"), running("q", "b")])
    actual = cache_of([node("b"), node("a")], [running("q", "b"), running("p")])
    assert differences(ours, actual) == []


def test_an_assumed_pod_is_not_a_difference() -> None:
    """An assumed pod is not reported, because the API server has not bound it yet."""
    ours, actual = cache_of([node("a")], []), cache_of([node("a")], [])
    ours.assume(ours.columns.compile_pod(pod("p", requests={"cpu": "1"})), "a")
    assert differences(ours, actual) == []


Change = Callable[[ClusterCache], object]


@table(
    "change, expected",
    ("node missing", lambda cache: cache.remove_node("b"), "Node b: is not in the cache"),
    ("stale node", lambda cache: cache.add_node(node("c")), "Node c: is in the cache; the API server has no such node"),
    (
        "labels",
        lambda cache: cache.add_node(node("b", labels={"x": "y"})),
        "Node b: labels are not those of the API server",
    ),
    (
        "pod missing",
        lambda cache: cache.remove_pod(running("p").metadata.uid),
        "Pod default/p: is bound to node a and not in the cache",
    ),
    (
        "stale pod",
        lambda cache: cache.add_pod(running("r")),
        "Pod default/r: is in the cache on node a; the API server has no such running pod",
    ),
    (
        "pod on another node",
        lambda cache: cache.add_pod(running("p", "b")),
        "Pod default/p: is bound to node a, the cache has it on b",
    ),
    (
        "pod counted twice",
        lambda cache: cache.columns._account(cache.placed_pods()[0].info, 0, 1),
        "Node a: requested cpu is 1000, the cache has 2000",
    ),
)
def test_each_difference_is_named(change: Change, expected: str) -> None:
    """A difference has the kind, the name, and the differing field."""
    ours = cache_of([node("a"), node("b")], [running("p")])
    actual = cache_of([node("a"), node("b")], [running("p")])
    change(ours)
    assert expected in [str(found) for found in differences(ours, actual)]
