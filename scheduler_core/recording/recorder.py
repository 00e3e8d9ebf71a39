"""Records everything that enters a core, in order, and every decision.

The core is deterministic but for its input. A recorder wraps the clock, the writers and the extenders before the
scheduler is built, and the feeds afterwards. As its journal it also records the order in which the scheduler's tasks
continue, so that a replay does not depend on the event loop. Nothing is read or awaited for a record, so that a
recorded run is the same as one that is not recorded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec

from scheduler_core.config.profile_config import ExtenderTLSConfig, ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.journal import Journal
from scheduler_core.ports import Clock, Timer
from scheduler_core.recording import record_entries as entries
from scheduler_core.recording.object_types import ObjectTypes
from scheduler_core.runtime.framework_instance import FrameworkInstance

T = TypeVar("T")

FLUSH_SECONDS = 0.5
_MOST_BUFFERED = 256 << 10
_MOST_READINGS = 4096
"""Readings without another entry, as in a long search, before they are written."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
WRITER, TIMER = "writer", "timer"
_TASKS, _EXTENDERS, _INSTANCES = "tasks", "extenders", "instances"


class RecordSink(Protocol):
    """Receives encoded entries."""

    @property
    def is_open(self) -> bool:
        """Whether entries are still taken; False after an error."""

    def write(self, encoded: bytearray) -> None:
        """Take encoded entries, each with a comma behind it; the buffer is cleared afterwards."""

    def close(self) -> None:
        """End the record."""


