"""The scheduler: the parts wired together, run and stopped.

Owns the loop that takes pods from the queue, the binding tasks and the life of the profiles. The same class runs in the
operator and in ``bayplan simulate``; what differs is behind the ports.

One loop, no locks: :meth:`Scheduler.run` takes pods in slices of about two milliseconds and yields between them, so
that watches, probes and leases are served; it holds back while more binds wait than connections can soon take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from msgspec import Struct

from scheduler_core.config.plugins_config import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.binding import bind
from scheduler_core.cycle.cluster_feed import ClusterFeed
from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.declared_feed import DeclaredFeed
from scheduler_core.cycle.extended_scheduling import schedule_with_extenders
from scheduler_core.cycle.gang_reservations import RESERVED_AFTER_SECONDS
from scheduler_core.cycle.group_feed import GroupFeed
from scheduler_core.cycle.group_scheduling import schedule_gang
from scheduler_core.cycle.held_members import HeldMembers
from scheduler_core.cycle.measured import MeasuredFeed, MeasuredPreemptions, MeasuredRules
from scheduler_core.cycle.measures import Measures
from scheduler_core.cycle.plugin_handle import PluginHandle
from scheduler_core.cycle.scheduling import schedule
from scheduler_core.cycle.settling import settle_overdue
from scheduler_core.cycle.slow_cycles import SLOW_CYCLE_SECONDS, SlowCycles
from scheduler_core.cycle.storage_feed import StorageFeed
from scheduler_core.cycle.workload_feed import WorkloadFeed
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.ports import Clock, ClusterWriter, StorageWriter, Tracer, Watchdog
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.queueing.scheduling_queue import FLUSH_INTERVAL_SECONDS, SchedulingQueue
from scheduler_core.runtime.equivalence.reuse import DEFAULT_REUSE_BOUNDS, ReuseBounds
from scheduler_core.runtime.extender_clients import ExtenderClients, MakeClient
from scheduler_core.runtime.framework_instance import FrameworkInstance, ProfilePlan, build_planned, plan_profile
from scheduler_core.runtime.permitting import WaitingPodMap
from scheduler_core.runtime.profiles import ProfileTable, queue_sort_of
from scheduler_core.runtime.time_budget import watch_over
from scheduler_core.snapshot.bounds import DEFAULT_BOUNDS, SnapshotBounds
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_order import NodeOrder

log = logging.getLogger(__name__)

_SLICE_SECONDS = 0.002
_SLICE_PODS = 64
_SETTLE_INTERVAL_SECONDS = 5.0


class SchedulerOptions(Struct, frozen=True):
    """Settings that are not a profile's.

    Attributes:
        seed: Settles ties among equal nodes.
        percentage_of_nodes_to_score: For profiles that set none: None all nodes, 0 kube-scheduler's adaptive formula.
        initial_backoff_seconds: For profiles that set none.
        max_backoff_seconds: For profiles that set none.
        max_unschedulable_seconds: After this a pod is tried again whatever the hints say.
        max_binding: Binds under way at which no more pods are taken; a few times the writer's connections.
        confirm_after_seconds: How long a bound pod may stay unconfirmed before it is read.
        slow_cycle_seconds: From what time on a scheduling cycle is logged with its plugins' times.
        gang_reservation_seconds: How long a Strict gang fails before capacity is reserved for it.
        reuses_results: Whether plugin results are reused for pods of the same class.
        reuse_bounds: Bounds of what is stored for that.
        gangs_preempt: Whether a gang may evict pods of lower priority.
        bounds: Most entries of the snapshot's tables.
    """

    seed: int = 0
    percentage_of_nodes_to_score: int | None = None
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    max_unschedulable_seconds: float = 300.0
    max_binding: int = 96
    confirm_after_seconds: float = 15.0
    slow_cycle_seconds: float = SLOW_CYCLE_SECONDS
    gang_reservation_seconds: float = RESERVED_AFTER_SECONDS
    reuses_results: bool = True
    reuse_bounds: ReuseBounds = DEFAULT_REUSE_BOUNDS
    gangs_preempt: bool = True
    bounds: SnapshotBounds = DEFAULT_BOUNDS


class Scheduler:
    """A scheduler core with its profiles.

    Attributes:
        context: What cycles share; status, explanation and tests read it.
        feed: Where changes of pods and nodes are reported.
        storage_feed: Where changes of volumes, claims and what else storage is described by are reported.
        workload_feed: Where changes of namespaces, services, owners of pods and disruption budgets are reported.
        group_feed: Where changes of PodGroups are reported.
        decoded: What nodes, pods and kinds that plugins declare are to be decoded as.
        declared_feeds: Where changes of the latter are reported, by the collection's path.
        registry: The plugins that exist.
    """

    def __init__(
        self,
        clock: Clock,
        writer: ClusterWriter,
        options: SchedulerOptions | None = None,
        registry: Registry | None = None,
        defaults: Plugins | None = None,
    ) -> None:
        self.options = options or SchedulerOptions()
        self.registry = registry or in_tree_registry()
        self._defaults = defaults or default_plugins()
        self._rules: dict[str, QueueingRules] = {}
        self._queue_sort: tuple[str, str] | None = None
        self._watchdog: Watchdog | None = None
        self._extender_clients: ExtenderClients | None = None
        self._cycling: asyncio.Task[None] | None = None
        cache = ClusterCache(self.options.bounds)
        queue = SchedulingQueue(self._rules.get, clock, self.options.max_unschedulable_seconds)
        measures = Measures()
        self.context = CycleContext(
            cache=cache,
            queue=queue,
            profiles=ProfileTable(self._profile_changed),
            waiting=WaitingPodMap(clock),
            clock=clock,
            writer=writer,
            node_order=NodeOrder(cache.columns),
            seed=self.options.seed,
            percentage_of_nodes_to_score=self.options.percentage_of_nodes_to_score,
            measures=measures,
            slow_cycles=SlowCycles(self.options.slow_cycle_seconds),
            preemptions=MeasuredPreemptions(measures, clock),
            reuses_results=self.options.reuses_results,
            reuse_bounds=self.options.reuse_bounds,
            gangs_preempt=self.options.gangs_preempt,
        )
        self.context.reservations.after_seconds = self.options.gang_reservation_seconds
        self.feed: ClusterFeed = MeasuredFeed(self.context)
        self.storage_feed = StorageFeed(self.context)
        self.workload_feed = WorkloadFeed(self.context)
        self.group_feed = GroupFeed(self.context)
        self._held_members = HeldMembers(self.context)
        self.decoded: DecodedTypes = self.registry.decoded_types()
        self.declared_feeds = {kind.path: DeclaredFeed(self.context, kind) for kind in self.decoded.kinds}
        self._binding: set[asyncio.Task[bool]] = set()
        self._bind_ended = asyncio.Event()
        self._on_cycle: list[Callable[[], None]] = []

    def write_storage_with(self, writer: StorageWriter) -> None:
        """Let volumes be bound by ``writer``; without one a pod whose claims wait for it ends in an error."""
        self.context.storage_writer = writer

    def trace_with(self, tracer: Tracer) -> None:
        """Let ``tracer`` be told of every cycle."""
        self.context.tracer = tracer

    def watch_plugins_with(self, watchdog: Watchdog) -> None:
        """Let ``watchdog`` interrupt the plugins of instances that are built from now on, if they are not built in."""
        self._watchdog = watchdog

    def call_extenders_with(self, make_client: MakeClient) -> None:
        """Let extenders take part in instances that are built from now on; without this they are not called.

        Args:
            make_client: Makes a client from the scheduler name and the extender; it is closed with its instance.
        """
        self._extender_clients = ExtenderClients(make_client)

    # -- profiles -----------------------------------------------------------------------------------------------

    def build(self, config: ProfileConfig) -> FrameworkInstance:
        """Make an instance of a profile, aside: nothing that runs notices.

        Raises:
            ConfigError: With every problem of the profile.
        """
        return self.build_planned(plan_profile(config, self.registry, self._defaults))

    def build_planned(self, plan: ProfilePlan) -> FrameworkInstance:
        """Make an instance of a profile that has been read, as :meth:`build` does.

        Raises:
            ConfigError: With every problem of the profile.
        """
        handle = PluginHandle(self.context, plan.config.scheduler_name)
        instance = build_planned(plan, self.registry, lambda _: handle)
        handle.attach(instance)
        if self._watchdog is not None:
            watch_over(instance, self.registry, self._watchdog)
        if self._extender_clients is not None and plan.config.extenders:
            self._extender_clients.attach(instance)
        return instance

    def activate(self, instances: Iterable[FrameworkInstance]) -> None:
        """Make instances live together, in the place of those that served their names.

        Raises:
            ConfigError: They do not order the queue alike; nothing was changed.
        """
        served = list(instances)
        self.context.profiles.swap(*served)
        for instance in served:
            instance.count_with(self.context.measures.profile(instance.name).evaluations)

    def withdraw(self, name: str) -> None:
        """Stop scheduling for a name; its pods stay pending and are taken up when the name is served again.

        What was counted goes too: whoever is given the name next has not done it.
        """
        context = self.context
        context.profiles.withdraw(name)
        # Attempts that were under way when another name was withdrawn have been counted since.
        for gone in {name, *context.records, *context.measures.profiles} - {live.name for live in context.profiles}:
            context.records.pop(gone, None)
            context.metrics.pop(gone, None)
            context.measures.drop_profile(gone)

    def _profile_changed(self, name: str) -> None:
        instance = self.context.profiles.get(name)
        if instance is None:
            self._rules.pop(name, None)
        else:
            self._rules[name] = self._rules_of(instance)
            order = queue_sort_of(instance)
            if self._queue_sort not in (None, order):
                # All profiles change their order at once; the queue is ordered anew when all of them are known.
                self._rules.update((live.name, self._rules_of(live)) for live in self.context.profiles)
                self.context.queue.resort()
            self._queue_sort = order
        self.context.queue.profile_changed(name)
        self.feed.left_out.profile_changed(name)

    def _rules_of(self, instance: FrameworkInstance) -> QueueingRules:
        config, options = instance.config, self.options
        initial, longest = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
        backoffs = (
            options.initial_backoff_seconds if initial is None else initial,
            options.max_backoff_seconds if longest is None else longest,
        )
        return MeasuredRules(instance, backoffs, self.context.measures, self.context.clock)

    # -- running ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled; binds under way are then left to :meth:`stop`.

        Call it when every informer has delivered its first list: the first cycle must see the whole cluster.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flush())
            group.create_task(self._settle())
            self._cycling = group.create_task(self._cycles())

    async def stop(self, grace_seconds: float) -> None:
        """Let binds under way finish, release what still waits without a word, and stop the timers."""
        await self._end_suspended_cycle()
        tasks = set(self._binding)
        self.context.waiting.abandon_all()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._extender_clients is not None:
            await self._extender_clients.close()
        self._held_members.close()
        self.context.queue.close()

    async def _end_suspended_cycle(self) -> None:
        """No cycle begins any more, and one that waits for an extender gives its pod back."""
        if self.context.suspension.is_on and self._cycling is not None:
            self._cycling.cancel()
            await asyncio.wait((self._cycling,))

    async def until_idle(self) -> None:
        """Wait until no pod can be tried and no bind is under way: what simulation and tests call the end."""
        while not self.context.queue.is_idle or self._binding:
            await self.context.clock.sleep(0)

    async def _cycles(self) -> None:
        context = self.context
        while True:
            await context.queue.wait()
            await self._until_binds_drain()
            deadline = context.clock.now() + _SLICE_SECONDS
            for _ in range(_SLICE_PODS):
                queued = context.queue.pop()
                if queued is None:
                    break
                await self._cycle(queued)
                if context.clock.now() >= deadline or self._binds_under_way >= self.options.max_binding:
                    break
                if context.suspension.is_awaited:
                    # Those who wait for the end of the suspended cycle come before the next one.
                    break
            await context.clock.sleep(0)

    async def _cycle(self, queued: QueuedPod) -> None:
        """One cycle of a pod or a gang; awaits only where the profile has extenders."""
        if isinstance(queued, QueuedGang):
            for each in await schedule_gang(self.context, queued):
                self._start_binding(each)
            return
        instance = self.context.profiles.get(queued.profile)
        if instance is not None and instance.extenders:
            attempt = await schedule_with_extenders(self.context, queued)
        else:
            attempt = schedule(self.context, queued)
        if attempt is not None:
            self._start_binding(attempt)

    @property
    def binding_count(self) -> int:
        """Binding cycles under way, those that wait at Permit included."""
        return len(self._binding)

    @property
    def _binds_under_way(self) -> int:
        return len(self._binding) - len(self.context.waiting)

    async def _until_binds_drain(self) -> None:
        while self._binds_under_way >= self.options.max_binding:
            self._bind_ended.clear()
            await self._bind_ended.wait()

    def _start_binding(self, attempt: Attempt) -> None:
        task = asyncio.get_running_loop().create_task(bind(self.context, attempt))
        self._binding.add(task)
        task.add_done_callback(self._binding_ended)

    def _binding_ended(self, task: asyncio.Task[bool]) -> None:
        self._binding.discard(task)
        self._bind_ended.set()
        if not task.cancelled():
            fault = task.exception()
            if fault is not None:
                log.error("a binding cycle ended in the scheduler's own fault", exc_info=fault)

    async def _flush(self) -> None:
        while True:
            await self.context.clock.sleep(FLUSH_INTERVAL_SECONDS)
            self.context.queue.flush()

    async def _settle(self) -> None:
        while True:
            await self.context.clock.sleep(_SETTLE_INTERVAL_SECONDS)
            # Events come also while no pod is tried.
            self.context.measures.settle()
            with contextlib.suppress(TimeoutError):
                await settle_overdue(self.context, self.feed, self.options.confirm_after_seconds)
