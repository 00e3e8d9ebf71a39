"""Bounds on the depth, size and string lengths of a spec, checked before anything else reads it.

The CustomResourceDefinitions have bounds too, but a plugin's args are free there, and the API server accepts 10,000
levels and some megabytes. Such an object must cost the operator next to nothing. The walk is not recursive, because
recursion fails at a depth of a few hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduler_core.config.validation import field_path
from scheduler_core.errors import Problem

MAX_DEPTH = 32
MAX_VALUES = 10_000
MAX_TEXT_LENGTH = 65_536
MAX_KEY_LENGTH = 317
"""Maximum length of a label key: a DNS name of 253 characters, a slash, 63 more."""

_INT64 = range(-(2**63), 2**64)
_MAX_PROBLEMS = 8
_SHOWN = 64

_Location = tuple[str | int, ...]


def bound_problems(document: object, prefix: str) -> tuple[Problem, ...]:
    """Find values that are out of bounds.

    Args:
        document: Parsed JSON or YAML.
        prefix: Its field path, such as ``spec``.

    Returns:
        The first few problems; none if it may be read.
    """
    problems: list[Problem] = []
    to_see: list[tuple[_Location, object]] = [((), document)]
    seen = 0
    while to_see and len(problems) < _MAX_PROBLEMS:
        location, value = to_see.pop()
        seen += 1
        message = _out_of_bounds(value)
        inner = () if message else tuple(_within(value))
        if inner and len(location) >= MAX_DEPTH:
            message = f"is nested deeper than {MAX_DEPTH} levels; make it flatter"
        elif seen + len(to_see) + len(inner) > MAX_VALUES:
            message = f"increases the total to more than {MAX_VALUES:,} values; remove some"
            to_see.clear()
        if message:
            problems.append(Problem(field_path(prefix, location), message))
        else:
            to_see += [((*location, key), one) for key, one in inner[::-1]]
    return tuple(problems)


def _within(value: object) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def _out_of_bounds(value: object) -> str:
    """Return what is wrong with a value itself, not with the values in it."""
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        return f"must have at most {MAX_TEXT_LENGTH:,} characters, not {len(value):,}"
    if isinstance(value, int) and value not in _INT64:
        return "must be a number of at most 64 bits"
    if isinstance(value, Mapping | list | tuple) and len(value) > MAX_VALUES:
        return f"must have at most {MAX_VALUES:,} entries, not {len(value):,}"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                return "must have strings as field names; put them in quotes"
            if len(key) > MAX_KEY_LENGTH:
                return f'has a field with a name of over {MAX_KEY_LENGTH} characters, "{key[:_SHOWN]}..."; remove it'
    return ""
