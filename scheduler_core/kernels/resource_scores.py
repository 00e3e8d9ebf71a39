"""Formulas of the four resource scores, over rows, and of three of them for one row.

The forms for one row need no NumPy, which takes a quarter of the time. They equal the array forms bit by bit for common
cases; None means that the array form must be used.

A node without a resource (capacity 0) is scored without it; a node without any gets the score of an empty sum.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/noderesources/`` (``least_allocated.go``,
``most_allocated.go``, ``requested_to_capacity_ratio.go``, ``balanced_allocation.go``) and ``helper/shape_score.go``.
Capacities, requests and their sums are within the bounds of ``scheduler_core.model.pod_requests``: at least 0, and
small enough that the sum of a node's and a pod's requests fits in int64. kube-scheduler lets int64 overflow beyond
2**63 - 1.

The cached forms store the parts of each formula that do not depend on the pod, by resource and row. The results are
equal to the bit. If a number exceeds the proven range, the result is None and the other formulas must be used. Their
integers are stored as float64: for values below 2**53 sums and differences are exact, and nothing is converted. A
division by a capacity is a product with its ``_factor``; :func:`rounded_up_factor` has the proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nextafter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.kernels.go_arithmetic import PERCENT, percentages

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_HALF = 50
_UNMOVED = 75
"""Balanced score of a node on which fewer than two resources count."""


class ResourceUse(Struct, frozen=True):
    """One resource over all rows, in its integer unit.

    Attributes:
        capacity: int64[n], 0 where the node has none.
        used: int64[n], used without the pod.
        added: The pod's request.
        weight: Weight of the resource, 1 or more; the balanced score ignores it.
    """

    capacity: Integers
    used: Integers
    added: int
    weight: int = 1


def least_allocated(uses: Sequence[ResourceUse]) -> Integers:
    """Score by the free share, int64[n]: 100 for an empty node, 0 for a full or overcommitted one."""

    def free(use: ResourceUse) -> Integers:
        parts = np.subtract(use.capacity, use.used)
        parts -= use.added
        return np.maximum(parts, 0, out=parts)

    return _weighted_percentages(uses, free)


def most_allocated(uses: Sequence[ResourceUse]) -> Integers:
    """Score by the used share, int64[n]: 100 for a full or overcommitted node."""
    return _weighted_percentages(uses, _taken)


def requested_to_capacity_ratio(uses: Sequence[ResourceUse], table: Integers) -> Integers:
    """Score by a function of the used share; a resource for which it is 0 does not count.

    Args:
        table: int64[101], the score by whole percent used, 0 to 100; see :func:`scores_by_percentage`.

    Returns:
        int64[n], the weighted mean, halves rounded up.
    """
    taken = [percentages(_taken(use), np.maximum(use.capacity, 1)) for use in uses]
    return ratio_means(taken, [use.capacity == 0 for use in uses], [use.weight for use in uses], table)


def ratio_means(
    taken: Iterable[Floats], lacking: Iterable[NDArray[np.bool_]], weights: Iterable[int], table: Integers
) -> Integers:
    """Return the weighted mean of a function of the used share over the resources.

    Args:
        taken: Per resource, float64[n] of whole percent.
        lacking: Per resource, bool[n], the rows that do not have it.

    Returns:
        int64[n], the mean over resources for which the function is above 0, halves rounded up.
    """
    total: Integers | int = 0
    weight_sums: Integers | int = 0
    for whole_percentages, lacks, weight in zip(taken, lacking, weights, strict=True):
        scores = table.take(whole_percentages.astype(np.intp), mode="clip")
        scores[lacks] = 0
        total = total + (scores if weight == 1 else scores * weight)
        weight_sums = weight_sums + weight * (scores > 0)
    # Go rounds halves away from zero. Sums are small integers: a mean that is not a half is far from one in float64.
    means: Floats = np.true_divide(total, np.maximum(weight_sums, 1))
    means += 0.5
    return np.floor(means, out=means).astype(np.int64)


def scores_by_percentage(points: Sequence[tuple[int, int]]) -> Integers:
    """Return the piecewise linear function through points as a table; it is constant outside them.

    Args:
        points: (percent used, score), ascending in the first, at least one.

    Returns:
        int64[101], read-only; between points with Go's integer division, which rounds towards zero.
    """
    table = np.zeros(PERCENT + 1, dtype=np.int64)
    for percentage in range(PERCENT + 1):
        table[percentage] = _on_line(points, percentage)
    table.flags.writeable = False
    return table


def balanced_allocation(uses: Sequence[ResourceUse]) -> Integers:
    """Score by how much the pod evens out the used shares of the resources.

    Returns:
        int64[n], 50 to 100: 75 if the balance is unchanged, more if it improves.

    Raises:
        IndexError: There are no resources, so the number of rows is not known.
    """
    rows = len(uses[0].capacity)
    if len(uses) == 1:
        return np.full(rows, _UNMOVED, dtype=np.int64)
    present = _presence(uses)
    fractions = np.empty((len(uses), 2, rows), dtype=np.float64)
    for slot, use in enumerate(uses):
        capacity = use.capacity if present is None else np.maximum(use.capacity, 1)
        np.true_divide(use.used, capacity, out=fractions[slot, 0])
        np.true_divide(use.used + use.added, capacity, out=fractions[slot, 1])
    np.minimum(fractions, 1.0, out=fractions)
    deviations = _deviations_of_two(fractions, present) if len(uses) == 2 else _deviations(fractions, present)
    np.subtract(1.0, deviations, out=deviations)
    deviations *= PERCENT
    before, after = deviations.astype(np.int64)
    # Both are 50 to 100, so the sum is not negative and the shift equals Go's division by two.
    scores: Integers = np.subtract(after, before, out=after)
    scores += _HALF
    np.right_shift(scores, 1, out=scores)
    scores += _HALF
    return scores


def _taken(use: ResourceUse) -> Integers:
    parts = np.add(use.used, use.added)
    return np.minimum(parts, use.capacity, out=parts)


def _weighted_percentages(uses: Sequence[ResourceUse], part: Callable[[ResourceUse], Integers]) -> Integers:
    """Return the weighted mean of whole percentages, rounded towards zero, over the resources that a row has.

    Sums are in float64, where they are exact (integers far below 2**53); their division is exact once it is rounded
    down, for the reason given in :func:`scheduler_core.kernels.go_arithmetic.percentages`.
    """
    total: Floats | None = None
    weight_sum = 0
    lacking: list[tuple[NDArray[np.intp], int]] = []
    for use in uses:
        parts, capacity = part(use), use.capacity
        if capacity.min(initial=1) == 0:
            lacking.append((np.flatnonzero(capacity == 0), use.weight))
            # The part is 0 there, so the row adds nothing to the sum.
            capacity = np.maximum(capacity, 1)
        scores = percentages(parts, capacity)
        if use.weight != 1:
            scores *= use.weight
        total = scores if total is None else np.add(total, scores, out=total)
        weight_sum += use.weight
    assert total is not None, "at least one resource is scored"
    if lacking:
        weights = np.full(len(total), weight_sum, dtype=np.int64)
        for rows, weight in lacking:
            weights[rows] -= weight
        np.true_divide(total, np.maximum(weights, 1, out=weights), out=total)
    elif weight_sum != 1:
        np.true_divide(total, weight_sum, out=total)
    # Casting truncates, which is what Go's integer division does.
    return total.astype(np.int64)


def _on_line(points: Sequence[tuple[int, int]], percentage: int) -> int:
    for index, (end, end_score) in enumerate(points):
        if percentage <= end:
            if index == 0:
                return end_score
            start, start_score = points[index - 1]
            rise = (end_score - start_score) * (percentage - start)
            return start_score + (abs(rise) // (end - start)) * (1 if rise >= 0 else -1)
    return points[-1][1]


def _presence(uses: Sequence[ResourceUse]) -> NDArray[np.bool_] | None:
    """Return which row has which resource, bool[resource, n]; None if all rows have all."""
    if all(use.capacity.min(initial=1) > 0 for use in uses):
        return None
    present: NDArray[np.bool_] = np.stack([use.capacity for use in uses]) > 0
    return present


def _deviations_of_two(fractions: Floats, present: NDArray[np.bool_] | None) -> Floats:
    """Return the standard deviations of two fractions, float64[2, n]: half their distance; 0 where one is missing."""
    deviations: Floats = np.subtract(fractions[0], fractions[1], out=fractions[0])
    deviations *= 0.5
    np.abs(deviations, out=deviations)
    if present is not None:
        deviations[:, np.flatnonzero(~present.all(axis=0))] = 0.0
    return deviations


def _deviations(fractions: Floats, present: NDArray[np.bool_] | None) -> Floats:
    """Return the standard deviations over the resources that a row has, float64[2, n], summed in resource order.

    Rows with exactly two resources use the formula for two, which differs from the general one in the last bits.
    """
    counts: Floats | float = float(len(fractions))
    if present is not None:
        counts = np.maximum(present.sum(axis=0, dtype=np.float64), 1.0)
        fractions *= present[:, np.newaxis]
    means = np.zeros(fractions.shape[1:])
    for fraction in fractions:
        means += fraction
    means /= counts
    squares = np.zeros_like(means)
    for slot, fraction in enumerate(fractions):
        distances = fraction - means
        distances *= distances
        if present is not None:
            distances *= present[slot]
        squares += distances
    squares /= counts
    deviations: Floats = np.sqrt(squares, out=squares)
    if present is not None:
        pairs = np.flatnonzero(counts == 2.0)
        # The two present values sort behind the missing ones, which are -1.
        ordered = np.sort(np.where(present[:, np.newaxis, pairs], fractions[:, :, pairs], -1.0), axis=0)
        deviations[:, pairs] = (ordered[-1] - ordered[-2]) * 0.5
    return deviations


RowUse = tuple[int, int, int, int]
"""Capacity, use without the pod, the pod's request, and the weight, as in ``ResourceUse``."""


