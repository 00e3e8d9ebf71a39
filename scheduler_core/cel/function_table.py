"""Implementations of all functions, by overload, and of operators, by name.

An implementation takes the arguments and the frame. A singleton serves all overloads of its function and checks types
itself; the others are called only with arguments of the types of their overload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_core.cel import (
    conversions,
    list_functions,
    named_formats,
    network_functions,
    quantity_functions,
    string_functions,
    timestamps,
)
from scheduler_core.cel.operators import OPERATORS
from scheduler_core.cel.string_functions import UNGUARDED

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    **conversions.IMPLEMENTATIONS,
    **list_functions.IMPLEMENTATIONS,
    **named_formats.IMPLEMENTATIONS,
    **network_functions.IMPLEMENTATIONS,
    **quantity_functions.IMPLEMENTATIONS,
    **string_functions.IMPLEMENTATIONS,
    **timestamps.IMPLEMENTATIONS,
}
SINGLETONS: dict[str, Callable[..., Any]] = {
    **OPERATORS,
    **conversions.SINGLETONS,
    **list_functions.SINGLETONS,
    **string_functions.SINGLETONS,
}

__all__ = ["IMPLEMENTATIONS", "SINGLETONS", "UNGUARDED"]
