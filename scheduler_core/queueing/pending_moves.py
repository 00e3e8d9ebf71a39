"""Moves of many pods at once, in slices between which the event loop runs.

A profile swap, another QueueSort plugin, an activation or the end of backoffs may move all pods of the queue. The moves
are made in order. While any is pending, no pod is popped, so decisions are those of moves that are made at once;
kube-scheduler v1.37.1 holds the lock of the queue instead. Other changes do not wait: a move looks up the place and the
profile of its pod when it is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger(__name__)

MOVES = 800
"""Moves of pods between two pops: about 10 ms."""

Move = tuple[Callable[[Any], object], Any, int]
"""A function, its argument, and the number of pods that it moves; it is called again while it returns true."""


class PendingMoves:
    """Moves that are not made yet.

    Attributes:
        budget: Number of moves between two calls of :meth:`advance`.
        left: What is left of the budget.
        moves: The moves, in order; only for reading.
    """

    __slots__ = ("_is_running", "_ready", "budget", "left", "moves")

    def __init__(self, ready: asyncio.Event, budget: int = MOVES) -> None:
        self.budget = self.left = budget
        self.moves: deque[Move] = deque()
        self._ready = ready
        self._is_running = False

    def start(self, moves: Iterable[Move]) -> None:
        """Make moves behind those that are pending, as far as the budget suffices; :meth:`advance` makes the others."""
        self.moves.extend(moves)
        if self.moves:
            # Set first: if a move raises, the next pop makes the others.
            self._ready.set()
            if not self._is_running:
                self._run()

    def advance(self) -> bool:
        """Make moves within a new budget; return whether none is pending."""
        self.left = self.budget
        if self.moves:
            self._run()
        return not self.moves

    def _run(self) -> None:
        # A move may start others, such as those of a plugin that activates pods; they follow when it has ended.
        moves, self._is_running = self.moves, True
        try:
            while moves and self.left > 0:
                move, subject, cost = moves[0]
                self.left -= cost
                again: object = False
                try:
                    try:
                        again = move(subject)
                    except Exception:
                        # Pods whose move is lost would wait permanently.
                        log.exception("a move in the queue failed in the scheduler itself; it is repeated")
                        again = move(subject)
                finally:
                    if not again:
                        moves.popleft()
        finally:
            self._is_running = False
