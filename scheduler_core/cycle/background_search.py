"""Searches that continue in a copy of the process, while this process schedules other pods.

The operating system makes the snapshot: a fork shares all memory until either process writes to it, so that the same
code continues the same search on a state that no longer changes::

    attempt ──first slice used up──▶ fork ─┬─ copy: the search goes on ──▶ result, end of the process
                                           └─ this process: the attempt is undone, its pod or gang stays in flight
    other pods are scheduled ... ──result──▶ checked on the live state ─┬─ holds ──▶ committed
                                                                        └─ else ───▶ searched again
    attempt ──part used up, at a checkpoint──▶ postponed: undone, starts again after other pods, and goes on from there

What an attempt computes for later ones, such as the devices of all nodes, is stored in this process: at a checkpoint
everything before is stored, so that the attempt ends after a part of a slice and starts again, without a copy.

One copy runs at a time; an attempt that gets long meanwhile is undone and starts again when the copy has ended. An
attempt runs in slices with the state frozen (:mod:`scheduler_core.cycle.suspension`) if no process can be started, if
the copy returns no result, after :data:`MOST_SEARCHES` searches of its pod or gang, and once it has waited for
:data:`LONGEST_WAIT_SECONDS`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import NoReturn, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.search_basis import SearchBasis
from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.framework.cycle_state import Evaluations
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.ports import Clock, SearchProcesses, Timer
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

MOST_SEARCHES = 3
"""Searches of one pod or gang whose results may be found outdated, before its attempt runs with the state frozen."""
LONGEST_WAIT_SECONDS = 60.0
"""How long an attempt waits for the end of other searches, before it runs with the state frozen."""
_MOST_PARTS = 2_000
"""Parts of one attempt, after which it is not postponed: what it stores may be dropped before it starts again."""
_MOST_KINDS = 1000
"""Kinds of attempts that are stored because their next one does not move."""


class SearchMovedError(BaseException):
    """Ends an attempt whose search continues elsewhere, or later; no error, and no cancellation of a task.

    Attributes:
        search: The search; None if the attempt is to start again here.
        is_postponed: Whether it starts again after other pods; otherwise it waits for the end of the copy.
    """

    def __init__(self, search: MovedSearch | None, *, is_postponed: bool = False) -> None:
        self.search, self.is_postponed = search, is_postponed
        super().__init__()


class MovableAttempt(Protocol):
    """The attempt in progress, as far as it matters whether its search can continue in another process."""

    @property
    def instance(self) -> FrameworkInstance:
        """The profile's revision."""

    def may_move(self) -> bool:
        """Return whether the search can continue in another process; called when a slice is used up."""

    def kind(self) -> Hashable:
        """Return a key that attempts share if they use the same stored results."""


class SentResult(Struct, frozen=True):
    """What a copy sends.

    Attributes:
        is_loss: Whether a slice or more of the copy's steps had results that later attempts would have used.
        evaluations: Evaluations of plugins in the copy, as in :class:`Evaluations`.
        tally: Numbers of :class:`SearchTally`, of the copy alone.
    """

    result: bytes
    is_loss: bool
    evaluations: Evaluations
    tally: tuple[int, int, int]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SentResult).decode


def _decoded(sent: bytes) -> SentResult | None:
    try:
        return _decode(sent)
    except msgspec.DecodeError as error:
        log.warning("the result of a long search cannot be decoded, so that the search is made again: %s", error)
        return None


def _copied(counts: Evaluations) -> Evaluations:
    return Evaluations(*(dict(each) for each in astuple(counts)))


def _difference(after: Evaluations, before: Evaluations) -> Evaluations:
    pairs = zip(astuple(after), astuple(before), strict=True)
    return Evaluations(*({name: count - old.get(name, 0) for name, count in new.items()} for new, old in pairs))


def _add(counts: Evaluations, more: Evaluations) -> None:
    for known, added in zip(astuple(counts), astuple(more), strict=True):
        for name, count in added.items():
            known[name] = known.get(name, 0) + count


