"""Queue of all writes that no caller waits for: ordered and merged per object, retried, bounded.

    queued --eligible, object idle--> in flight --success--> removed
      ^  ^-- merged with a later one        |
      |                                     +--server unreachable, timeout--> waiting for its retry (may be merged)
      |                                     +--refused, object gone, too many attempts--> given up
    held (a bind of the object is in flight) --bound--> dropped
                                              --not bound--> queued

Status patches and events yield to binds: while many binds are pending, they wait for at most ``defer_seconds``.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import compress
from types import TracebackType

from bayplan.kube.http.api_request import TokenBucket
from bayplan.kube.timing import delay_of_try
from scheduler_core.errors import (
    ConflictError,
    NotFoundError,
    SchedulerCoreError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.metrics.histogram import Histogram, exponential_bounds
from scheduler_core.ports import Clock, Timer

_logger = logging.getLogger(__name__)

ObjectKey = tuple[str, str, str, str]
"""Kind, namespace, name and UID."""


class Rank(IntEnum):
    """Priority of a write; lower goes first."""

    DELETION = 0
    PATCH = 1
    EVENT = 2


class Write(ABC):
    """A write.

    Attributes:
        key: The object that it changes; an object's writes are sent one at a time, in the order of arrival.
        max_tries: Maximum number of failures; None for no limit.
        outlives_bind: Whether it is sent also if the pod is bound first; a bind makes other patches obsolete.
        queued_at: ``clock.now()`` when it, or the first write merged into it, was queued.
    """

    __slots__ = ("key", "max_tries", "outlives_bind", "queued_at", "rank", "tries")

    def __init__(self, key: ObjectKey, rank: Rank, max_tries: int | None) -> None:
        self.key = key
        self.rank = rank
        self.max_tries = max_tries
        self.tries = 0
        self.outlives_bind = False
        self.queued_at = 0.0

    @abstractmethod
    async def carry_out(self) -> None:
        """Send the write; the class of a SchedulerCoreError that is raised defines whether to retry."""

    def absorb(self, later: Write) -> bool:
        """Merge a later write of the same object into this one; return False if that is not possible."""
        del later
        return False

    def ended(self, error: Exception | None) -> None:  # noqa: B027 - most writes have no completion handler
        """Handle the end; called once, with None after success or the reason if given up or dropped."""


class WriteDroppedError(SchedulerCoreError):
    """Raised for a queued write that was dropped: obsolete after a bind, too many events, or the process stops."""


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """Bounds of the dispatcher.

    Attributes:
        overdue_event_workers: Workers for events that waited ``defer_seconds`` while many binds are pending.
        late_seconds: Wait after which an event may use any worker.
        max_events: Maximum number of queued events; the oldest are dropped.
        defer_seconds: Maximum time that writes yield to binds.
    """

    workers: int = 8
    overdue_event_workers: int = 2
    late_seconds: float = 10.0
    max_events: int = 20_000
    defer_seconds: float = 2.0
    events_per_second: float = 1000.0
    event_burst: int = 1000
    retry_initial_seconds: float = 0.2
    retry_maximum_seconds: float = 30.0


POD_BINDING = "pod_binding"
POD_STATUS_PATCH = "pod_status_patch"
CALL_TYPES = (POD_BINDING, POD_STATUS_PATCH)

CALL_BOUNDS = exponential_bounds(0.001, 2, 15)
"""Buckets in seconds of one call: 1 ms to 16 s."""


class WriteMetrics:
    """Durations of completed calls in seconds, by type and result (``success`` or ``error``)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.executed: dict[tuple[str, str], Histogram] = {}

    def of(self, call_type: str) -> _Call:
        """Return a context manager that times a call; a call whose block raises has failed."""
        return _Call(self, call_type, self._clock)

    def ended(self, call_type: str, result: str, seconds: float) -> None:
        histogram = self.executed.get((call_type, result))
        if histogram is None:
            histogram = self.executed[call_type, result] = Histogram(CALL_BOUNDS)
        histogram.observe(seconds)


class _Call:
    # A class and not a generator for speed: every bind makes one.
    __slots__ = ("_begun", "_calls", "_clock", "_type")

    def __init__(self, calls: WriteMetrics, call_type: str, clock: Clock) -> None:
        self._calls, self._type, self._clock = calls, call_type, clock
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = self._clock.now()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        result = "success" if kind is None else "error"
        self._calls.ended(self._type, result, self._clock.now() - self._begun)


