"""One life of the operator: its real cluster I/O and a scheduler core, from start to kill or stop.

Owns the wiring, in the order in which ``bayplan.app`` starts and ends its parts. Must not know what goes wrong. What is
real here: informers, writer, dispatcher, event recorder, storage writes, and the whole core; only the connection's
lowest part is the simulation's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bayplan.cluster_informers import ClusterInformers
from bayplan.kube.api_dispatcher import DispatcherOptions
from bayplan.kube.informer import InformerOptions
from bayplan.kube.storage_writes import StorageWrites
from bayplan.kube.writer import KubeWriter, WriterOptions

from hack.faults.extender import ModelExtender
from hack.faults.gang_account import GangAccount
from hack.faults.ledger import ReservationLedger, Surroundings
from hack.faults.network import ModelConnection, Network
from hack.faults.plugins import plugin_types
from hack.faults.pod_groups import GroupWatch, ToldGroups
from hack.faults.profiles import config_of, defaults
from hack.faults.told import ToldFeed
from hack.faults.virtual_loop import LIFE, LoopClock, VirtualLoop
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.context import Attempt
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.ports import Binding
from scheduler_core.runtime.framework_instance import FrameworkInstance, ProfilePlan, plan_profile
from scheduler_core.scheduler import Scheduler, SchedulerOptions

_REQUEST_SECONDS = 10.0
_DISPATCHER = DispatcherOptions(retry_maximum_seconds=5.0)
SETTLE_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class LifeOptions:
    """What differs from one life to another.

    Attributes:
        number: Counted from 1.
        seed: Of the core and of jitter.
        seconds_per_look: See :class:`LoopClock`.
        bind_limit: Binds on the wire at once.
    """

    number: int
    seed: int
    seconds_per_look: float
    bind_limit: int


class WatchedScheduler(Scheduler):
    """A core that says what it has placed.

    Attributes:
        ledger: Is told.
    """

    ledger: ReservationLedger

    def _start_binding(self, attempt: Attempt) -> None:
        if self.ledger.gangs is not None:
            self.ledger.gangs.placed(attempt)
        super()._start_binding(attempt)


class WatchedWriter(KubeWriter):
    """The operator's writer, which says what it binds.

    Attributes:
        ledger: Is told.
    """

    ledger: ReservationLedger

    async def bind(self, binding: Binding) -> None:
        """Bind a pod."""
        gangs = self.ledger.gangs
        assert gangs is not None
        gangs.sends(binding.uid)
        try:
            await super().bind(binding)
        except Exception:
            gangs.bind_failed(binding.uid)
            raise


class OperatorLife:
    """One process.

    Attributes:
        scheduler: The core.
        ledger: The account of its reservations.
        told: What it has been told of pods and nodes.
        told_groups: What it has been told of PodGroups.
        informers: What will tell it.
        instances: Every framework instance that was built.
        is_scheduling: Whether its first cycle may have begun.
        is_over: Whether it was killed or has stopped.
    """

    def __init__(self, loop: VirtualLoop, network: Network, around: Surroundings, options: LifeOptions) -> None:
        self.number = options.number
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(LIFE.set, options.number)
        self._clock = clock = LoopClock(loop, options.seconds_per_look)
        self._connection = connection = ModelConnection(network, clock)
        network.current_life = options.number
        around.ours.clear()
        self.ledger = ReservationLedger(around)
        self._writer = self._context.run(self._make_writer, options.bind_limit)
        self._writer.ledger = self.ledger
        self.scheduler = make_scheduler(clock, self._writer, self.ledger, options)
        self.scheduler.write_storage_with(StorageWrites(connection, _REQUEST_SECONDS))
        self.scheduler.call_extenders_with(lambda _, __: ModelExtender(network, around.counts))
        self.told = ToldFeed(self.scheduler.context)
        self.scheduler.feed = self.told
        self.scheduler.group_feed = self.told_groups = ToldGroups(self.scheduler.context)
        self.ledger.watch(self.told)
        self.ledger.gangs = GangAccount(
            self.ledger, self.told, self.told_groups, self.scheduler.context, around.on_placed
        )
        self._groups = GroupWatch(loop, clock, around.groups, self.told_groups, f"{options.seed}/{options.number}")
        self.informers = ClusterInformers(connection, self.scheduler, clock)
        for index, (_, informer) in enumerate(self.informers):
            informer.configure(
                InformerOptions(
                    backoff_maximum_seconds=3.0, slice_seconds=float("inf"), seed=options.seed * 100 + index
                )
            )
        self.instances: list[FrameworkInstance] = []
        self.is_scheduling = False
        self.is_over = False
        self._run: asyncio.Task[Any] | None = None

    def _make_writer(self, bind_limit: int) -> WatchedWriter:
        options = WriterOptions(bind_limit, _REQUEST_SECONDS, _DISPATCHER, pod_lookup=None)
        return WatchedWriter(self._connection, options, self._clock)

    def start(self, profiles: dict[str, str]) -> None:
        """Watch, and schedule as soon as everything is listed.

        Args:
            profiles: The revision by scheduler name; it is read when the first cycle begins.
        """
        for _, informer in self.informers:
            self._spawn(informer.run())
        self._groups.start()
        self._spawn(self._start(profiles))

    async def _start(self, profiles: dict[str, str]) -> None:
        await self._writer.start()
        await self.informers.synced.wait()
        self.activate(*profiles.items())
        self.is_scheduling = True
        self._run = self._spawn(self.scheduler.run())

    def activate(self, *profiles: tuple[str, str]) -> None:
        """Build revisions of profiles and make them live together.

        Raises:
            ConfigError: A revision is not valid; nothing was changed.
        """
        built = [self.scheduler.build_planned(plan_of(name, revision)) for name, revision in profiles]
        self.instances += built
        self.scheduler.activate(built)

    def kill(self) -> None:
        """End at once; what was sent is on its way all the same."""
        self.is_over = self.ledger.is_closed = self._connection.is_dead = self._clock.is_dead = True
        for task in self._loop.tasks_of(self.number):
            task.cancel()

    async def stop(self, grace_seconds: float) -> None:
        """End in order."""
        await self._spawn(self._stop(grace_seconds))
        self.kill()

    async def _stop(self, grace_seconds: float) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        self.is_scheduling = False
        self.ledger.is_stopping = True
        await self.scheduler.stop(grace_seconds * 0.4)
        await self._writer.stop(grace_seconds * 0.4)

    @property
    def fault(self) -> str:
        """Why the scheduler's loop has ended by itself; "" if it has not."""
        if self._run is None or not self._run.done() or self._run.cancelled():
            return ""
        return repr(self._run.exception())

    @property
    def queued_writes(self) -> int:
        """Writes that wait or are on the wire."""
        return self._writer.dispatcher.queued + self._writer.dispatcher.in_flight + self._writer.pending_binds

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self._context)


def make_scheduler(clock: LoopClock, writer: Any, ledger: ReservationLedger, options: LifeOptions) -> WatchedScheduler:
    """A core with the simulation's plugins; nothing is ever tried again for time's sake alone."""
    core_options = SchedulerOptions(
        seed=options.seed, max_unschedulable_seconds=float("inf"), confirm_after_seconds=SETTLE_SECONDS
    )
    made = WatchedScheduler(clock, writer, core_options, registry_of(ledger), defaults())
    made.ledger = ledger
    return made


def registry_of(ledger: ReservationLedger) -> Registry:
    """The built-in plugins and the simulation's."""
    registry = in_tree_registry()
    for kind in plugin_types(ledger):
        registry.register(kind)
    return registry


@lru_cache(maxsize=64)
def plan_of(name: str, revision: str) -> ProfilePlan:
    """A revision, read once per process."""
    config: ProfileConfig = config_of(name, revision)
    return plan_profile(config, registry_of(_NOBODY), defaults())


class _Nobody(ReservationLedger):
    """Stands for the ledger where plugins are only named."""

    def __init__(self) -> None:
        """Nothing is looked at."""


_NOBODY = _Nobody()
