"""Cache of reviews by the API server, and the queue of callers whose reviews are not cached.

Anyone who reaches the server can send unknown tokens, each of which costs a review. So these reviews are few
at a time and have a rate, and origins (addresses, users) take turns. What was accepted before does not wait: a scraper
with a valid token is served while others send bogus ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from bayplan.kube.http.api_request import TokenBucket
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.ports import Clock, Timer

_CACHE_SECONDS = 10.0
_MAX_CACHED = 1024
_CONCURRENT_REVIEWS = 4
"""Below the connections for reviews, so that one is free for callers that were accepted before."""
_REVIEWS_PER_SECOND, _BURST = 20.0, 40
_MAX_WAITING_OF_ORIGIN, _MAX_WAITING = 256, 1024
_MAX_WAIT_SECONDS = 6.0
"""Together with the timeout of a review within the usual scrape timeout of ten seconds."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReviewQueue:
    """Callers that wait for a review."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = _CONCURRENT_REVIEWS
        self._bucket: TokenBucket | None = None
        # Origins in the order of their turns; each has at least one waiting caller.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0
        self._timer: Timer | None = None

    @asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[None]:
        """Wait for a turn of an origin, and keep it until the block ends.

        Raises:
            ServerUnavailableError: Too many callers wait, or the wait took too long.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(origin, turn)
        too_late = ServerUnavailableError("too many reviews wait")
        deadline = self._clock.call_later(_MAX_WAIT_SECONDS, lambda: _fail(turn, too_late))
        self._start_next()
        try:
            await turn
        finally:
            deadline.cancel()
        try:
            yield
        finally:
            self._free += 1
            self._start_next()

    def _add(self, origin: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.setdefault(origin, deque())
        waiting.append(turn)
        self._count += 1
        if len(waiting) > _MAX_WAITING_OF_ORIGIN:
            longest = waiting
        elif self._count > _MAX_WAITING:
            longest = max(self._waiting.values(), key=len)
        else:
            return
        self._count -= 1
        _fail(longest.pop(), ServerUnavailableError("too many reviews wait"))

    def _start_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._waiting:
            origin, waiting = next(iter(self._waiting.items()))
            while waiting and waiting[0].done():
                waiting.popleft()  # failed or cancelled while it waited
                self._count -= 1
            if not waiting:
                del self._waiting[origin]
                continue
            if self._bucket is None:
                self._bucket = TokenBucket(_REVIEWS_PER_SECOND, _BURST, self._clock)
            seconds = self._bucket.try_take()
            if seconds:
                # A shorter time may add nothing to the clock's time.
                self._timer = self._clock.call_later(max(seconds, 0.001), self._start_next)
                return
            self._free -= 1
            self._count -= 1
            waiting.popleft().set_result(None)
            del self._waiting[origin]
            if waiting:
                self._waiting[origin] = waiting


class ReviewCache(Generic[K, V]):
    """Cache of reviews; concurrent requests for the same key share one review. Errors are not cached.

    Args:
        queue: Queue of the keys whose last review did not accept them.
    """

    def __init__(self, clock: Clock, queue: ReviewQueue, is_accepted: Callable[[V], bool]) -> None:
        self._clock = clock
        self._queue = queue
        self._is_accepted = is_accepted
        # Separate, so that rejected keys displace no accepted ones.
        self._accepted: dict[K, tuple[float, V]] = {}
        self._rejected: dict[K, tuple[float, V]] = {}
        self._in_progress: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, origin: str, review: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the cached result of a review, or call ``review``.

        Raises:
            ServerUnavailableError: Too many reviews wait.
            ClusterWriteError: ``review`` raised it.
        """
        cached = self._accepted.get(key) or self._rejected.get(key)
        if cached is not None and self._clock.now() < cached[0]:
            return cached[1]
        task = self._in_progress.get(key)
        if task is None:
            task = self._in_progress[key] = asyncio.create_task(self._review(key, origin, review), name="access review")
            task.add_done_callback(lambda task: self._finished(key, task))
        # Shielded, because other callers may wait for it when this one disconnects.
        return await asyncio.shield(task)

    async def _review(self, key: K, origin: str, review: Callable[[], Coroutine[Any, Any, V]]) -> V:
        if key in self._accepted:
            return await review()
        async with self._queue.turn(origin):
            return await review()

    def _finished(self, key: K, task: asyncio.Task[V]) -> None:
        del self._in_progress[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._accepted.pop(key, None)
        self._rejected.pop(key, None)
        results = self._accepted if self._is_accepted(task.result()) else self._rejected
        # All results are valid for the same time, so the oldest is removed first.
        while len(results) >= _MAX_CACHED:
            del results[next(iter(results))]
        results[key] = (self._clock.now() + _CACHE_SECONDS, task.result())


def _fail(turn: asyncio.Future[None], error: Exception) -> None:
    if not turn.done():
        turn.set_exception(error)