_SHORTEST_WAIT_SECONDS = 0.001


class _Object:
    __slots__ = ("holds", "idle", "in_flight", "pending", "retry")

    def __init__(self) -> None:
        self.pending: deque[Write] = deque()
        self.in_flight: Write | None = None
        self.retry: Timer | None = None
        self.holds = 0
        self.idle: asyncio.Event | None = None


class ApiDispatcher:
    """Executor of queued writes on the running loop; they yield to binds while ``bind_pressure`` returns True."""

    def __init__(self, options: DispatcherOptions, clock: Clock, bind_pressure: Callable[[], bool]) -> None:
        self._options = options
        self._clock = clock
        self._bind_pressure = bind_pressure
        self._objects: dict[ObjectKey, _Object] = {}
        self._ready: tuple[deque[Write], ...] = tuple(deque() for _ in Rank)
        self._ranks = tuple(zip(Rank, self._ready, strict=True))
        self._bucket = TokenBucket(options.events_per_second, options.event_burst, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._queued_events: OrderedDict[Write, None] = OrderedDict()
        self._events_in_flight = 0
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._drained: asyncio.Event | None = None
        self._closed = False
        self.written = 0
        self.merged = 0
        self.retried = 0
        self.given_up = 0
        self.dropped_events = 0
        self.in_flight = 0

    @property
    def queued(self) -> int:
        """Number of writes that are neither in flight nor done."""
        return sum(len(entry.pending) for entry in self._objects.values())

    def queued_of(self, rank: Rank) -> int:
        return sum(write.rank is rank for entry in self._objects.values() for write in entry.pending)

    def submit(self, write: Write) -> None:
        """Queue a write, or merge it into the last one queued for its object."""
        if self._closed:
            write.ended(WriteDroppedError("The process is stopping; nothing more is written."))
            return
        entry = self._objects.get(write.key)
        if entry is None:
            entry = self._objects[write.key] = _Object()
        # Only into the last one: a merge past another write would change their order.
        elif entry.pending and entry.pending[-1].absorb(write):
            self.merged += 1
            return
        write.queued_at = self._clock.now()
        # The event at the head of the queue has scheduled a timer, which this event uses too.
        is_behind = write.rank is Rank.EVENT and bool(self._ready[Rank.EVENT])
        if write.rank is Rank.DELETION:
            self._drop_patches(entry, is_deleted=True)  # the status of a pod that is being deleted is not needed
        elif write.rank is Rank.EVENT:
            self._drop_oldest_events()
            self._queued_events[write] = None
        entry.pending.append(write)
        # Ready queues contain only the first write of an object, because its writes are sent one at a time.
        if entry.pending[0] is write:
            self._offer(entry)
        if not is_behind:
            self.pump()

    async def hold(self, key: ObjectKey) -> None:
        """Drop an object's obsolete status patches, wait for one in flight, and hold new ones until :meth:`release`."""
        entry = self._objects.get(key)
        if entry is None:
            entry = self._objects[key] = _Object()
        # Before the wait: release() ends the hold also if the wait is cancelled.
        entry.holds += 1
        self._drop_patches(entry)
        # A patch in flight may reach the API server after the bind, and would set PodScheduled=False on a bound pod.
        while entry.in_flight is not None and entry.in_flight.rank is Rank.PATCH:
            if entry.idle is None:
                entry.idle = asyncio.Event()
            entry.idle.clear()
            await entry.idle.wait()
        # A patch that failed in the meantime is back in the queue.
        self._drop_patches(entry)

    def release(self, key: ObjectKey, *, bound: bool) -> None:
        """End a :meth:`hold`: drop the patches queued in the meantime if the pod was bound, else send them."""
        entry = self._objects.get(key)
        if entry is None:
            return  # closed in the meantime
        entry.holds -= 1
        if bound:
            self._drop_patches(entry)
        if not self._forget(entry, key) and entry.retry is None:
            self._offer(entry)
        if not bound or not self._bind_pressure():
            self.pump()

    async def drain(self, seconds: float) -> None:
        """Stop yielding to binds and send the queue, for at most ``seconds``."""
        self._bind_pressure = _no_bind_pressure
        self.pump()
        if self.in_flight or self._objects:
            self._drained = asyncio.Event()
            try:
                async with asyncio.timeout(max(seconds, 0.0)):
                    await self._drained.wait()
            except TimeoutError:
                _logger.warning("Stopping with %d unsent writes", self.queued + self.in_flight)

    async def close(self) -> None:
        """Cancel writes in flight, drop queued ones, and accept no more."""
        # First: completion handlers may submit writes while the queue is dropped.
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stopping = WriteDroppedError("The process stopped before this was written.")
        for entry in self._objects.values():
            if entry.in_flight is not None:
                self._end(entry.in_flight, stopping)  # its task was cancelled before it ran
            if entry.retry is not None:
                entry.retry.cancel()
            for write in entry.pending:
                self._end(write, stopping)
        self._objects.clear()

    def pump(self) -> None:
        """Send what may be sent now; called after every change."""
        while self.in_flight < self._options.workers and not self._closed:
            write = self._next()
            if write is None:
                break
            self._begin(write)
            task = asyncio.get_running_loop().create_task(self._work(write))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _begin(self, write: Write) -> None:
        entry = self._objects[write.key]
        entry.pending.popleft()
        entry.in_flight = write
        self.in_flight += 1
        if write.rank is Rank.EVENT:
            self._queued_events.pop(write, None)
            self._events_in_flight += 1

    async def _work(self, write: Write) -> None:
        """Execute a write and then the next ones while they succeed."""
        # In one task, because a task for each write would cost more. A failure ends the loop: it may come without
        # awaiting, and thousands of them in a row must not block the event loop.
        while await self._carry_out(write) and self.in_flight < self._options.workers and not self._closed:
            following = self._next()
            if following is None:
                return
            write = following
            self._begin(write)
            # Other writes may have become eligible at the same time; each gets a worker, up to the limit.
            self.pump()
        self.pump()

    def _next(self) -> Write | None:
        for rank, ready in self._ranks:
            # A write that was dropped, held or sent stays in its ready queue: its removal would search the whole queue.
            while ready and not self._is_ready(ready[0]):
                ready.popleft()
            if ready and self._may_go(rank, ready[0]):
                return ready.popleft()
        return None

    def _is_ready(self, write: Write) -> bool:
        entry = self._objects.get(write.key)
        if entry is None or entry.in_flight is not None or not entry.pending or entry.pending[0] is not write:
            return False
        return entry.retry is None and not (entry.holds and write.rank is Rank.PATCH)

    def _may_go(self, rank: Rank, write: Write) -> bool:
        if rank is Rank.DELETION:
            return True
        # The API server spends as much on an event as on a bind, so in a burst every event costs a bind.
        if self._bind_pressure():
            waited = self._clock.now() - write.queued_at
            if waited < self._options.defer_seconds:
                self._wake_in(self._options.defer_seconds - waited)
                return False
            # A few workers drain the queue without halving the bind rate. After late_seconds any worker may be used:
            # under steady load on a slow server, events would fall behind for good.
            if (
                rank is Rank.EVENT
                and self._events_in_flight >= self._options.overdue_event_workers
                and waited < self._options.late_seconds
            ):
                self._wake_in(self._options.late_seconds - waited)
                return False
        # The token last: one must not be taken for an event that yields to binds.
        if rank is Rank.EVENT:
            seconds = self._bucket.try_take()
            if seconds > 0.0:
                self._wake_in(seconds)
                return False
        return True

    def _wake_in(self, seconds: float) -> None:
        # Rounding can put the due time before the timer's resolution, which would restart the timer endlessly.
        seconds = max(seconds, _SHORTEST_WAIT_SECONDS)
        due = self._clock.now() + seconds
        if self._timer is not None:
            if self._timer_due <= due:
                return
            # A cancelled timer must not count as set if call_later() raises.
            timer, self._timer = self._timer, None
            timer.cancel()
        self._timer = self._clock.call_later(seconds, self._wake)
        self._timer_due = due

    def _wake(self) -> None:
        self._timer = None
        self.pump()

    def _offer(self, entry: _Object) -> None:
        """Add the object's next write to the ready queue of its rank."""
        if entry.pending and entry.in_flight is None and entry.retry is None:
            head = entry.pending[0]
            if not (entry.holds and head.rank is Rank.PATCH):
                self._ready[head.rank].append(head)

    async def _carry_out(self, write: Write) -> bool:
        entry, is_done = self._objects[write.key], False
        try:
            await write.carry_out()
        except (ServerUnavailableError, WriteTimeoutError) as error:
            self._failed(write, entry, error)
        except SchedulerCoreError as error:
            self._give_up(write, error)
        except Exception as error:
            # A defect of one write must not end the task, which sends other writes too.
            _logger.exception("%s of %s failed unexpectedly", write.rank.name, write.key)
            self._give_up(write, error)
        except asyncio.CancelledError as error:
            self._end(write, WriteDroppedError(f"The process stopped while this was written: {error}"))
            raise
        else:
            self.written += 1
            is_done = True
            self._end(write, None)
        finally:
            self.in_flight -= 1
            self._events_in_flight -= write.rank is Rank.EVENT
            entry.in_flight = None
            if entry.idle is not None:
                entry.idle.set()
            if not self._forget(entry, write.key):
                self._offer(entry)
        return is_done

    def _failed(self, write: Write, entry: _Object, error: Exception) -> None:
        write.tries += 1
        if write.max_tries is not None and write.tries >= write.max_tries:
            self._give_up(write, error)
            return
        self.retried += 1
        # What was queued in the meantime is newer than what failed.
        if entry.pending and write.absorb(entry.pending[0]):
            entry.pending.popleft()
            self.merged += 1
        # To the head, because later writes of the object must not overtake it.
        entry.pending.appendleft(write)
        if write.rank is Rank.EVENT:
            self._queued_events[write] = None
        delay = delay_of_try(write.tries, self._options.retry_initial_seconds, self._options.retry_maximum_seconds)

        def again() -> None:
            entry.retry = None
            self._offer(entry)
            self.pump()

        entry.retry = self._clock.call_later(delay, again)

    def _give_up(self, write: Write, error: Exception) -> None:
        self.given_up += 1
        kind, namespace, name, _ = write.key
        # It is normal that an object is gone or replaced by another of its name; other failures need attention.
        level = logging.INFO if isinstance(error, NotFoundError | ConflictError) else logging.WARNING
        extra = {"resource": kind, "pod": f"{namespace}/{name}" if kind == "Pod" else ""}
        text = "%s of %s %s/%s failed and is not retried: %s"
        _logger.log(level, text, write.rank.name, kind, namespace, name, error, extra=extra)
        self._end(write, error)

    def _end(self, write: Write, error: Exception | None) -> None:
        try:
            write.ended(error)
        except Exception:
            # The write has ended; the next writes to the object must not wait for it.
            _logger.exception("The completion handler of a write to %s failed", write.key)

    def _drop_patches(self, entry: _Object, *, is_deleted: bool = False) -> None:
        if not entry.pending:
            return
        kept = [write.rank is not Rank.PATCH or (write.outlives_bind and not is_deleted) for write in entry.pending]
        if all(kept):
            return
        remaining = deque(compress(entry.pending, kept))
        for write, is_kept in zip(entry.pending, kept, strict=True):
            if not is_kept:
                self._end(write, WriteDroppedError("The pod is being bound."))
        entry.pending = remaining
        if entry.retry is not None:
            entry.retry.cancel()
            entry.retry = None
        self._offer(entry)

    def _drop_oldest_events(self) -> None:
        """Drop the oldest queued events until one more fits."""
        while len(self._queued_events) >= self._options.max_events:
            oldest, _ = self._queued_events.popitem(last=False)
            entry = self._objects[oldest.key]
            entry.pending.remove(oldest)
            self.dropped_events += 1
            self._end(oldest, WriteDroppedError("Too many events are queued; the oldest are dropped."))
            if entry.retry is not None:
                entry.retry.cancel()
                entry.retry = None
            if not self._forget(entry, oldest.key):
                self._offer(entry)

    def _forget(self, entry: _Object, key: ObjectKey) -> bool:
        """Drop the entry of an object without pending work; return whether it was dropped."""
        if entry.pending or entry.in_flight is not None or entry.holds:
            return False
        self._objects.pop(key, None)
        if self._drained is not None and not self._objects:
            self._drained.set()
        return True


def _no_bind_pressure() -> bool:
    return False
