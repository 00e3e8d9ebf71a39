"""Binding cycles that wait for something other than the API server.

The scheduling loop stops while too many binds are in progress, so that pods are not assumed faster than their binds can
be sent. A pod that waits minutes for a volume, a device or the other members of its gang sends nothing. It does not
count: otherwise the pods of one user whose volumes are not provisioned would stop the scheduling of all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scheduler_core.ports import Clock

WRITING_SECONDS = 1.0
"""Time that the writes of PreBind take, roughly; a PreBind that takes longer waits for something else."""


class IdleBinds:
    """Number of binding cycles in PreBind, or at the barrier of a gang, that send nothing.

    Attributes:
        on_idle: Called when it has grown.
    """

    __slots__ = ("_clock", "count", "on_idle")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.count = 0
        self.on_idle = _nothing

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Count a binding cycle for the block."""
        try:
            self._begin()
            yield
        finally:
            self.count -= 1

    @contextmanager
    def waits_after_writes(self) -> Iterator[None]:
        """Count a binding cycle from :data:`WRITING_SECONDS` after the start of the block to its end."""
        is_counted = False

        def begin() -> None:
            nonlocal is_counted
            is_counted = True
            self._begin()

        timer = self._clock.call_later(WRITING_SECONDS, begin)
        try:
            yield
        finally:
            timer.cancel()
            self.count -= is_counted

    def _begin(self) -> None:
        self.count += 1
        self.on_idle()


def _nothing() -> None:
    pass
