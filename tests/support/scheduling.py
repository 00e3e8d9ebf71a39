"""A whole scheduler in a test, on virtual time and with a writer that only writes down.

Owns the wiring. Attempts are made one at a time by the test, so that it can put anything between two steps; only tests
of the loop itself run it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, PluginSet
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

DEFAULT_NAME = "default-scheduler"
BARE = ("PrioritySort", "DefaultBinder")
"""The least that a profile needs."""


def plugin_set(*names: str, disabled: Sequence[str] = ()) -> PluginSet:
    """Plugins by name, ``Name=5`` with a weight."""
    enabled = []
    for name in names:
        plain, _, weight = name.partition("=")
        enabled.append(PluginEntry(name=plain, weight=int(weight) if weight else None))
    return PluginSet(enabled=tuple(enabled), disabled=tuple(PluginEntry(name=name) for name in disabled))


def profile(name: str = DEFAULT_NAME, plugins: Plugins | None = None, percentage: int | None = None) -> ProfileConfig:
    """A profile."""
    return ProfileConfig(scheduler_name=name, plugins=plugins or Plugins(), percentage_of_nodes_to_score=percentage)


def places_of(queue: SchedulingQueue, uid: str) -> list[str]:
    """Every place in which the queue keeps a pod; it should be one, or none."""
    return [name for name, each in queue.readings.places() if each.uid == uid]


@dataclass
class Rig:
    """A scheduler and the world around it."""

    scheduler: Scheduler
    clock: VirtualClock
    writer: RecordingWriter
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def context(self) -> CycleContext:
        """What cycles share."""
        return self.scheduler.context

    @property
    def queue(self) -> SchedulingQueue:
        """The queue."""
        return self.scheduler.context.queue

    def serve(self, *configs: ProfileConfig) -> list[FrameworkInstance]:
        """Build profiles and make them live together."""
        instances = [self.scheduler.build(config) for config in configs]
        self.scheduler.activate(instances)
        return instances

    def add(self, *objects: Node | Pod) -> None:
        """Report nodes and pods as added."""
        for each in objects:
            if isinstance(each, Node):
                self.scheduler.feed.node_added(each)
            else:
                self.scheduler.feed.pod_added(each)

    def pop(self) -> QueuedPod:
        """Take the next pod, of which there must be one."""
        queued = self.queue.pop()
        assert queued is not None
        return queued

    def decide(self) -> Attempt | None:
        """Take the next pod and run its scheduling cycle."""
        return self.scheduler.cycles.pods.schedule(self.pop())

    async def attempt(self) -> str:
        """Take the next pod through both cycles; the node that it was bound to, "" for none."""
        attempt = self.decide()
        if attempt is None:
            return ""
        node_name = attempt.node_name
        return node_name if await self.scheduler.cycles.binding.bind(attempt) else ""

    def place_of(self, pod: Pod) -> str:
        """Where the queue keeps a pod; "" for nowhere."""
        places = places_of(self.queue, pod.metadata.uid)
        assert len(places) <= 1, places
        return places[0] if places else ""

    @property
    def condition(self) -> PodCondition:
        """The condition that was written last."""
        conditions = [patch.condition for patch in self.writer.patches if patch.condition is not None]
        return conditions[-1]

    @property
    def bound(self) -> dict[str, str]:
        """Node by pod name, of all binds that succeeded."""
        return {binding.name: binding.node_name for binding in self.writer.bindings}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the scheduler run its own loop inside the block."""
        task = asyncio.get_running_loop().create_task(self.scheduler.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.queue.close()

    async def until(self, condition: Callable[[], bool], rounds: int = 2000) -> None:
        """Let other tasks run until ``condition`` holds."""
        for _ in range(rounds):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never came true")


def rig(
    plugins: Iterable[type[Plugin]] = (),
    *,
    defaults: Plugins | None = None,
    options: SchedulerOptions | None = None,
    serve: bool = True,
    ports: SchedulerPorts | None = None,
    clock: VirtualClock | None = None,
) -> Rig:
    """Make a scheduler.

    Args:
        plugins: Plugin classes beside the built-in ones.
        defaults: The default plugin set; by default ``plugins`` and then :data:`BARE`, under multiPoint.
        options: Settings.
        serve: Whether the default profile is live.
        ports: Optional ports of the scheduler.
        clock: Clock, if the ports need it too.
    """
    registry = in_tree_registry()
    names = []
    for plugin in plugins:
        registry.register(plugin)
        names.append(plugin.name)
    if defaults is None:
        defaults = Plugins(multi_point=plugin_set(*names, *BARE))
    clock, writer = clock or VirtualClock(), RecordingWriter()
    made = Rig(Scheduler(clock, writer, options, registry, defaults, ports=ports), clock, writer)
    if serve:
        made.serve(profile())
    return made


def configured(name: str, plugin: str, args: dict[str, object], plugins: Plugins | None = None) -> ProfileConfig:
    """A profile that gives one plugin args."""
    return ProfileConfig(
        scheduler_name=name, plugins=plugins or Plugins(), plugin_config=(PluginConfig(name=plugin, args=args),)
    )
