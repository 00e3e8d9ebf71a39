"""A write that waits in the dispatcher's queue.

Owns what the dispatcher must know of a write: its object, its precedence, how it is merged. Must not know the queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum

from scheduler_core.errors import SchedulerCoreError

ObjectKey = tuple[str, str, str, str]
"""Kind, namespace, name and UID."""


class Rank(IntEnum):
    """Which writes go first."""

    DELETION = 0
    PATCH = 1
    EVENT = 2


class Write(ABC):
    """One write; subclasses say what it does.

    Attributes:
        key: The object that it changes: one write at a time, in the order of arrival.
        rank: Its precedence.
        max_tries: After so many failures it is given up; None never.
        tries: Failures so far.
        queued_at: ``clock.now()`` when it, or the first that was merged into it, was queued.
    """

    __slots__ = ("key", "max_tries", "queued_at", "rank", "tries")

    def __init__(self, key: ObjectKey, rank: Rank, max_tries: int | None) -> None:
        self.key = key
        self.rank = rank
        self.max_tries = max_tries
        self.tries = 0
        self.queued_at = 0.0

    @abstractmethod
    async def carry_out(self) -> None:
        """Send it.

        Raises:
            SchedulerCoreError: It failed; the class says whether it is worth another try.
        """

    def absorb(self, later: Write) -> bool:
        """Take over the effect of a later write of the same object; False when that cannot be."""
        del later
        return False

    def ended(self, error: Exception | None) -> None:  # noqa: B027 - most writes have nobody to tell
        """Called once: carried out (None), given up or dropped (the reason)."""


class WriteDroppedError(SchedulerCoreError):
    """A queued write was dropped: replaced by a bind, pushed out by newer ones, or the process is stopping."""
