"""PrioritySort: the order of pods in the active queue."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.plugins.priority_sort import PrioritySort
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.tables import table

HANDLE = FakeHandle()
PLUGIN = PrioritySort(None, HANDLE)


def _queued(priority: int | None, now: float, sequence: int) -> QueuedPod:
    built = pod() if priority is None else pod(priority=priority)
    return QueuedPod(HANDLE.nodes.compile_pod(built), now, sequence)


@table(
    "first, second",
    ("priority before time", _queued(10, 5.0, 2), _queued(1, 1.0, 1)),
    ("no priority counts as 0, above a negative one", _queued(None, 2.0, 2), _queued(-1, 1.0, 1)),
    ("no priority equals 0", _queued(None, 1.0, 1), _queued(0, 2.0, 2)),
    ("the longer wait", _queued(5, 1.0, 2), _queued(5, 2.0, 1)),
    ("the earlier arrival", _queued(5, 1.0, 1), _queued(5, 1.0, 2)),
)
def test_order(first: QueuedPod, second: QueuedPod) -> None:
    """The pod that is attempted first has the smaller key."""
    assert PLUGIN.sort_key(first) < PLUGIN.sort_key(second)


def test_a_requeued_pod_is_sorted_by_its_new_timestamp() -> None:
    """A requeued pod is sorted behind pods of equal priority that were already queued."""
    returned, waiting = _queued(5, 1.0, 1), _queued(5, 2.0, 2)
    returned.timestamp = 3.0
    assert PLUGIN.sort_key(waiting) < PLUGIN.sort_key(returned)


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.floats(0, 1e9)), max_size=8))
def test_keys_are_distinct(pods: list[tuple[int, float]]) -> None:
    """No two pods have equal keys, and no pod is sorted before one of higher priority."""
    queued = [_queued(priority, now, sequence) for sequence, (priority, now) in enumerate(pods)]
    assert len({PLUGIN.sort_key(each) for each in queued}) == len(queued)
    priorities = [each.info.priority for each in sorted(queued, key=PLUGIN.sort_key)]
    assert priorities == sorted(priorities, reverse=True)
