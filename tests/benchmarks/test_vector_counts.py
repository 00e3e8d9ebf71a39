"""Arrays that count operations return the same results as plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.vector_counts import CountedArray, VectorCounts, counted_arrays
from tests.support.tables import table

_ROWS = 10


@table(
    "operation, expected",
    ("operator", lambda a: a + 1, (1, 10, 80)),
    ("in-place", lambda a: np.add(a, 1, out=a), (1, 10, 0)),
    ("reduction", lambda a: a.max(), (1, 10, 0)),
    ("part", lambda a: a[2:5] * 2, (0, 3, 24)),
    ("slice-without-copy", lambda a: a[2:], (0, 0, 0)),
    ("selected-rows", lambda a: a[np.asarray([1, 3])], (0, 2, 16)),
    ("one-element", lambda a: a[0], (0, 1, 0)),
    ("method-without-ufunc", lambda a: a.argmax(), (1, 10, 0)),
    ("conversion", lambda a: a.astype(np.int8), (1, 10, 10)),
    ("creation", lambda a: np.zeros(2 * len(a)), (1, 20, 160)),
    ("function", lambda a: np.where(a > 1, a, 0).tolist(), (2, 20, 10)),
)
def test_an_operation_is_counted(operation: Callable[[Any], Any], expected: tuple[int, int, int]) -> None:
    """Operations on vectors, elements and bytes are counted, and the result equals that of a plain array."""
    plain = operation(np.arange(_ROWS))
    with counted_arrays():
        array = np.arange(_ROWS)
        with VectorCounts(long=_ROWS) as counts:
            answer = operation(array)
    assert (counts.operations, counts.elements, counts.allocated) == expected
    assert np.array_equal(answer, plain)


def test_results_of_counted_arrays_are_counted() -> None:
    """Results of counted arrays count too, as the scheduler caches them; afterwards numpy creates plain arrays."""
    with counted_arrays():
        result = (np.zeros(3) + 1)[:2] > 0
    assert type(result) is CountedArray
    assert type(np.zeros(3)) is np.ndarray


def test_nothing_is_counted_outside() -> None:
    """Operations before and after the context are not counted."""
    with counted_arrays():
        array = np.zeros(_ROWS)
        counts = VectorCounts(long=1)
        with counts:
            array += 1
        array += 1
    assert counts.operations == 1
