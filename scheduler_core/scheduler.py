"""The scheduler: wires the parts, runs the scheduling loop and the binding tasks, and manages profiles.

The same class runs in the operator and in ``bayplan simulate``; the ports differ.

It runs on one event loop without locks: :meth:`Scheduler.run` schedules pods in batches of about two milliseconds and
yields between them, so that watches, probes and lease renewals run. It pauses while too many binds are in progress.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.background_search import BackgroundSearches, MovedSearch
from scheduler_core.cycle.binding_cycle import IdleBinds
from scheduler_core.cycle.contested_nodes import ContestedNodes
from scheduler_core.cycle.cycle_report import CycleRecording
from scheduler_core.cycle.filter_and_score import NodeOrder
from scheduler_core.cycle.internal_errors import RepeatedTimers, try_twice
from scheduler_core.cycle.plugin_handle import PluginHandle, PluginServices, PluginWriters, ReportedDeletions
from scheduler_core.cycle.suspension import CycleSlices, Suspension
from scheduler_core.cycle_assembly import CycleContext, Cycles
from scheduler_core.feeds.object_feed import DeclaredFeed, DeviceFeed, NodeHolds, StorageFeed, WorkloadFeed
from scheduler_core.feeds.pod_and_node_feed import EventHandling, PodAndNodeFeed
from scheduler_core.feeds.pod_group_feed import GroupFeed
from scheduler_core.feeds.pod_versions import InvalidPods
from scheduler_core.feeds.unconfirmed_pods import UnconfirmedPods, UnshownClaims
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.gangs.gated_member_reports import GatedMembers
from scheduler_core.gangs.group_views import GangViews
from scheduler_core.gangs.healing import Healing
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.metrics.attempt_reports import SlowCycles
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.metrics.scheduler_metrics import QueueMetrics, SchedulerMetrics, TimedPreemptions
from scheduler_core.model.pod import Pod
from scheduler_core.placement.subsets import GangDomains
from scheduler_core.ports import Clock, ClusterWriter
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.queueing.scheduling_queue import FLUSH_INTERVAL_SECONDS, SchedulingQueue
from scheduler_core.runtime.extenders import ExtenderClients
from scheduler_core.runtime.framework_instance import FrameworkInstance, ProfilePlan, build_planned, plan_profile
from scheduler_core.runtime.profile_table import ProfileTable, queue_sort_of
from scheduler_core.scheduler_options import SchedulerOptions, SchedulerPorts
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.step_counter import NO_LIMIT, StepCounter

if TYPE_CHECKING:
    from scheduler_core.shadows.shadow_profiles import ShadowProfiles

__all__ = ["Scheduler", "SchedulerOptions", "SchedulerPorts"]

log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.002
_BATCH_PODS = 64
_PROMPT_BATCHES = 2_000
"""Batches after which clients are not expected any more: about 10 s under load."""
_PROMPT_TURNS = 3
"""Turns of the event loop between two batches, as many as a request takes from its arrival to its handler."""
_SETTLE_INTERVAL_SECONDS = 5.0
_PAUSE_AFTER_ERROR_SECONDS = 1.0


class Scheduler:
    """A scheduler core with its profiles.

    Attributes:
        context: Data shared by cycles; status, explanations and tests read it.
        storage_feed, device_feed, group_feed: Event handlers for storage, for devices and claims, and for PodGroups.
        workload_feed: Event handlers for namespaces, services, owners of pods and disruption budgets.
        decoded: Types as which nodes, pods and kinds that plugins declare are decoded.
        declared_feeds: Event handlers for the declared kinds, by the collection's path.
    """

    def __init__(
        self,
        clock: Clock,
        writer: ClusterWriter,
        options: SchedulerOptions | None = None,
        registry: Registry | None = None,
        defaults: Plugins | None = None,
        *,
        ports: SchedulerPorts | None = None,
    ) -> None:
        # Plugins get the clock itself: their timers may not run twice.
        suspension = Suspension()
        ports, plugin_clock, clock = ports or SchedulerPorts(), clock, RepeatedTimers(clock, suspension)
        self.options = options or SchedulerOptions()
        self.registry = registry or in_tree_registry()
        self._defaults = defaults or default_plugins(deferred_resizes=self.options.deferred_resizes)
        self._watchdog, self._shadow_watchdog = ports.watchdog, ports.shadow_watchdog
        self._journal, self._timing = ports.journal, ports.timing or clock
        timing = self._timing
        self._extender_clients = ExtenderClients(ports.make_extender)
        self._cycling: asyncio.Task[None] | None = None
        self._may_begin_waiting = True
        self._pause, self._prompt_batches = clock.sleep, 0
        steps = StepCounter(
            ports.journal.slice_steps,
            self.options.attempt_steps,
            self.options.dry_run_steps or self.options.attempt_steps,
            ports.journal.part_steps,
        )
        cache = ClusterCache(self.options.bounds, DeviceIndex(self.options.device_features, steps))
        cache.columns.devices.group_claims = self.options.group_claims
        cache.columns.devices.turns.steps = ports.journal.steps
        metrics, waiting = SchedulerMetrics(), WaitingPods(clock)
        self._rules = ProfileQueueingRules(
            self.options.initial_backoff_seconds, self.options.max_backoff_seconds, metrics, timing
        )
        queue = SchedulingQueue(
            self._rules.get,
            clock,
            self.options.max_unschedulable_seconds,
            self.options.foreign_gangs,
            steps,
            moves=self.options.moves,
        )
        if self.options.volcano_groups:
            queue.gangs.count_volcano()
        self.reservations = GangReservations(cache, queue, clock, suspension, self.options.gang_reservation_seconds)
        self.healing = Healing(cache, queue.gangs, self.reservations, clock, suspension)
        services = PluginServices(
            cache.columns,
            queue,
            GangViews(cache, queue),
            waiting,
            plugin_clock,
            PluginWriters(
                ReportedDeletions(writer, lambda deletion: self.feed.deletion_accepted(deletion, clock.wall())),
                ports.storage,
                ports.claims,
            ).after(suspension),
            TimedPreemptions(metrics, timing),
            metrics.devices,
            ports.journal,
            steps,
            suspension,
            self.options.seed,
        )
        self.context = CycleContext(
            cache=cache,
            queue=queue,
            profiles=ProfileTable(self._profile_changed),
            waiting=waiting,
            clock=clock,
            writer=writer,
            node_order=NodeOrder(cache.columns),
            suspension=suspension,
            member_domains=GangDomains(cache, queue.gangs),
            options=self.options,
            services=services,
            recording=CycleRecording(
                RecorderPool(timing.now), SlowCycles(self.options.slow_cycle_seconds), ports.tracer, ports.attempts
            ),
            metrics=metrics,
            steps=steps,
            idle_binds=IdleBinds(clock),
            background=BackgroundSearches(
                ports.processes, cache.columns.devices.hardware, ports.journal, clock, queue.resume
            ),
            contested=ContestedNodes(cache.columns, clock, self.options.contested_node_seconds),
        )
        self._slices = CycleSlices(steps, suspension, clock, ports.journal)
        self.cycles = Cycles(self.context, self.reservations)
        profiles, freed = self.context.profiles, self.cycles.freed
        holds = NodeHolds(cache.columns, queue, freed)
        self.feed = PodAndNodeFeed(
            cache=cache,
            queue=queue,
            waiting=waiting,
            profiles=profiles,
            invalid_pods=InvalidPods(profiles, writer),
            freed=freed,
            holds=holds,
            handling=EventHandling(suspension, timing, metrics),
            contested=self.context.contested,
            queues_resizes=self.options.deferred_resizes,
        )
        self.unconfirmed_pods = UnconfirmedPods(
            cache=cache, gangs=queue.gangs, writer=writer, clock=clock, suspension=suspension, freed=freed
        )
        self.storage_feed = StorageFeed(cache.columns, queue, suspension, holds)
        self.device_feed = DeviceFeed(cache.columns.devices, queue, suspension)
        self.unshown_claims = UnshownClaims(cache.columns.devices, services.writers.claims, clock)
        self.workload_feed = WorkloadFeed(cache.columns, suspension)
        self.group_feed = GroupFeed(queue, suspension, freed)
        self._gated_members = GatedMembers(queue, clock, writer)
        self.decoded: DecodedTypes = self.registry.decoded_types(
            reads_marks=self.options.foreign_gangs != "Ignore"
            or self.options.volcano_groups
            or self.options.deletion_costs,
            plans_moves=self.options.plans_moves,
        )
        self.declared_feeds = {
            kind.path: DeclaredFeed(kind, services.declared[kind.path], queue, suspension)
            for kind in self.decoded.kinds
        }
        self._binding: set[asyncio.Task[Any]] = set()
        self._bind_ended = asyncio.Event()
        self.context.idle_binds.on_idle = self._bind_ended.set

    # -- profiles -----------------------------------------------------------------------------------------------

    def build(
        self, config: ProfileConfig, validated: Mapping[str, BaseModel] | None = None, *, is_shadow: bool = False
    ) -> FrameworkInstance:
        """Build an instance of a live profile or of a shadow, see :func:`plan_profile`; live profiles do not change.

        Raises:
            ConfigError: The profile is invalid; contains every problem.
        """
        plan = plan_profile(config, self.registry, self._defaults, validated)
        return self.build_planned(plan, is_shadow=is_shadow)

    def build_planned(self, plan: ProfilePlan, *, is_shadow: bool = False) -> FrameworkInstance:
        services = self.context.services
        self._journal.building(None if is_shadow else plan.config)
        instance = build_planned(
            plan,
            self.registry,
            lambda name, reference: PluginHandle(services, name, reference),
            self._extender_clients.open,
            self._shadow_watchdog if is_shadow else self._watchdog,
        )
        if not is_shadow:
            self._journal.built(instance)
        return instance

    @cached_property
    def shadows(self) -> ShadowProfiles:
        """Shadow profiles; their modules are imported when the first is served."""
        from scheduler_core.shadows.shadow_profiles import ShadowProfiles  # noqa: PLC0415 - most schedulers have none

        cycles = self.cycles
        return ShadowProfiles(
            self.context,
            cycles.decided,
            cycles.selection,
            clock=self._timing,
            journal=self._journal,
        )

    def activate(self, instances: Iterable[FrameworkInstance]) -> None:
        """Make instances live together; they replace those of the same names.

        Raises:
            ConfigError: The live profiles would have different QueueSort plugins; nothing was changed.
            Exception: A bug; the instances of before are live, and the caller can repeat the call.
        """
        served = list(instances)
        self._journal.activating(served)
        self.context.profiles.swap(*served)
        for instance in served:
            instance.continue_counts(self.context.metrics.profiles[instance.name].evaluations)

    def withdraw(self, name: str) -> None:
        """Withdraw a profile; its pods stay pending until a profile of that name is live again.

        Its counts and metrics are dropped, because a later profile of that name starts at zero.
        """
        context = self.context
        self._journal.withdrawing(name)
        context.profiles.withdraw(name)
        # Attempts in progress when another profile was withdrawn may have added counts since.
        metrics = context.metrics
        for gone in {name, *metrics.records, *metrics.profiles} - {live.name for live in context.profiles}:
            context.services.metrics.pop(gone, None)
            metrics.drop_profile(gone)

    def _profile_changed(self, name: str) -> None:
        queue = self.context.queue
        if self._rules.update(name, self.context.profiles):
            queue.resort()
        live = self.context.profiles.get(name)
        # Before the pods of a new profile leave their place: none may be scheduled without its gang.
        # Pods of a withdrawn profile stay members, so that their gangs are the same when it returns.
        if live is not None and queue.gangs.set_owner_rules(name, live.config.gangs.rules):
            self.feed.gangs_changed(name, partial(self._pods_of, name))
        queue.profile_changed(name, self.cycles.freed.nomination_ended)
        self.feed.invalid_pods.profile_changed(name)

    def _pods_of(self, profile: str) -> list[Pod]:
        """Return the newest versions of all pods of a profile that wait, have a node or are counted for a gang."""
        context, pods = self.context, dict[str, Pod]()
        for gang in context.queue.gangs:
            pods.update(gang.pods)
        pods.update((placed.info.uid, placed.info.pod) for placed in context.cache.placed.values())
        pods.update((queued.uid, queued.info.pod) for _, queued in context.queue.readings.places())
        pods.update((pod.metadata.uid, pod) for pod in context.queue.gangs.ended_of_owners(profile))
        return [pod for pod in pods.values() if pod.spec.scheduler_name == profile]

    # -- running ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled; :meth:`stop` then ends the binds in progress.

        Call it when every informer has delivered its first list: the first cycle must see the whole cluster.
        """
        steps = self._journal.steps
        self._journal.begun()
        self.context.queue.gangs.follow_runs()
        self.context.contested.is_scheduling = True
        async with asyncio.TaskGroup() as group:
            group.create_task(steps(self._flush()))
            group.create_task(steps(self._settle()))
            self._cycling = group.create_task(steps(self._slices.run(self._cycles())))
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._end_searches()
                self._journal.ended()

    async def stop(self, grace_seconds: float) -> None:
        """Wait for binds in progress, release the pods that wait at Permit without events, and stop the timers."""
        self._end_searches()
        await self._end_suspended_cycle()
        tasks = set(self._binding)
        self.context.waiting.abandon_all()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._extender_clients.close()
        self._gated_members.close()
        self.context.queue.close()

    def _end_searches(self) -> None:
        """End the search in another process, and requeue what is in flight because of it."""
        for queued in self.context.background.stop():
            if self.context.queue.find(queued.uid) is queued:
                self.context.queue.failed(queued)

    async def _end_suspended_cycle(self) -> None:
        """Cancel the scheduling loop if a cycle is suspended; the cycle then requeues its pod."""
        if self.context.suspension.is_on and self._cycling is not None:
            self._cycling.cancel()
            await asyncio.wait((self._cycling,))

    async def until_idle(self) -> None:
        """Wait until no pod can be tried and no bind is in progress; for simulations and tests."""
        while not self.context.queue.readings.is_idle or self._binding:
            await self.context.clock.sleep(0)

    async def _cycles(self) -> None:
        while True:
            try:
                await self._batch_of_cycles()
            except Exception as fault:
                self._survived("a batch of scheduling cycles", fault)
                self.cycles.errors.undo()
                await self.context.clock.sleep(_PAUSE_AFTER_ERROR_SECONDS)

    async def _batch_of_cycles(self) -> None:
        """Run cycles for about two milliseconds, then the other tasks."""
        context, decided, queue, background = (
            self.context,
            self.cycles.decided,
            self.context.queue,
            self.context.background,
        )
        await queue.wait()
        await self._until_binds_drain()
        columns = context.cache.columns
        if columns.is_broken:
            columns.rebuild()
        deadline = context.clock.now() + _BATCH_SECONDS
        # An attempt that waited for another search may take a batch before it moves. Popped pods do not wait for
        # several of them: in every other turn of the event loop, none begins before the active queue is empty.
        may_begin = self._may_begin_waiting
        for _ in range(_BATCH_PODS):
            if columns.overlays:
                log.error("a plugin awaited within a dry run, or has left one open; it is undone before the next cycle")
                self.cycles.errors.undo()
            due = background.next(may_begin=may_begin) if background.is_due else None
            queued = queue.pop() if due is None else due.queued
            if queued is None and background.is_due:
                due = background.next()
                queued = None if due is None else due.queued
            if queued is None:
                break
            ended = due if isinstance(due, MovedSearch) else None
            if due is not None and ended is None:
                may_begin = False
            try:
                if due is not None and (queue.find(queued.uid) is not queued or not queue.is_in_flight(queued.uid)):
                    # It was deleted or bound meanwhile; a pod or gang of its UID may be in the queue again.
                    background.forget(queued, ended)
                    if queue.find(queued.uid) is None:
                        queue.done(queued.uid)
                    continue
                is_updated = due is not None and due.info is not queued.info and not isinstance(queued, QueuedGang)
                if is_updated or ((due is not None or queued.group is not None) and not queue.is_tried_alone(queued)):
                    # Its gates, gang and position in the queue may be other ones now. Members that wait as single pods
                    # are not regrouped while their gang or tree is searched in a copy of the process.
                    if ended is not None:
                        background.drop(ended)
                    queue.enter_again(queued)
                    continue
                if decided.profiles:
                    decided.begin(queued)
                await self._cycle(queued, ended)
            except Exception as fault:
                try_twice(background.forget, queued, ended)
                self.cycles.errors.interrupted(queued, None, fault)
            if context.clock.now() >= deadline or self._binds_under_way >= self.options.max_binding:
                break
            if queue.pending.moves or queue.wakeups.has_pending:
                # The next pop continues, after a turn of the event loop.
                break
            if context.suspension.waiting_tasks:
                # Tasks that wait for the end of the suspended cycle run before the next cycle.
                break
        self._may_begin_waiting = may_begin or not self._may_begin_waiting
        if background.is_due:
            queue.resume()
        await self._journal.paused(self.shadows.compare() if decided.pods else self._pause(0))

    def expect_clients(self) -> None:
        """Run the event loop more often between the next batches, because a client waits and may send more requests."""
        self._pause, self._prompt_batches = self._turns_for_clients, _PROMPT_BATCHES

    async def _turns_for_clients(self, seconds: float) -> None:
        # With one turn, a request waits for two or three batches and the binds of their pods. Shorter batches would
        # help, too, but a replay could not repeat them.
        self._prompt_batches -= 1
        if not self._prompt_batches:
            self._pause = self.context.clock.sleep
        for _ in range(_PROMPT_TURNS):
            await self.context.clock.sleep(seconds)

    def _survived(self, what: str, fault: Exception) -> None:
        """Log and count an error that concerns no pod; the loop in which it was raised goes on."""
        log.error("%s failed in the scheduler itself; please report it", what, exc_info=fault)
        self.context.metrics.internal_errors += 1

    async def _cycle(self, queued: QueuedPod, ended: MovedSearch | None = None) -> None:
        """Run one cycle of a pod or a gang; awaits only for extenders and between slices.

        Args:
            ended: The search of the cycle, which was made in another process; None if it is made now.
        """
        attempt, attempts, steps = None, list[Attempt](), self.context.steps
        background = self.context.background
        steps.begin_attempt(len(queued.members) if isinstance(queued, QueuedGang) else 1)
        try:
            try:
                if isinstance(queued, QueuedGang):
                    attempts = await self.cycles.gangs.schedule(queued, ended)
                else:
                    instance = self.context.profiles.live.get(queued.profile)
                    if instance is not None and instance.extenders:
                        # Its search was moved by a revision without extenders, if at all.
                        background.forget(queued, ended)
                        attempt = await self.cycles.extended.schedule(queued)
                    else:
                        attempt = self.cycles.pods.schedule(queued, ended)
            except Exception as fault:
                if attempt is None and not attempts:
                    raise
                # The pods are assumed, so they must be bound or released.
                self._survived("the end of a cycle", fault)
            for each in attempts if attempt is None else (attempt,):
                try:
                    self._start_binding(each)
                except Exception as fault:
                    self.cycles.binding.interrupted(each, fault)
        finally:
            if background.is_copy:
                # The cycle has ended in a way in which only this process can end it.
                background.send(None)
            if steps.on_long_search is not None:
                # The pod may be assumed or requeued already, so its cycle must not count as interrupted.
                try_twice(background.end)
            steps.limit = NO_LIMIT
            if self._slices.has_suspended:
                try_twice(self._slices.cycle_ended)

    @property
    def binding_count(self) -> int:
        """Number of binding cycles in progress, including those that wait at Permit."""
        return len(self._binding)

    @property
    def _binds_under_way(self) -> int:
        return len(self._binding) - len(self.context.waiting.entries) - self.context.idle_binds.count

    async def _until_binds_drain(self) -> None:
        idle, clock = self.context.idle_binds, self.context.clock
        while self._binds_under_way >= self.options.max_binding:
            seconds = idle.count_due()
            if self._binds_under_way < self.options.max_binding:
                return
            self._bind_ended.clear()
            timer = clock.call_later(seconds, self._bind_ended.set)
            try:
                await self._bind_ended.wait()
            finally:
                timer.cancel()

    def _start_binding(self, attempt: Attempt) -> None:
        if attempt.gang is None and attempt.queued.group is not None:
            # Before other binding cycles go on: the barrier of the quorum may end with the next one.
            self.cycles.binding.join(attempt, attempt.queued.group)
        binding = self._bind(attempt)
        try:
            if self._journal.follows_binds:
                self._journal.placed(attempt)
                binding = self._journal.steps(binding)
            task = asyncio.get_running_loop().create_task(binding)
        except BaseException:
            binding.close()
            raise
        self._binding.add(task)
        # A task that is cancelled before it runs ends without its last step.
        task.add_done_callback(self._binding.discard)

    async def _bind(self, attempt: Attempt) -> None:
        try:
            await self.cycles.binding.bind(attempt)
        except Exception as fault:
            self._survived("a binding cycle", fault)
        finally:
            # A step of the task, so that its order among the other steps is recorded.
            task = asyncio.current_task()
            if task is not None:
                self._binding.discard(task)
            self._bind_ended.set()

    async def _flush(self) -> None:
        queue, suspension = self.context.queue, self.context.suspension
        failed = 0
        while True:
            await self.context.clock.sleep(FLUSH_INTERVAL_SECONDS)
            try:
                queue.flush()
                if suspension.failed != failed:
                    failed = suspension.failed
                    # A change that an exception interrupted may have requeued only some of the pods that it helps.
                    for profile in self.context.profiles:
                        queue.profile_changed(profile.name)
            except Exception as fault:
                self._survived("the flush of the queue", fault)

    async def _settle(self) -> None:
        while True:
            await self.context.clock.sleep(_SETTLE_INTERVAL_SECONDS)
            try:
                # Event handlers record metrics even while no pod is scheduled.
                self.context.metrics.settle()
            except Exception as fault:
                self._survived("the count of metrics", fault)
            try:
                await self.unconfirmed_pods.settle(self.feed, self.options.confirm_after_seconds)
            except Exception as fault:
                self._survived("the settling of unconfirmed pods", fault)
            try:
                await self.unshown_claims.settle(self.device_feed, self.options.confirm_after_seconds)
            except Exception as fault:
                self._survived("the settling of created claims", fault)


