"""Searches that continue in a copy of the process, while this process schedules other pods.

The operating system makes the snapshot: a fork shares all memory until either process writes to it, so that the same
code continues the same search on a state that no longer changes::

    attempt ──first slice used up──▶ fork ─┬─ copy: the search goes on ──▶ result, end of the process
                                           └─ this process: the attempt is undone, its pod or gang stays in flight
    other pods are scheduled ... ──result──▶ checked on the live state ─┬─ holds ──▶ committed
                                                                        └─ else ───▶ searched again

One copy runs at a time; an attempt that gets long meanwhile is undone and starts again when the copy has ended. After
:data:`MOST_SEARCHES` searches of one pod or gang, its attempt runs in slices with the state frozen
(:mod:`scheduler_core.cycle.cycle_slices`), as it does if no process can be started or the copy returns no result.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import NoReturn

from scheduler_core.cycle.journal import Journal
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.ports import SearchProcesses
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.step_counter import StepCounter

log = logging.getLogger(__name__)

MOST_SEARCHES = 3
"""Searches of one pod or gang whose results may be found outdated, before its attempt runs with the state frozen."""


class SearchMovedError(BaseException):
    """Ends an attempt whose search continues elsewhere; no error, and no cancellation of a task.

    Attributes:
        search: The search; None if the attempt starts again later, because another search is in progress.
    """

    def __init__(self, search: MovedSearch | None) -> None:
        self.search = search
        super().__init__()


@dataclass(slots=True, eq=False)
class MovedSearch:
    """A search that continues in another process.

    Attributes:
        queued: The pod or gang, which is in flight.
        basis: What the cycle that began the search needs to check the result; set by that cycle.
        result: The encoded result; None before the end, or if the process ended without one.
        instance: The profile's revision, for which the attempt counts as in flight until :meth:`close`.
    """

    queued: QueuedPod
    basis: object = None
    result: bytes | None = None
    instance: FrameworkInstance | None = None

    def hold(self, instance: FrameworkInstance, basis: object) -> None:
        """Store what is needed when the search has ended."""
        instance.begin()
        self.instance, self.basis = instance, basis

    def close(self) -> None:
        """End the attempt for the profile's revision; no effect the second time."""
        instance, self.instance = self.instance, None
        if instance is not None:
            instance.end()


@dataclass(slots=True)
class SearchCounts:
    """Totals since the start.

    Attributes:
        started: Processes that were started.
        used: Results that were committed or reported.
        outdated: Results that did not hold any more.
        lost: Processes that ended without a result.
        refused: Processes that could not be started.
    """

    started: int = 0
    used: int = 0
    outdated: int = 0
    lost: int = 0
    refused: int = 0


