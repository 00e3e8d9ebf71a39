"""The resource scores of one row, in Python's own numbers: a quarter of the time that NumPy takes for so few.

Owns twins of formulas of :mod:`scheduler_core.kernels.allocation`, equal to them bit by bit, for what is common. None
stands for what is not common: then the arrays have to be used. Sources are named there.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.kernels.integer_division import PERCENT

RowUse = tuple[int, int, int, int]
"""Capacity, used before the pod comes, what the pod takes, and the weight, as in ``ResourceUse``."""

_HALF = 50
_UNMOVED = 75


def least_allocated_row(uses: Sequence[RowUse]) -> int:
    """The free share, 0 to 100."""
    total = weights = 0
    for capacity, used, added, weight in uses:
        if capacity:
            free = capacity - used - added
            if free > 0:
                total += free * PERCENT // capacity * weight
            weights += weight
    return total // weights if weights else 0


def most_allocated_row(uses: Sequence[RowUse]) -> int:
    """The taken share, 0 to 100."""
    total = weights = 0
    for capacity, used, added, weight in uses:
        if capacity:
            total += min(used + added, capacity) * PERCENT // capacity * weight
            weights += weight
    return total // weights if weights else 0


def balanced_allocation_row(uses: Sequence[RowUse]) -> int | None:
    """The change of balance, 50 to 100; None unless there are two resources or one, of which the node has some."""
    if len(uses) == 1:
        return _UNMOVED
    if len(uses) != 2 or not uses[0][0] or not uses[1][0]:
        return None
    (one, one_used, one_added, _), (other, other_used, other_added, _) = uses
    before = balance_of_two(one_used, one, other_used, other)
    after = balance_of_two(one_used + one_added, one, other_used + other_added, other)
    return _HALF + ((after - before + _HALF) >> 1)


def balance_of_two(one_used: int, one: int, other_used: int, other: int) -> int:
    """Float by float what the arrays' formula does; a quotient of Python's integers would be rounded once only."""
    first = min(float(one_used) / float(one), 1.0)
    second = min(float(other_used) / float(other), 1.0)
    return int((1.0 - abs((first - second) * 0.5)) * float(PERCENT))