class ProfileQueueingRules:
    """Queueing rules of the live profiles by scheduler name: gates, hints, order, backoff."""

    def __init__(
        self, initial_backoff_seconds: float, max_backoff_seconds: float, metrics: SchedulerMetrics, clock: Clock
    ) -> None:
        self._initial_backoff_seconds = initial_backoff_seconds
        self._max_backoff_seconds = max_backoff_seconds
        self._metrics = metrics
        self._clock = clock
        self._rules: dict[str, QueueingRules] = {}
        self._queue_sort: tuple[str, str] | None = None

    def get(self, name: str) -> QueueingRules | None:
        return self._rules.get(name)

    def update(self, name: str, profiles: ProfileTable) -> bool:
        """Update the rules of a profile that went live, was replaced or was withdrawn.

        Returns:
            Whether the order of the queue changed. All profiles change their QueueSort plugin at once, so the rules of
            all of them are updated then.
        """
        instance = profiles.get(name)
        if instance is None:
            self._rules.pop(name, None)
            return False
        self._rules[name] = self._of(instance)
        before, self._queue_sort = self._queue_sort, queue_sort_of(instance)
        if before in (None, self._queue_sort):
            return False
        self._rules.update((live.name, self._of(live)) for live in profiles)
        return True

    def _of(self, instance: FrameworkInstance) -> QueueingRules:
        config = instance.config
        initial, longest = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
        return QueueingRules(
            instance.pre_enqueue,
            instance.registrations,
            instance.queue_sort.sort_key,
            self._initial_backoff_seconds if initial is None else initial,
            self._max_backoff_seconds if longest is None else longest,
            places_gangs=instance.places_gangs,
            are_keys_plain=instance.queue_sort.name in instance.built_in,
            metrics=QueueMetrics(instance.name, self._metrics, self._clock),
        )
