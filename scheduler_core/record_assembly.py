"""Builds recorded schedulers; replays records: drives a scheduler by the recorded input, and compares every decision.

No time passes in a replay. The event loop has nothing to wait for but the record, so that a replay in which the core
waits for something that was not recorded ends at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import asdict, replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError
from scheduler_core.framework.registry import Registry
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ClusterWriter
from scheduler_core.recording import record_entries as entries
from scheduler_core.recording.object_types import ObjectTypes
from scheduler_core.recording.record_file import RecordError, RecordHeader, missing_plugin
from scheduler_core.recording.recorded_ports import (
    UPDATED,
    LastDelivered,
    RecordedPort,
    RecordedProcesses,
    RecordedWriter,
    record_feed,
    recorded_extenders,
)
from scheduler_core.recording.recorder import Recorder
from scheduler_core.recording.replayed_input import RecordedInput
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler
from scheduler_core.scheduler_options import SchedulerOptions, SchedulerPorts

_INFINITE = "inf"
_OF_TASKS = (entries.Step, entries.Answered, entries.SliceOver, entries.SearchMoved)
"""Entries that tasks of the scheduler consume, besides decisions."""


def recorded_scheduler(
    recorder: Recorder,
    writer: ClusterWriter,
    options: SchedulerOptions,
    registry: Registry,
    defaults: Plugins | None = None,
    *,
    ports: SchedulerPorts,
) -> Scheduler:
    """Return a scheduler whose input and decisions are recorded."""
    writer, ports = RecordedWriter(writer, recorder), recorded_ports(recorder, ports)
    scheduler = Scheduler(recorder, writer, options, registry, defaults, ports=ports)
    record_feeds(recorder, scheduler)
    return scheduler


def recorded_ports(recorder: Recorder, ports: SchedulerPorts) -> SchedulerPorts:
    """Return ports whose answers are recorded."""
    made: Any = {"journal": recorder, "timing": recorder.clock}
    for name in ("storage", "claims"):
        port = getattr(ports, name)
        if port is not None:
            made[name] = RecordedPort(port, recorder)
    if ports.make_extender is not None:
        made["make_extender"] = recorded_extenders(ports.make_extender, recorder)
    if ports.processes is not None:
        made["processes"] = RecordedProcesses(ports.processes, recorder)
    return replace(ports, **made)


def record_feeds(recorder: Recorder, scheduler: Scheduler) -> None:
    """Record the calls of a scheduler's feeds, and of what holds room; call it before anything uses them."""
    recorder.objects = _objects_of(scheduler)
    for name, (feed, methods) in feeds_of(scheduler).items():
        record_feed(recorder, name, feed, methods)


def header_of(options: SchedulerOptions, ports: SchedulerPorts, registry: Registry, version: str) -> RecordHeader:
    return RecordHeader(
        run=uuid4().hex,
        bayplan=version,
        options={
            name: _INFINITE if value == math.inf else msgspec.to_builtins(value)
            for name, value in asdict(options).items()
        },
        has_storage=ports.storage is not None,
        has_claims=ports.claims is not None,
        has_extenders=ports.make_extender is not None,
        plugins=tuple(sorted(registry)),
    )


def options_of(header: RecordHeader) -> SchedulerOptions:
    """Return the options of a recorded scheduler. Raises RecordError: an option is not known."""
    unknown = set(header.options) - set(SchedulerOptions.__struct_fields__)
    if unknown:
        raise RecordError(
            f"the record was written with options that this version does not have: {', '.join(sorted(unknown))}; "
            f"replay it with Bayplan {header.bayplan}"
        )
    values = {name: math.inf if value == _INFINITE else value for name, value in header.options.items()}
    try:
        return msgspec.convert(values, SchedulerOptions)
    except msgspec.ValidationError as error:
        raise RecordError(f"the options of the record are invalid: {error}") from error


