"""How well nodes are packed and loaded, on arrays of their amounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.int64] | NDArray[np.float64]


def imbalance(requested: Amounts, allocatable: Amounts) -> float | None:
    """Return the standard deviation of the nodes' utilization, 0 to 0.5.

    Args:
        allocatable: Amount per node; nodes with 0 do not count.

    Returns:
        None if fewer than two nodes have the resource, or none of it is requested.
    """
    has = allocatable > 0
    shares = requested[has] / allocatable[has]
    return float(shares.std()) if shares.size > 1 and shares.any() else None


def unusable_shares(
    free: Mapping[str, Amounts], slots: NDArray[np.bool_], kinds: Iterable[tuple[Sequence[tuple[str, int]], int]]
) -> dict[str, float]:
    """Return the share of free amounts on nodes where a pod does not fit, averaged over pods.

    Args:
        free: Free amount per node, by resource; every requested resource has an entry.
        kinds: (resource, amount) of what equal pods request, with amounts above 0, and the number of these pods.

    Returns:
        Shares from 0 to 1 by resource; resources without free amounts, or that no pod requests, are missing.
    """
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    for requests, pods in kinds:
        fits = slots
        for resource, amount in requests:
            fits = fits & (free[resource] >= amount)
        for resource, _ in requests:
            available = float(free[resource].sum())
            if available > 0:
                share = float(free[resource][~fits].sum()) / available
                totals[resource] = totals.get(resource, 0.0) + pods * share
                counts[resource] = counts.get(resource, 0) + pods
    return {resource: totals[resource] / counts[resource] for resource in totals}
