"""A scheduler on virtual time with a recording writer.

The test runs scheduling attempts one by one; only tests of the scheduler's loop run the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, PluginSet
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

DEFAULT_NAME = "default-scheduler"
BARE = ("PrioritySort", "DefaultBinder")
"""Plugins that every profile needs."""


def plugin_set(*names: str, disabled: Sequence[str] = ()) -> PluginSet:
    """Return a plugin set; ``Name=5`` is a plugin with a weight."""
    enabled = []
    for name in names:
        plugin, _, weight = name.partition("=")
        enabled.append(PluginEntry(name=plugin, weight=int(weight) if weight else None))
    return PluginSet(enabled=tuple(enabled), disabled=tuple(PluginEntry(name=name) for name in disabled))


def profile(name: str = DEFAULT_NAME, plugins: Plugins | None = None, percentage: int | None = None) -> ProfileConfig:
    """Return a profile."""
    return ProfileConfig(scheduler_name=name, plugins=plugins or Plugins(), percentage_of_nodes_to_score=percentage)


def places_of(queue: SchedulingQueue, uid: str) -> list[str]:
    """Return all places of a pod in the queue; more than one is an error."""
    return [name for name, each in queue.readings.places() if each.uid == uid]


def place_of(queue: SchedulingQueue, pod: Pod) -> str:
    """Return the place of a pod in the queue, such as ``active``; "" if it is not in the queue."""
    places = places_of(queue, pod.metadata.uid)
    assert len(places) <= 1, places
    return places[0] if places else ""


@dataclass
class Rig:
    """Scheduler with its clock and writer."""

    scheduler: Scheduler
    clock: VirtualClock
    writer: RecordingWriter
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def context(self) -> CycleContext:
        """Context of the scheduling cycles."""
        return self.scheduler.context

    @property
    def queue(self) -> SchedulingQueue:
        """Scheduling queue."""
        return self.scheduler.context.queue

    @property
    def columns(self) -> NodeColumns:
        """Columns of the nodes."""
        return self.scheduler.context.cache.columns

    def node(self, name: str) -> Node:
        """Return a node that exists."""
        return present(self.columns.nodes[self.columns.row_of(name)])

    def serve(self, *configs: ProfileConfig) -> list[FrameworkInstance]:
        """Build profiles and activate them together."""
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
        """Pop the next pod; there must be one."""
        return present(self.queue.pop())

    def decide(self) -> Attempt | None:
        """Pop the next pod and run its scheduling cycle."""
        return self.scheduler.cycles.pods.schedule(self.pop())

    async def attempt(self) -> str:
        """Pop the next pod and run both cycles; return the node that it was bound to, "" for none."""
        attempt = self.decide()
        if attempt is None:
            return ""
        node_name = attempt.node_name
        return node_name if await self.scheduler.cycles.binding.bind(attempt) else ""

    def place_of(self, pod: Pod) -> str:
        """Return the place of a pod in the queue; see :func:`place_of`."""
        return place_of(self.queue, pod)

    @property
    def condition(self) -> PodCondition:
        """Condition that was written last."""
        conditions = [patch.condition for patch in self.writer.patches if patch.condition is not None]
        return conditions[-1]

    @property
    def bound(self) -> dict[str, str]:
        """Node names of all successful binds, by pod name."""
        return {binding.name: binding.node_name for binding in self.writer.bindings}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the scheduler's loop inside the block."""
        task = asyncio.get_running_loop().create_task(self.scheduler.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.queue.close()

    async def until(self, condition: Callable[[], bool], rounds: int = 2000) -> None:
        """Run other tasks until ``condition`` holds."""
        for _ in range(rounds):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError(f"the condition does not hold after {rounds} rounds")


def rig(
    plugins: Iterable[type[Plugin]] = (),
    *,
    defaults: Plugins | None = None,
    options: SchedulerOptions | None = None,
    serve: bool = True,
    ports: SchedulerPorts | None = None,
    clock: VirtualClock | None = None,
    groups: Iterable[GroupSource] = (),
) -> Rig:
    """Return a scheduler.

    Args:
        plugins: Plugin classes in addition to the in-tree plugins.
        defaults: Default plugin set; by default ``plugins``, then :data:`BARE`, under multiPoint.
        serve: Whether to activate the default profile.
        ports: Optional ports of the scheduler.
        clock: Clock, if the ports need it too.
        groups: Sources of groups that the scheduler reads, which have no groups yet.
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
    for source in groups:
        made.scheduler.group_feed.serve(source)
    return made


class RigFields(TypedDict, total=False):
    """Keyword arguments of :func:`rig` but the default plugin set and the sources of groups."""

    plugins: Iterable[type[Plugin]]
    options: SchedulerOptions | None
    serve: bool
    ports: SchedulerPorts | None
    clock: VirtualClock | None


def default_rig(*objects: Node | Pod, groups: Iterable[GroupSource] = (), **fields: Unpack[RigFields]) -> Rig:
    """Return a scheduler with the default plugins, and with nodes and pods."""
    made = rig(defaults=default_plugins(), groups=groups, **fields)
    made.add(*objects)
    return made


def gang_rig(*objects: Node | Pod, **fields: Unpack[RigFields]) -> Rig:
    """Return a scheduler with the default plugins that reads Bayplan's PodGroups, and with nodes and pods."""
    return default_rig(*objects, groups=(GroupSource.BAYPLAN,), **fields)


def configured(name: str, plugin: str, args: dict[str, object], plugins: Plugins | None = None) -> ProfileConfig:
    """Return a profile with the args of one plugin."""
    return ProfileConfig(
        scheduler_name=name, plugins=plugins or Plugins(), plugin_config=(PluginConfig(name=plugin, args=args),)
    )
