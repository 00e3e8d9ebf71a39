"""The choice by a ranking: a pod goes to the best row, with what plugins prepared for one that is like it.

Owns what such an attempt carries on with. It must not know why the ranking serves the pod.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.node_selection import row_of_ties
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.runtime.ranking import Ranking


def best_of(context: CycleContext, attempt: Attempt, prepared: CycleState, ranking: Ranking) -> str:
    """The node of the best row; the attempt has its own copy of what was prepared from then on."""
    times = attempt.state.times
    attempt.state = prepared.clone()
    attempt.state.times = times
    attempt.feasible_count = ranking.fitting
    tied = np.flatnonzero(ranking.keys == ranking.keys.max())
    return context.cache.columns.node_name(row_of_ties(context, attempt, tied))
