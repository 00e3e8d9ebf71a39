"""Counts per topology domain.

A domain is a number per row, -1 for rows without a domain. Tables have one slot more than there are domains, for index
-1. Sums use ``bincount``, which costs a tenth of ``add.at`` if most rows count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DomainIds = NDArray[np.int32]
"""int32 per row: the domain of the row, -1 for none."""


def domain_sums(amounts: NDArray[np.integer], ids: DomainIds, domains: int) -> NDArray[np.int64]:
    """Sum amounts per row over domains.

    Args:
        amounts: Integer per row; their sums must stay below 2**53, to be exact in float64.

    Returns:
        int64[domains + 1]; the last slot is for rows without a domain.
    """
    summed = np.bincount(ids + 1, weights=amounts, minlength=domains + 1)
    sums = np.empty(domains + 1, dtype=np.int64)
    sums[:-1] = summed[1:]
    sums[-1] = summed[0]
    return sums


def domains_present(ids: DomainIds, domains: int) -> NDArray[np.bool_]:
    """Return which domains have rows, bool[domains + 1]; the last slot is for rows without a domain."""
    present = np.zeros(domains + 1, dtype=np.bool_)
    present[ids] = True
    return present


class DomainTable:
    """Counts per domain; clones share them until one is changed.

    Attributes:
        ids: int32 per row, the domain of each.
        counts: int64[domains + 1]; read-only for callers. The last slot is 0.
    """

    __slots__ = ("_is_shared", "counts", "ids")

    def __init__(self, ids: DomainIds, counts: NDArray[np.int64], *, is_shared: bool = False) -> None:
        self.ids = ids
        self.counts = counts
        self._is_shared = is_shared

    @classmethod
    def of_rows(cls, amounts: NDArray[np.integer], ids: DomainIds, domains: int) -> DomainTable:
        counts = domain_sums(amounts, ids, domains)
        counts[-1] = 0
        return cls(ids, counts)

    def clone(self) -> DomainTable:
        self._is_shared = True
        return DomainTable(self.ids, self.counts, is_shared=True)

    def add(self, row: int, amount: int) -> bool:
        """Add to the count of a row's domain; return whether the row has one."""
        domain = self.ids[row]
        if domain < 0:
            return False
        if self._is_shared:
            self.counts = self.counts.copy()
            self._is_shared = False
        self.counts[domain] += amount
        return True
