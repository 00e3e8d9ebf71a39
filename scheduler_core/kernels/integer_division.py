"""Integer division as Go does it, on arrays.

Owns two forms: one that is right for all int64, and a quicker one for percentages. NumPy's own ``//`` differs from Go's
on negative numbers (it rounds down, Go towards zero), and costs twice as much as a division of floats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PERCENT = 100

LARGEST_EXACT_WHOLE = 2**53 // (PERCENT + 1)
"""The largest whole for which :func:`percentages` may divide floats: about 8.9e13, or 81 TiB in bytes."""


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
    """How many whole per cent the parts are of the wholes: ``parts * 100 / wholes`` in int64, rounded towards zero.

    Proof that floats give the same for wholes up to ``W = LARGEST_EXACT_WHOLE``: let ``a = 100 * part`` and
    ``c = whole``, so ``a + c <= 101 * W <= 2**53`` and both are exact as float64. Rounding is monotonic, so the float
    quotient is never below the integer ``floor(a / c)``. It could only reach the integer ``k`` above ``a / c`` if the
    gap ``k - a / c``, which is at least ``1 / c``, were at most half the distance from ``k`` to the float64 before it,
    and that is at most ``k * 2**-53``. But ``k < a / c + 1`` gives ``k * c < a + c <= 2**53``, so ``1 / c`` is more.

    Larger wholes take the integer division, where ``parts * 100`` wraps around just as it does in the reference.

    Args:
        parts: int64[n], from 0 to the whole.
        wholes: int64[n], 1 or more.

    Returns:
        float64[n] of integral values, 0 to 100 unless the product wrapped around.
    """
    scaled = parts * PERCENT
    if wholes.max(initial=0) > LARGEST_EXACT_WHOLE:
        return truncated_quotients(scaled, wholes).astype(np.float64)
    quotients: NDArray[np.float64] = np.true_divide(scaled, wholes)
    return np.floor(quotients, out=quotients)
