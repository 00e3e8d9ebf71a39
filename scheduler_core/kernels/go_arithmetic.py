"""Integer division on arrays and the natural logarithm, with the same results as Go's.

Division has two forms: one that is right for all int64, and a quicker one for percentages. NumPy's own ``//`` differs
from Go's on negative numbers (it rounds down, Go towards zero), and costs twice as much as a division of floats.

``math.log`` rounds about one in a hundred integers differently than Go's ``math.Log``, so a score that is rounded from
a product with it would sometimes differ. The method and its coefficients are those of FreeBSD's msun, ``e_log.c`` (Sun
Microsystems, 1993), which Go follows in the same order of operations on all platforms without fused multiply-add.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PERCENT = 100

LARGEST_EXACT_WHOLE = 2**53 // (PERCENT + 1)
"""The largest whole for which :func:`percentages` may divide floats: about 8.9e13, or 81 TiB in bytes."""

_LARGEST_SCALED_WHOLE = (2**63 - 1) // PERCENT
"""The largest whole whose hundredfold is in int64: about 9.2e16, or 81 PiB in bytes."""


def truncated_quotients(dividends: NDArray[np.int64], divisors: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Divide and round towards zero; no divisor is 0."""
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


_SQRT_HALF = math.sqrt(2.0) / 2.0
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_ODD = (
    float.fromhex("0x1.5555555555593p-1"),
    float.fromhex("0x1.2492494229359p-2"),
    float.fromhex("0x1.7466496cb03dep-3"),
    float.fromhex("0x1.2f112df3e5244p-3"),
)
_EVEN = (
    float.fromhex("0x1.999999997fa04p-2"),
    float.fromhex("0x1.c71c51d8e78afp-3"),
    float.fromhex("0x1.39a09d078c69fp-3"),
)


def natural_logarithm(number: float) -> float:
    """Return the natural logarithm of a finite positive number.

    The number is split into ``2**exponent * (1 + rest)`` with ``1 + rest`` between the square roots of 1/2 and 2;
    the logarithm of the latter is a polynomial in ``rest / (2 + rest)``.
    """
    fraction, exponent = math.frexp(number)
    if fraction < _SQRT_HALF:
        fraction *= 2.0
        exponent -= 1
    rest = fraction - 1.0
    ratio = rest / (2.0 + rest)
    square = ratio * ratio
    fourth = square * square
    odd = square * (_ODD[0] + fourth * (_ODD[1] + fourth * (_ODD[2] + fourth * _ODD[3])))
    even = fourth * (_EVEN[0] + fourth * (_EVEN[1] + fourth * _EVEN[2]))
    half = 0.5 * rest * rest
    power = float(exponent)
    return power * _LN2_HIGH - ((half - (ratio * (half + (odd + even)) + power * _LN2_LOW)) - rest)
