"""One operator process: its real cluster I/O and a scheduler core, from start to stop or kill.

The parts start and stop in the order of ``bayplan.app``. Only the lowest layer of the connection is simulated.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bayplan.fit.room_search import FitDryRun
from bayplan.gangs.owner_groups import OwnerGroups, owner_groups
from bayplan.kube.watches.cluster_informers import ClusterInformers, DeviceInformers
from bayplan.kube.watches.informer import InformerOptions
from bayplan.kube.writes.api_dispatcher import DispatcherOptions
from bayplan.kube.writes.claim_writes import ClaimWrites, StorageWrites
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions
from bayplan.process.copies import BackgroundDocuments
from bayplan.rebalancing.plan_controller import ApiPlanRequests, RebalancePlans
from bayplan.reservations.reservation_controller import ReservationController, ReservationWrites

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig, ShadowSettings
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.journal import Journal
from scheduler_core.errors import BoundElsewhereError
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Clock, PodDeletion
from scheduler_core.queueing.queue_moves import MOVES
from scheduler_core.record_assembly import record_feeds, recorded_ports
from scheduler_core.recording.recorded_ports import RecordedWriter
from scheduler_core.recording.recorder import Recorder
from scheduler_core.runtime.framework_instance import FrameworkInstance, ProfilePlan, plan_profile
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from tests.simulation.eviction_checks import EvictionChecks, ReceivedBudgets
from tests.simulation.extender import ModelExtender
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.gang_checks import GangChecks
from tests.simulation.healing_checks import HealingChecks
from tests.simulation.ledger import ReservationLedger, RunState
from tests.simulation.network import ModelConnection, Network
from tests.simulation.node_reservations import ReservationWatch
from tests.simulation.plugins import plugin_types
from tests.simulation.pod_groups import GroupWatch, ReceivedGroups
from tests.simulation.profiles import PROFILES, config_of, defaults, preemption_settings
from tests.simulation.rebalance_plans import PlanWatch
from tests.simulation.received import ReceivedFeed
from tests.simulation.steps import has_owners, has_plans
from tests.simulation.virtual_loop import PROCESS, LoopClock, VirtualLoop
from tests.support.moved_searches import AwaitedSearches
from tests.support.presence import present

_REQUEST_SECONDS = 10.0
_DISPATCHER = DispatcherOptions(retry_maximum_seconds=5.0)
SETTLE_SECONDS = 6.0
_SHADOW = "shadow"
_SHARE_WITH_COPIES, _SHARE_KILLED = 0.6, 0.25


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Options of one process.

    Attributes:
        number: Number of the process, from 1.
        seed: Seed of the core and of jitter.
        seconds_per_read: See :class:`LoopClock`.
        bind_limit: Maximum number of concurrent binds.
        preemption: Settings of preemption; None for those of the seed.
    """

    number: int
    seed: int
    seconds_per_read: float
    bind_limit: int
    preemption: PreemptionSettings | None = None


class WatchedScheduler(Scheduler):
    """Core that reports the start of each binding cycle.

    Attributes:
        ledger: Receives the reports.
    """

    ledger: ReservationLedger

    def _start_binding(self, attempt: Attempt) -> None:
        if self.ledger.gangs is not None:
            self.ledger.gangs.placed(attempt)
        super()._start_binding(attempt)


class WatchedWriter(KubeWriter):
    """The operator's writer, which reports binds and evictions, and reads that show a bound pod.

    Attributes:
        ledger: Receives the reports.
        evictions: Checks the evictions.
    """

    ledger: ReservationLedger
    evictions: EvictionChecks

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Delete a pod."""
        self.evictions.sent(deletion.uid)

        def noted(error: Exception | None) -> None:
            if error is None:
                self.ledger.evicted.add(deletion.uid)
            done(error)

        super().delete_pod(deletion, noted)

    async def bind(self, binding: Binding) -> None:
        """Bind a pod."""
        gangs = present(self.ledger.gangs)
        gangs.bind_sent(binding.uid)
        try:
            await super().bind(binding)
        except Exception as error:
            gangs.bind_failed(binding.uid)
            if isinstance(error, BoundElsewhereError):
                self.ledger.bound_by_rival(binding.uid, error.node_name)
            raise

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod."""
        pod = await super().read_pod(namespace, name)
        if pod is not None and pod.spec.node_name:
            self.ledger.bound_by_rival(pod.metadata.uid, pod.spec.node_name)
        elif pod is not None:
            present(self.ledger.gangs).found_pending(pod.metadata.uid)
        return pod


