"""What is free of a resource on all nodes together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.pod_requests import LARGEST_CAPACITY, PODS
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.free_amounts import free_amount
from scheduler_core.snapshot.overlay import ColumnsOverlay
from tests.support.builders import node, pod

NODES = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=4)), max_size=4
)


@given(NODES)
def test_the_sum_over_nodes(drawn: list[tuple[int, list[tuple[int, bool]]]]) -> None:
    """It is what each node has free, at least 0, without the pods that leave."""
    cache = ClusterCache()
    leaving = []
    cpu = slots = 0
    for number, (room, pods) in enumerate(drawn):
        cache.add_node(node(f"n{number}", allocatable={"cpu": room, "pods": 2}))
        for index, (asked, leaves) in enumerate(pods):
            info = cache.add_pod(pod(f"p{number}-{index}", node_name=f"n{number}", requests={"cpu": asked}))
            leaving += [info] if leaves else []
        stay = [asked for asked, leaves in pods if not leaves]
        cpu += max(0, room - sum(stay))
        slots += max(0, 2 - len(stay))
    with ColumnsOverlay(cache.columns) as overlay:
        overlay.remove(leaving)
        assert free_amount(cache.columns, "cpu") == 1000 * cpu
        assert free_amount(cache.columns, PODS) == slots


def test_what_no_node_has() -> None:
    """Nothing is free of a resource that no node offers, nor of any without nodes."""
    cache = ClusterCache()
    assert free_amount(cache.columns, "cpu") == 0
    cache.add_node(node("n0"))
    assert free_amount(cache.columns, "example.com/gpu") == 0


def test_a_node_that_is_gone() -> None:
    """Its row is not read."""
    cache = ClusterCache()
    cache.add_node(node("n0"))
    cache.remove_node("n0")
    assert free_amount(cache.columns, "cpu") == free_amount(cache.columns, PODS) == 0


def test_more_than_int64() -> None:
    """The sum of many nodes may be larger than any one of them may be."""
    cache = ClusterCache()
    for number in range(3):
        cache.add_node(node(f"n{number}", allocatable={"example.com/gpu": str(2**63 - 1)}))
    assert free_amount(cache.columns, "example.com/gpu") == 3 * LARGEST_CAPACITY
