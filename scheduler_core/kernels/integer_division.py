"""Integer division as Go does it, on arrays.

There are two forms: one that is right for all int64, and a quicker one for percentages. NumPy's own ``//`` differs
from Go's on negative numbers (it rounds down, Go towards zero), and costs twice as much as a division of floats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PERCENT = 100

LARGEST_EXACT_WHOLE = 2**53 // (PERCENT + 1)
"""The largest whole for which :func:`percentages` may divide floats: about 8.9e13, or 81 TiB in bytes."""

_LARGEST_SCALED_WHOLE = (2**63 - 1) // PERCENT
"""The largest whole whose hundredfold is in int64: about 9.2e16, or 81 PiB in bytes."""


def truncated_quotients(dividends: NDArray[np.int64], divisors: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Divide and round towards zero.

    Args:
        dividends: int64[n].
        divisors: int64[n] or one number; none of them 0.

    Returns:
        int64[n].
    """
    quotients: NDArray[np.int64] = np.floor_divide(dividends, divisors)
    below_zero = quotients < 0
    if below_zero.any():
        quotients += below_zero & (quotients * divisors != dividends)
    return quotients


def percentages(parts: NDArray[np.int64], wholes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the whole percentages of the parts in the wholes: ``parts * 100 / wholes``, rounded down.

    Proof that floats give the same for wholes up to ``W = LARGEST_EXACT_WHOLE``: let ``a = 100 * part`` and
    ``c = whole``, so ``a + c <= 101 * W <= 2**53`` and both are exact as float64. Rounding is monotonic, so the float
    quotient is never below the integer ``floor(a / c)``. It could only reach the integer ``k`` above ``a / c`` if the
    gap ``k - a / c``, which is at least ``1 / c``, were at most half the distance from ``k`` to the float64 before it,
    and that is at most ``k * 2**-53``. But ``k < a / c + 1`` gives ``k * c < a + c <= 2**53``, so ``1 / c`` is more.

    Larger wholes take the integer division, and above 81 PiB that of Python. There ``parts * 100`` overflows int64 in
    kube-scheduler, whose scores are then arbitrary or, outside 0 to 100, fail every pod; here they stay exact.

    Args:
        parts: int64[n], from 0 to the whole.
        wholes: int64[n], 1 or more.

    Returns:
        float64[n] of integral values, 0 to 100.
    """
    scaled = parts * PERCENT
    quotients: NDArray[np.float64]
    if wholes.max(initial=0) > LARGEST_EXACT_WHOLE:
        quotients = np.floor_divide(scaled, wholes).astype(np.float64)
        for row in np.flatnonzero(wholes > _LARGEST_SCALED_WHOLE).tolist():
            quotients[row] = parts.item(row) * PERCENT // wholes.item(row)
        return quotients
    quotients = np.true_divide(scaled, wholes)
    return np.floor(quotients, out=quotients)
