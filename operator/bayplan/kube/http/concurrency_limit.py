"""Limit of concurrent operations with a queue in the order of arrival.

Unlike asyncio's semaphore, acquiring a free slot awaits nothing, and a wait can be ended from outside, as by a
deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """A number of slots; a waiting caller gets the next slot that is released.

    Args:
        limit: Number of slots, at least 1.
    """

    __slots__ = ("_free", "_line")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._line: deque[asyncio.Future[None]] = deque()

    def acquire(self) -> asyncio.Future[None] | None:
        """Acquire a slot; return None if one was free, else the future to pass to :meth:`wait`."""
        if self._free:
            self._free -= 1
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        return turn

    async def wait(self, turn: asyncio.Future[None]) -> None:
        """Wait for a slot; an exception set on the future is raised here, and no slot is acquired then."""
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release()
            raise

    def release(self) -> None:
        """Release a slot."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
