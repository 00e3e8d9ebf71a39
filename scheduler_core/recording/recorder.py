"""Records everything that enters a core, in order, and every decision.

The core is deterministic but for its input. A recorder wraps the clock, the writers and the extenders before the
scheduler is built, and the feeds afterwards. As its journal it also records the order in which the scheduler's tasks
continue, so that a replay does not depend on the event loop. Nothing is read or awaited for a record, so that a
recorded run is the same as one that is not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
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

_MOST_BUFFERED = 256 << 10
_MOST_READINGS = 4096
"""Readings without another entry, as in a long search, before they are written."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
WRITER = "writer"


class RecordSink(Protocol):
    """Receives encoded entries."""

    @property
    def is_open(self) -> bool:
        """Whether entries are still taken; False after an error."""

    def write(self, encoded: bytearray) -> None:
        """Take encoded entries, each with a comma behind it; the buffer is cleared afterwards."""


@dataclass(slots=True)
class TaskSteps:
    """A task of the scheduler: its number, and whether it is within a port, whose steps are not the core's."""

    number: int
    in_port: bool = False


class TaskWork(Coroutine[Any, Any, T]):
    """Coroutine of a task; it is not a generator, so that its start by a cancellation is a step."""

    def __init__(self, work: Coroutine[Any, Any, T], steps: TaskSteps) -> None:
        self._work = work
        self._steps = steps

    def close(self) -> None:
        """End without a step."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """Await the work as a part of another task, whose step it then is."""
        return self._work.__await__()


class PortNumbers:
    """Numbers of calls and of clients of extenders, the same in a record and in its replay.

    A task of its own calls each client, and its start is not ordered. Calls are therefore counted for each port.
    """

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._extenders = 0

    def next_call(self, port: str) -> str:
        number = self._calls[port]
        self._calls[port] = number + 1
        return f"{port}{number}"

    def next_extender(self) -> str:
        self._extenders += 1
        return f"extender{self._extenders}."


class Recorder(Journal):
    """Journal and clock of a recorded core; *is_inside* while the core runs, whose calls of feeds are no input."""

    objects: ObjectTypes
    follows_binds = True

    def __init__(self, clock: Clock, sink: RecordSink) -> None:
        self._clock = clock
        self.decisions = 0
        self.is_building = False
        self._sink: RecordSink | None = sink
        self._encode = msgspec.json.Encoder().encode_into
        self._buffer = bytearray()
        self._seconds: list[float] = []
        self._microseconds: list[int] = []
        self._uids: list[str] = []
        self._readings: tuple[list[Any], ...] = (self._seconds, self._microseconds, self._uids)
        self._current: TaskSteps | None = None
        self.is_inside = False
        self.ports = PortNumbers()
        self._tasks = self._timers = self._instances = 0
        self._numbers: WeakKeyDictionary[FrameworkInstance, int] = WeakKeyDictionary()

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

    def close(self) -> None:
        self.flush()
        self._sink = None

    # -- readings -----------------------------------------------------------------------------------------------

    def now(self) -> float:
        seconds = self._clock.now()
        if self._sink is not None:
            self._seconds.append(seconds)
            if len(self._seconds) == _MOST_READINGS:
                self._write_readings()
                if len(self._buffer) > _MOST_BUFFERED:
                    self.flush()
        return seconds

    def wall(self) -> datetime:
        wall = self._clock.wall()
        if self._sink is not None:
            self._microseconds.append((wall - EPOCH) // _MICROSECOND)
        return wall

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def new_uid(self) -> str:
        uid = str(uuid4())
        if self._sink is not None:
            self._uids.append(uid)
        return uid

    # -- order of what the core does -----------------------------------------------------------------------------

    def steps(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        number, self._tasks = self._tasks, self._tasks + 1
        return RecordedWork(work, TaskSteps(number), self)

    def step(self, steps: TaskSteps, proceed: Callable[[Any], Any], value: Any) -> Any:
        """Let a task continue, and record that unless it is within a port."""
        if not steps.in_port:
            self.write(entries.Step(steps.number))
        self._current, self.is_inside = steps, not steps.in_port
        try:
            return proceed(value)
        finally:
            self._current, self.is_inside = None, False

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Set a timer that records that it fires."""
        number, self._timers = self._timers, self._timers + 1

        def fired() -> None:
            self.write(entries.TimerFired(number))
            self.inside(callback)

        return self._clock.call_later(seconds, fired)

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

    def deletion(self, done: Callable[[Exception | None], None]) -> Callable[[Exception | None], None]:
        number = self.ports.next_call(WRITER)

        def recorded(outcome: Exception | None) -> None:
            error = ("", self.objects.content(None)) if outcome is None else entries.encoded_error(outcome)
            self.write(entries.Deleted(number, *error))
            self.inside(done, outcome)

        return recorded

    async def answered(self, port: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call of a port, and record its outcome when the task continues."""
        number, steps = self.ports.next_call(port), self._current
        self.is_inside = False
        if steps is not None:
            steps.in_port = True
        try:
            value = await call()
        except GeneratorExit:
            raise
        except BaseException as error:
            self._continues(steps)
            self.write(entries.Answered(number, *entries.encoded_error(error)))
            raise
        self._continues(steps)
        self.write(entries.Answered(number, "", self.objects.content(value)))
        return value

    def _continues(self, steps: TaskSteps | None) -> None:
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

    def moved(self) -> None:
        self.write(entries.SearchMoved())

    def cut(self) -> None:
        """Drop what is buffered, and write nothing more to the file of another process."""
        self._sink = None

    def search_ended(self, done: Callable[[bytes | None], None]) -> Callable[[bytes | None], None]:
        """Return a callback that records the result of a search in another process."""

        def ended(result: bytes | None) -> None:
            self.write(entries.SearchEnded(result))
            self.inside(done, result)

        return ended

    def suspending(self) -> None:
        self.write(entries.Suspended())

    def resuming(self) -> None:
        self.write(entries.Resumed())

    def building(self, config: ProfileConfig | None) -> None:
        self.is_building = config is not None
        if config is None:
            return
        self._instances += 1
        text = public_config(config).model_dump_json(by_alias=True, exclude_unset=True)
        self.write(entries.Building(self._instances, text, config.revision()))

    def built(self, instance: FrameworkInstance) -> None:
        self._numbers[instance] = self._instances

    def activating(self, instances: Iterable[FrameworkInstance]) -> None:
        self.write(entries.Activating(tuple(self._numbers[each] for each in instances)))

    def withdrawing(self, name: str) -> None:
        self.write(entries.Withdrawing(name))

    def placed(self, attempt: Attempt) -> None:
        self.decided(placement(attempt))


def placement(attempt: Attempt) -> entries.Placed:
    info, profile = attempt.info, attempt.instance.name
    return entries.Placed(info.key, info.uid, attempt.node_name, profile, attempt.queued.attempts)


class RecordedWork(TaskWork[T]):
    """Coroutine of a task, whose steps are recorded."""

    def __init__(self, work: Coroutine[Any, Any, T], steps: TaskSteps, recorder: Recorder) -> None:
        super().__init__(work, steps)
        self._recorder = recorder

    def send(self, value: Any) -> Any:
        return self._recorder.step(self._steps, self._work.send, value)

    def throw(self, *thrown: Any) -> Any:
        return self._recorder.step(self._steps, lambda fault: self._work.throw(*fault), thrown)


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
