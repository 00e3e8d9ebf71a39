"""The heap of queued pods, which returns pods in order and removes pods by UID."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.queueing.sub_queues import PodHeap
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.presence import present

COLUMNS = NodeColumns()


def queued(name: str) -> QueuedPod:
    return QueuedPod(COLUMNS.compile_pod(pod(name)), 0.0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3), st.booleans()), max_size=60))
def test_pods_are_popped_in_order(steps: list[tuple[str, int, bool]]) -> None:
    """After any pushes and removals, pods are popped in the order of key and insertion."""
    heap = PodHeap()
    expected: dict[str, tuple[int, int]] = {}
    for arrival, (name, key, removes) in enumerate(steps):
        uid = f"uid-of-default-{name}"
        if removes:
            assert (heap.remove(uid) is not None) is (expected.pop(uid, None) is not None)
        else:
            heap.push(key, queued(name))
            expected[uid] = (key, arrival)
        assert len(heap) == len(expected)
        assert {each.uid for each in heap} == set(expected)
    order = sorted(expected, key=lambda uid: expected[uid])
    for uid in order:
        assert heap.lowest_key() == expected[uid][0]
        popped = present(heap.pop())
        assert popped.uid == uid
    assert heap.pop() is None
    assert heap.lowest_key() is None


def test_removed_entries_are_dropped() -> None:
    """A pod that is pushed again and again does not fill the heap."""
    heap = PodHeap()
    for number in range(10_000):
        heap.push(number, queued("web"))
    assert len(heap) == 1
    assert len(heap._heap) < 100


def test_lookup() -> None:
    """Pods are found by UID."""
    heap = PodHeap()
    web = queued("web")
    heap.push(1, web)
    assert web.uid in heap
    assert list(heap.all()) == [web]
    assert "other" not in heap
