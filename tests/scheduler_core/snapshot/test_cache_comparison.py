"""What the cache check finds, and what it keeps quiet about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.cache_comparison import differences
from scheduler_core.snapshot.cluster_cache import ClusterCache
from tests.support.builders import node, pod


def cache_of(nodes: list[Node], pods: list[Pod]) -> ClusterCache:
    cache = ClusterCache()
    for each in nodes:
        cache.add_node(each)
    for placed in pods:
        cache.add_pod(placed)
    return cache


def running(name: str, node_name: str = "a", cpu: str = "1") -> Pod:
    return pod(name, node_name=node_name, requests={"cpu": cpu})


def test_caches_that_agree_differ_in_nothing() -> None:
    """Whatever the order in which things came."""
    ours = cache_of([node("a"), node("b")], [running("p"), running("q", "b")])
    actual = cache_of([node("b"), node("a")], [running("q", "b"), running("p")])
    assert differences(ours, actual) == []


def test_an_assumed_pod_is_no_difference() -> None:
    """The API server does not know of it yet."""
    ours, actual = cache_of([node("a")], []), cache_of([node("a")], [])
    ours.assume(ours.columns.compile_pod(pod("p", requests={"cpu": "1"})), "a")
    assert differences(ours, actual) == []


Change = Callable[[ClusterCache], object]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda cache: cache.remove_node("b"), "Node b: is not in the cache", id="node lost"),
        pytest.param(
            lambda cache: cache.add_node(node("c")),
            "Node c: is in the cache; the API server has no such node",
            id="node left over",
        ),
        pytest.param(
            lambda cache: cache.update_node(node("b", labels={"x": "y"})),
            "Node b: labels are not those of the API server",
            id="labels",
        ),
        pytest.param(
            lambda cache: cache.remove_pod(running("p").metadata.uid),
            "Pod default/p: is bound to node a and not in the cache",
            id="pod lost",
        ),
        pytest.param(
            lambda cache: cache.add_pod(running("r")),
            "Pod default/r: is in the cache on node a; the API server has no such running pod",
            id="pod left over",
        ),
        pytest.param(
            lambda cache: cache.add_pod(running("p", "b")),
            "Pod default/p: is bound to node a, the cache has it on b",
            id="pod elsewhere",
        ),
        pytest.param(
            lambda cache: cache.columns._account(cache.placed_pods()[0].info, 0, 1),
            "Node a: requested cpu is 1000, the cache has 2000",
            id="pod counted twice",
        ),
    ],
)
def test_each_difference_is_named(change: Change, expected: str) -> None:
    """By kind, name and what is otherwise."""
    ours = cache_of([node("a"), node("b")], [running("p")])
    actual = cache_of([node("a"), node("b")], [running("p")])
    change(ours)
    assert expected in [str(found) for found in differences(ours, actual)]