class ShortSlices(Journal):
    """Journal with slices and parts so short that searches leave their cycles, and attempts are postponed."""

    slice_steps, part_steps = 50, 20


def _search_processes(options: ProcessOptions, clock: LoopClock, counts: FaultCounts) -> AwaitedSearches | None:
    """Return what makes copies of the process for searches, some of which die; None in some processes."""
    draw = random.Random(f"searches/{options.seed}/{options.number}")
    if draw.random() > _SHARE_WITH_COPIES:
        return None

    def is_killed(_: int) -> bool:
        counts.add("search continued in a copy")
        if draw.random() < _SHARE_KILLED:
            counts.add("copy died")
            return True
        return False

    return AwaitedSearches(clock, draw.uniform(0.0, 3.0), is_killed)


class OperatorProcess:
    """One process.

    Attributes:
        preemption: Settings of preemption of its profiles.
        scheduler: The core.
        received: Pods and nodes that the core has received.
        received_groups: PodGroups that the core has received.
        owner_groups: Controller of the PodGroups of owners; None in a run without owners.
        instances: All framework instances that were built.
        has_profiles: Whether changes of profiles are activated; those before are read at the start.
        is_scheduling: Whether the first cycle may have begun.
        is_over: Whether the process was killed or has stopped.
        on_failed_start: Called with the exception that has ended the start; the real process exits then.
        reads_delayed_until: Last time at which a cycle that waited for an extender delayed the effect of reads.
    """

    def __init__(self, loop: VirtualLoop, network: Network, run_state: RunState, options: ProcessOptions) -> None:
        self.number = options.number
        self.preemption = options.preemption or preemption_settings(options.seed)
        self._shadow = run_state.shadow
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, options.number)
        self._clock = clock = LoopClock(loop, options.seconds_per_read)
        self._connection = connection = ModelConnection(network, clock)
        network.current_process = options.number
        run_state.ours.clear()
        self.ledger = ReservationLedger(run_state)
        self.writer = self._context.run(self._make_writer, options.bind_limit)
        self.writer.ledger = self.ledger
        self._processes = _search_processes(options, clock, run_state.counts)
        ports = SchedulerPorts(
            storage=StorageWrites(connection, _REQUEST_SECONDS),
            claims=ClaimWrites(connection, _REQUEST_SECONDS),
            make_extender=lambda _, __: ModelExtender(network, run_state.counts),
            journal=ShortSlices() if self._processes is not None else Journal(),
            processes=self._processes,
        )
        self.scheduler, self._recorder = self._make_scheduler(clock, run_state, options, ports)
        self.received = ReceivedFeed(self.scheduler, clock)
        self.scheduler.feed = self.received
        self.scheduler.group_feed = self.received_groups = ReceivedGroups(self.scheduler, clock)
        self.scheduler.workload_feed = budgets = ReceivedBudgets(self.scheduler)
        if self._recorder is not None:
            record_feeds(self._recorder, self.scheduler)
        self.ledger.watch(self.received)
        context, held = self.scheduler.context, self.scheduler.reservations.held
        healing = HealingChecks(self.ledger, self.received, self.received_groups, context, held)
        self.ledger.gangs = GangChecks(
            self.ledger, self.received, self.received_groups, context, run_state.on_placed, healing
        )
        self.writer.evictions = EvictionChecks(
            self.ledger, run_state, self.received, budgets, self.preemption, context.services.preemptions
        )
        self._groups = GroupWatch(
            loop, clock, run_state.groups, self.received_groups, f"{options.seed}/{options.number}"
        )
        informer_options = InformerOptions(
            backoff_maximum_seconds=3.0, slice_seconds=float("inf"), seed=options.seed * 100
        )
        self.informers = ClusterInformers(connection, self.scheduler, clock, options=informer_options)
        self._devices: DeviceInformers | None = None
        if run_state.has_devices:
            self._devices = DeviceInformers(connection, self.informers, self.scheduler.device_feed, clock)
        self.owner_groups: OwnerGroups | None = None
        if has_owners(options.seed):
            self.owner_groups = owner_groups(self.scheduler, self._groups.owned, connection, self.informers, clock)
        self._reservations = self._reservation_controller(run_state, clock)
        self._plans = self._plan_controller(run_state, clock)
        self.instances: list[FrameworkInstance] = []
        self.has_profiles = self.is_scheduling = False
        self.is_over = False
        self.on_failed_start: Callable[[BaseException], None] = lambda _: None
        self.reads_delayed_until = 0.0
        self._run: asyncio.Task[Any] | None = None
        self._owners_run: asyncio.Task[Any] | None = None
        self._reservations_run: asyncio.Task[Any] | None = None
        self._plans_run: asyncio.Task[Any] | None = None

    def _reservation_controller(
        self, run_state: RunState, clock: LoopClock
    ) -> tuple[ReservationController, ReservationWatch] | None:
        if run_state.reservations is None:
            return None
        dry_run = FitDryRun(self.scheduler, BackgroundDocuments(self.scheduler.context, None))
        controller = ReservationController(self.scheduler, dry_run, ReservationWrites(self._connection), clock)
        return controller, ReservationWatch(run_state.reservations, controller, clock, f"{clock.now()}/{self.number}")

    def _plan_controller(self, run_state: RunState, clock: LoopClock) -> tuple[RebalancePlans, PlanWatch] | None:
        if run_state.plans is None:
            return None
        documents = BackgroundDocuments(self.scheduler.context, None)
        plans = RebalancePlans(self.scheduler, documents, ApiPlanRequests(self._connection), clock)
        return plans, PlanWatch(run_state.plans, plans, clock, f"{clock.now()}/{self.number}")

    def _make_scheduler(
        self, clock: LoopClock, run_state: RunState, options: ProcessOptions, ports: SchedulerPorts
    ) -> tuple[WatchedScheduler, Recorder | None]:
        if run_state.records is None:
            return make_scheduler(clock, self.writer, self.ledger, options, ports), None
        record = run_state.records.begin(
            core_options(options), ports, registry_of(self.ledger), run_state.injected_faults
        )
        recorder = Recorder(clock, record)
        recorder.slice_steps, recorder.part_steps = ports.journal.slice_steps, ports.journal.part_steps
        writer, ports = RecordedWriter(self.writer, recorder), recorded_ports(recorder, ports)
        return make_scheduler(recorder, writer, self.ledger, options, ports), recorder

    def _make_writer(self, bind_limit: int) -> WatchedWriter:
        options = WriterOptions(bind_limit, _REQUEST_SECONDS, _DISPATCHER, pod_lookup=None)
        return WatchedWriter(self._connection, options, self._clock)

    def start(self, profiles: dict[str, str]) -> None:
        """Start the informers, and schedule when all lists are complete.

        Args:
            profiles: The revision by scheduler name; read when scheduling starts.
        """
        for _, informer in self.informers:
            self._spawn(informer.run())
        self._groups.start()
        if self._devices is not None:
            self._spawn(self._devices.run())
        self._spawn(self._start(profiles)).add_done_callback(self._start_ended)

    def _start_ended(self, start: asyncio.Task[None]) -> None:
        if not start.cancelled() and (fault := start.exception()) is not None:
            self.on_failed_start(fault)

    async def _start(self, profiles: dict[str, str]) -> None:
        await self.writer.start()
        await self.informers.synced.wait()
        self.activate(*profiles.items())
        self.has_profiles = True
        if self._shadow:
            instance = self.scheduler.build_planned(self.plan(PROFILES[0], self._shadow), is_shadow=True)
            self.scheduler.shadows.serve({_SHADOW: (instance, ShadowSettings(PROFILES[0], calls_extenders=True))})
        if self.owner_groups is not None:
            self._owners_run = self._spawn(self.owner_groups.run())
        if self._reservations is not None:
            controller, watch = self._reservations
            watch.start()
            self._reservations_run = self._spawn(controller.run())
            await controller.settle()
        if self._plans is not None:
            plans, plan_watch = self._plans
            plan_watch.start()
            listed = asyncio.Event()
            listed.set()
            self._plans_run = self._spawn(plans.run(listed))
            await plans.restored.wait()
        self.is_scheduling = True
        self._run = self._spawn(self.scheduler.run())

    def activate(self, *profiles: tuple[str, str]) -> None:
        """Build revisions of profiles and activate them together.

        Raises:
            ConfigError: A revision is invalid; nothing has changed.
        """
        built = [self.scheduler.build_planned(self.plan(name, revision)) for name, revision in profiles]
        self.instances += built
        self.scheduler.activate(built)

    def plan(self, name: str, revision: str) -> ProfilePlan:
        """Return the plan of a profile revision in this run."""
        return plan_of(name, revision, self.preemption, has_owners=self.owner_groups is not None)

    def kill(self) -> None:
        """Kill the process; requests that it has sent still arrive."""
        if self._recorder is not None:
            self._recorder.close()
        self.is_over = self.ledger.is_closed = self._connection.is_dead = self._clock.is_dead = True
        for task in self._loop.tasks_of(self.number):
            task.cancel()

    async def stop(self, grace_seconds: float) -> None:
        """Stop gracefully."""
        await self._spawn(self._stop(grace_seconds))
        self.kill()

    async def _stop(self, grace_seconds: float) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        self.has_profiles = self.is_scheduling = False
        self.ledger.is_stopping = True
        await self.scheduler.stop(grace_seconds * 0.4)
        await self.writer.stop(grace_seconds * 0.4)

    @property
    def fault(self) -> str:
        """Return why the scheduler's loop or a controller has ended unexpectedly; "" if none has."""
        for run in (self._run, self._owners_run, self._reservations_run, self._plans_run):
            if run is not None and run.done() and not run.cancelled():
                return repr(run.exception())
        return ""

    @property
    def has_unhandled_changes(self) -> bool:
        """Return whether a change that raised has not been delivered again yet."""
        return bool(self.received_groups.unhandled) or any(len(informer.undelivered) for _, informer in self.informers)

    @property
    def queued_writes(self) -> int:
        """Return the number of writes that are queued or in flight."""
        return self.writer.dispatcher.queued + self.writer.dispatcher.in_flight + self.writer.pending_binds

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self._context)


