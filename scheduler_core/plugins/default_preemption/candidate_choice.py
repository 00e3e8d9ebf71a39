"""Choice among the candidate nodes of a preemption, by :mod:`scheduler_core.kernels.victims`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import numpy as np

from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.kernels.victims import VictimSets, least_harmful

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def best_candidate(candidates: Sequence[PreemptionCandidate], now: datetime) -> PreemptionCandidate:
    """Return the best of at least one candidate; the first of equals.

    Args:
        candidates: Candidates with at least one victim each.
        now: Start time of victims that report none.
    """
    if len(candidates) == 1:
        return candidates[0]
    victims = [info for candidate in candidates for info in candidate.victims]
    sizes = [len(candidate.victims) for candidate in candidates]
    return candidates[
        least_harmful(
            VictimSets(
                starts=np.array([0, *accumulate(sizes[:-1])], dtype=np.int64),
                priorities=np.array([info.priority for info in victims], dtype=np.int64),
                started=np.array(
                    [((info.pod.status.start_time or now) - _EPOCH) // _MICROSECOND for info in victims],
                    dtype=np.int64,
                ),
                violations=np.array([candidate.pdb_violations for candidate in candidates], dtype=np.int64),
            )
        )
    ]
