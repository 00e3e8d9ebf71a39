"""Entries of a record, in the order in which they took effect.

Input is what the core cannot compute: calls of feeds, timers, answers, profiles, readings of the clock, and the order
of its tasks. The other entries are decisions, which a replay computes and compares.
"""

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


class Fed(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A call of a feed.

    Attributes:
        feed: Name of the feed.
        method: Name of the method.
        args: Its arguments, each as (type, content); a content of None is the object as it was delivered last.
    """

    feed: str
    method: str
    args: tuple[tuple[str, msgspec.Raw], ...]


class Step(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A task of the scheduler continues."""

    task: int


class TimerFired(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A timer called its callback."""

    timer: int


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A call of a port returned, and its task continues.

    Attributes:
        call: The port, and the number of the call among those of the port.
        error: Name of the exception's type; "" for none.
        content: The returned object as (type, content), or the exception's arguments.
    """

    call: str
    error: str
    content: tuple[str, msgspec.Raw]


class Deleted(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The outcome of a queued deletion was reported; fields as in :class:`Answered`."""

    call: str
    error: str
    content: tuple[str, msgspec.Raw]


class Readings(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """Readings since the entry before: of the clock in seconds, of the date in microseconds, and random UIDs."""

    seconds: tuple[float, ...]
    microseconds: tuple[int, ...] = ()
    uids: tuple[str, ...] = ()


class Building(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """An instance of a profile is built: its number, configuration (JSON) and revision."""

    instance: int
    config: str
    revision: str


class Activating(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Instances become live together."""

    instances: tuple[int, ...]


class Withdrawing(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """A profile is withdrawn."""

    name: str


class Begun(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """The scheduling loop begins."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """The scheduling loop is stopped; the record is complete."""


class Placed(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A decision: a node was chosen for a pod."""

    pod: str
    uid: str
    node: str
    profile: str
    attempts: int


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """A decision: an attempt of a pod failed; ``message`` is the diagnosis."""

    pod: str
    uid: str
    profile: str
    message: str


class Evicted(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """A decision: a pod is preempted."""

    pod: str
    uid: str


class Wrote(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """A decision: a write of a volume, a claim or a status, by the name of the port's method, with its arguments."""

    method: str
    args: tuple[tuple[str, msgspec.Raw], ...]


class Suspended(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """Changes are deferred, because shadows decide."""


class Resumed(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """The deferred changes take effect."""


class SliceOver(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """A slice of a cycle is over: other tasks run before the cycle continues, which is a step."""


Decision = Placed | Rejected | Evicted | Wrote
DECISIONS = (Placed, Rejected, Evicted, Wrote)
Entry = (
    Fed
    | Step
    | TimerFired
    | Answered
    | Deleted
    | Readings
    | Building
    | Activating
    | Withdrawing
    | Begun
    | Ended
    | Placed
    | Rejected
    | Evicted
    | Wrote
    | Suspended
    | Resumed
    | SliceOver
)


def error_name(error: BaseException) -> str:
    """Return the name of an exception's nearest type that :func:`error_of` finds; the core distinguishes no others."""
    known = (errors.__name__, builtins.__name__, asyncio.CancelledError.__module__)
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ in known)


def error_arguments(error: BaseException) -> tuple[str, msgspec.Raw]:
    """Return the arguments from which an equal exception is built, as the content of an entry."""
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
