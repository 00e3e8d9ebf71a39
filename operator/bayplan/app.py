"""The operator's composition root: makes the parts, starts them in order, ends them in order.

Owns the order. It must not hold any rule of scheduling or reconciling.

    connect ─▶ serve /livez ─▶ every kind, profiles, kept revisions are read ─▶ first reconcile
            ─▶ schedule, watch, /readyz
            ─▶ SIGTERM, SIGINT or a core task's fault ─▶ no more cycles ─▶ binds end ─▶ writes flushed ─▶ closed

Why the profiles are listed here and not by kopf: kopf says that it is ready before its first list, and a first cycle
without the profiles, or a profile without its kept revision, would schedule by the wrong rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bayplan.cluster_informers import ClusterInformers
from bayplan.handlers import watch_custom_resources
from bayplan.kube.backoff import Backoff
from bayplan.kube.cluster_access import ConfiguredAccess, from_kubeconfig, from_service_account
from bayplan.kube.connection import ApiConnection, ConnectionOptions
from bayplan.kube.controller_revisions import ControllerRevisions
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.storage_writes import StorageWrites
from bayplan.kube.system_clock import SystemClock
from bayplan.kube.writer import KubeWriter, WriterOptions
from bayplan.profile_controller import ControllerPorts, ProfileController
from bayplan.profile_lists import ProfileLists
from bayplan.serving.health import HealthServer
from bayplan.serving.metrics import metrics_registry
from bayplan.serving.readiness import Readiness
from bayplan.settings import Settings, revision_namespace, runs_in_cluster
from scheduler_core.errors import ClusterWriteError
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler, SchedulerOptions

log = logging.getLogger(__name__)

_PROFILES = "profiles are being read"
_SCHEDULER = "the scheduler has not started"
_BINDS_PER_CONNECTION = 3
_FAULT_EXIT_CODE = 1


async def run_operator(settings: Settings, stopping: Callable[[float], None]) -> int:
    """Run the operator until it is told to stop.

    Args:
        settings: Everything that is not a profile's.
        stopping: Told, when the end begins, within how many seconds it should be over.

    Returns:
        The exit code: 0 after SIGTERM or SIGINT, else 1.

    Raises:
        ConfigError: The credentials or the address to serve cannot be used.
        RegistryError: A plugin that is installed cannot be loaded.
    """
    if runs_in_cluster(settings):
        access = await from_service_account()
    else:
        path = None if settings.kubeconfig is None else Path(settings.kubeconfig)
        access = await from_kubeconfig(path, settings.context)
    return await Operator(settings, access, stopping).run()


class Operator:
    """All parts of one process.

    Args:
        settings: Everything that is not a profile's.
        access: Credentials.
        stopping: Told, when the end begins, within how many seconds it should be over.
    """

    def __init__(self, settings: Settings, access: ConfiguredAccess, stopping: Callable[[float], None]) -> None:
        self._settings = settings
        self._stopping = stopping
        self._access = access
        self._clock = clock = SystemClock()
        self._connection = connection = ApiConnection(access, _connection_options(settings), clock)
        options = WriterOptions(bind_limit=settings.bind_concurrency, pod_lookup=self._known_pod)
        self._writer = KubeWriter(connection, options, clock)
        registry = in_tree_registry()
        registry.load_entry_points()
        self._scheduler = Scheduler(clock, self._writer, _scheduler_options(settings), registry)
        self._scheduler.write_storage_with(StorageWrites(connection, options.request_seconds))
        self._informers = ClusterInformers(connection, self._scheduler, clock)
        self._readiness = Readiness((*self._informers.conditions, _PROFILES, _SCHEDULER))
        self._informers.report_to(self._readiness)
        resources = CustomResources(connection)
        revisions = ControllerRevisions(connection, revision_namespace(settings))
        self._controller = ProfileController(
            self._scheduler,
            ControllerPorts(revisions, resources, clock),
            allow_default_scheduler=settings.allow_default_scheduler,
        )
        self._lists = ProfileLists(resources, self._controller, clock)
        self._stop_asked = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fault = asyncio.Event()

    async def run(self) -> int:
        """Start, run, stop; see :func:`run_operator`."""
        health = self._health_server()
        if health is not None:
            await health.start()
            log.info("Serving /livez, /readyz and /metrics on port %d", health.port)
        self._take_signals()
        try:
            await self._start()
            await self._until_stop_or_fault()
            return _FAULT_EXIT_CODE if self._fault.is_set() else 0
        finally:
            await self._stop()
            if health is not None:
                await health.stop()
            await self._connection.close()

    # -- starting -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        log.info("Connecting to %s", self._access.base_url)
        await self._writer.start()
        for resource, informer in self._informers:
            self._spawn(_watch_task(resource), informer.run())
        self._spawn("start", self._start_scheduling())

    async def _start_scheduling(self) -> None:
        await self._read_profiles()
        self._readiness.fulfil(_PROFILES)
        await self._informers.synced.wait()
        self._controller.reconcile()
        # What was listed stays for long: it need not be looked at by each collection.
        gc.collect()
        gc.freeze()
        self._spawn("scheduler", self._scheduler.run())
        self._spawn("controller of profiles", self._controller.run())
        self._spawn("lists of profiles", self._lists.run())
        watch = watch_custom_resources(self._access, self._controller, self._clock, self._kopf_spawned)
        self._spawn("watch of custom resources", watch)
        self._readiness.fulfil(_SCHEDULER)
        nodes, pods = self._informers.nodes.known, self._informers.pods.known
        log.info("Scheduling: %d nodes, %d pods are known", len(nodes), len(pods))

    async def _read_profiles(self) -> None:
        backoff = Backoff(0.5, 10.0)
        while True:
            try:
                await self._lists.take()
                await self._controller.history.load()
            except ClusterWriteError as error:
                self._lists.tell(error)
                await self._clock.sleep(backoff.next_delay())
            else:
                return

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = asyncio.create_task(work, name=name)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        fault = task.exception()
        if fault is None and task.get_name() == "start":
            return
        log.critical(
            "The %s ended by a fault of its own; the process ends, so that it is started anew. Please report it.",
            task.get_name(),
            exc_info=fault,
        )
        self._fault.set()
        self._stop_asked.set()

    def _health_server(self) -> HealthServer | None:
        address = self._settings.serve_host_and_port
        if address is None:
            return None
        metrics = metrics_registry(self._scheduler.context, self._informers.by_resource)
        return HealthServer(address, self._readiness, metrics)

    def _known_pod(self, namespace: str, name: str) -> Pod | None:
        return self._informers.pods.known.get(f"{namespace}/{name}")

    # -- stopping -----------------------------------------------------------------------------------------------

    def _kopf_spawned(self) -> None:
        self._take_signals()
        self._lists.ask()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        log.info("Stopping: %s", number.name)
        self._stop_asked.set()

    async def _until_stop_or_fault(self) -> None:
        await self._stop_asked.wait()

    async def _stop(self) -> None:
        """End in order, all of it within the grace of the settings."""
        self._readiness.stop()
        grace = self._settings.graceful_stop_seconds
        self._stopping(grace)
        deadline = self._clock.now() + grace * 0.9
        # Whoever might start something new goes first; the informers stay, since they confirm the last binds.
        watches = {_watch_task(resource) for resource, _ in self._informers}
        early = [name for name in self._tasks if name not in watches]
        await self._end(early, grace * 0.2)
        await self._scheduler.stop(grace * 0.4)
        await self._writer.stop(max(0.1, deadline - self._clock.now() - grace * 0.2))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, deadline - self._clock.now())):
                await self._last_statuses()
        await self._end(list(self._tasks), max(0.1, deadline - self._clock.now()))
        log.info("Stopped")

    async def _last_statuses(self) -> None:
        try:
            await self._controller.publish(counts_too=True)
        except ClusterWriteError as error:
            log.warning("The last statuses could not be written; the next process writes them: %s", error)

    async def _end(self, names: list[str], seconds: float) -> None:
        tasks = [self._tasks.pop(name) for name in names]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                log.warning("The %s does not end and is left", task.get_name())


def _watch_task(resource: str) -> str:
    return f"watch of {resource}"


def _connection_options(settings: Settings) -> ConnectionOptions:
    return ConnectionOptions(
        bind_connections=settings.bind_concurrency, qps=settings.client_qps, burst=settings.client_burst
    )


def _scheduler_options(settings: Settings) -> SchedulerOptions:
    return SchedulerOptions(
        seed=settings.seed,
        percentage_of_nodes_to_score=settings.percentage_of_nodes_to_score,
        initial_backoff_seconds=float(settings.pod_initial_backoff_seconds),
        max_backoff_seconds=float(settings.pod_max_backoff_seconds),
        max_unschedulable_seconds=settings.pod_max_in_unschedulable_pods_duration,
        max_binding=_BINDS_PER_CONNECTION * settings.bind_concurrency,
    )
