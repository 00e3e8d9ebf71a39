"""Counts by topology domain.

Owns the sums over the rows of a domain and tables that a what-if may change. Must not know nodes or pods: a domain is
a number per row, -1 where a row belongs to none, and tables have one slot more than there are domains, which -1
reaches. Sums go through ``bincount`` because it costs a tenth of ``add.at`` where most rows count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DomainIds = NDArray[np.int32]
"""int32 per row: the row's domain, -1 for none."""


def domain_sums(amounts: NDArray[np.integer], ids: DomainIds, domains: int) -> NDArray[np.int64]:
    """Sum amounts per row over domains.

    Args:
        amounts: Integer per row; their sums stay below 2**53, so that none is rounded on its way through float64.
        ids: int32 per row.
        domains: How many domains there are.

    Returns:
        int64[domains + 1]; the last slot holds the rows of no domain.
    """
    summed = np.bincount(ids + 1, weights=amounts, minlength=domains + 1)
    sums = np.empty(domains + 1, dtype=np.int64)
    sums[:-1] = summed[1:]
    sums[-1] = summed[0]
    return sums


def domains_present(ids: DomainIds, domains: int) -> NDArray[np.bool_]:
    """Which domains any row belongs to, bool[domains + 1]; the last slot says whether a row belongs to none."""
    present = np.zeros(domains + 1, dtype=np.bool_)
    present[ids] = True
    return present


class DomainTable:
    """Counts by domain that clones share until one of them is changed.

    Attributes:
        ids: int32 per row, the domain of each.
        counts: int64[domains + 1]; not to be written to. The last slot is 0.
    """

    __slots__ = ("_is_shared", "counts", "ids")

    def __init__(self, ids: DomainIds, counts: NDArray[np.int64], *, is_shared: bool = False) -> None:
        self.ids = ids
        self.counts = counts
        self._is_shared = is_shared

    @classmethod
    def of_rows(cls, amounts: NDArray[np.integer], ids: DomainIds, domains: int) -> DomainTable:
        """A table of the sums of amounts per row."""
        counts = domain_sums(amounts, ids, domains)
        counts[-1] = 0
        return cls(ids, counts)

    def clone(self) -> DomainTable:
        """A table with the same counts; a change of either is not seen by the other."""
        self._is_shared = True
        return DomainTable(self.ids, self.counts, is_shared=True)

    def add(self, row: int, amount: int) -> bool:
        """Add to the count of a row's domain; tells whether the row has one."""
        domain = self.ids[row]
        if domain < 0:
            return False
        if self._is_shared:
            self.counts = self.counts.copy()
            self._is_shared = False
        self.counts[domain] += amount
        return True
