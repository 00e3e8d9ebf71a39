"""Keys of QueueSort plugins that do not compare: the order is total, and no pod is lost or delayed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.queueing.sub_queues import SortKeys
from tests.support.builders import pod
from tests.support.queue_world import QueueWorld
from tests.support.tables import table


class Raising:
    """Value whose comparisons raise."""

    def __lt__(self, other: object) -> bool:
        raise RuntimeError("no order")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")

    __hash__ = None  # type: ignore[assignment]


@dataclass(order=True)
class Ranked:
    """Value with an order of its own."""

    rank: int


class Size(StrEnum):
    """Text with names."""

    SMALL = "a"
    LARGE = "b"


VALUES: dict[str, object] = {
    "None": None,
    "int": 3,
    "float": 2.5,
    "bool": True,
    "NaN": math.nan,
    "infinite": math.inf,
    "Decimal": Decimal("2.7"),
    "Decimal NaN": Decimal("sNaN"),
    "int64": np.int64(4),
    "text": "b",
    "StrEnum": Size.LARGE,
    "bytes": b"x",
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "time without zone": datetime(2026, 1, 1),  # noqa: DTZ001 - a key may be one
    "tuple": (1, "x"),
    "longer tuple": (1, "x", None),
    "list": [1],
    "set": {1},
    "array": np.arange(3),
    "dict": {"a": 1},
    "ordered": Ranked(1),
    "raises": Raising(),
    "type": int,
    "complex": 1j,
}

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.binary(max_size=2)
)
KEYS = st.recursive(PLAIN, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=5)


@pytest.mark.parametrize(("one", "two"), list(product(VALUES, VALUES)))
def test_any_two_keys_compare(one: str, two: str) -> None:
    """At most one of two keys is lower, whatever the plugin's own values do, also as parts of tuples."""
    keys = SortKeys()
    for wrap in (lambda value: value, lambda value: (1, value), lambda value: ((value,),)):
        a, b = keys.comparable(wrap(VALUES[one]))[0], keys.comparable(wrap(VALUES[two]))[0]
        assert not (a < b < a)
        assert not a < a  # noqa: PLR0124 - the law


@given(a=KEYS, b=KEYS)
def test_the_order_is_the_plugins_own_where_it_has_one(a: Any, b: Any) -> None:
    """Keys that compare are ordered as they compare."""
    keys = SortKeys()
    one, two = keys.comparable(a)[0], keys.comparable(b)[0]
    try:
        own = a < b
    except TypeError:
        return
    if type(a) is type(b) or not (isinstance(a, list) or isinstance(b, list)):
        assert (one < two) is own


@given(a=KEYS, b=KEYS, c=KEYS)
def test_the_order_is_total(a: Any, b: Any, c: Any) -> None:
    """Of any three keys of plain values, the order is transitive, and only equal keys are not ordered."""
    one, two, three = (SortKeys().comparable(each)[0] for each in (a, b, c))
    assert (one < two) + (two < one) + (one == two) == 1
    assert not (one < two < three) or one < three


@table(
    "others, key, problem",
    ("comparable", [(1, "a"), (2, "b")], (3, "c"), ""),
    ("longer", [(1, "a")], (3, "c", "more"), ""),
    ("None", [("a",)], (None,), "it contains None where another pod's key contains str"),
    ("text", [(1,)], ("1",), "it contains str where another pod's key contains int"),
    ("NaN", [(1.0,)], (math.nan,), "it contains NaN"),
    ("another type", [(1,)], (Raising(),), "it contains"),
    ("raises", [(Raising(),)], (Raising(),), "comparing it with another pod's key raises"),
    ("the odd key was the first", [(None,), ("a",)], ("b",), ""),
)
def test_a_key_that_does_not_compare_is_found(others: list[object], key: object, problem: str) -> None:
    """The problem names the two kinds of values; a key that compares has none."""
    keys = SortKeys()
    for each in others:
        keys.comparable(each)
    found = keys.comparable(key)[1]
    assert found.startswith(problem) if problem else found == ""


@pytest.mark.parametrize("odd", VALUES)
def test_no_pod_is_lost_or_delayed_by_odd_keys(odd: str) -> None:
    """Every pod is popped once, the ordinary ones in their order, and the counts are those of the queue."""

    def key(queued: QueuedPod) -> object:
        number = int(queued.info.pod.metadata.name.removeprefix("p"))
        return (VALUES[odd] if number % 3 == 1 else f"{number:02}",)

    world = QueueWorld(sort_key=key)
    for number in (7, 3, 4, 0, 1, 9, 2, 8, 5, 6):
        world.add(pod(f"p{number}"))
    popped = [world.pop() for _ in range(10)]
    numbers = [int(each.info.pod.metadata.name.removeprefix("p")) for each in popped]
    assert sorted(numbers) == list(range(10))
    ordinary = [number for number in numbers if number % 3 != 1]
    assert ordinary == sorted(ordinary)
    for each in popped:
        world.fail(each, ["A"])
    world.queue.on_event(NODE_ADD, None, None)
    world.clock.advance(30)
    assert {place for place, _ in world.queue.readings.places()} == {"active"}
    assert world.queue.readings.counts()["default-scheduler"].active == 10
    world.queue.close()
    assert world.clock.pending == 0


def test_an_odd_key_is_reported_with_its_pod() -> None:
    """The queue reports the pod whose key does not compare, and no other."""
    world = QueueWorld(sort_key=lambda queued: (queued.info.pod.metadata.labels.get("team"),))
    reported: list[tuple[str, str]] = []
    world.queue.on_odd_key.append(lambda queued, problem: reported.append((queued.info.pod.metadata.name, problem)))
    world.add(pod("a", labels={"team": "x"}), pod("b"), pod("c", labels={"team": "y"}))
    assert reported == [("b", "it contains None where another pod's key contains str")]
