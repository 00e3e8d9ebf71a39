"""Base of all configuration models: camelCase names, strict types, rules between fields, and durations.

A pydantic validator for a rule between fields reports one problem and stops, but a configuration error must contain all
problems. So a model returns its rule violations from ``rule_problems``, each with its location.

Durations are in Go's notation (``15s``, ``1m30s``, ``100ms``). ``timedelta`` is not used because it is limited to
microseconds and would print durations differently than users write them. Source: metav1.Duration and the rules of Go's
time.ParseDuration.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from scheduler_core.errors import ConfigError, Problem

RULE_ERROR_TYPE = "rule"
"""The pydantic error type for violated rules."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A violated rule between fields.

    Attributes:
        location: Path from the model with the rule, with camelCase names and list indices as in the document. As
            precise as possible: the surplus entry, not the list that contains it.
        message: What is wrong and what to do.
    """

    location: tuple[str | int, ...]
    message: str


class ConfigModel(BaseModel):
    """A frozen configuration object, camelCase in documents and snake_case in Python.

    Unknown fields are rejected. Types are strict: the text "5" is not a number, as in the API server. A null means that
    the field is not set, as in Kubernetes' decoders.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )

    zero_is_unset: ClassVar[frozenset[str]] = frozenset()
    """Fields (as in documents) whose zero value means "use the default", as in Go's defaulting."""

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, data: Any) -> Any:
        """Remove fields that are null, or zero where zero means the default."""
        if not isinstance(data, Mapping):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None and not (key in cls.zero_is_unset and cls._is_zero(key, value))
        }

    @classmethod
    def _is_zero(cls, key: str, value: object) -> bool:
        """Return whether a value is the zero of its field's type; for a number, neither "0" nor false is."""
        default = next(info.default for info in cls.model_fields.values() if info.alias == key)
        if isinstance(default, (int, float)):
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
        return value in ("", "0", "0s")

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        """Report all violated rules between fields at once."""
        raise_rule_problems(type(self).__name__, self.rule_problems())
        return self

    def rule_problems(self) -> Iterable[RuleProblem]:
        """Return the violated rules between this model's fields; models with such rules override it."""
        return ()

    def document(self) -> dict[str, Any]:
        """Return the model as a document: plain JSON types, camelCase, without default values."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def list_field(description: str | None = None) -> Any:
    """Return the field of a list, by default empty: strict validation of a tuple would reject a list."""
    return Field(default=(), strict=False, description=description)


def raise_rule_problems(title: str, problems: Iterable[RuleProblem]) -> None:
    """Raise all problems as one pydantic error, which keeps their locations within the outer models."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError(RULE_ERROR_TYPE, "{message}", {"message": problem.message}),
            loc=problem.location,
            input=None,
        )
        for problem in problems
    ]
    if details:
        raise ValidationError.from_exception_data(title, details)


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
        return self.nanoseconds / 1_000_000_000

    def __str__(self) -> str:
        """Return Go's notation, see ``format_duration``."""
        return format_duration(self)


def seconds(value: float) -> Duration:
    return Duration(round(value * 1_000_000_000))


def parse_duration(text: str) -> Duration:
    """Parse a duration in Go's notation, such as ``1h15m30.918s``; digits below a nanosecond are dropped.

    Raises:
        ConfigError: The text is not a duration, exceeds 292 years, or has more than 128 characters.
    """
    if len(text) > _MAX_LENGTH:  # Python parses longer numbers slowly or not at all
        raise _unreadable(f"{text[:16]}...", f"write it in at most {_MAX_LENGTH} characters")
    nanoseconds = duration_nanoseconds(text)
    if nanoseconds is None:
        raise _unreadable(text, 'write numbers with units, such as "15s", "1m30s" or "100ms"')
    if abs(nanoseconds) > _MAX_NANOSECONDS:
        raise _unreadable(text, "use less than 292 years")
    return Duration(nanoseconds)


def duration_nanoseconds(text: str) -> int | None:
    """Return the nanoseconds of a duration in Go's notation, of any size; None if the text is not a duration."""
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    total = position = 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            return None
        total += _part_nanoseconds(part[1], _NANOSECONDS[part[2]])
        position = part.end()
    if not body:
        return None
    return -total if text.startswith("-") else total


def format_duration(duration: Duration) -> str:
    """Return a duration in Go's notation as metav1.Duration prints it, such as ``1h0m0s``, ``1.5s`` or ``0s``."""
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
