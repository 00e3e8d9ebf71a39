"""Collects problems in the API server's own words (apimachinery v0.37.1, pkg/util/validation/field)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from scheduler_core.errors import Problem

T = TypeVar("T")
Form = Callable[[str], Iterable[str]]
"""Returns a message for each problem with the format of a text."""
_SHOWN = 64


class FieldErrors:
    """Problems of one object, in the order of the rules."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def required(self, path: str, detail: str = "add it") -> None:
        self.problems.append(Problem(path, f"Required value: {detail}"))

    def invalid(self, path: str, value: object, *details: str) -> None:
        """Add a value once for each detail; none adds nothing."""
        self.problems += [Problem(path, f"Invalid value: {shown(value)}: {detail}") for detail in details]

    def unsupported(self, path: str, value: object, supported: Iterable[str]) -> None:
        values = ", ".join(f'"{each}"' for each in sorted(supported))
        self.problems.append(Problem(path, f"Unsupported value: {shown(value)}: supported values: {values}"))

    def duplicate(self, path: str, value: object) -> None:
        """Add a value that occurs in an earlier entry."""
        self.problems.append(Problem(path, f"Duplicate value: {shown(value)}; remove one"))

    def forbidden(self, path: str, detail: str) -> None:
        """Add a field that must not be set."""
        self.problems.append(Problem(path, f"Forbidden: {detail}; remove it"))

    def not_found(self, path: str, value: object, detail: str = "correct the name") -> None:
        """Add a reference to something that the object does not have."""
        self.problems.append(Problem(path, f"Not found: {shown(value)}: {detail}"))

    def too_long(self, path: str, limit: int) -> None:
        """Add a text with too many bytes."""
        self.problems.append(Problem(path, f"Too long: may not be more than {limit} bytes"))

    def too_many(self, path: str, count: int, limit: int) -> None:
        self.problems.append(Problem(path, f"Too many: {count}: must have at most {limit} items"))

    # -- common rules -------------------------------------------------------------------------------------------------

    def check(self, path: str, value: str, form: Form) -> None:
        self.invalid(path, value, *form(value))

    def name(self, path: str, value: str, form: Form, missing: str = "add it", *, is_required: bool = True) -> None:
        """Require a value of a format; an empty one is missing if it is required, and otherwise valid."""
        if value:
            self.check(path, value, form)
        elif is_required:
            self.required(path, missing)

    def optional(self, path: str, value: str | None, form: Form) -> None:
        """Require a format of a value that is set, also of an empty one."""
        if value is not None:
            self.check(path, value, form)

    def one_of(self, path: str, value: str | None, supported: Collection[str]) -> None:
        """Require one of some values if one is set, also if it is empty."""
        if value is not None and value not in supported:
            self.unsupported(path, value, supported)

    def unique(self, path: str, value: T, seen: set[T], shown_as: str | None = None) -> None:
        """Require a value that is not among those seen before, and add it to them."""
        if value in seen:
            self.duplicate(path, value if shown_as is None else shown_as)
        seen.add(value)

    def choice(self, path: str, value: str, supported: Iterable[str], *, is_required: bool = False) -> None:
        """Require one of some values; an empty one is missing if it is required, and otherwise valid."""
        if not value:
            if is_required:
                self.required(path)
        elif value not in supported:
            self.unsupported(path, value, supported)

    def not_negative(self, path: str, value: float) -> None:
        if value < 0:
            self.invalid(path, value, "must be greater than or equal to 0")

    def between(self, path: str, value: float, low: int, high: int) -> None:
        if not low <= value <= high:
            self.invalid(path, value, f"must be between {low} and {high}, inclusive")


def shown(value: object) -> str:
    """Return a value as the API server prints it, shortened."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return f'"{value[:_SHOWN]}"'
        case _:
            return "an object" if isinstance(value, Mapping) else "a list"


def entries(value: Mapping[str, Any], field: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the entries of a list of objects with their indices; null in a list is an object without fields."""
    return [(index, each or {}) for index, each in enumerate(value.get(field) or ())]


def mapping(value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return an object within an object; one without fields if it is not set."""
    return value.get(field) or {}


def text(value: Mapping[str, Any], field: str) -> str:
    """Return a text; an empty one if it is not set."""
    return value.get(field) or ""


def texts(value: Mapping[str, Any], field: str) -> list[str]:
    return [each or "" for each in value.get(field) or ()]


def other_problems(found: Sequence[Problem], structural: Sequence[Problem]) -> list[Problem]:
    """Return the problems of rules that do not result from an invalid part, which the rules do not see."""
    places = [problem.path for problem in structural]
    return [
        problem
        for problem in dict.fromkeys(found)
        if not any(_is_within(problem.path, place) or _is_within(place, problem.path) for place in places)
    ]


def _is_within(inner: str, outer: str) -> bool:
    return inner == outer or (inner.startswith(outer) and inner[len(outer) :][:1] in (".", "["))
