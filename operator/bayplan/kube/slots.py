"""How many things of a kind may be under way at once, and the line of those that wait.

Owns the count and the order of coming. It must not know what is done in a slot. Why not asyncio's semaphore: with a
slot free nothing is awaited here, and with none free the wait can be ended from outside, as by a deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """A number of slots; who comes when all are taken gets that of somebody who has done, in the order of coming.

    Args:
        limit: How many there are, at least 1.
    """

    __slots__ = ("_free", "_line")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._line: deque[asyncio.Future[None]] = deque()

    def take(self) -> asyncio.Future[None] | None:
        """Take a slot; None when there was one, else what :meth:`turn` waits for."""
        if self._free:
            self._free -= 1
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        return turn

    async def turn(self, turn: asyncio.Future[None]) -> None:
        """Wait for a slot; what ends the future otherwise comes out here, and no slot is taken then."""
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give()
            raise

    def give(self) -> None:
        """Give a slot back."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
