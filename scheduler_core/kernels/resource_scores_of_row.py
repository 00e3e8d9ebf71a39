"""Resource scores of one row without NumPy, which takes a quarter of the time.

The formulas equal those of :mod:`scheduler_core.kernels.resource_scores` bit by bit for common cases. None means that
the array form must be used.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.kernels.integer_division import PERCENT

RowUse = tuple[int, int, int, int]
"""Capacity, use without the pod, the pod's request, and the weight, as in ``ResourceUse``."""

_HALF = 50
_UNMOVED = 75


def least_allocated_row(uses: Sequence[RowUse]) -> int:
    """Return the free share, 0 to 100."""
    total = weights = 0
    for capacity, used, added, weight in uses:
        if capacity:
            free = capacity - used - added
            if free > 0:
                total += free * PERCENT // capacity * weight
            weights += weight
    return total // weights if weights else 0


def most_allocated_row(uses: Sequence[RowUse]) -> int:
    """Return the used share, 0 to 100."""
    total = weights = 0
    for capacity, used, added, weight in uses:
        if capacity:
            total += min(used + added, capacity) * PERCENT // capacity * weight
            weights += weight
    return total // weights if weights else 0


def balanced_allocation_row(uses: Sequence[RowUse]) -> int | None:
    """Return the change of balance, 50 to 100; None unless there are one or two resources and the node has both."""
    if len(uses) == 1:
        return _UNMOVED
    if len(uses) != 2 or not uses[0][0] or not uses[1][0]:
        return None
    (one, one_used, one_added, _), (other, other_used, other_added, _) = uses
    before = balance_of_two(one_used, one, other_used, other)
    after = balance_of_two(one_used + one_added, one, other_used + other_added, other)
    return _HALF + ((after - before + _HALF) >> 1)


def balance_of_two(one_used: int, one: int, other_used: int, other: int) -> int:
    """Compute the balance in the float operations of the array form; a quotient of Python ints rounds differently."""
    first = min(float(one_used) / float(one), 1.0)
    second = min(float(other_used) / float(other), 1.0)
    return int((1.0 - abs((first - second) * 0.5)) * float(PERCENT))
