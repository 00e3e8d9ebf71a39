"""Resource scores from cached arrays, for numbers that float64 represents exactly.

The parts of each formula of :mod:`scheduler_core.kernels.resource_scores` that do not depend on the pod are cached by
resource and row. The results are equal to the bit. If a number exceeds the proven range, the result is None and the
other formulas must be used.

All integers are stored as float64: for values below 2**53 sums and differences are exact, and nothing is converted. A
division by a capacity is a product with its ``_factor``; :func:`rounded_up_factor` has the proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray

from scheduler_core.kernels.go_arithmetic import PERCENT
from scheduler_core.kernels.resource_scores import balances_of_two, ratio_means

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST_CAPACITY = 2**53 // (5 * PERCENT)
"""Maximum capacity that can be divided by with a factor: about 1.8e13, or 16 TiB in bytes."""

LARGEST_SHARE = 2**45
"""Maximum sum over pods, and maximum request, whose hundredfold and sums of these are exact."""

_LARGEST_BALANCED = 2**52
_LEVEL = 50
_LIFT = 3 * _LEVEL


def rounded_up_factor(divisor: int) -> float:
    """Return the factor that replaces a division rounded down: the float64 next above ``1 / divisor``.

    Proof that ``floor(a * factor)`` is ``a // c`` for integers ``0 <= a <= 100 * c`` and ``0 < c <= 2**53 // 500``: the
    factor is not below ``1 / c``, so ``a * factor`` is not below the integer ``a // c``, and rounding is monotonic. It
    is at most ``(1 + 3 * 2**-53) / c``, so that the rounded product is below ``a / c * (1 + 5 * 2**-53)``. Of an
    integer above it ``a / c`` falls short by ``1 / c`` at least, and being less than 100 it grows by less than
    ``500 * 2**-53``, which is no more than ``1 / c``.

    Returns:
        The factor; 0 for 0, so that shares of a missing resource are 0.
    """
    return nextafter(1.0 / divisor, inf) if divisor else 0.0


def rounded_up_factors(divisors: Floats) -> Floats:
    """Return :func:`rounded_up_factor` of integral float64 values of any shape."""
    reciprocals = np.true_divide(1.0, np.maximum(divisors, 1.0))
    factors: Floats = np.nextafter(reciprocals, inf, out=reciprocals)
    factors[divisors == 0.0] = 0.0
    return factors


class CachedScores(ABC):
    """A formula over some resources, with cached values for every row."""

    __slots__ = ("_beyond", "_largest_capacity", "_largest_share", "_scratch")

    def __init__(self, largest_capacity: int, largest_share: int) -> None:
        self._largest_capacity, self._largest_share = largest_capacity, largest_share
        self._beyond: set[int] = set()
        self._scratch: Floats = np.empty((0, 0))

    def fill(self, capacity: Integers, used: Integers) -> None:
        """Set all rows.

        Args:
            capacity: int64[resource, n], 0 where a row has none.
            used: int64[resource, n], used without the pod.
        """
        beyond = (capacity > self._largest_capacity) | (used > self._largest_share)
        self._beyond = set(np.flatnonzero(beyond.any(axis=0)).tolist())
        self._scratch = np.empty(capacity.shape)
        self._fill(capacity, used)

    def put(self, row: int, capacity: Sequence[int], used: Sequence[int]) -> None:
        """Set one row of those in :meth:`fill`, as Python ints."""
        if max(capacity) > self._largest_capacity or max(used) > self._largest_share:
            self._beyond.add(row)
            return
        self._beyond.discard(row)
        self._put(row, capacity, used)

    def scores(self, added: Sequence[int]) -> Integers | None:
        """Score all rows.

        Args:
            added: The pod's request of each resource, 0 or more.

        Returns:
            int64[n], a new array; None if a number is too large.
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


