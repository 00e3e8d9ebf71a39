"""Values as text, in Go's notation, as they occur in error messages."""

from __future__ import annotations

import math
from typing import Any

from scheduler_core.cel.values import (
    Cidr,
    DomainMapping,
    Duration,
    IpAddress,
    Mapping,
    NamedFormat,
    Optional,
    Quantity,
    Semver,
    Timestamp,
    TypeValue,
    Uint,
    Url,
)

_GO_TYPES: dict[type, str] = {
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    tuple: "*types.baseList",
    Mapping: "*types.baseMap",
    DomainMapping: "dra.mapper",
    TypeValue: "*types.Type",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
    Optional: "*types.Optional",
    Semver: "cel.Semver",
    IpAddress: "cel.IP",
    Cidr: "cel.CIDR",
    Url: "cel.URL",
    NamedFormat: "cel.Format",
}

_NATIVE_GO_TYPES: dict[type, str] = {
    bool: "bool",
    int: "int64",
    Uint: "uint64",
    float: "float64",
    str: "string",
    bytes: "[]uint8",
    type(None): "structpb.NullValue",
    tuple: "[]ref.Val",
    Mapping: "map[ref.Val]ref.Val",
    DomainMapping: "map[string]interface {}",
    Duration: "time.Duration",
    Timestamp: "time.Time",
    Optional: "<nil>",
    Quantity: "*resource.Quantity",
    Semver: "semver.Version",
    IpAddress: "netip.Addr",
    Cidr: "netip.Prefix",
    Url: "*url.URL",
    NamedFormat: "cel.Format",
}

_EXPONENT_FROM = 6
"""Smallest exponent that Go prints as such, where a number is printed with as few digits as possible."""


def go_float(number: float) -> str:
    """Return the shortest text that reads back as *number*, as Go's ``%g`` and ``%v`` print it."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits, exponent = _shortest(number)
    sign = "-" if math.copysign(1, number) < 0 else ""
    if exponent < -4 or exponent >= _EXPONENT_FROM:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + positional(digits, exponent)


def positional(digits: str, exponent: int) -> str:
    """Return digits with the decimal point after the digit that counts 10 to the power of *exponent*."""
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole


def go_fixed(number: float) -> str:
    """Return the shortest positional text that reads back as *number*, as Go's ``strconv.FormatFloat(x, 'f', -1)``."""
    if math.isnan(number) or math.isinf(number):
        return go_float(number)
    digits, exponent = _shortest(number)
    return ("-" if math.copysign(1, number) < 0 else "") + positional(digits, exponent)


def _shortest(number: float) -> tuple[str, int]:
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or "0") + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip("0")
    if not stripped:
        return "0", 0
    power -= len(digits) - len(stripped)
    return stripped.rstrip("0") or "0", power


def go_text(value: Any) -> str:
    """Return a scalar as Go's ``%v`` prints it."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return go_float(value)
    if type(value) in (int, Uint):
        return str(int(value))
    if value is None:
        return "null"
    return str(value)


def go_quoted(text: str) -> str:
    """Return *text* in double quotes, as Go's ``%q`` prints it."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join([escapes.get(char, char) for char in text]) + '"'


def go_type(value: Any) -> str:
    """Return the name of the Go type that represents *value* in the reference, as its internal errors show it."""
    if isinstance(value, Quantity):
        return "*cel.Quantity" if value.computed else "cel.Quantity"
    return _GO_TYPES[type(value)]


def native_go_type(value: Any) -> str:
    """Return the name of the native Go type of *value* in the reference, as errors of derived attributes show it."""
    return _NATIVE_GO_TYPES[type(value)]
