"""Raw scores over all feasible nodes to 0..100.

Owns the two scalings that several plugins share. Follows kube-scheduler v1.36.3,
``pkg/scheduler/framework/plugins/helper/normalize_score.go`` (``DefaultNormalizeScore``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.kernels.integer_division import truncated_quotients

_MAX_SCORE = 100


def normalize_max(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale so that the highest score is 100.

    Args:
        raw: int64[n]; may be empty.

    Returns:
        int64[n]: ``100 * raw / max`` in Go's integers, or ``raw`` itself where no score is above 0.
    """
    highest = int(raw.max(initial=0))
    if highest == 0:
        return raw
    return truncated_quotients(raw * _MAX_SCORE, highest)


def normalize_reverse_max(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale so that the highest score is 0 and the score 0 is 100.

    Args:
        raw: int64[n]; may be empty.

    Returns:
        int64[n]: ``100 - 100 * raw / max`` in Go's integers, or 100 everywhere where no score is above 0.
    """
    highest = int(raw.max(initial=0))
    if highest == 0:
        return np.full(raw.shape, _MAX_SCORE, dtype=np.int64)
    scaled = truncated_quotients(raw * _MAX_SCORE, highest)
    return np.subtract(_MAX_SCORE, scaled, out=scaled)
