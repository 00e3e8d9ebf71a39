"""How large a spec may be, before anything reads it.

Owns the bounds on depth, count and length. It must not know any one resource: what a field may hold is the models'
business. Why beside the bounds in the CustomResourceDefinitions: a plugin's args are free there, and the API server
takes anything of up to 10,000 levels and some megabytes; what it takes must cost the operator no more than a look.

The walk keeps its own list of what is to be seen, since a function that calls itself ends at a depth of a few hundred.
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
"""Of a label: a DNS name of 253 characters, a slash, 63 more."""

_INT64 = range(-(2**63), 2**64)
_MAX_PROBLEMS = 8
_SHOWN = 64

_Location = tuple[str | int, ...]


def bound_problems(document: object, prefix: str) -> tuple[Problem, ...]:
    """Find what is out of bounds.

    Args:
        document: What was parsed from JSON or YAML.
        prefix: Its field path, such as ``spec``.

    Returns:
        The first few problems; none where it may be read.
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
            message = f"brings the values to more than {MAX_VALUES:,} in all; remove some"
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
    """What is wrong with a value itself, not with those in it."""
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        return f"must have at most {MAX_TEXT_LENGTH:,} characters, not {len(value):,}"
    if isinstance(value, int) and value not in _INT64:
        return "must be a number of at most 64 bits"
    if isinstance(value, Mapping | list | tuple) and len(value) > MAX_VALUES:
        return f"must have at most {MAX_VALUES:,} entries, not {len(value):,}"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                return "must have texts as the names of its fields; put them into quotation marks"
            if len(key) > MAX_KEY_LENGTH:
                return f'has a field with a name of over {MAX_KEY_LENGTH} characters, "{key[:_SHOWN]}..."; remove it'
    return ""