class TaskWork(Coroutine[Any, Any, T]):
    """Coroutine of a task of the scheduler; it is not a generator, so that its start by a cancellation is a step.

    Args:
        step: Called for each step, with the value that the work receives.

    Attributes:
        in_port: Whether the task is within a port, whose steps are not the core's.
    """

    def __init__(self, work: Coroutine[Any, Any, T], number: int, step: Callable[[TaskWork[Any], Any], Any]) -> None:
        self.number = number
        self.in_port = False
        self._work = work
        self._step = step
        self._thrown: tuple[Any, ...] = ()

    def send(self, value: Any) -> Any:
        return self._step(self, value)

    def throw(self, *thrown: Any) -> Any:
        """Continue with an exception, at once or with the next step."""
        self._thrown = thrown
        return self._step(self, None)

    def proceed(self, value: Any) -> Any:
        thrown, self._thrown = self._thrown, ()
        return self._work.throw(*thrown) if thrown else self._work.send(value)

    def close(self) -> None:
        """End without a step."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """Await the work as a part of another task, whose step it then is."""
        return self._work.__await__()


class NumberedJournal(Journal):
    """Journal whose tasks, timers, calls of ports and clients of extenders have the same numbers in a replay.

    A task of its own calls each client, and its start is not ordered. Calls are therefore counted for each port.
    """

    objects: ObjectTypes
    follows_binds = True

    def __init__(self) -> None:
        self.decisions = 0
        self._seconds: deque[float] = deque()
        self._microseconds: deque[int] = deque()
        self._uids: deque[str] = deque()
        self._readings: tuple[deque[Any], ...] = (self._seconds, self._microseconds, self._uids)
        self._current: TaskWork[Any] | None = None
        self._numbers: Counter[str] = Counter()

    def _next(self, of: str) -> int:
        self._numbers[of] += 1
        return self._numbers[of] - 1

    def next_call(self, port: str) -> str:
        return f"{port}{self._next(port)}"

    def next_extender(self) -> str:
        return f"extender{self._next(_EXTENDERS) + 1}."

    def steps(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return TaskWork(work, self._next(_TASKS), self.step)

    @abstractmethod
    def step(self, task: TaskWork[Any], value: Any) -> Any:
        """Let a task continue."""

    @abstractmethod
    def called_back(self, name: str, callback: Callable[..., None]) -> Callable[..., None]:
        """Return a callback of the core whose calls are entries with this name."""

    def deletion(self, done: Callable[[Exception | None], None]) -> Callable[[Exception | None], None]:
        return self.called_back(self.next_call(WRITER), done)

    def search_ended(self, done: Callable[[bytes | None], None]) -> Callable[[bytes | None], None]:
        """Return a callback for the result of a search in another process."""
        return self.called_back("search", done)


class Recorder(NumberedJournal):
    """Journal and clock of a recorded core; *is_inside* while the core runs, whose calls of feeds are no input."""

    def __init__(self, clock: Clock, sink: RecordSink) -> None:
        super().__init__()
        self.clock = clock
        self.is_building = False
        self._sink: RecordSink | None = sink
        self._encode = msgspec.json.Encoder().encode_into
        self._buffer = bytearray()
        self.is_inside = False
        self._instances: WeakKeyDictionary[FrameworkInstance, int] = WeakKeyDictionary()

    # -- entries ------------------------------------------------------------------------------------------------

    @property
    def is_recording(self) -> bool:
        return self._sink is not None

    def write(self, entry: entries.Entry) -> None:
        """Write an entry, with the readings since the entry before it."""
        if self._sink is None:
            return
        self._write_readings()
        buffer = self._buffer
        self._encode(entry, buffer, -1)
        buffer += b","
        if len(buffer) > _MOST_BUFFERED:
            self.flush()

    def _write_readings(self) -> None:
        if any(self._readings):
            self._encode(entries.Readings(*map(tuple, self._readings)), self._buffer, -1)
            self._buffer += b","
            for each in self._readings:
                each.clear()

    def flush(self) -> None:
        if self._sink is not None:
            self._write_readings()
            if self._buffer:
                self._sink.write(self._buffer)
                self._buffer = bytearray()
            if not self._sink.is_open:
                self._sink = None

    async def run(self) -> None:
        """Write what was recorded twice a second, until cancelled."""
        while True:
            await self.clock.sleep(FLUSH_SECONDS)
            self.flush()

    def close(self) -> None:
        self.flush()
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    # -- readings -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        seconds = self.clock.now()
        if self._sink is not None:
            self._seconds.append(seconds)
            if len(self._seconds) == _MOST_READINGS:
                self._write_readings()
                if len(self._buffer) > _MOST_BUFFERED:
                    self.flush()
        return seconds

    def wall(self) -> datetime:
        wall = self.clock.wall()
        if self._sink is not None:
            self._microseconds.append((wall - EPOCH) // _MICROSECOND)
        return wall

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    def new_uid(self) -> str:
        uid = str(uuid4())
        if self._sink is not None:
            self._uids.append(uid)
        return uid

    # -- order of what the core does -----------------------------------------------------------------------------

    def step(self, task: TaskWork[Any], value: Any) -> Any:
        """Let a task continue, and record that unless it is within a port."""
        if not task.in_port:
            self.write(entries.Step(task.number))
        self._current, self.is_inside = task, not task.in_port
        try:
            return task.proceed(value)
        finally:
            self._current, self.is_inside = None, False

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Set a timer that records that it fires."""
        return self.clock.call_later(seconds, self.called_back(self.next_call(TIMER), callback))

    def called_back(self, name: str, callback: Callable[..., None]) -> Callable[..., None]:
        def recorded(*args: Any) -> None:
            self.write(entries.CalledBack(name, tuple(map(self.objects.content, args))))
            self.inside(callback, *args)

        return recorded

    def inside(self, callback: Callable[..., T], *args: Any) -> T:
        """Call a function of the core, within which calls of feeds are no input."""
        before, self.is_inside = self.is_inside, True
        try:
            return callback(*args)
        finally:
            self.is_inside = before

    # -- feeds and ports -----------------------------------------------------------------------------------------

    def decided(self, decision: entries.Decision) -> None:
        self.decisions += isinstance(decision, (entries.Placed, entries.Rejected))
        self.write(decision)

    async def answered(self, port: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call of a port, and record its outcome when the task continues."""
        number, steps = self.next_call(port), self._current
        self.is_inside = False
        if steps is not None:
            steps.in_port = True
        try:
            value = await call()
        except GeneratorExit:
            raise
        except BaseException as error:
            self._continues(steps)
            self.write(entries.Answered(number, self.objects.content(error)))
            raise
        self._continues(steps)
        self.write(entries.Answered(number, self.objects.content(value)))
        return value

    def _continues(self, steps: TaskWork[Any] | None) -> None:
        if steps is not None:
            steps.in_port, self.is_inside = False, True

    # -- journal ------------------------------------------------------------------------------------------------

    def begun(self) -> None:
        self.write(entries.Begun())

    def ended(self) -> None:
        self.write(entries.Ended())
        self.close()

    async def paused(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work whose end is a step."""
        steps, self.is_inside = self._current, False
        if steps is None:
            await work
            return
        steps.in_port = True
        await work
        self._continues(steps)
        self.write(entries.Step(steps.number))

    async def between_slices(self, work: Coroutine[Any, Any, None]) -> None:
        """Record that the slice of a cycle is over, and do work that lets other tasks run."""
        if self._current is None or self._current.in_port:
            # Shadows decide, which is not recorded.
            await work
            return
        self.write(entries.SliceOver())
        await self.paused(work)

    def moved(self, left: int | None = None) -> None:
        self.write(entries.SearchMoved(left))

    def cut(self) -> None:
        """Drop what is buffered, and write nothing more to the file of another process."""
        self._sink = None

    def suspending(self) -> None:
        self.write(entries.Suspended())

    def resuming(self) -> None:
        self.write(entries.Resumed())

    def building(self, config: ProfileConfig | None) -> None:
        self.is_building = config is not None
        if config is None:
            return
        text = public_config(config).model_dump_json(by_alias=True, exclude_unset=True)
        self.write(entries.Building(self._next(_INSTANCES), text, config.revision()))

    def built(self, instance: FrameworkInstance) -> None:
        self._instances[instance] = self._numbers[_INSTANCES] - 1

    def activating(self, instances: Iterable[FrameworkInstance]) -> None:
        self.write(entries.Activating(tuple(self._instances[each] for each in instances)))

    def withdrawing(self, name: str) -> None:
        self.write(entries.Withdrawing(name))

    def placed(self, attempt: Attempt) -> None:
        self.decided(placement(attempt))


def placement(attempt: Attempt) -> entries.Placed:
    info, profile = attempt.info, attempt.instance.name
    return entries.Placed(info.key, info.uid, attempt.node_name, profile, attempt.queued.attempts)


def public_config(config: ProfileConfig) -> ProfileConfig:
    """Return the configuration of a profile without certificates, keys and passwords of its extenders."""
    if not config.extenders:
        return config
    extenders = []
    for each in config.extenders:
        scheme, separator, rest = each.url_prefix.rpartition("://")
        host, slash, path = rest.partition("/")
        url = f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
        tls = None if each.tls_config is None else ExtenderTLSConfig(server_name=each.tls_config.server_name)
        extenders.append(each.model_copy(update={"url_prefix": url, "tls_config": tls}))
    return config.model_copy(update={"extenders": tuple(extenders)})
