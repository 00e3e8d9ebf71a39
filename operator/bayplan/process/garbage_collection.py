"""Python's garbage collector during imports and during a start.

Nearly everything that imports and the first lists allocate stays. The collector would find next to nothing, for a tenth
of a command's CPU time, and every later full collection would walk all of it. So the collector is off until the lists
are complete, and then ignores what is there.

    on --begin()--> off --freeze()--> on, existing objects ignored
                     └--time limit, or end()--> on

No collection runs before the freeze: it would take as long as scheduling a hundred pods, to free a few hundred
kilobytes. Afterwards the collector runs less often than by default, because most of what a burst of pods allocates is
freed by reference counting.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from importlib import import_module
from types import ModuleType

_LONGEST_SECONDS = 60.0
_NEW_OBJECTS = 10_000
"""New objects before the collector runs, instead of the default 700. A collection of so many takes 8 ms."""


class CollectorPause:
    """Pause of the garbage collector from the begin of a start until its lists are complete."""

    def __init__(self) -> None:
        self._limit: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Turn the collector off for a limited time, because a start may wait for an unreachable API server."""
        self._limit = asyncio.get_running_loop().call_later(_LONGEST_SECONDS, self.end)
        gc.disable()

    def freeze(self) -> None:
        """Exempt all existing objects from collection for good, and turn the collector on."""
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
        self.end()

    def end(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        gc.enable()


def import_without_gc(name: str) -> ModuleType:
    """Import a module with the collector off, and exempt its objects from later collections."""
    if name in sys.modules:
        return sys.modules[name]
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
