"""Durations in Go's notation, as in Kubernetes configurations (``15s``, ``1m30s``, ``100ms``).

``timedelta`` is not used because it is limited to microseconds and would print durations differently than users write
them. Source: metav1.Duration and the rules of Go's time.ParseDuration.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from scheduler_core.errors import ConfigError, Problem

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_NANOSECONDS = 2**63 - 1
_MAX_LENGTH = 128


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration in whole nanoseconds; may be negative."""

    nanoseconds: int

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.nanoseconds / 1_000_000_000

    def __str__(self) -> str:
        """Return Go's notation, see ``format_duration``."""
        return format_duration(self)


def seconds(value: float) -> Duration:
    """Return a duration of ``value`` seconds, rounded to a nanosecond."""
    return Duration(round(value * 1_000_000_000))


def parse_duration(text: str) -> Duration:
    """Parse a duration in Go's notation.

    Args:
        text: One or more numbers with units, such as ``1h15m30.918s``; ``0`` needs no unit.

    Returns:
        The duration; digits below a nanosecond are dropped.

    Raises:
        ConfigError: The text is not a duration, exceeds 292 years, or has more than 128 characters.
    """
    if len(text) > _MAX_LENGTH:  # Python parses longer numbers slowly or not at all
        raise _unreadable(f"{text[:16]}...", f"write it in at most {_MAX_LENGTH} characters")
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return Duration(0)
    total = 0
    position = 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            break
        total += _part_nanoseconds(part[1], _NANOSECONDS[part[2]])
        position = part.end()
    if not body or position < len(body):
        raise _unreadable(text, 'write numbers with units, such as "15s", "1m30s" or "100ms"')
    if total > _MAX_NANOSECONDS:
        raise _unreadable(text, "use less than 292 years")
    return Duration(sign * total)


def format_duration(duration: Duration) -> str:
    """Return a duration in Go's notation, as metav1.Duration prints it.

    Returns:
        Text such as ``1h0m0s``, ``1m30s``, ``1.5s``, ``100ms``, ``0s``.
    """
    total = abs(duration.nanoseconds)
    sign = "-" if duration.nanoseconds < 0 else ""
    if total == 0:
        return "0s"
    if total < _NANOSECONDS["s"]:
        unit = next(name for name in ("ms", "µs", "ns") if total >= _NANOSECONDS[name])
        return f"{sign}{_decimal(total, _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(total, _NANOSECONDS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _NANOSECONDS['s'])}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _part_nanoseconds(number: str, unit: int) -> int:
    whole, _, fraction = number.partition(".")
    return int(whole or "0") * unit + int(fraction or "0") * unit // int("1" + "0" * len(fraction))


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _unreadable(text: str, advice: str) -> ConfigError:
    return ConfigError([Problem("", f'"{text}" is not a duration: {advice}')])


def _read(value: object) -> object:
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise ValueError('must be a duration as text, such as "15s"')  # noqa: TRY004 - pydantic collects ValueError only
    try:
        return parse_duration(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


DurationField = Annotated[
    Duration,
    BeforeValidator(_read),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "maxLength": 64}),
]
"""Type of a model's field for a duration, which is text in documents."""
