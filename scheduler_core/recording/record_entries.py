"""Entries of a record, in the order in which they took effect.

Input is what the core cannot compute: calls of feeds, timers, answers, profiles, readings of the clock, and the order
of its tasks. The other entries are decisions, which a replay computes and compares.
"""

from __future__ import annotations

import msgspec

Content = tuple[str, msgspec.Raw]
"""Name of a type, and an encoded object."""


class _Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Fed(_Entry, frozen=True, tag=1):
    """A call of a feed with arguments as (type, content); a content of None is the object as it was delivered last."""

    feed: str
    method: str
    args: tuple[Content, ...]


class Step(_Entry, frozen=True, tag=2):
    """A task of the scheduler continues."""

    task: int


class CalledBack(_Entry, frozen=True, tag=3):
    """A timer fired, the outcome of a queued deletion was reported, or a search in another process ended."""

    callback: str
    args: tuple[Content, ...]


class Answered(_Entry, frozen=True, tag=4):
    """A call of a port, by its number there, returned or raised the content, and its task continues."""

    call: str
    content: Content


class Readings(_Entry, frozen=True, tag=6):
    """Readings since the entry before: of the clock in seconds, of the date in microseconds, and random UIDs."""

    seconds: tuple[float, ...]
    microseconds: tuple[int, ...] = ()
    uids: tuple[str, ...] = ()


class Building(_Entry, frozen=True, tag=7):
    """An instance of a profile is built: its number, configuration (JSON) and revision."""

    instance: int
    config: str
    revision: str


class Activating(_Entry, frozen=True, tag=8):
    """Instances become live together."""

    instances: tuple[int, ...]


class Withdrawing(_Entry, frozen=True, tag=9):
    """A profile is withdrawn."""

    name: str


class Begun(_Entry, frozen=True, tag=10):
    """The scheduling loop begins."""


class Ended(_Entry, frozen=True, tag=11):
    """The scheduling loop is stopped; the record is complete."""


class Placed(_Entry, frozen=True, tag=12):
    """A decision: a node was chosen for a pod."""

    pod: str
    uid: str
    node: str
    profile: str
    attempts: int


class Rejected(_Entry, frozen=True, tag=13):
    """A decision: an attempt of a pod failed; ``message`` is the diagnosis."""

    pod: str
    uid: str
    profile: str
    message: str


class Evicted(_Entry, frozen=True, tag=14):
    """A decision: a pod is preempted."""

    pod: str
    uid: str


class Wrote(_Entry, frozen=True, tag=15):
    """A decision: a write of a volume, a claim or a status, by the name of the port's method, with its arguments."""

    method: str
    args: tuple[Content, ...]


class Suspended(_Entry, frozen=True, tag=16):
    """Changes are deferred, because shadows decide."""


class Resumed(_Entry, frozen=True, tag=17):
    """The deferred changes take effect."""


class SliceOver(_Entry, frozen=True, tag=18):
    """A slice of a cycle is over: other tasks run before the cycle continues, which is a step."""


class SearchMoved(_Entry, frozen=True, tag=19):
    """A search is not continued here: another process makes it, or the attempt starts again later.

    Attributes:
        left: What it had still to store at the checkpoint from which it goes on; None for a search.
    """

    left: int | None = None


Decision = Placed | Rejected | Evicted | Wrote
DECISIONS = (Placed, Rejected, Evicted, Wrote)
Entry = (
    Fed | Step | CalledBack | Answered | Readings | Building | Activating | Withdrawing | Begun | Ended
    | Placed | Rejected | Evicted | Wrote | Suspended | Resumed | SliceOver | SearchMoved
)  # fmt: skip
