"""The function ``format`` of strings, in the locale en_US as the reference formats."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from scheduler_core.cel.conversions import to_string
from scheduler_core.cel.formatting import go_fixed
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import Duration, Mapping, Timestamp, TypeValue, Uint, type_name

_CLAUSE = re.compile(r"(?:\.([0-9]*))?(.)?", re.DOTALL)
_DEFAULT_PRECISION = 6
_MAX_PRECISION = 1_000
_MAX_DIGITS = 20
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = ("int", "uint")
_SUPPORTED: dict[str, tuple[str, ...]] = {
    "s": (
        *_INTEGERS, "list", "map", "double", "bool", "string", "bytes", "type", "null_type",
        "google.protobuf.Timestamp", "google.protobuf.Duration",
    ),
    "d": _INTEGERS,
    "f": ("double", "string"),
    "e": ("double", "string"),
    "b": (*_INTEGERS, "bool"),
    "x": (*_INTEGERS, "string", "bytes"),
    "X": (*_INTEGERS, "string", "bytes"),
    "o": _INTEGERS,
}  # fmt: skip
_TEXTUAL_TYPES = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_STRING_RULE = f"string clause can only be used on {_TEXTUAL_TYPES}"
_HEX_RULE = "only integers, byte buffers, and strings can be formatted as hex"
_RULES = {
    "s": _STRING_RULE,
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": _HEX_RULE,
    "X": _HEX_RULE,
    "o": "octal clause can only be used on integers",
}
_TEXTUAL = (int, Uint, float, bool, str, bytes, Timestamp, Duration, TypeValue)


def format_string(template: str, args: tuple[Any, ...], frame: Frame) -> str:
    """Return *template* with its clauses replaced by *args*.

    Raises:
        EvaluationError: A clause is invalid, or does not support its argument.
    """

    def formatted(verb: str, precision: int, index: int) -> str:
        text = _formatted(verb, precision, args[index], frame)
        frame.add_work(len(text))
        return text

    return _walk(template, len(args), formatted)[0]


def check_format(template: str, kinds: list[str]) -> tuple[str, int]:
    """Check the types of the arguments of a constant template.

    Args:
        template: The template.
        kinds: Names of the types of the arguments; ``dyn`` is checked only when it is evaluated.

    Returns:
        What is wrong, empty for nothing, and the index of the argument that is wrong, -1 for none.
    """
    failed = -1

    def checked(verb: str, _precision: int, index: int) -> str:
        nonlocal failed
        if kinds[index] not in ("dyn", *_SUPPORTED[verb]):
            failed = index
            raise EvaluationError(f"{_RULES[verb]}, was given {kinds[index]}")
        return ""

    try:
        used = _walk(template, len(kinds), checked)[1]
    except EvaluationError as error:
        return str(error), failed
    if len(kinds) > used:
        return f"too many arguments supplied to string.format (expected {used}, got {len(kinds)})", -1
    return "", -1


def _walk(template: str, count: int, formatted: Callable[[str, int, int], str]) -> tuple[str, int]:
    """Return the template with its clauses replaced, and how many there are."""
    parts = []
    position = used = 0
    while position < len(template):
        start = template.find("%", position)
        if start < 0:
            parts.append(template[position:])
            break
        parts.append(template[position:start])
        if template[start + 1 : start + 2] == "%":
            parts.append("%")
            position = start + 2
            continue
        if used >= count:
            raise EvaluationError(f"index {used} out of range")
        if start + 1 >= len(template):
            raise EvaluationError("unexpected end of string")
        verb, precision, position = _clause(template, start + 1)
        try:
            parts.append(formatted(verb, precision, used))
        except EvaluationError as error:
            raise EvaluationError(f"error during formatting: {error}") from None
        used += 1
    return "".join(parts), used


def _clause(template: str, start: int) -> tuple[str, int, int]:
    match = _CLAUSE.match(template, start)
    assert match is not None
    digits, verb = match[1], match[2]
    prefix = "could not parse formatting clause: "
    if verb is None:
        raise EvaluationError(f"{prefix}error while parsing precision: could not find end of precision specifier")
    if digits == "":
        reason = 'strconv.Atoi: parsing "": invalid syntax'
        raise EvaluationError(
            f"{prefix}error while parsing precision: error while converting precision to integer: {reason}"
        )
    precision = _DEFAULT_PRECISION if digits is None else int(digits[:_MAX_DIGITS])
    if precision > _MAX_PRECISION:
        raise EvaluationError(f"{prefix}precision {precision} exceeds maximum allowed precision {_MAX_PRECISION}")
    if verb not in _SUPPORTED:
        raise EvaluationError(f'{prefix}unrecognized formatting clause "{verb}"')
    return verb, precision, match.end()


def _formatted(verb: str, precision: int, arg: Any, frame: Frame) -> str:
    if verb == "s":
        return display(arg, frame)
    if verb == "d":
        return _decimal(arg)
    if verb in "fe":
        return _real(verb, precision, arg)
    if verb == "b":
        if type(arg) is bool:
            return "1" if arg else "0"
        return format(_integer(arg, _RULES["b"]), "b")
    if verb == "o":
        return format(_integer(arg, _RULES["o"]), "o")
    text = _hexadecimal(arg)
    return text.upper() if verb == "X" else text


def _integer(arg: Any, rule: str) -> int:
    if type(arg) not in (int, Uint):
        raise EvaluationError(f"{rule}, was given {type_name(arg)}")
    return int(arg)


def _hexadecimal(arg: Any) -> str:
    if type(arg) is str:
        return arg.encode(errors="surrogatepass").hex()
    if type(arg) is bytes:
        return arg.hex()
    return format(_integer(arg, _HEX_RULE), "x")


def _decimal(arg: Any) -> str:
    return str(_integer(arg, _RULES["d"]))


def _real(verb: str, precision: int, arg: Any) -> str:
    number = _SPECIAL.get(arg) if type(arg) is str else arg
    if type(number) is not float:
        raise EvaluationError(f"{_RULES[verb]}, was given {type_name(arg)}")
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if verb == "f":
        return f"{number:,.{precision}f}"
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{mantissa}\u202f\u00d7\u202f10{_superscript(int(exponent))}"


def _superscript(exponent: int) -> str:
    digits = f"{'-' if exponent < 0 else ''}{abs(exponent):02d}"
    return digits.translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))


def display(arg: Any, frame: Frame) -> str:
    """Return a value as the clause ``%s`` shows it."""
    if type(arg) is tuple:
        return "[" + ", ".join([_element(element, frame) for element in arg]) + "]"
    if isinstance(arg, Mapping):
        entries = sorted([(_key(key, frame), _element(arg.find(key), frame)) for key in arg.iterate()])
        return "{" + ", ".join([f"{key}: {value}" for key, value in entries]) + "}"
    if arg is None:
        return "null"
    if type(arg) in _TEXTUAL:
        return to_string(arg, frame)
    raise EvaluationError(f"{_STRING_RULE}, was given {type_name(arg)}")


def _key(key: Any, frame: Frame) -> str:
    if type(key) not in (str, int, Uint, bool):
        raise EvaluationError(f"no formatting function for map key of type {type_name(key)}")
    return _element(key, frame)


def _element(arg: Any, frame: Frame) -> str:
    if type(arg) is str:
        return f'"{arg}"'
    if type(arg) is float:
        return go_fixed(arg) if math.isfinite(arg) else f'"{arg}"'
    if type(arg) is Timestamp:
        return f'timestamp("{to_string(arg, frame)}")'
    if type(arg) is Duration:
        return f'duration("{to_string(arg, frame)}")'
    return display(arg, frame)
