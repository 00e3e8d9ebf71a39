"""Comparable forms of the keys of third-party QueueSort plugins.

A key may be any value, and an exception in the middle of a heap operation would lose pods. So each part of a key is
stored with the rank of its kind: parts of one kind are ordered as the plugin's values are, and parts of different
kinds, such as a label's value and None for a missing label, by their ranks. The order is total, and it is that of the
plugin wherever the values compare. Missing and unordered values (None, NaN) come last, so they move no pod forward.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

_NUMBER, _TEXT, _BYTES, _TUPLE, _LIST, _NAIVE_TIME, _TIME, _OTHER, _NONE, _UNORDERED = range(10)
_ODD = (_NONE, _UNORDERED)
_NUMBERS = (int, float, Decimal, Fraction, np.integer, np.floating)
_KIND_NAMES = {_NONE: "None", _UNORDERED: "NaN"}

Part = tuple[Any, ...]
"""Rank of a value's kind, then the value in comparable form."""


class _Guarded:
    """A value of another type: a comparison that raises makes it equal to the other value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Guarded) and _holds(lambda: self.value == other.value, otherwise=True)

    def __lt__(self, other: _Guarded) -> bool:
        return _holds(lambda: self.value < other.value, otherwise=False)  # type: ignore[operator]  # may be ordered

    __hash__ = None  # type: ignore[assignment]  # equality is not an equivalence


def _holds(compare: Callable[[], object], *, otherwise: bool) -> bool:
    try:
        return bool(compare())
    except Exception:
        return otherwise


class SortKeys:
    """The keys of one QueueSort plugin.

    Attributes:
        reference: The key with which later keys are compared to find those that do not compare; None before the first.
    """

    __slots__ = ("reference",)

    def __init__(self) -> None:
        self.reference: Part | None = None

    def comparable(self, key: object) -> tuple[Part, str]:
        """Return a key in comparable form.

        Returns:
            The form; and why the plugin's own key does not compare with the others, "" if it does.
        """
        part = _part(key, 0)
        problem = _unordered(part)
        if self.reference is None:
            self.reference = part
        elif not problem:
            problem, is_odd = _conflict(part, self.reference)
            if problem and not is_odd:
                # The key seen first was the odd one.
                self.reference = part
        return part, problem


_MOST_LEVELS = 8


def _part(value: object, level: int) -> Part:
    kind = type(value)
    if value is None:
        return (_NONE,)
    if isinstance(value, _NUMBERS) and _is_ordered_as(kind, _NUMBERS):
        # NumPy's integers do not compare with every number.
        value = value.item() if isinstance(value, np.generic) else value
        return (_NUMBER, value) if _holds(lambda: value == value, otherwise=False) else (_UNORDERED,)  # noqa: PLR0124 - finds NaN
    if isinstance(value, str) and _is_ordered_as(kind, (str,)):
        return _TEXT, str.__str__(value)
    if isinstance(value, bytes) and _is_ordered_as(kind, (bytes,)):
        return _BYTES, bytes(value)
    if isinstance(value, datetime):
        return _NAIVE_TIME if value.tzinfo is None else _TIME, value
    if isinstance(value, tuple | list) and _is_ordered_as(kind, (tuple, list)) and level < _MOST_LEVELS:
        return _TUPLE if isinstance(value, tuple) else _LIST, tuple(_part(each, level + 1) for each in value)
    return _OTHER, f"{kind.__module__}.{kind.__qualname__}", _Guarded(value)


def _is_ordered_as(kind: type, kinds: tuple[type, ...]) -> bool:
    """Return whether a type inherits its order from one of some types, or is a number of NumPy."""
    if issubclass(kind, np.generic):
        return True
    return any(
        getattr(kind, "__lt__", None) is getattr(each, "__lt__", None) for each in kinds if issubclass(kind, each)
    )


def _unordered(part: Part) -> str:
    if part[0] == _UNORDERED:
        return "it contains NaN"
    if part[0] in (_TUPLE, _LIST):
        return next((problem for each in part[1] if (problem := _unordered(each))), "")
    return ""


def _conflict(part: Part, other: Part) -> tuple[str, bool]:
    """Return how a key and another one do not compare, "" if they do; and whether the first one is the odd one."""
    rank = part[0]
    if rank != other[0] or (rank == _OTHER and part[1] != other[1]):
        text = f"it contains {_name(part)} where another pod's key contains {_name(other)}"
        return text, not (other[0] in _ODD and rank not in _ODD)
    if rank in (_TUPLE, _LIST):
        for mine, its in zip(part[1], other[1], strict=False):
            found = _conflict(mine, its)
            if found[0]:
                return found
    if rank == _OTHER:
        mine, its = part[2].value, other[2].value
        if not _holds(lambda: (mine < its, True)[1], otherwise=False):
            return f"comparing it with another pod's key raises: both contain {_name(part)}", True
    return "", False


def _name(part: Part) -> str:
    rank = part[0]
    if rank in _KIND_NAMES:
        return _KIND_NAMES[rank]
    if rank == _OTHER:
        return str(part[1]).removeprefix("builtins.")
    if rank in (_TUPLE, _LIST):
        return "a tuple" if rank == _TUPLE else "a list"
    return type(part[1]).__name__
