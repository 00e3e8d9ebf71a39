"""Delay of the watch events of the operator's own writes, by the kind of the write.

Between the response to a write and its watch event, the operator must act as if the event had arrived. An API server
under load delivers events seconds after responses.
"""

from __future__ import annotations

import random

LAGGING = ("bind", "patch", "delete", "claim", "volume")
"""Kinds of writes: binds, conditions and nominations, evictions, claims of devices, and volumes."""

_MAXIMA_SECONDS = (0.0, 0.0, 0.5, 2.0, 5.0)


class WatchLag:
    """Delays of one run; each kind of write has a maximum of its own.

    Args:
        rng: Random generator, which nothing else uses.
        always: Whether every kind of write is delayed.

    Attributes:
        maxima: Longest delay in seconds by kind of write.
    """

    def __init__(self, rng: random.Random, *, always: bool = False) -> None:
        self._rng = rng
        choices = [each for each in _MAXIMA_SECONDS if each or not always]
        self.maxima = {kind: choices[rng.randrange(len(choices))] for kind in LAGGING}

    def seconds(self, kind: str) -> float:
        """Return the delay of the event of one write."""
        maximum = self.maxima.get(kind, 0.0)
        return maximum * self._rng.random() if maximum else 0.0
