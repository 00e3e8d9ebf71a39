"""Exact parsing of resource quantities.

Amounts are integer nano-units until the last step, because sums must be exact before they are rounded: two containers
that request ``500m`` bytes need one byte, not two.

Follows ``k8s.io/apimachinery`` v0.37.1, ``pkg/api/resource``: precision ends at nano and magnitude at 2**63-1, rounding
is away from zero.
"""

from __future__ import annotations

import re
from functools import lru_cache

from scheduler_core.errors import QuantityError

NANO = 1_000_000_000
_NANO_PER_MILLI = 1_000_000
_MAX_INT64 = 2**63 - 1

_PATTERN = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([eE])([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL_EXPONENT = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# No quantity of nano precision below 2**63 needs a larger exponent; the bound protects against hostile input.
_MAX_EXPONENT = 64
# Longer text exceeds the precision and range of a quantity.
_MAX_LENGTH = 256


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


@lru_cache(maxsize=16_384)
def nano(quantity: str | float) -> int:
    """Parse a quantity.

    Args:
        quantity: Text such as ``1``, ``250m``, ``1.5Gi`` or ``1e3``; numbers are parsed as their text.

    Returns:
        Nano-units, rounded away from zero and clamped to the range of int64 whole units.

    Raises:
        QuantityError: The text is not a quantity.
    """
    text = str(quantity)
    if len(text) > _MAX_LENGTH:
        raise QuantityError(f'"{text[:20]}..." is too long for a quantity: write at most {_MAX_LENGTH} characters')
    match = _PATTERN.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(f'"{text}" is not a quantity: write a number with an optional suffix, as 500m, 2 or 1.5Gi')
    sign, whole, fraction, _, exponent_text, suffix = match.groups()
    fraction = fraction or ""
    digits = int((whole or "0") + fraction)
    exponent = (int(exponent_text) if exponent_text else _DECIMAL_EXPONENT.get(suffix or "", 0)) + 9 - len(fraction)
    digits *= _BINARY.get(suffix or "", 1)
    if digits == 0:
        return 0
    if exponent > _MAX_EXPONENT:
        magnitude = _MAX_INT64 * NANO
    elif exponent >= 0:
        magnitude = digits * 10**exponent
    else:
        magnitude = _ceil_div(digits, 10**-exponent) if -exponent <= _MAX_EXPONENT + len(fraction) else 1
    magnitude = min(magnitude, _MAX_INT64 * NANO)
    return -magnitude if sign == "-" else magnitude


def whole_units(nano_units: int) -> int:
    """Convert nano-units to whole units (bytes, counts), rounded away from zero and clamped to int64."""
    magnitude = min(_ceil_div(abs(nano_units), NANO), _MAX_INT64)
    return magnitude if nano_units >= 0 else -magnitude


def milli_units(nano_units: int) -> int:
    """Convert nano-units to thousandths (millicores), rounded away from zero and clamped to int64."""
    magnitude = min(_ceil_div(abs(nano_units), _NANO_PER_MILLI), _MAX_INT64)
    return magnitude if nano_units >= 0 else -magnitude


def value(quantity: str | float) -> int:
    """Return a quantity in whole units.

    Raises:
        QuantityError: The text is not a quantity.
    """
    return whole_units(nano(quantity))


DECIMAL_SI = "DecimalSI"
DECIMAL_EXPONENT = "DecimalExponent"
BINARY_SI = "BinarySI"

_DECIMAL_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def notation(quantity: str | float) -> str:
    """Return the notation of a valid quantity: BINARY_SI, DECIMAL_EXPONENT or DECIMAL_SI."""
    text = str(quantity)
    if text.endswith("i"):
        return BINARY_SI
    return DECIMAL_EXPONENT if "e" in text or ("E" in text and not text.endswith("E")) else DECIMAL_SI


def canonical_text(nano_units: int, form: str) -> str:
    """Return the text of a quantity as the API server writes it.

    Args:
        form: Its notation; a binary one applies to whole numbers from 1024 only.
    """
    if nano_units == 0:
        return "0"
    sign, amount = ("-", -nano_units) if nano_units < 0 else ("", nano_units)
    if form == BINARY_SI and amount >= 1024 * NANO and amount % NANO == 0:
        amount //= NANO
        power = 0
        while amount % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
            amount //= 1024
            power += 1
        return f"{sign}{amount}{_BINARY_SUFFIX[power]}"
    exponent = -9
    while amount % 1000 == 0 and exponent < max(_DECIMAL_SUFFIX):
        amount //= 1000
        exponent += 3
    if form == DECIMAL_EXPONENT:
        return f"{sign}{amount}e{exponent}" if exponent else f"{sign}{amount}"
    return f"{sign}{amount}{_DECIMAL_SUFFIX[exponent]}"
