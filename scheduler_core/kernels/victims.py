"""Which of several sets of victims does the least harm.

Owns the arithmetic over flat arrays: all victims of all candidates behind each other. Must not know pods or nodes.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/preemption/preemption.go`` (``pickOneNodeForPreemption``).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_ABOVE_ANY_PRIORITY = 2**31
_INT64_MAX = np.iinfo(np.int64).max


class VictimSets(Struct, frozen=True):
    """Victims of candidates.

    Attributes:
        starts: int64[candidates], where each candidate's victims begin; each has at least one.
        priorities: int64[victims].
        started: int64[victims], when they started, in any unit.
        violations: int64[candidates], how many of its victims a budget protects.
    """

    starts: Integers
    priorities: Integers
    started: Integers
    violations: Integers


def least_harmful(sets: VictimSets) -> int:
    """Choose a candidate.

    In this order, each only among those that are equal so far: fewest violations; lowest priority of the most important
    victim; smallest sum of priorities, each shifted to be above 0, so that more victims are worse whatever the sign;
    fewest victims; the latest start of the victim that has run longest among those of the highest priority; first.

    Args:
        sets: At least one candidate.

    Returns:
        Its position.
    """
    starts, priorities = sets.starts, sets.priorities
    sizes = np.diff(starts, append=len(priorities))
    highest = np.maximum.reduceat(priorities, starts)
    sums = np.add.reduceat(priorities + _ABOVE_ANY_PRIORITY, starts)
    is_highest = priorities == np.repeat(highest, sizes)
    longest = np.minimum.reduceat(np.where(is_highest, sets.started, _INT64_MAX), starts)
    # The last key is the first to decide; the sort is stable, so the first of equals stays first.
    return int(np.lexsort((-longest, sizes, sums, highest, sets.violations))[0])