def replay_of(
    header: RecordHeader, record: Iterable[entries.Entry], registry: Registry, defaults: Plugins | None = None
) -> tuple[RecordedInput, Scheduler, Replay]:
    """Return a replay that has not begun, with its scheduler. Raises RecordError: the record cannot be replayed."""
    missing = sorted(set(header.plugins) - set(registry))
    if missing:
        raise RecordError(
            f"the record was written with plugins that are not installed: {', '.join(missing)}; install them"
        )
    recorded = RecordedInput(record)
    # Measured durations consume no readings, which are those of the scheduler's own clock.
    timing = SimpleNamespace(
        now=lambda: recorded.last_seconds,
        wall=lambda: recorded.last_wall,
        call_later=recorded.call_later,
        sleep=recorded.sleep,
    )
    ports: Any = {"journal": recorded, "timing": timing}
    # Whether a search moves is recorded, whatever the ports of the recorded scheduler were.
    ports["processes"] = RecordedProcesses(None, recorded)
    if header.has_storage:
        ports["storage"] = RecordedPort(None, recorded)
    if header.has_claims:
        ports["claims"] = RecordedPort(None, recorded)
    if header.has_extenders:
        ports["make_extender"] = recorded_extenders(lambda _, __: None, recorded)
    writer, options = RecordedWriter(None, recorded), options_of(header)
    scheduler = Scheduler(recorded, writer, options, registry, defaults, ports=SchedulerPorts(**ports))
    recorded.objects = _objects_of(scheduler)
    recorded.move = scheduler.cycles.assumed.move
    return recorded, scheduler, Replay(recorded, scheduler)


def _objects_of(scheduler: Scheduler) -> ObjectTypes:
    return ObjectTypes(scheduler.decoded, scheduler.reservations.held, scheduler.context.cache.columns)


PODS, ROOMS = "pods", "rooms"
_POD_METHODS = ("pod_added", "pod_updated", "pod_deleted", "pod_unreadable")
_NODE_METHODS = ("node_added", "node_updated", "node_deleted", "node_unreadable")
_GROUP_METHODS = ("serve", "withhold", "ignore", "group_changed", "group_deleted", "group_refused")
_OBJECT_METHODS = ("added", "updated", "deleted", "unreadable")


def feeds_of(scheduler: Scheduler) -> Mapping[str, tuple[Any, Collection[str]]]:
    """Return the feeds of a scheduler by their names in records, each with the methods that deliver input.

    The last three are called by those outside the core who hold room for pods, and change and end it. A declared kind
    is named by its path.
    """
    declared = {path: (feed, _OBJECT_METHODS) for path, feed in scheduler.declared_feeds.items()}
    return declared | {
        PODS: (scheduler.feed, (*_POD_METHODS, *_NODE_METHODS)),
        "groups": (scheduler.group_feed, _GROUP_METHODS),
        "storage": (scheduler.storage_feed, _OBJECT_METHODS),
        "devices": (scheduler.device_feed, (*_OBJECT_METHODS, "withhold", "expect_lists")),
        "workloads": (scheduler.workload_feed, _OBJECT_METHODS),
        ROOMS: (scheduler.reservations, ("hold", "release")),
        "heldRooms": (scheduler.reservations.held, ("end", "extend", "set_priority", "settle")),
        "healing": (scheduler.healing, ("restore",)),
    }


# -- replays --------------------------------------------------------------------------------------------------------