def least_allocated_row(uses: Sequence[RowUse]) -> int:
    """Return the free share, 0 to 100."""
    total = weights = 0
    for capacity, used, added, weight in uses:
        if capacity:
            free = capacity - used - added
            if free > 0:
                total += free * PERCENT // capacity * weight
            weights += weight
    return total // weights if weights else 0


def most_allocated_row(uses: Sequence[RowUse]) -> int:
    """Return the used share, 0 to 100."""
    total = weights = 0
    for capacity, used, added, weight in uses:
        if capacity:
            total += min(used + added, capacity) * PERCENT // capacity * weight
            weights += weight
    return total // weights if weights else 0


def balanced_allocation_row(uses: Sequence[RowUse]) -> int | None:
    """Return the change of balance, 50 to 100; None unless there are one or two resources and the node has both."""
    if len(uses) == 1:
        return _UNMOVED
    if len(uses) != 2 or not uses[0][0] or not uses[1][0]:
        return None
    before, after = balances_of_two(*uses)
    return _HALF + ((after - before + _HALF) >> 1)


def balances_of_two(use: RowUse, other_use: RowUse) -> tuple[int, int]:
    """Compute the balance without and with the pod, in the float operations of the array form.

    A quotient of Python ints rounds differently.
    """
    (one, one_used, one_added, _), (other, other_used, other_added, _) = use, other_use
    capacity, other_capacity = float(one), float(other)
    first, second = min(float(one_used) / capacity, 1.0), min(float(other_used) / other_capacity, 1.0)
    before = int((1.0 - abs((first - second) * 0.5)) * float(PERCENT))
    first = min(float(one_used + one_added) / capacity, 1.0)
    second = min(float(other_used + other_added) / other_capacity, 1.0)
    return before, int((1.0 - abs((first - second) * 0.5)) * float(PERCENT))


Amounts = NDArray[np.int64] | NDArray[np.float64]


def imbalance(requested: Amounts, allocatable: Amounts) -> float | None:
    """Return the standard deviation of the nodes' utilization, 0 to 0.5.

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
