"""Free amount of a resource, summed over all nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.pod_requests import LARGEST_CAPACITY, PODS
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.row_cache import free_amount
from tests.support.builders import node, pod

NODES = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=4)), max_size=4
)


@given(NODES)
def test_the_sum_over_nodes(generated: list[tuple[int, list[tuple[int, bool]]]]) -> None:
    """The sum has each node's free amount, at least 0, after the simulated removal of pods."""
    cache = ClusterCache()
    removed = []
    cpu = slots = 0
    for number, (capacity, pods) in enumerate(generated):
        cache.add_node(node(f"n{number}", allocatable={"cpu": capacity, "pods": 2}))
        for index, (requested, is_removed) in enumerate(pods):
            info = cache.add_pod(pod(f"p{number}-{index}", node_name=f"n{number}", requests={"cpu": requested}))
            removed += [info] if is_removed else []
        remaining = [requested for requested, is_removed in pods if not is_removed]
        cpu += max(0, capacity - sum(remaining))
        slots += max(0, 2 - len(remaining))
    with ColumnsOverlay(cache.columns) as overlay:
        overlay.remove(removed)
        assert free_amount(cache.columns, "cpu") == 1000 * cpu
        assert free_amount(cache.columns, PODS) == slots


def test_resources_that_no_node_offers() -> None:
    """The free amount is 0 if there are no nodes or no node offers the resource."""
    cache = ClusterCache()
    assert free_amount(cache.columns, "cpu") == 0
    cache.add_node(node("n0"))
    assert free_amount(cache.columns, "example.com/gpu") == 0


def test_a_removed_node() -> None:
    """The row of a removed node does not count."""
    cache = ClusterCache()
    cache.add_node(node("n0"))
    cache.remove_node("n0")
    assert free_amount(cache.columns, "cpu") == free_amount(cache.columns, PODS) == 0


def test_more_than_int64() -> None:
    """The sum of several nodes may exceed int64."""
    cache = ClusterCache()
    for number in range(3):
        cache.add_node(node(f"n{number}", allocatable={"example.com/gpu": str(2**63 - 1)}))
    assert free_amount(cache.columns, "example.com/gpu") == 3 * LARGEST_CAPACITY
