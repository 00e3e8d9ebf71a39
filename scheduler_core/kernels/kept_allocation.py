"""The resource scores from arrays that are kept from pod to pod, for numbers that float64 holds exactly.

Owns what of each formula of :mod:`scheduler_core.kernels.allocation` does not depend on the pod, by resource and row,
and the little that is left to do for one. The answers are the same to the bit. Must not know when a row has changed.
Where a number is beyond what is proven here there is no answer, and the other formulas are to be asked.

All integers are held as float64: of values below 2**53 sums and differences are exact, and nothing is converted. A
division by a capacity is a product with its ``_factor``; :func:`rounded_up_factor` has the proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray

from scheduler_core.kernels.allocation import ratio_means
from scheduler_core.kernels.allocation_row import balance_of_two
from scheduler_core.kernels.integer_division import PERCENT

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST_CAPACITY = 2**53 // (5 * PERCENT)
"""The largest capacity that may be divided by with a factor: about 1.8e13, or 16 TiB in bytes."""

LARGEST_SHARE = 2**45
"""The largest sum over pods, and the largest request, of which the hundredfold and sums of those are exact."""

_LARGEST_BALANCED = 2**52
_LEVEL = 50
_LIFT = 3 * _LEVEL


def rounded_up_factor(divisor: int) -> float:
    """The factor that stands for a division whose quotient is rounded down: the float64 next above ``1 / divisor``.

    Proof that ``floor(a * factor)`` is ``a // c`` for integers ``0 <= a <= 100 * c`` and ``0 < c <= 2**53 // 500``: the
    factor is not below ``1 / c``, so ``a * factor`` is not below the integer ``a // c``, and rounding is monotonic. It
    is at most ``(1 + 3 * 2**-53) / c``, so that the rounded product is below ``a / c * (1 + 5 * 2**-53)``. Of an
    integer above it ``a / c`` falls short by ``1 / c`` at least, and being less than 100 it grows by less than
    ``500 * 2**-53``, which is no more than ``1 / c``.

    Args:
        divisor: 0 or more.

    Returns:
        The factor; 0 for 0, so that shares of nothing are 0.
    """
    return nextafter(1.0 / divisor, inf) if divisor else 0.0


def rounded_up_factors(divisors: Floats) -> Floats:
    """:func:`rounded_up_factor` of integral float64 of any shape."""
    reciprocals = np.true_divide(1.0, np.maximum(divisors, 1.0))
    factors: Floats = np.nextafter(reciprocals, inf, out=reciprocals)
    factors[divisors == 0.0] = 0.0
    return factors


class KeptScores(ABC):
    """A formula over some resources, with what it keeps of every row."""

    __slots__ = ("_beyond", "_largest_capacity", "_largest_share", "_scratch")

    def __init__(self, largest_capacity: int, largest_share: int) -> None:
        self._largest_capacity, self._largest_share = largest_capacity, largest_share
        self._beyond: set[int] = set()
        self._scratch: Floats = np.empty((0, 0))

    def fill(self, capacity: Integers, used: Integers) -> None:
        """Take in all rows.

        Args:
            capacity: int64[resource, n], 0 where a row has none.
            used: int64[resource, n], taken before the pod comes.
        """
        beyond = (capacity > self._largest_capacity) | (used > self._largest_share)
        self._beyond = set(np.flatnonzero(beyond.any(axis=0)).tolist())
        self._scratch = np.empty(capacity.shape)
        self._fill(capacity, used)

    def put(self, row: int, capacity: Sequence[int], used: Sequence[int]) -> None:
        """Take in one row that :meth:`fill` had, as Python's numbers."""
        if max(capacity) > self._largest_capacity or max(used) > self._largest_share:
            self._beyond.add(row)
            return
        self._beyond.discard(row)
        self._put(row, capacity, used)

    def scores(self, added: Sequence[int]) -> Integers | None:
        """Score all rows.

        Args:
            added: What the pod takes of each resource, 0 or more.

        Returns:
            int64[n], not shared with anyone; None where a number is too large.
        """
        if self._beyond or max(added) > self._largest_share:
            return None
        return self._scores(added)

    @abstractmethod
    def _fill(self, capacity: Integers, used: Integers) -> None: ...

    @abstractmethod
    def _put(self, row: int, capacity: Sequence[int], used: Sequence[int]) -> None: ...

    @abstractmethod
    def _scores(self, added: Sequence[int]) -> Integers: ...


