"""Python's garbage collector while a process takes in what will stay.

Owns the collector's switch. It must not know what is taken in. Why: nearly all that first lists allocate stays, so the
collector would find next to nothing, and what is there in the end would be walked by every full collection for as long
as the process lives.

    on --begin()--> off --keep()--> on, all that is there out of its sight
                     └--too long, or end()--> on

Nothing is collected before it is kept: that takes as long as a hundred pods do, for a few hundred kilobytes. From then
on the collector looks more seldom than by default, since what a burst of pods allocates is mostly freed without it.
"""

from __future__ import annotations

import asyncio
import gc

_LONGEST_SECONDS = 60.0
_NEW_OBJECTS = 10_000
"""So many more are there before the collector looks; by default it is 700. To look at these takes 8 ms."""


class CollectorPause:
    """Keeps the collector off from a start until what the start has listed is kept."""

    def __init__(self) -> None:
        self._limit: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Turn the collector off, within a running loop, but not for long.

        A start that has to wait, for an API server that is away, must not pile up garbage meanwhile.
        """
        self._limit = asyncio.get_running_loop().call_later(_LONGEST_SECONDS, self.end)
        gc.disable()

    def keep(self) -> None:
        """Take all that is there out of the collector's sight, for good, and turn it on."""
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
        self.end()

    def end(self) -> None:
        """Turn the collector on."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        gc.enable()
