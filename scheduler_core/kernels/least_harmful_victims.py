"""Choice of the least harmful of several sets of preemption victims.

Works on flat arrays that contain the victims of all candidates one after another.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/preemption/preemption.go`` (``pickOneNodeForPreemption``).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_ABOVE_ANY_PRIORITY = 2**31
_INT64_MAX = np.iinfo(np.int64).max


class VictimSets(Struct, frozen=True):
    """Victims of all candidates.

    Attributes:
        starts: int64[candidates], index of each candidate's first victim; each has at least one.
        priorities: int64[victims].
        started: int64[victims], start times, in any unit.
        violations: int64[candidates], number of victims that violate a PodDisruptionBudget.
    """

    starts: Integers
    priorities: Integers
    started: Integers
    violations: Integers


def least_harmful(sets: VictimSets) -> int:
    """Return the index of the best candidate.

    Criteria, in this order: fewest budget violations; lowest priority of the most important victim; smallest sum of
    priorities, each shifted to be positive, so that more victims are worse for any sign; fewest victims; latest start
    of the longest running victim among those of the highest priority; first candidate.

    Args:
        sets: At least one candidate.
    """
    starts, priorities = sets.starts, sets.priorities
    sizes = np.diff(starts, append=len(priorities))
    highest = np.maximum.reduceat(priorities, starts)
    sums = np.add.reduceat(priorities + _ABOVE_ANY_PRIORITY, starts)
    is_highest = priorities == np.repeat(highest, sizes)
    longest = np.minimum.reduceat(np.where(is_highest, sets.started, _INT64_MAX), starts)
    # The last key is the primary one; the sort is stable, so the first of equals stays first.
    return int(np.lexsort((-longest, sizes, sums, highest, sets.violations))[0])
