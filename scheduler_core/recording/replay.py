"""Replays a record: drives a scheduler by the recorded input, and compares every decision.

No time passes. The event loop has nothing to wait for but the record, so that a replay in which the core waits for
something that was not recorded ends at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.errors import ConfigError
from scheduler_core.feeds.object_feed import DeclaredFeed, DeviceFeed, StorageFeed
from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.feeds.pod_group_feed import GroupFeed
from scheduler_core.feeds.workload_feed import WorkloadFeed
from scheduler_core.model.pod import Pod
from scheduler_core.recording.record_entries import (
    DECISIONS,
    Activating,
    Answered,
    Begun,
    Building,
    Deleted,
    Ended,
    Entry,
    Fed,
    Resumed,
    SliceOver,
    Step,
    Suspended,
    TimerFired,
    Withdrawing,
    error_of,
)
from scheduler_core.recording.record_file import RecordError
from scheduler_core.recording.recorded_ports import DEVICES, GROUPS, PODS, STORAGE, WORKLOADS, LastDelivered
from scheduler_core.recording.replayed_input import RecordedInput
from scheduler_core.runtime.framework_instance import FrameworkInstance

log = logging.getLogger(__name__)


class ReplayedScheduler(Protocol):
    """What a replay uses of a scheduler, whose clock, ports and journal are those of the record."""

    context: CycleContext
    feed: PodAndNodeFeed
    group_feed: GroupFeed
    storage_feed: StorageFeed
    device_feed: DeviceFeed
    workload_feed: WorkloadFeed
    declared_feeds: dict[str, DeclaredFeed]

    def build(self, config: ProfileConfig) -> FrameworkInstance:
        """Build an instance of a profile."""

    def activate(self, instances: list[FrameworkInstance]) -> None:
        """Make instances live together."""

    def withdraw(self, name: str) -> None:
        """Withdraw a profile."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Schedule until cancelled."""


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
    """A replay under way.

    Args:
        recorded: The record; the scheduler has its clock, ports and journal.
        scheduler: The scheduler.
    """

    def __init__(self, recorded: RecordedInput, scheduler: ReplayedScheduler) -> None:
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
        self._recorded.on_input, self._recorded.is_closed = _nothing, True
        await self._end(loop)
        if self._fault is not None:
            raise self._fault

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod as it was delivered last; None if there is none now."""
        found: Pod | None = self._last[PODS].named(Pod.__name__, namespace, name)
        return found

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

    def _apply(self, entry: Entry | None) -> bool:
        """Apply an entry; return False if it is for a task to consume."""
        if isinstance(entry, (Step, Answered, SliceOver, *DECISIONS)):
            return False
        self._recorded.take()
        match entry:
            case Fed():
                self._feed(entry)
            case TimerFired():
                callback = self._recorded.timers.pop(entry.timer, None)
                if callback is None:
                    self._recorded.differ(entry)
                else:
                    callback()
            case Deleted():
                done = self._recorded.deletions.pop(entry.call, None)
                if done is None:
                    self._recorded.differ(entry)
                else:
                    outcome = error_of(entry.error, entry.content) if entry.error else None
                    done(outcome if isinstance(outcome, Exception) else None)
            case Begun():
                self._running = asyncio.get_running_loop().create_task(self._scheduler.run())
            case Ended():
                self._finish()
            case Suspended():
                self._scheduler.context.suspension.begin()
            case Resumed():
                self._scheduler.context.suspension.end()
            case _:
                self._change_profiles(entry)
        return True

    def _change_profiles(self, entry: Entry | None) -> None:
        # A refused profile was refused when it was recorded, too; the live ones show it.
        with contextlib.suppress(ConfigError):
            match entry:
                case Building():
                    config = ProfileConfig.model_validate_json(entry.config)
                    self._instances[entry.instance] = self._scheduler.build(config)
                case Activating():
                    self._scheduler.activate([self._instance(number) for number in entry.instances])
                case Withdrawing():
                    self._scheduler.withdraw(entry.name)

    def _instance(self, number: int) -> FrameworkInstance:
        try:
            return self._instances[number]
        except KeyError:
            raise RecordError(
                "a profile of the record cannot be built; install the plugins that were installed when the record was "
                "written"
            ) from None

    def _feed(self, entry: Fed) -> None:
        feed, last = self._feeds.get(entry.feed), self._last.get(entry.feed)
        if feed is None or last is None:
            raise RecordError(
                f'the record contains events of "{entry.feed}", which no installed plugin declares; install the '
                "plugins that were installed when the record was written"
            )
        args = self._arguments(entry, last)
        last.delivered(entry.method, args[-1])
        getattr(feed, entry.method)(*args)

    def _arguments(self, entry: Fed, last: LastDelivered) -> list[Any]:
        objects = self._recorded.objects
        args = [objects.value(content) for content in entry.args[:-1]]
        if args != [None]:
            return [*args, objects.value(entry.args[-1])]
        # The old version is the one that was delivered last; the new one names it.
        old = last.find(objects.named(entry.args[-1]))
        return [old, objects.changed(old, entry.args[-1])]


def feeds_of(scheduler: ReplayedScheduler) -> Mapping[str, Any]:
    """Return the feeds of a scheduler by their names in records."""
    feeds = {
        PODS: scheduler.feed,
        GROUPS: scheduler.group_feed,
        STORAGE: scheduler.storage_feed,
        DEVICES: scheduler.device_feed,
        WORKLOADS: scheduler.workload_feed,
    }
    return feeds | scheduler.declared_feeds


def _nothing() -> None:
    pass
