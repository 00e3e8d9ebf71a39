"""Kubernetes' quantity and semver functions.

A quantity keeps, beside its exact amount, whether the reference represents it as a scaled int64: ``isInteger`` and
``asInteger`` depend on that, not on the amount.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import MAX_INT, MIN_INT, Quantity, Semver

_NANO = 10**9
_SPLIT = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_FORM = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_MAX_EXPONENT = 2**31 - 1
# Larger powers of ten are all the same amount: they exceed every quantity that a device has.
_LARGEST_POWER = 400
_LARGEST_FLOAT_EXPONENT = 308
_INT64_DIGITS = 18
# Python limits the length of text that it converts to a number.
_MAX_LENGTH = 4_000


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        EvaluationError: The text is no quantity.
    """
    form = _FORM.fullmatch(text)
    if form is None or not text or len(text) > _MAX_LENGTH:
        raise EvaluationError(f"quantities must match the regular expression '{_SPLIT}'")
    sign = -1 if form[1] == "-" else 1
    whole, fraction, suffix = form[2].lstrip("0"), form[4] or "", form[5]
    rest_is_zero = not whole and form[3] is None and not suffix
    if rest_is_zero:
        return Quantity(0, (0, 0))
    number = whole or "0"
    power, exponent = _suffix(suffix)
    digits = number + fraction
    scaled = _scaled(sign, digits, len(fraction), power, exponent)
    if scaled is not None:
        return Quantity(_nano(*scaled), scaled)
    if not form[2] and not form[4]:
        raise EvaluationError("unable to parse numeric part of quantity")
    return Quantity(_decimal_nano(sign, int(digits), len(fraction), power, exponent), None)


def _suffix(suffix: str) -> tuple[int, int]:
    """Return the power of two and the power of ten of a suffix."""
    if suffix in _BINARY:
        return _BINARY[suffix], 0
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix]
    form = _EXPONENT.fullmatch(suffix)
    if form is None or abs(int(form[1])) > _MAX_EXPONENT:
        raise EvaluationError("unable to parse quantity's suffix")
    return 0, int(form[1])


def _scaled(sign: int, digits: str, places: int, power: int, exponent: int) -> tuple[int, int] | None:
    """Return value and scale where the reference represents the amount as an int64, else None."""
    if power:
        if places:
            return None
        precision = 15 - len(digits) - int(power * 3 / 10) - 1
        scale = 0
    else:
        precision = _INT64_DIGITS - len(digits)
        scale = exponent - places
    if precision < 0 or scale < -9:
        return None
    value = int(digits) << power
    return (sign * value, scale) if value <= MAX_INT else None


def _nano(value: int, scale: int) -> int:
    factor: int = 10 ** min(scale + 9, _LARGEST_POWER)
    return value * factor if value else 0


def _decimal_nano(sign: int, digits: int, places: int, power: int, exponent: int) -> int:
    shift = exponent - places + 9
    amount = digits << power
    if not amount:
        return 0
    if shift >= 0:
        nano = amount * int(10 ** min(shift, _LARGEST_POWER))
    else:
        # The amount has fewer digits than a third of its bits, plus one: a larger shift leaves the smallest amount.
        nano = 1 if -shift > amount.bit_length() // 3 + 1 else -(-amount // int(10**-shift))
    if power:
        nano = min(nano, MAX_INT * _NANO)
    return sign * nano


def _as_int64(quantity: Quantity) -> int | None:
    if quantity.scaled is None:
        return None
    value, scale = quantity.scaled
    if scale < 0:
        return None
    if not value:
        return 0
    whole = value * 10**scale if scale <= _INT64_DIGITS else MAX_INT + 1
    return whole if MIN_INT <= whole <= MAX_INT else None


def _float(quantity: Quantity, _frame: Frame) -> float:
    if quantity.scaled is not None:
        value, scale = quantity.scaled
        return float(value) if scale == 0 else float(value) * _power_of_ten(scale)
    return float(quantity.nano / _NANO) if abs(quantity.nano) < 10**300 else float("inf")


def _power_of_ten(exponent: int) -> float:
    return math.inf if exponent > _LARGEST_FLOAT_EXPONENT else 10.0**exponent


def _integer(quantity: Quantity, _frame: Frame) -> int:
    whole = _as_int64(quantity)
    if whole is None:
        raise EvaluationError("cannot convert value to integer")
    return whole


def _compare(one: Quantity, two: Quantity) -> int:
    return (one.nano > two.nano) - (one.nano < two.nano)


def _sum(one: Quantity, two: Quantity) -> Quantity:
    scaled = None
    if one.scaled is not None and two.scaled is not None:
        scaled = _scaled_sum(one.scaled, two.scaled)
    return Quantity(one.nano + two.nano, scaled, computed=True)