@dataclass(slots=True, eq=False)
class MovedSearch:
    """A search that continues in another process.

    Attributes:
        queued: The pod or gang, which is in flight.
        info: The version of the pod that is searched.
        kind: Key of attempts that use the same stored results.
        basis: What the cycle that began the search needs to check the result; set by that cycle. Its profile's revision
            counts the attempt as in flight until :meth:`close`.
        result: The encoded result; None before the end, or if the process ended without one.
        is_loss: Whether much that later attempts would have used is lost with the other process.
        is_counted: Whether the attempt counts as in flight for the profile's revision.
        is_awaited: Whether the pod or gang waits for the result. It is dropped otherwise, because another exception
            ended the attempt, perhaps while it was left.
    """

    queued: QueuedPod
    info: PodInfo
    kind: Hashable
    basis: SearchBasis | None = None
    result: bytes | None = None
    is_loss: bool = False
    is_counted: bool = False
    is_awaited: bool = False

    def hold(self, basis: SearchBasis) -> None:
        """Store what is needed when the search has ended."""
        basis.instance.begin()
        self.basis, self.is_counted, self.is_awaited = basis, True, True

    def close(self) -> None:
        """End the attempt for the profile's revision; no effect the second time."""
        if self.is_counted and self.basis is not None:
            self.basis.instance.end()
            # Last: a step that raised is repeated.
            self.is_counted = False


@dataclass(slots=True, eq=False)
class WaitingAttempt:
    """An attempt that starts again when the search in progress has ended, or after other pods.

    Attributes:
        info: The version of the pod when it began to wait.
    """

    queued: QueuedPod
    info: PodInfo
    is_postponed: bool = False
    is_overdue: bool = False
    timer: Timer | None = None


@dataclass(slots=True)
class Tries:
    """Searches and parts of an attempt whose pod or gang is not decided yet.

    Attributes:
        searches: Searches in copies.
        parts: Number of times that it was postponed.
        steps: Steps of those parts whose results are stored; the others are made again.
    """

    searches: int = 0
    parts: int = 0
    steps: int = 0


@dataclass(slots=True)
class SearchCounts:
    """Totals since the start.

    Attributes:
        used: Results that were committed or reported.
        outdated: Results that did not hold any more.
        lost: Processes that ended without a result.
    """

    started: int = 0
    used: int = 0
    outdated: int = 0
    lost: int = 0
    refused: int = 0
    postponed: int = 0


