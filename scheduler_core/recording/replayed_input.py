"""The input of a record, entry by entry, and what waits for it; the journal, clock and ports of a replayed core.

Each task of the core waits until its step is the next entry. All other input is applied between steps. What the core
decides must be the next entry, too; the first decision that differs ends the replay.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.recording import record_entries as entries
from scheduler_core.recording.recorder import EPOCH, TIMER, NumberedJournal, TaskWork, placement

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """The first entry that a replay does not reach as recorded, after *number* equal decisions; None for nothing."""

    number: int
    recorded: entries.Entry | None
    computed: entries.Entry | None


class RecordedInput(NumberedJournal):
    """The entries of a record in order, and the journal of the core that replays them.

    Changes of profiles need no note: the driver has consumed their entries. Shadows of a replay are not the recorded
    ones.

    Attributes:
        changed: Diagnoses that are not as recorded, and placements on other nodes; the replay goes on from the
            recorded state.
        difference: The first difference after which the replay cannot go on; None for none.
        last_seconds, last_wall: The last readings of the clock.
        is_paused: Whether shadows decide, and everything else waits.
        on_input: Called when the next entry is neither a step nor an answer nor a decision.
        on_decision: Called with each decision that is equal or changed; returns whether the replay ends there.
        move: Moves a placed pod to the recorded node; returns whether it could be moved.
        callbacks: Callbacks of timers, deletions and searches until they are called, by the name in the entry.
    """

    # Slices end where the record has it, which is looked up in each step.
    slice_steps, part_steps = 1, 0
    is_building = True

    def __init__(self, record: Iterable[entries.Entry]) -> None:
        super().__init__()
        self.changed: list[ReplayDifference] = []
        self.difference: ReplayDifference | None = None
        self.is_closed = self.is_paused = False
        self.on_input: Callable[[], None] = lambda: None
        self.on_decision: Callable[[entries.Decision], bool] = lambda _: False
        self.move: Callable[[Attempt, str], bool] = lambda *_: False
        self.callbacks: dict[str, Callable[..., None]] = {}
        self._entries: Iterator[entries.Entry] = iter(record)
        self._waiters: dict[int | str, asyncio.Future[None]] = {}
        self.last_seconds, self.last_wall = 0.0, EPOCH
        self.head: entries.Entry | None = None
        self._read()

    # -- entries ------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Consume the next entry, whose readings are then current."""
        self._read()
        self._announce()

    def _read(self) -> None:
        for each in self._readings:
            each.clear()
        self.head = next(self._entries, None)
        # The readings behind an entry are those of its effects.
        while isinstance(self.head, entries.Readings):
            for each, new in zip(self._readings, msgspec.structs.astuple(self.head), strict=True):
                each.extend(new)
            self.head = next(self._entries, None)

    def _announce(self) -> None:
        if self.is_paused:
            return
        match self.head:
            case entries.Step(task=number) | entries.Answered(call=number):
                waiter = self._waiters.get(number)
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
            case head if not isinstance(head, (*entries.DECISIONS, entries.SliceOver, entries.SearchMoved)):
                self.on_input()

    @property
    def is_over(self) -> bool:
        return self.head is None or self.difference is not None

    def decided(self, decision: entries.Decision) -> None:
        if self.is_over:
            return
        if _comparable(self.head) == _comparable(decision):
            self.decisions += 1
        elif _has_same_effect(self.head, decision):
            self.changed.append(ReplayDifference(self.decisions, self.head, decision))
        else:
            self.differ(decision)
            return
        self._go_on(decision)

    def _go_on(self, decision: entries.Decision) -> None:
        if self.on_decision(decision):
            self._entries, self.head = iter(()), None
            self.on_input()
        else:
            self.take()

    def differ(self, computed: entries.Entry | None) -> None:
        if self.difference is None:
            self.difference = ReplayDifference(self.decisions, self.head, computed)
            self.on_input()

    async def answered(self, port: str, call: Callable[[], Any]) -> Any:
        """Wait for the recorded answer of a call, which is not made, and return it or raise its exception."""
        number = self.next_call(port)
        steps = self._current
        if steps is not None:
            steps.in_port = True
        while self.is_paused or not (isinstance(self.head, entries.Answered) and self.head.call == number):
            try:
                await self.wait(number)
            except asyncio.CancelledError:
                # The answer that was recorded is this cancellation, or the port had answered already.
                if self.is_closed:
                    raise
        if steps is not None:
            steps.in_port = False
        answered = self.head
        self.take()
        value = self.objects.value(answered.content)
        if isinstance(value, BaseException):
            raise value
        return value

    def wait(self, number: int | str) -> asyncio.Future[None]:
        """Return a future that is done when the step of a task, or the answer of a call, is the next entry."""
        waiter = self._waiters[number] = asyncio.get_running_loop().create_future()
        return waiter

    def called_back(self, name: str, callback: Callable[..., None]) -> Callable[..., None]:
        self.callbacks[name] = callback
        return callback

    # -- clock --------------------------------------------------------------------------------------------------

    def now(self) -> float:
        if self._seconds:
            self.last_seconds = self._seconds.popleft()
        return self.last_seconds

    def wall(self) -> datetime:
        if self._microseconds:
            self.last_wall = EPOCH + timedelta(microseconds=self._microseconds.popleft())
        return self.last_wall

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ReplayedTimer:
        """Keep a callback until its timer is the next entry."""
        name = self.next_call(TIMER)
        self.called_back(name, callback)
        return ReplayedTimer(self.callbacks, name)

    @types.coroutine
    def sleep(self, seconds: float) -> Generator[None, None, None]:
        """Let other tasks run; the recorded step of the task decides when it continues."""
        yield

    # -- journal ------------------------------------------------------------------------------------------------

    def step(self, task: TaskWork[Any], value: Any) -> Any:
        """Let a task continue if the next entry is its step, or it is within a port; else let it wait for its step."""
        is_next = isinstance(self.head, entries.Step) and self.head.task == task.number
        if not task.in_port and (self.is_paused or not is_next):
            if self.is_closed:
                task.close()
                raise asyncio.CancelledError
            return next(self.wait(task.number).__await__())
        self._current = task
        if not task.in_port:
            self.take()
        try:
            return task.proceed(None)
        finally:
            self._current = None

    def new_uid(self) -> str:
        return self._uids.popleft() if self._uids else ""

    def is_slice_over(self) -> bool:
        """Return whether the recorded cycle was interrupted after the readings that were taken."""
        return isinstance(self.head, entries.SliceOver) and not any(self._readings)

    def may_move(self, left: int | None) -> bool:
        """Return whether the recorded search was not continued after the readings that were taken, with as much left.

        Less may be left than recorded, because dry runs store what attempts use, too, and are not recorded.
        """
        head = self.head
        if not isinstance(head, entries.SearchMoved) or any(self._readings):
            return False
        return left is None if head.left is None else left is not None and left <= head.left

    def moved(self, left: int | None = None) -> None:
        self.take()

    async def between_slices(self, work: Coroutine[Any, Any, None]) -> None:
        """Let recorded input take effect until the recorded step of the task."""
        self.take()
        await work

    async def paused(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of shadows while nothing else happens, and wait for the step at its end."""
        steps = self._current
        assert steps is not None, "only tasks of the scheduler pause"
        steps.in_port = self.is_paused = True
        await work
        steps.in_port = self.is_paused = False
        self._announce()
        await self.sleep(0)

    def placed(self, attempt: Attempt) -> None:
        """Compare a placement; a pod that was recorded on another node is moved there."""
        recorded, computed = self.head, placement(attempt)
        if attempt.gang is not None or not isinstance(recorded, entries.Placed) or recorded.node == computed.node:
            self.decided(computed)
        elif replace(recorded, node=computed.node) == computed and self.move(attempt, recorded.node):
            self.changed.append(ReplayDifference(self.decisions, recorded, computed))
            self._go_on(recorded)
        else:
            self.differ(computed)


def _comparable(entry: entries.Entry | None) -> Any:
    """Return an entry with contents as they are encoded."""
    return msgspec.json.decode(msgspec.json.encode(entry)) if isinstance(entry, entries.Wrote) else entry


def _has_same_effect(recorded: entries.Entry | None, computed: entries.Decision) -> bool:
    """Return whether a pod is rejected in either case, with another diagnosis."""
    if not (isinstance(recorded, entries.Rejected) and isinstance(computed, entries.Rejected)):
        return False
    return (recorded.uid, recorded.profile) == (computed.uid, computed.profile)


@dataclass(frozen=True, slots=True)
class ReplayedTimer:
    """Timer that fires when its entry is next."""

    callbacks: dict[str, Callable[..., None]]
    name: str

    def cancel(self) -> None:
        self.callbacks.pop(self.name, None)
