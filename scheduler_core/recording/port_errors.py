"""Exceptions of ports in records: the name of the type, and arguments from which an equal exception is built."""

from __future__ import annotations

import asyncio
import builtins
from typing import cast

import msgspec

from scheduler_core import errors

_ARGUMENTS = {
    errors.BoundElsewhereError: ("reason", "node_name"),
    errors.ClusterWriteError: ("reason",),
    errors.ExtenderError: ("url", "reason"),
}


def name_of(error: BaseException) -> str:
    """Return the name of the nearest type that :func:`error_of` finds; the core distinguishes no others."""
    known = (errors.__name__, builtins.__name__, asyncio.CancelledError.__module__)
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ in known)


def arguments_of(error: BaseException) -> tuple[str, msgspec.Raw]:
    """Return the arguments, as the content of an entry."""
    for kind, names in _ARGUMENTS.items():
        if isinstance(error, kind):
            return "", cast("msgspec.Raw", [str(getattr(error, name)) for name in names])
    return "", cast("msgspec.Raw", [str(each) for each in error.args])


def error_of(name: str, content: tuple[str, msgspec.Raw]) -> BaseException:
    """Return an equal exception; one of an unknown type becomes a RuntimeError."""
    arguments = msgspec.json.decode(content[1], type=list[str])
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if name == asyncio.CancelledError.__name__:
        return asyncio.CancelledError(*arguments)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind(*arguments)
    return RuntimeError(*arguments)
