"""Natural logarithm with the same last bit as Go's.

``math.log`` rounds about one in a hundred integers differently than Go's ``math.Log``, so a score that is rounded from
a product with it would sometimes differ.

The method and its coefficients are those of FreeBSD's msun, ``e_log.c`` (Sun Microsystems, 1993), which Go follows in
the same order of operations on all platforms without fused multiply-add.
"""

from __future__ import annotations

import math

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