def _scaled_sum(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int] | None:
    if not two[0]:
        return one
    if not one[0]:
        return two
    scale = min(one[1], two[1])
    parts = [value * 10 ** (own - scale) for value, own in (one, two)]
    total = sum(parts)
    fits = all(MIN_INT <= number <= MAX_INT for number in (*parts, total))
    return (total, scale) if fits else None


def _difference(one: Quantity, two: Quantity) -> Quantity:
    # The reference negates the scaled int64, which leaves the smallest one as it is.
    overflows = one.scaled is not None and two.scaled is not None and two.scaled[0] == MIN_INT
    return _sum(one, two if overflows else _negated(two))


def _negated(quantity: Quantity) -> Quantity:
    scaled = quantity.scaled
    return Quantity(-quantity.nano, None if scaled is None else (-scaled[0], scaled[1]))


def _whole(number: int) -> Quantity:
    return Quantity(number * _NANO, (number, 0))


def _is_quantity(text: str, _frame: Frame) -> bool:
    try:
        parse_quantity(text)
    except EvaluationError:
        return False
    return True


_NUMERIC = re.compile(r"[0-9]+", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+", re.ASCII)
_MAX_UINT64 = 2**64 - 1


@lru_cache(maxsize=4096)
def parse_semver(text: str) -> Semver:
    """Parse a semantic version.

    Raises:
        EvaluationError: The text is no semantic version.
    """
    if not text:
        raise EvaluationError("Version string empty")
    if len(text) > _MAX_LENGTH:
        raise EvaluationError("version string too long")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    patch_text, plus, build = parts[2].partition("+")
    patch_text, dash, prerelease = patch_text.partition("-")
    patch = _number(patch_text, "patch")
    identifiers = tuple([_prerelease(part) for part in prerelease.split(".")]) if dash else ()
    if plus:
        for part in build.split("."):
            if not part:
                raise EvaluationError("Build meta data is empty")
            if not _IDENTIFIER.fullmatch(part):
                raise EvaluationError(f"Invalid character(s) found in build meta data {_quote(part)}")
    return Semver(major, minor, patch, identifiers, build)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _number(text: str, part: str) -> int:
    if not all(char in "0123456789" for char in text):
        raise EvaluationError(f"Invalid character(s) found in {part} number {_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f"{part.capitalize()} number must not contain leading zeroes {_quote(text)}")
    if not text or int(text) > _MAX_UINT64:
        reason = "value out of range" if text else "invalid syntax"
        raise EvaluationError(f"strconv.ParseUint: parsing {_quote(text)}: {reason}")
    return int(text)


def _prerelease(text: str) -> int | str:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _NUMERIC.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {_quote(text)}")
        if int(text) > _MAX_UINT64:
            raise EvaluationError(f"strconv.ParseUint: parsing {_quote(text)}: value out of range")
        return int(text)
    if not _IDENTIFIER.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {_quote(text)}")
    return text


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in "0123456789" else f"0{stripped}"
    if len(parts) < 3:
        if any(char in "+-" for char in parts[-1]):
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(text: str, *rest: Any) -> Semver:
    return parse_semver(_normalized(text) if len(rest) > 1 and rest[0] else text)


def _is_semver(text: str, *rest: Any) -> bool:
    try:
        _semver(text, *rest)
    except EvaluationError:
        return False
    return True


def _signed(number: int) -> int:
    return number if number <= MAX_INT else number - (1 << 64)


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "string_to_quantity": lambda text, _frame: parse_quantity(text),
    "is_quantity_string": _is_quantity,
    "quantity_sign": lambda one, _frame: (one.nano > 0) - (one.nano < 0),
    "quantity_is_greater_than": lambda one, two, _frame: one.nano > two.nano,
    "quantity_is_less_than": lambda one, two, _frame: one.nano < two.nano,
    "quantity_compare_to": lambda one, two, _frame: _compare(one, two),
    "quantity_get_float": _float,
    "quantity_get_int": _integer,
    "quantity_is_integer": lambda one, _frame: _as_int64(one) is not None,
    "quantity_add": lambda one, two, _frame: _sum(one, two),
    "quantity_add_int": lambda one, number, _frame: _sum(one, _whole(number)),
    "quantity_sub": lambda one, two, _frame: _difference(one, two),
    "quantity_sub_int": lambda one, number, _frame: _difference(one, _whole(number)),
    "string_to_semver": _semver,
    "string_bool_to_semver": _semver,
    "is_semver_string": _is_semver,
    "is_semver_string_bool": _is_semver,
    "semver_is_greater_than": lambda one, two, _frame: one.compare(two) > 0,
    "semver_is_less_than": lambda one, two, _frame: one.compare(two) < 0,
    "semver_compare_to": lambda one, two, _frame: one.compare(two),
    "semver_major": lambda one, _frame: _signed(one.major),
    "semver_minor": lambda one, _frame: _signed(one.minor),
    "semver_patch": lambda one, _frame: _signed(one.patch),
}