class BackgroundSearches:
    """The search in another process, the attempts that wait for its end, and the results that wait for their cycle.

    Args:
        processes: Starts copies of this process; None if every search ends where it began.
        resume: Lets the scheduling loop continue if it waits for a pod.

    Attributes:
        counts: Totals since the start.
        is_copy: Whether this process is a copy.
        is_due: Whether :meth:`next` has something to return.
        on_copy: Called in the copy before its search goes on: ends what writes outside of the process.
    """

    def __init__(
        self, processes: SearchProcesses | None, steps: StepCounter, journal: Journal, resume: Callable[[], None]
    ) -> None:
        self.counts = SearchCounts()
        self.is_copy = self.is_due = False
        self.on_copy: list[Callable[[], None]] = [journal.cut]
        self._processes = processes
        self._steps = steps
        self._journal = journal
        self._resume = resume
        self._attempt: QueuedPod | None = None
        self._may_move: Callable[[], bool] = lambda: True
        self._live: MovedSearch | None = None
        self._waiting: deque[QueuedPod] = deque()
        self._ended: deque[MovedSearch] = deque()
        self._searches: dict[str, int] = {}
        self._send: Callable[[bytes | None], NoReturn] | None = None

    # -- attempts -----------------------------------------------------------------------------------------------

    def begin(self, queued: QueuedPod, may_move: Callable[[], bool]) -> None:
        """Let the search of the attempt that begins move, unless the pod or gang has had all its searches.

        Args:
            may_move: Called when a slice is used up; returns whether the search can continue in another process.
        """
        if self._processes is not None and self._searches.get(queued.uid, 0) < MOST_SEARCHES:
            self._attempt, self._may_move = queued, may_move
            self._steps.on_long_search = self._move

    def end(self) -> None:
        """End the attempt, or the part of it whose search may move."""
        self._attempt = self._steps.on_long_search = None

    def _move(self) -> None:
        """Continue the attempt in progress in a copy of this process, and end it here.

        Raises:
            SearchMovedError: In this process, unless no copy can be made.
        """
        queued, processes = self._attempt, self._processes
        if queued is None or processes is None or not self._journal.may_move() or not self._may_move():
            return
        if self._live is not None:
            self._waiting.append(queued)
            self._journal.moved()
            raise SearchMovedError(None)
        search = MovedSearch(queued)
        try:
            send = processes.fork(lambda result: self._end(search, result))
        except OSError as error:
            self.counts.refused += 1
            # One process is tried for an attempt.
            self.end()
            log.warning("no process can be started for a long search, which delays other pods: %s", error)
            return
        if send is not None:
            self.become_copy(send)
            return
        self.counts.started += 1
        self._searches[queued.uid] = self._searches.get(queued.uid, 0) + 1
        self._live = search
        self._journal.moved()
        raise SearchMovedError(search)

    # -- in the copy --------------------------------------------------------------------------------------------

    def become_copy(self, send: Callable[[bytes | None], NoReturn]) -> None:
        """Let this process be a copy: it writes nothing outside of itself but its result."""
        self.is_copy, self._send = True, send
        self._steps.on_long_search = self._steps.on_slice_end = None
        for cut in self.on_copy:
            cut()

    def send(self, result: bytes | None) -> NoReturn:
        """End the copy with a result, None for none: the attempt then runs in the other process."""
        assert self._send is not None, "only a copy sends a result"
        self._send(result)

    # -- results ------------------------------------------------------------------------------------------------

    def _end(self, search: MovedSearch, result: bytes | None) -> None:
        if self._live is not search:
            return
        self._live, search.result = None, result
        if result is None:
            self.counts.lost += 1
            self._searches[search.queued.uid] = MOST_SEARCHES
        self._ended.append(search)
        self.is_due = True
        self._resume()

    def next(self) -> tuple[MovedSearch | None, QueuedPod | None]:
        """Return the next search that has ended, with its pod or gang, or one whose attempt starts again without one.

        The pod or gang may not be in flight any more; it is None if none is due.
        """
        ended = queued = None
        if self._ended:
            ended = self._ended.popleft()
            queued = ended.queued
        elif self._waiting and self._live is None:
            queued = self._first_waiting()
        self.is_due = bool(self._ended or (self._waiting and self._live is None))
        return ended, queued

    def _first_waiting(self) -> QueuedPod:
        """Remove the first waiting pod or gang in the order of QueueSort, and return it."""
        try:
            first = min(self._waiting, key=attrgetter("sort_key"))
        except Exception:
            # Keys of a QueueSort plugin that is not built in may not compare, or raise: first come, first served.
            first = self._waiting[0]
        self._waiting.remove(first)
        return first

    def freeze(self, queued: QueuedPod) -> None:
        """Let the next attempt of a pod or gang run with the state frozen: another search would end as the last one."""
        self._searches[queued.uid] = MOST_SEARCHES

    def forget(self, queued: QueuedPod, ended: MovedSearch | None = None) -> None:
        """Drop what is stored for a pod or gang that is decided, or is not in flight any more."""
        if ended is not None:
            ended.close()
        if self._searches:
            self._searches.pop(queued.uid, None)

    def stop(self) -> list[QueuedPod]:
        """End the copy, and drop all results; return the pods and gangs that are in flight because of a search."""
        searches = [*self._ended, *(() if self._live is None else (self._live,))]
        left = [*self._waiting, *(search.queued for search in searches)]
        self._live = None
        self._ended.clear()
        self._waiting.clear()
        self.is_due = False
        for search in searches:
            search.close()
        if self._processes is not None:
            self._processes.stop()
        return left