def make_scheduler(
    clock: Clock,
    writer: Any,
    ledger: ReservationLedger,
    options: ProcessOptions,
    ports: SchedulerPorts | None = None,
) -> WatchedScheduler:
    """Return a core with the simulation's plugins and without periodic retries."""
    scheduler = WatchedScheduler(clock, writer, core_options(options), registry_of(ledger), defaults(), ports=ports)
    scheduler.ledger = ledger
    return scheduler


def core_options(options: ProcessOptions) -> SchedulerOptions:
    """Return the options of a process's core."""
    return SchedulerOptions(
        seed=options.seed,
        max_unschedulable_seconds=float("inf"),
        confirm_after_seconds=SETTLE_SECONDS,
        plans_moves=has_plans(options.seed),
        # Clusters are small, so that all pods would be moved at once by the default.
        moves=(MOVES, 3, 1)[(options.seed + options.number) % 3],
    )


def registry_of(ledger: ReservationLedger) -> Registry:
    """Return the registry of the built-in plugins and the simulation's."""
    registry = in_tree_registry()
    for kind in plugin_types(ledger):
        registry.register(kind)
    return registry


@lru_cache(maxsize=64)
def plan_of(name: str, revision: str, preemption: PreemptionSettings, *, has_owners: bool) -> ProfilePlan:
    """Return the plan of a profile revision; see :func:`config_of`."""
    config: ProfileConfig = config_of(name, revision, preemption, has_owners=has_owners)
    return plan_profile(config, registry_of(_NULL_LEDGER), defaults())


class _NullLedger(ReservationLedger):
    """Ledger of plugins that are only planned and never called."""

    def __init__(self) -> None:
        """Create a ledger without a run."""


_NULL_LEDGER = _NullLedger()