class CachedShares(CachedScores):
    """Weighted mean of whole percentages, rounded down, over the resources that a row has.

    ``_parts`` are a hundred times the free, or the used, amounts.
    """

    __slots__ = ("_factors", "_mean_factors", "_parts", "_weights")

    def __init__(self, weights: Sequence[int]) -> None:
        """Create an empty cache.

        Args:
            weights: Weights of the resources, each 1 or more.
        """
        super().__init__(LARGEST_CAPACITY, LARGEST_SHARE)
        self._weights = tuple(weights)
        self._parts = self._factors = self._mean_factors = self._scratch

    def _fill(self, capacity: Integers, used: Integers) -> None:
        wholes, taken = capacity.astype(np.float64), used.astype(np.float64)
        self._factors = rounded_up_factors(wholes)
        # The divisors are far smaller than capacities, and the dividends are at most a hundred times as large.
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
        """Return whole percent of each resource with the pod, in the scratch array; 0 where a row has none."""
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
        # Casting truncates, which rounds down because the values are not negative.
        return total.astype(np.int64)

    @abstractmethod
    def _all_parts(self, wholes: Floats, taken: Floats) -> Floats: ...

    @abstractmethod
    def _put_part(self, slot: int, row: int, whole: int, taken: int) -> None: ...

    @abstractmethod
    def _parts_with(self, hundredfold: Floats) -> Floats:
        """Return the parts with the pod, in the scratch array; ``hundredfold`` is float64[resource, 1]."""


class CachedLeastAllocated(CachedShares):
    """:func:`scheduler_core.kernels.resource_scores.least_allocated`."""

    __slots__ = ()

    def _all_parts(self, wholes: Floats, taken: Floats) -> Floats:
        parts: Floats = (wholes - taken) * PERCENT
        return parts

    def _put_part(self, slot: int, row: int, whole: int, taken: int) -> None:
        self._parts[slot, row] = (whole - taken) * PERCENT

    def _parts_with(self, hundredfold: Floats) -> Floats:
        free: Floats = np.subtract(self._parts, hundredfold, out=self._scratch)
        return np.maximum(free, 0.0, out=free)


class CachedMostAllocated(CachedShares):
    """:func:`scheduler_core.kernels.resource_scores.most_allocated`."""

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


class CachedCapacityRatio(CachedMostAllocated):
    """:func:`scheduler_core.kernels.resource_scores.requested_to_capacity_ratio`."""

    __slots__ = ("_table",)

    def __init__(self, weights: Sequence[int], table: Integers) -> None:
        """Create an empty cache.

        Args:
            weights: Weights of the resources, each 1 or more.
        """
        super().__init__(weights)
        self._table = table

    def _scores(self, added: Sequence[int]) -> Integers:
        return ratio_means(self._percentages(added), self._factors == 0.0, self._weights, self._table)


class CachedBalance(CachedScores):
    """:func:`scheduler_core.kernels.resource_scores.balanced_allocation` of two resources.

    A row that does not have both has infinite capacity here, so its shares are 0 and its balance never changes.
    ``_offsets`` contain the contribution of the balance without the pod.
    """

    __slots__ = ("_capacity", "_offsets", "_used")

    def __init__(self) -> None:
        """Create an empty cache."""
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
        before = balances_of_two((one, one_used, 0, 1), (other, other_used, 0, 1))[0] if one and other else PERCENT
        self._offsets[row] = _LIFT - before

    def _scores(self, added: Sequence[int]) -> Integers:
        # 50 and half of (after - before + 50) are half of (after - before + 150), which is never below 0.
        scores = self._balances(added)
        scores += self._offsets
        return np.right_shift(scores, 1, out=scores)

    def _balances(self, added: Sequence[int]) -> Integers:
        """Compute ``(1 - distance / 2) * 100`` as ``(2 - distance) * 50``: powers of two change no digit of a float."""
        shares = np.add(self._used, np.array(added, dtype=np.float64)[:, np.newaxis], out=self._scratch)
        shares /= self._capacity
        np.minimum(shares, 1.0, out=shares)
        distances: Floats = np.subtract(shares[0], shares[1], out=shares[0])
        np.abs(distances, out=distances)
        np.subtract(2.0, distances, out=distances)
        distances *= _LEVEL
        return distances.astype(np.int64)