class BackgroundSearches:
    """The search in another process, the attempts that wait for its end, and the results that wait for their cycle.

    Args:
        processes: Starts copies of this process; None if every search ends where it began.
        devices: Devices of the cluster: the steps of attempts, and the searches, to which those of copies are added.
        resume: Lets the scheduling loop continue if it waits for a pod.

    Attributes:
        searched: What was searched for pods and gangs that are not decided yet, by UID.
        waiting: Attempts that start again when the search in progress has ended.
        is_due: Whether :meth:`next` has something to return.
        on_copy: Called in the copy before its search goes on: ends what writes outside of the process.
    """

    def __init__(
        self,
        processes: SearchProcesses | None,
        devices: ClusterDevices,
        journal: Journal,
        clock: Clock,
        resume: Callable[[], None],
    ) -> None:
        self.counts = SearchCounts()
        self.searched: dict[str, Tries] = {}
        self.is_enabled = processes is not None
        self.is_copy = self.is_due = False
        self.on_copy: list[Callable[[], None]] = [journal.cut]
        self._processes = processes
        self._steps = devices.steps
        self._journal = journal
        self._clock = clock
        self._tally = devices.tally
        self._resume = resume
        self._attempt: tuple[QueuedPod, MovableAttempt] | None = None
        self._live: MovedSearch | None = None
        self.waiting: list[WaitingAttempt] = []
        self._ended: list[MovedSearch] = []
        self._unstored: OrderedDict[Hashable, None] = OrderedDict()
        self._send: Callable[[bytes | None], NoReturn] | None = None
        self._stored_before = self._stored_at_begin = 0
        self._counted: Evaluations | None = None
        self._counted_before = Evaluations()
        self._tally_before = (0, 0, 0)

    # -- attempts -----------------------------------------------------------------------------------------------

    def begin(self, queued: QueuedPod, attempt: MovableAttempt) -> None:
        """Let the search of the attempt that begins move, unless the pod or gang has had all its searches."""
        if self.is_enabled:
            self._attempt, self._steps.on_long_search = (queued, attempt), self._move
            self._stored_at_begin = self._steps.stored
            if self.searched:
                self._steps.spent += self._tries(queued).steps

    def end(self) -> None:
        """End the attempt, or the part of it whose search may move."""
        self._attempt = self._steps.on_long_search = None

    def _move(self) -> None:
        """Continue the attempt in progress in a copy of this process, and end it here.

        Raises:
            SearchMovedError: In this process, unless no copy can be made.
        """
        if self._attempt is None or self._processes is None:
            return
        (queued, attempt), processes = self._attempt, self._processes
        tries = self._tries(queued)
        if tries.searches >= MOST_SEARCHES:
            self.end()
            return
        left = self._steps.left
        if not self._journal.may_move(left) or not attempt.may_move():
            return
        if left is not None:
            if tries.parts < _MOST_PARTS:
                self._postpone(queued, tries)
            return
        kind = attempt.kind()
        if kind in self._unstored:
            # What a copy computes for later attempts, such as verdicts of selectors, is lost with it. This attempt does
            # not move, so that its results are stored: otherwise a thousand replicas of a pod would compute the same a
            # thousand times, one after the other.
            del self._unstored[kind]
            self.end()
            return
        if self._live is not None:
            # One copy runs at a time, so that long searches take one more processor at most.
            self._journal.moved()
            raise SearchMovedError(None)
        search = MovedSearch(queued, queued.info, kind)
        try:
            send = processes.fork(lambda result: self._end(search, result))
        except OSError as error:
            self.counts.refused += 1
            # One process is tried for an attempt.
            self.end()
            log.warning("no process can be started for a long search, which delays other pods: %s", error)
            return
        if send is not None:
            try:
                self.become_copy(send)
            except BaseException:
                # It would continue as a second scheduler.
                send(None)
            return
        self.counts.started += 1
        tries.searches += 1
        self._store(queued, tries)
        self._live = search
        self._journal.moved()
        raise SearchMovedError(search)

    def _postpone(self, queued: QueuedPod, tries: Tries) -> NoReturn:
        """End the attempt in progress, which goes on from what it has stored after other pods."""
        tries.parts += 1
        # The limit of an attempt must not depend on the number of its parts.
        tries.steps += self._steps.stored - self._stored_at_begin
        self._store(queued, tries)
        self.counts.postponed += 1
        self._journal.moved(self._steps.left)
        raise SearchMovedError(None, is_postponed=True)

    # -- in the copy --------------------------------------------------------------------------------------------

    def become_copy(self, send: Callable[[bytes | None], NoReturn]) -> None:
        """Let this process be a copy: it writes nothing outside of itself but its result."""
        self.is_copy, self._send = True, send
        # The copy has no event loop that could run between its slices.
        self._steps.on_long_search = self._steps.on_slice_end = None
        self._stored_before = self._steps.stored
        if self._attempt is not None:
            self._counted = self._attempt[1].instance.evaluations
            self._counted_before = _copied(self._counted)
        self._tally_before = self._tally.numbers
        for cut in self.on_copy:
            cut()

    def send(self, result: bytes | None) -> NoReturn:
        """End the copy with a result, None for none: the attempt then runs in the other process."""
        assert self._send is not None, "only a copy sends a result"
        # Not compared in the other process: a replay has other slices, and must decide the same.
        is_loss = self._steps.stored - self._stored_before >= self._steps.slice_steps
        if result is None:
            self._send(None)
        counts = Evaluations() if self._counted is None else _difference(self._counted, self._counted_before)
        searches, steps, given_up = (
            now - old for now, old in zip(self._tally.numbers, self._tally_before, strict=True)
        )
        self._send(_encode(SentResult(result, is_loss, counts, (searches, steps, given_up))))

    # -- results ------------------------------------------------------------------------------------------------

    def _end(self, search: MovedSearch, sent: bytes | None) -> None:
        if self._live is not search:
            return
        self._live = None
        if not search.is_awaited:
            # The end of a search whose result is dropped lets attempts begin that waited for it.
            self.is_due = bool(self._ended) or self._is_waiting_due()
            self._resume()
            return
        found = None if sent is None else _decoded(sent)
        if found is None:
            self.counts.lost += 1
            # Another copy would probably die as this one did.
            self.freeze(search.queued)
        else:
            search.result, search.is_loss = found.result, found.is_loss
            self._tally.add(*found.tally)
            if search.basis is not None:
                _add(search.basis.instance.evaluations, found.evaluations)
        self._ended.append(search)
        self.is_due = True
        self._resume()

    def note_unstored(self, search: MovedSearch) -> None:
        """Let the next attempt that uses the same stored results not move, if much was lost with the copy."""
        if search.is_loss:
            self._unstored[search.kind] = None
            if len(self._unstored) > _MOST_KINDS:
                self._unstored.popitem(last=False)

    def next(self, *, may_begin: bool = True) -> MovedSearch | WaitingAttempt | None:
        """Return the next search that has ended, or an attempt that starts again without one; None if none is due.

        The pod or gang may not be in flight any more.

        Args:
            may_begin: Whether an attempt may start again; it may take a slice, which other pods then wait for.
        """
        due: MovedSearch | WaitingAttempt | None = None
        if self._ended:
            due = self._ended[0]
        elif may_begin and self._is_waiting_due():
            due = self._first_waiting()
        is_due = any(each is not due for each in self._ended) or self._is_waiting_due(due)
        # Removed last, because an exception must lose no result, and no attempt that waits.
        if isinstance(due, MovedSearch):
            del self._ended[0]
        elif due is not None:
            self._remove(due)
        self.is_due = is_due
        return due

    # -- attempts that wait for the end of another search ----------------------------------------------------------

    def wait(self, queued: QueuedPod, moved: SearchMovedError) -> None:
        """Let an attempt that was ended start again after other pods, or when the search in progress has ended."""
        waiting = WaitingAttempt(queued, queued.info, moved.is_postponed)
        if moved.is_postponed:
            self.is_due = True
        else:
            waiting.timer = self._clock.call_later(LONGEST_WAIT_SECONDS, partial(self._overdue, waiting))
        self.waiting.append(waiting)

    def _overdue(self, waiting: WaitingAttempt) -> None:
        waiting.is_overdue = self.is_due = True
        self._resume()

    def _is_waiting_due(self, taken: object = None) -> bool:
        return any(each is not taken and self._may_begin(each) for each in self.waiting)

    def _may_begin(self, waiting: WaitingAttempt) -> bool:
        return self._live is None or waiting.is_postponed or waiting.is_overdue

    def _first_waiting(self) -> WaitingAttempt:
        first = next((each for each in self.waiting if each.is_overdue), None)
        if first is not None:
            self.freeze(first.queued)
        else:
            due = list(filter(self._may_begin, self.waiting))
            try:
                first = min(due, key=attrgetter("queued.sort_key"))
            except Exception:
                # Keys of a QueueSort plugin that is not built in may not compare, or raise: first come, first served.
                first = due[0]
        return first

    def _remove(self, waiting: WaitingAttempt) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self.waiting.remove(waiting)

    def freeze(self, queued: QueuedPod) -> None:
        """Let the next attempt of a pod or gang run with the state frozen: another search would end as the last one."""
        tries = self._tries(queued)
        tries.searches = MOST_SEARCHES
        self._store(queued, tries)

    def _tries(self, queued: QueuedPod) -> Tries:
        return self.searched.get(queued.uid) or Tries()

    def _store(self, queued: QueuedPod, tries: Tries) -> None:
        self.searched[queued.uid] = tries
        if len(self.searched) > _MOST_KINDS:
            # A pod that was requeued between two searches may have been deleted since.
            del self.searched[next(iter(self.searched))]

    def withdraw(self, queued: QueuedPod) -> None:
        """Drop the search of an attempt that was interrupted, or the attempt if it waits; the copy ends by itself."""
        self.forget(queued)
        for search in (*self._ended, *(() if self._live is None else (self._live,))):
            if search.queued is queued:
                search.is_awaited = False
                search.close()
        self._ended = [search for search in self._ended if search.is_awaited]
        for each in [each for each in self.waiting if each.queued is queued]:
            self._remove(each)
        self.is_due = bool(self._ended) or self._is_waiting_due()

    def drop(self, ended: MovedSearch) -> None:
        """Drop a result, because the pod was updated since its search began."""
        self.counts.outdated += ended.result is not None
        self.note_unstored(ended)
        ended.close()

    def forget(self, queued: QueuedPod, ended: MovedSearch | None = None) -> None:
        """Drop what is stored for a pod or gang that is decided, or is not in flight any more."""
        if ended is not None:
            ended.close()
        if self.searched:
            self.searched.pop(queued.uid, None)

    def stop(self) -> list[QueuedPod]:
        """End the copy, and drop all results; return the pods and gangs that are in flight because of a search."""
        searches = [*self._ended, *(() if self._live is None else (self._live,))]
        left = [each.queued for each in self.waiting]
        left += [search.queued for search in searches if search.is_awaited]
        for each in self.waiting:
            if each.timer is not None:
                each.timer.cancel()
        self._live = None
        self._ended.clear()
        self.waiting.clear()
        self.is_due = False
        for search in searches:
            search.close()
        if self._processes is not None:
            self._processes.stop()
        return left
