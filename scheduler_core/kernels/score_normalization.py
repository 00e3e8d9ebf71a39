"""Normalization of raw scores of all feasible nodes to 0..100, as shared by several plugins.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/helper/normalize_score.go``
(``DefaultNormalizeScore``). There, products beyond int64 overflow; here such scores are scaled exactly. No score is
below ``-_LARGEST_SCALED``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.kernels.integer_division import truncated_quotients

_MAX_SCORE = 100
_LARGEST_SCALED = (2**63 - 1) // _MAX_SCORE


def normalize_max(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale so that the highest score is 100.

    Args:
        raw: int64[n]; may be empty.

    Returns:
        int64[n]: ``100 * raw / max`` in Go's integers, or ``raw`` itself if no score is above 0.
    """
    highest = int(raw.max(initial=0))
    if highest == 0:
        return raw
    return _scaled(raw, highest)


def normalize_reverse_max(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale so that the highest score is 0 and the score 0 is 100.

    Args:
        raw: int64[n]; may be empty.

    Returns:
        int64[n]: ``100 - 100 * raw / max`` in Go's integers, or 100 for all if no score is above 0.
    """
    highest = int(raw.max(initial=0))
    if highest == 0:
        return np.full(raw.shape, _MAX_SCORE, dtype=np.int64)
    scaled = _scaled(raw, highest)
    return np.subtract(_MAX_SCORE, scaled, out=scaled)


def _scaled(raw: NDArray[np.int64], highest: int) -> NDArray[np.int64]:
    if highest <= _LARGEST_SCALED:
        return truncated_quotients(raw * _MAX_SCORE, highest)
    exact = [abs(score) * _MAX_SCORE // highest * (1 if score >= 0 else -1) for score in raw.tolist()]
    return np.array(exact, dtype=np.int64)