class KeptShares(KeptScores):
    """The weighted mean of whole percentages, rounded down, over the resources that a row has.

    ``_parts`` are a hundred times what is free, or what is taken.
    """

    __slots__ = ("_factors", "_mean_factors", "_parts", "_weights")

    def __init__(self, weights: Sequence[int]) -> None:
        """Keep nothing yet.

        Args:
            weights: Of the resources, each 1 or more.
        """
        super().__init__(LARGEST_CAPACITY, LARGEST_SHARE)
        self._weights = tuple(weights)
        self._parts = self._factors = self._mean_factors = self._scratch

    def _fill(self, capacity: Integers, used: Integers) -> None:
        wholes, taken = capacity.astype(np.float64), used.astype(np.float64)
        self._factors = rounded_up_factors(wholes)
        # Its divisors are far smaller than capacities, and what it divides is no more than a hundred times as much.
        self._mean_factors = rounded_up_factors(np.array(self._weights, dtype=np.float64) @ (wholes > 0.0))
        self._parts = self._all_parts(wholes, taken)

    def _put(self, row: int, capacity: Sequence[int], used: Sequence[int]) -> None:
        weight_sum = 0
        for slot, (whole, taken, weight) in enumerate(zip(capacity, used, self._weights, strict=True)):
            self._factors[slot, row] = rounded_up_factor(whole)
            self._put_part(slot, row, whole, taken)
            if whole:
                weight_sum += weight
        self._mean_factors[row] = rounded_up_factor(weight_sum)

    def _percentages(self, added: Sequence[int]) -> Floats:
        """In the scratch, whole per cent of each resource once the pod has come; 0 where a row has none."""
        percentages = self._parts_with(np.array(added, dtype=np.float64)[:, np.newaxis] * PERCENT)
        percentages *= self._factors
        return np.floor(percentages, out=percentages)

    def _scores(self, added: Sequence[int]) -> Integers:
        percentages = self._percentages(added)
        for slot, weight in enumerate(self._weights):
            if weight != 1:
                percentages[slot] *= weight
        total: Floats = percentages[0]
        for scores in percentages[1:]:
            total += scores
        total *= self._mean_factors
        # Casting rounds down what is not below 0.
        return total.astype(np.int64)

    @abstractmethod
    def _all_parts(self, wholes: Floats, taken: Floats) -> Floats: ...

    @abstractmethod
    def _put_part(self, slot: int, row: int, whole: int, taken: int) -> None: ...

    @abstractmethod
    def _parts_with(self, hundredfold: Floats) -> Floats:
        """In the scratch, parts once the pod has come, a hundredfold; of it float64[resource, 1]."""


class KeptLeastAllocated(KeptShares):
    """:func:`scheduler_core.kernels.allocation.least_allocated`."""

    __slots__ = ()

    def _all_parts(self, wholes: Floats, taken: Floats) -> Floats:
        parts: Floats = (wholes - taken) * PERCENT
        return parts

    def _put_part(self, slot: int, row: int, whole: int, taken: int) -> None:
        self._parts[slot, row] = (whole - taken) * PERCENT

    def _parts_with(self, hundredfold: Floats) -> Floats:
        free: Floats = np.subtract(self._parts, hundredfold, out=self._scratch)
        return np.maximum(free, 0.0, out=free)


class KeptMostAllocated(KeptShares):
    """:func:`scheduler_core.kernels.allocation.most_allocated`."""

    __slots__ = ("_limits",)

    def _all_parts(self, wholes: Floats, taken: Floats) -> Floats:
        self._limits: Floats = wholes * PERCENT
        parts: Floats = taken * PERCENT
        return parts

    def _put_part(self, slot: int, row: int, whole: int, taken: int) -> None:
        self._limits[slot, row] = whole * PERCENT
        self._parts[slot, row] = taken * PERCENT

    def _parts_with(self, hundredfold: Floats) -> Floats:
        taken: Floats = np.add(self._parts, hundredfold, out=self._scratch)
        return np.minimum(taken, self._limits, out=taken)


class KeptCapacityRatio(KeptMostAllocated):
    """:func:`scheduler_core.kernels.allocation.requested_to_capacity_ratio`."""

    __slots__ = ("_table",)

    def __init__(self, weights: Sequence[int], table: Integers) -> None:
        """Keep nothing yet.

        Args:
            weights: Of the resources, each 1 or more.
            table: int64[101], as there.
        """
        super().__init__(weights)
        self._table = table

    def _scores(self, added: Sequence[int]) -> Integers:
        return ratio_means(self._percentages(added), self._factors == 0.0, self._weights, self._table)


class KeptBalance(KeptScores):
    """:func:`scheduler_core.kernels.allocation.balanced_allocation` of two resources.

    A row that lacks one of them has infinite capacity here, of which no share can ever be taken: its balance stays as
    it is. ``_offsets`` hold what the balance before the pod comes takes off.
    """

    __slots__ = ("_capacity", "_offsets", "_used")

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__(2**63 - 1, _LARGEST_BALANCED)
        self._capacity = self._used = self._scratch
        self._offsets: Integers = np.empty(0, dtype=np.int64)

    def _fill(self, capacity: Integers, used: Integers) -> None:
        self._capacity, self._used = capacity.astype(np.float64), used.astype(np.float64)
        self._capacity[:, np.flatnonzero((capacity == 0).any(axis=0))] = inf
        self._offsets = np.subtract(_LIFT, self._balances((0, 0)))

    def _put(self, row: int, capacity: Sequence[int], used: Sequence[int]) -> None:
        (one, other), (one_used, other_used) = capacity, used
        self._capacity[0, row], self._capacity[1, row] = (one, other) if one and other else (inf, inf)
        self._used[0, row], self._used[1, row] = one_used, other_used
        before = balance_of_two(one_used, one, other_used, other) if one and other else PERCENT
        self._offsets[row] = _LIFT - before

    def _scores(self, added: Sequence[int]) -> Integers:
        # 50 and half of (after - before + 50) are half of (after - before + 150), which is never below 0.
        scores = self._balances(added)
        scores += self._offsets
        return np.right_shift(scores, 1, out=scores)

    def _balances(self, added: Sequence[int]) -> Integers:
        """``(1 - distance / 2) * 100`` as ``(2 - distance) * 50``: powers of two change no digit of a float."""
        shares = np.add(self._used, np.array(added, dtype=np.float64)[:, np.newaxis], out=self._scratch)
        shares /= self._capacity
        np.minimum(shares, 1.0, out=shares)
        distances: Floats = np.subtract(shares[0], shares[1], out=shares[0])
        np.abs(distances, out=distances)
        np.subtract(2.0, distances, out=distances)
        distances *= _LEVEL
        return distances.astype(np.int64)
