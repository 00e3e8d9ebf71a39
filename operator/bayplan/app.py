"""The operator's composition root: builds the parts, starts them in order and stops them in order.

    connect ─▶ serve /livez ─▶ list all resources, profiles, stored revisions ─▶ (standby, /readyz ─▶ acquire the Lease)
            ─▶ first reconcile ─▶ schedule, watch, /readyz
            ─▶ SIGTERM, SIGINT, a failed core task or a lost Lease ─▶ no more cycles
            ─▶ binds finish ─▶ writes flushed ─▶ Lease released ─▶ closed

Profiles are listed here and not by kopf: kopf reports readiness before its first list, and a first cycle without the
profiles, or with a profile but not its stored revisions, would schedule by the wrong rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bayplan.cluster_informers import ClusterInformers
from bayplan.collector_pause import CollectorPause
from bayplan.endpoints import ServedParts
from bayplan.extending.circuit import CircuitOptions
from bayplan.extending.clients import ClusterObjects, ExtenderClients
from bayplan.extending.extender_bounds import ExtenderBounds
from bayplan.feature_gates import COMPATIBLE_POD_GROUPS, GANG_PREEMPTION, RESULT_CACHE, FeatureGates
from bayplan.gangs.group_controller import GroupController
from bayplan.gangs.group_sources import GroupSources
from bayplan.gangs.group_status_writes import GroupStatusWrites
from bayplan.gangs.neighbours import OtherProcesses
from bayplan.introspection.cache_debugger import CacheDebugger
from bayplan.kube.cluster_access import ConfiguredAccess, from_kubeconfig, from_service_account
from bayplan.kube.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import LeaderElection, LeadershipLostError
from bayplan.kube.leader_endpoint import LeaderEndpoint
from bayplan.kube.storage_writes import StorageWrites
from bayplan.kube.system_clock import SystemClock
from bayplan.kube.writer import KubeWriter, WriterOptions
from bayplan.kube_configuration import RunConfiguration
from bayplan.leadership import LOST_STOP_SECONDS, candidate, leader_state
from bayplan.loop_liveness import LoopLiveness
from bayplan.plugin_watchdog import PluginWatchdog
from bayplan.profile_sources import ConfiguredProfiles, CustomResourceProfiles, ProfileSource, ResourcePorts
from bayplan.serving.extender_metrics import ExtenderCollector
from bayplan.serving.feature_metrics import FeatureCollector
from bayplan.serving.health import HealthServer
from bayplan.serving.metrics import metrics_registry
from bayplan.serving.operator_metrics import OperatorCollector, OperatorSources
from bayplan.serving.protection import protection_of
from bayplan.serving.readiness import Readiness
from bayplan.serving.scheduler_metrics import ApiCallCollector
from bayplan.settings import Settings, runs_in_cluster
from bayplan.tracing import tracer_of
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler, SchedulerOptions

log = logging.getLogger(__name__)

_PROFILES = "profiles are being read"
_SCHEDULER = "the scheduler has not started"
_ELECTION = "leader election"
_BINDS_PER_CONNECTION = 3
_FAULT_EXIT_CODE = 1


async def run_operator(
    settings: Settings, stopping: Callable[[float], None], configuration: RunConfiguration | None = None
) -> int:
    """Run the operator until it is stopped by a signal or by a failure.

    Args:
        settings: All settings of the operator; profiles are configured elsewhere.
        stopping: Called when the shutdown begins, with the seconds that it may take.
        configuration: Run the profiles of this file instead of custom resources.

    Returns:
        The exit code: 0 after SIGTERM or SIGINT, 1 after a failure or when the Lease was lost.

    Raises:
        ConfigError: The credentials, the address to serve or the configuration cannot be used.
        RegistryError: An installed plugin cannot be loaded.
    """
    if runs_in_cluster(settings):
        access = await from_service_account()
    else:
        path = None if settings.kubeconfig is None else Path(settings.kubeconfig)
        access = await from_kubeconfig(path, settings.context)
    return await Operator(settings, access, stopping, configuration).run()


class Operator:
    """All parts of one process.

    Args:
        settings: All settings of the operator; profiles are configured elsewhere.
        access: Credentials.
        stopping: Called when the shutdown begins, with the seconds that it may take.
        configuration: Run the profiles of this file instead of custom resources.
    """

    def __init__(
        self,
        settings: Settings,
        access: ConfiguredAccess,
        stopping: Callable[[float], None],
        configuration: RunConfiguration | None = None,
    ) -> None:
        self._settings = settings
        self._gates = FeatureGates(settings.feature_gates)
        self._stopping = stopping
        self._access = access
        self._clock = clock = SystemClock()
        self._connection = connection = ApiConnection(access, _connection_options(settings), clock)
        options = WriterOptions(bind_limit=settings.bind_concurrency, pod_lookup=self._known_pod)
        self._writer = KubeWriter(connection, options, clock)
        registry = in_tree_registry()
        registry.load_entry_points()
        self._scheduler = Scheduler(clock, self._writer, _scheduler_options(settings, self._gates), registry)
        self._tracer = tracer_of(settings.tracing, clock)
        if self._tracer is not None:
            self._scheduler.trace_with(self._tracer)
        self._watchdog = PluginWatchdog(settings.plugin_time_budget)
        self._scheduler.watch_plugins_with(self._watchdog)
        self._liveness = LoopLiveness(settings.liveness_limit)
        self._scheduler.write_storage_with(StorageWrites(connection, options.request_seconds))
        self._informers = ClusterInformers(connection, self._scheduler, clock)
        self._groups = GroupSources(
            self._scheduler, self._informers, connection, clock, others=self._gates.is_on(COMPATIBLE_POD_GROUPS)
        )
        if configuration is None:
            self._groups.use_bayplan()
        gangs, statuses = self._scheduler.context.queue.gangs, GroupStatusWrites(connection, self._writer.dispatcher)
        self._group_statuses = GroupController(gangs, statuses, self._writer, clock)
        self._groups.observe(self._group_statuses)
        self._debugger = CacheDebugger(connection, self._scheduler)
        self._readiness = Readiness((*self._informers.conditions, _PROFILES, _SCHEDULER))
        self._informers.report_to(self._readiness)
        objects = ClusterObjects(connection, self._informers.nodes, self._informers.pods)
        bounds = None
        if configuration is None:
            bounds = ExtenderBounds(Path(settings.extender_files_directory), settings.allowed_extender_hosts)
        self._extenders = ExtenderClients(objects, clock, CircuitOptions(seed=settings.seed), bounds)
        self._scheduler.call_extenders_with(self._extenders.make)
        self._profiles: ProfileSource = (
            CustomResourceProfiles(
                self._scheduler, ResourcePorts(connection, access, self._groups.bayplan, clock), settings
            )
            if configuration is None
            else ConfiguredProfiles(self._scheduler, configuration)
        )
        self._extenders.on_change = self._profiles.extenders_changed
        self._group_statuses.others = OtherProcesses(self._groups.status, self._profiles.serves)
        self._profiles.watch_served_elsewhere(self._group_statuses.reconcile_all)
        self._election = candidate(settings, connection, self._extenders, clock, self._endpoint)
        self._health: HealthServer | None = None
        self._stop_requested = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fault = asyncio.Event()
        self._lease_lost = False
        self._collector = CollectorPause()

    async def run(self) -> int:
        """Start, run and stop; see :func:`run_operator`."""
        self._watchdog.start()
        self._liveness.start()
        self._health = health = self._health_server()
        if health is not None:
            await health.start()
            log.info("Serving /livez, /readyz and /metrics on port %d", health.port)
        self._take_signals()
        try:
            await self._start()
            await self._until_stop_or_fault()
            return _FAULT_EXIT_CODE if self._fault.is_set() else 0
        finally:
            self._collector.end()
            await self._stop()
            await self._extenders.close()
            if health is not None:
                await health.stop()
            await self._connection.close()
            if self._tracer is not None:
                await asyncio.to_thread(self._tracer.stop)
            self._liveness.stop()
            self._watchdog.stop()

    # -- starting -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._collector.begin()
        log.info("Connecting to %s", self._access.base_url)
        await self._writer.start()
        if self._election is not None:
            self._spawn(_ELECTION, self._election.run())
        if not self._delays_caches:
            self._watch_cluster()
        self._spawn("start", self._start_scheduling())

    def _watch_cluster(self) -> None:
        for resource, informer in self._informers:
            self._spawn(_watch_task(resource), informer.run())
        for resource, watch in self._groups.watches().items():
            self._spawn(_watch_task(resource), watch)

    async def _start_scheduling(self) -> None:
        await self._profiles.read()
        self._readiness.fulfil(_PROFILES)
        if not self._delays_caches:
            await self._informers.synced.wait()
        # Freeze here as well: a standby then has little left to freeze at its takeover.
        self._collector.freeze()
        if self._election is not None:
            await self._stand_by(self._election)
        await self._informers.synced.wait()
        await self._groups.settle()
        self._profiles.activate()
        self._collector.freeze()
        self._spawn("scheduler", self._scheduler.run())
        self._spawn("statuses of groups", self._group_statuses.run())
        for name, work in self._profiles.tasks(self._take_signals).items():
            self._spawn(name, work)
        self._readiness.fulfil(_SCHEDULER)
        nodes, pods = self._informers.nodes.known, self._informers.pods.known
        log.info("Scheduling: %d nodes, %d pods are known", len(nodes), len(pods))

    async def _stand_by(self, election: LeaderElection) -> None:
        """Wait for the Lease with everything loaded, then read what changed while this process was a standby."""
        self._readiness.stand_by(lambda: f"standby, {election.holder or 'nobody'} leads")
        await election.leading.wait()
        self._readiness.lead()
        if self._delays_caches:
            self._watch_cluster()
        await self._profiles.read()
        # Statuses that the previous leader wrote in the meantime are not in memory yet.
        self._group_statuses.take_over()

    @property
    def _delays_caches(self) -> bool:
        return self._election is not None and self._settings.delay_cache_until_active

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = asyncio.create_task(work, name=name)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        fault = task.exception()
        if fault is None and task.get_name() == "start":
            return
        if isinstance(fault, LeadershipLostError):
            self._lease_lost = True
            log.critical("%s", fault)
        else:
            self._log_failure(task, fault)
        self._fault.set()
        self._stop_requested.set()

    def _log_failure(self, task: asyncio.Task[None], fault: BaseException | None) -> None:
        log.critical(
            "The %s failed unexpectedly; the process exits so that it is restarted. Please report this bug.",
            task.get_name(),
            exc_info=fault,
        )

    def _health_server(self) -> HealthServer | None:
        address = self._settings.serve_host_and_port
        if address is None:
            return None
        metrics = metrics_registry(self._scheduler, self._informers.by_resource)
        metrics.register(ApiCallCollector(self._writer))
        metrics.register(ExtenderCollector(self._extenders))
        profiles = self._profiles
        metrics.register(
            OperatorCollector(
                OperatorSources(
                    self._election, self._clock, profiles.reconciles, profiles.conditions, self._informers.arrivals
                )
            )
        )
        metrics.register(FeatureCollector(self._gates))
        parts = ServedParts(
            self._scheduler,
            self._informers,
            self._readiness,
            self._connection,
            self._clock.now(),
            lambda: leader_state(self._election),
            self._settings.enable_profiling,
            "" if self._settings.selection is None else self._settings.selection.text,
            self._profiles.serves,
        )
        protection = protection_of(self._settings, self._connection, self._clock)
        return HealthServer(address, self._readiness, metrics, parts.routes(), protection)

    def _endpoint(self) -> LeaderEndpoint | None:
        address = self._settings.advertise_address
        return None if address is None or self._health is None else self._health.endpoint(address)

    def _known_pod(self, namespace: str, name: str) -> Pod | None:
        return self._informers.pods.known.get(f"{namespace}/{name}")

    # -- stopping -----------------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGUSR2, self._debugger.start)

    def _signalled(self, number: signal.Signals) -> None:
        log.info("Stopping: %s", number.name)
        self._stop_requested.set()

    async def _until_stop_or_fault(self) -> None:
        await self._stop_requested.wait()

    async def _stop(self) -> None:
        """Stop in order, within the grace period of the settings."""
        self._readiness.stop()
        grace = min(self._settings.graceful_stop_seconds, LOST_STOP_SECONDS if self._lease_lost else float("inf"))
        self._stopping(grace)
        deadline = self._clock.now() + grace * 0.9
        # Stop first whatever may start new work. The informers stay: they confirm the last binds.
        watches = {_watch_task(resource) for resource, _ in self._informers}
        await self._debugger.stop()
        early = [name for name in self._tasks if name not in watches and name != _ELECTION]
        await self._end(early, grace * 0.2)
        await self._scheduler.stop(grace * 0.4)
        await self._writer.stop(max(0.1, deadline - self._clock.now() - grace * 0.2))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, deadline - self._clock.now())):
                await self._profiles.finish()
        await self._end(list(self._tasks), max(0.1, deadline - self._clock.now()))
        if self._election is not None:
            # Released last, when no request of this process is in flight any more.
            await self._election.release(max(0.5, deadline - self._clock.now()))
        log.info("Stopped")

    async def _end(self, names: list[str], seconds: float) -> None:
        tasks = [self._tasks.pop(name) for name in names]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                log.warning("The %s did not stop in time and is abandoned", task.get_name())


def _watch_task(resource: str) -> str:
    return f"watch of {resource}"


def _connection_options(settings: Settings) -> ConnectionOptions:
    return ConnectionOptions(
        bind_connections=settings.bind_concurrency, qps=settings.client_qps, burst=settings.client_burst
    )


def _scheduler_options(settings: Settings, gates: FeatureGates) -> SchedulerOptions:
    return SchedulerOptions(
        seed=settings.seed,
        percentage_of_nodes_to_score=settings.percentage_of_nodes_to_score,
        initial_backoff_seconds=float(settings.pod_initial_backoff_seconds),
        max_backoff_seconds=float(settings.pod_max_backoff_seconds),
        max_unschedulable_seconds=settings.pod_max_in_unschedulable_pods_duration,
        max_binding=_BINDS_PER_CONNECTION * settings.bind_concurrency,
        slow_cycle_seconds=settings.slow_cycle_threshold,
        gang_reservation_seconds=settings.gang_reservation_delay,
        reuses_results=gates.is_on(RESULT_CACHE),
        gangs_preempt=gates.is_on(GANG_PREEMPTION),
    )