class ReplayLoop(asyncio.BaseEventLoop):
    """Event loop without files and timers; it calls a function when nothing is left to do.

    Attributes:
        on_idle: Called when no callback is ready; must make one ready.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_idle: Callable[[], None] = self.stop
        self._selector = self
        self.slow_callback_duration = float("inf")

    def select(self, timeout: float | None) -> list[object]:
        """Return no event; called by the base class to wait for one."""
        if timeout is None:
            self.call_soon(self.on_idle)
        return []

    def _process_events(self, event_list: list[object]) -> None:
        """Do nothing: without files there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits in a selector."""


class Replay:
    """A replay under way."""

    def __init__(self, recorded: RecordedInput, scheduler: Scheduler) -> None:
        self._recorded = recorded
        self._scheduler = scheduler
        self._feeds = feeds_of(scheduler)
        self._last = {name: LastDelivered() for name in self._feeds}
        self._instances: dict[int, FrameworkInstance] = {}
        self._is_due = False
        self._running: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._fault: BaseException | None = None

    async def run(self) -> None:
        """Replay to the end of the record or to the first difference; see :attr:`RecordedInput.difference`.

        Call it on a :class:`ReplayLoop`.

        Raises:
            RecordError: The record cannot be replayed.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ReplayLoop), "a replay needs its own event loop"
        self._over = loop.create_future()
        self._recorded.on_input, loop.on_idle = self._input_is_due, self._stalled
        self._input_is_due()
        await self._over
        self._recorded.on_input, self._recorded.is_closed = (lambda: None), True
        await self._end(loop)
        if self._fault is not None:
            raise self._fault

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod as it was delivered last; None if there is none now."""
        return self._last[PODS].objects.get((Pod.__name__, namespace, name))

    async def _end(self, loop: ReplayLoop) -> None:
        own = asyncio.current_task()

        def cancel() -> None:
            for task in asyncio.all_tasks(loop):
                if task is not own:
                    task.cancel()

        # A task may catch its cancellation, and what is cancelled may start other tasks.
        loop.on_idle = cancel
        cancel()
        while left := [each for each in asyncio.all_tasks() if each is not own]:
            await asyncio.wait(left)

    def _input_is_due(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._apply_input)

    def _apply_input(self) -> None:
        """Apply input until the next entry is something else."""
        self._is_due = False
        recorded = self._recorded
        try:
            while not (recorded.is_over or recorded.is_paused) and self._apply(recorded.head):
                pass
        except Exception as fault:  # noqa: BLE001 - raised by run()
            self._fault = fault
            self._finish()
        if recorded.is_over:
            self._finish()

    def _finish(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _stalled(self) -> None:
        """End the replay: nothing runs, and the next entry does not follow."""
        if not self._recorded.is_over:
            self._recorded.differ(None)
        self._finish()

    def _apply(self, entry: entries.Entry | None) -> bool:
        """Apply an entry; return False if it is for a task to consume."""
        if isinstance(entry, (*_OF_TASKS, *entries.DECISIONS)):
            return False
        recorded = self._recorded
        recorded.take()
        match entry:
            case entries.Fed():
                self._feed(entry)
            case entries.CalledBack():
                callback = recorded.callbacks.pop(entry.callback, None)
                if callback is None:
                    recorded.differ(entry)
                else:
                    callback(*map(recorded.objects.value, entry.args))
            case entries.Begun():
                self._running = asyncio.get_running_loop().create_task(self._scheduler.run())
            case entries.Ended():
                self._finish()
            case entries.Suspended():
                self._scheduler.context.suspension.begin()
            case entries.Resumed():
                self._scheduler.context.suspension.end()
            case _:
                self._change_profiles(entry)
        return True

    def _change_profiles(self, entry: entries.Entry | None) -> None:
        # A refused profile was refused when it was recorded, too; the live ones show it.
        with contextlib.suppress(ConfigError):
            match entry:
                case entries.Building():
                    config = ProfileConfig.model_validate_json(entry.config)
                    self._instances[entry.instance] = self._scheduler.build(config)
                case entries.Activating():
                    self._scheduler.activate([self._instance(number) for number in entry.instances])
                case entries.Withdrawing():
                    self._scheduler.withdraw(entry.name)

    def _instance(self, number: int) -> FrameworkInstance:
        try:
            return self._instances[number]
        except KeyError:
            raise missing_plugin("a profile of the record cannot be built") from None

    def _feed(self, entry: entries.Fed) -> None:
        feed, methods = self._feeds.get(entry.feed, (None, ()))
        if entry.method not in methods:
            raise missing_plugin(f'the record contains events of "{entry.feed}", which no installed plugin declares')
        last = self._last[entry.feed]
        args = self._arguments(entry, last)
        last.delivered(entry.method, args)
        # Other decisions than the recorded ones may have ended room that is released.
        if entry.feed != ROOMS or args != [None]:
            getattr(feed, entry.method)(*args)

    def _arguments(self, entry: entries.Fed, last: LastDelivered) -> list[Any]:
        objects = self._recorded.objects
        if entry.method not in UPDATED or entry.args[0][0]:
            return [objects.value(content) for content in entry.args]
        return objects.changed(entry.args[-1], last.find)
