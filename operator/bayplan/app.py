"""The operator: starts its parts in order and stops them in order; :mod:`bayplan.wiring` builds them.

    listen ─▶ connect ─▶ list all resources, profiles, stored revisions ─▶ (standby ─▶ acquire the Lease)
            ─▶ first reconcile ─▶ schedule ─▶ /livez, /readyz ─▶ watch the custom resources
            ─▶ SIGTERM, SIGINT, a failed core task or a lost Lease ─▶ no more cycles
            ─▶ binds finish ─▶ writes flushed ─▶ Lease released ─▶ closed

Profiles are listed here and not by kopf: kopf reports readiness before its first list, and a first cycle without the
profiles, or with a profile but not its stored revisions, would schedule by the wrong rules.

The HTTP server and kopf are imported after the pods that waited at the start are scheduled, each with a deadline,
because the cycles would compete with the imports. Probes wait for the server's response meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bayplan.configuration.configuration_file import RunConfiguration
from bayplan.kube.credentials import from_kubeconfig, from_service_account
from bayplan.kube.leader_election import LeaderElection, LeadershipLostError, other_leader
from bayplan.kube.served_apis import CLAIMS
from bayplan.kube.timing import wait_at_most
from bayplan.process.garbage_collection import CollectorPause
from bayplan.profiles.profile_sources import INITIAL_PROFILES
from bayplan.settings.operator_settings import Settings, runs_in_cluster
from bayplan.wiring import PROFILES_READ, SCHEDULER_STARTED, Parts, build_parts

log = logging.getLogger(__name__)

_ELECTION = "leader election"
_START, _SERVE, _RIVAL, _PRESENCE = "start", "HTTP server", "search for another leader", "Lease without election"
_ENDING = frozenset({_START, _SERVE, _RIVAL, _PRESENCE, INITIAL_PROFILES})
"""Tasks that end while the process runs."""
_LOST_STOP_SECONDS = 2.0
"""Maximum shutdown time after the Lease is lost: nothing may be written any more, and a standby should return soon."""
_PRESENCE_SECONDS = 1.0
"""Maximum time to release the Lease without leader election."""
_FAULT_EXIT_CODE = 1
_SERVE_SECONDS = 2.0
"""Maximum time until the HTTP server starts; well below the timeout of probes, whose connections wait."""
_BACKLOG_SECONDS = 5.0
"""Maximum time for which the first pods are scheduled before custom resources are watched."""
_LOOK_SECONDS = 0.02


async def run_operator(
    settings: Settings, stopping: Callable[[float], None], configuration: RunConfiguration | None = None
) -> int:
    """Run the operator until it is stopped by a signal or by a failure.

    Args:
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
    if settings.selection is not None:
        log.info("Serving the SchedulerProfiles that match %s", settings.selection.text)
    return await Operator(build_parts(settings, access, configuration), settings, stopping).run()


class Operator:
    """One process."""

    def __init__(self, parts: Parts, settings: Settings, stopping: Callable[[float], None]) -> None:
        self._parts = parts
        self._settings = settings
        self._stopping = stopping
        self._stop_requested = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fault = asyncio.Event()
        self._lease_lost = False
        self._others: set[str] = set()
        self._collector = CollectorPause()
        self._may_serve = asyncio.Event()
        self._is_serving = asyncio.Event()

    async def run(self) -> int:
        """Start, run and stop; see :func:`run_operator`."""
        parts = self._parts
        parts.watchdog.start()
        parts.liveness.start()
        self._take_signals()
        try:
            await self._start()
            await self._until_stop_or_fault()
            return _FAULT_EXIT_CODE if self._fault.is_set() else 0
        finally:
            self._collector.end()
            await self._stop()
            if parts.recorder is not None:
                parts.recorder.close()
            await parts.extenders.close()
            if parts.http is not None:
                await parts.http.stop()
            await parts.connection.close()
            if parts.tracer is not None:
                await asyncio.to_thread(parts.tracer.stop)
            parts.liveness.stop()
            parts.watchdog.stop()

    # -- starting -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        parts = self._parts
        self._collector.begin()
        self._spawn(_SERVE, self._serve())
        log.info("Connecting to %s", parts.access.base_url)
        await parts.writer.start()
        if parts.recorder is not None:
            log.info("Recording every decision in %s", self._settings.record)
            self._spawn("record", parts.recorder.run())
        if parts.election is not None:
            self._spawn(_ELECTION, parts.election.run())
        if not self._delays_caches:
            self._watch_cluster()
        self._spawn(_START, self._start_scheduling())

    async def _serve(self) -> None:
        """Start the HTTP server when scheduling leaves time for it, or at its deadline."""
        server = self._parts.http
        if server is not None:
            await wait_at_most(self._may_serve, _SERVE_SECONDS)
            await server.start()
            log.info("Serving /livez, /readyz and /metrics on port %d", server.port)
            if self._settings.serve_page:
                log.info("Serving the page at %s", server.page_url or f"/page/ on port {server.port}")
        self._is_serving.set()

    def _watch_cluster(self) -> None:
        for resource, informer in self._parts.informers:
            self._spawn(_watch_task(resource), informer.run())
        for resource, watch in self._parts.groups.watches().items():
            self._spawn(_watch_task(resource), watch)
        self._spawn(_watch_task(CLAIMS), self._parts.devices.run())

    async def _start_scheduling(self) -> None:
        parts = self._parts
        if parts.election is None:
            self._spawn(_RIVAL, self._look_for_another())
        if parts.presence is not None:
            self._spawn(_PRESENCE, parts.presence.be_found(self._warn_of_another))
        await parts.profiles.read()
        parts.readiness.fulfil(PROFILES_READ)
        if not self._delays_caches:
            await parts.informers.synced.wait()
        self._spawn("version of the API server", parts.server.run())
        # Freeze here as well: a standby then has little left to freeze at its takeover.
        self._collector.freeze()
        if parts.election is not None:
            await self._stand_by(parts.election)
        await parts.informers.synced.wait()
        await parts.groups.settle()
        parts.profiles.activate()
        restored = parts.scheduler.healing.restore_all(parts.group_statuses.recorded_losses())
        if restored:
            log.info("Room of %d lost members of gangs is held again", restored)
        self._collector.freeze()
        if parts.kueue is not None:
            self._spawn("admission checks of Kueue", parts.kueue.run())
            await parts.kueue.checks.settle()
        if parts.reservations is not None:
            self._spawn("NodeReservations", parts.reservations.run())
            await parts.reservations.settle()
        if parts.rebalancing is not None:
            self._spawn("RebalancePlans", parts.rebalancing.run())
            await parts.rebalancing.settle()
        self._spawn("scheduler", parts.scheduler.run())
        self._spawn("statuses of groups", parts.group_statuses.run())
        self._spawn("new nodes for gangs", parts.helpful_nodes.run())
        if parts.owner_groups is not None:
            self._spawn("PodGroups of owners", parts.owner_groups.run())
        for name, work in parts.profiles.tasks().items():
            self._spawn(name, work)
        parts.readiness.fulfil(SCHEDULER_STARTED)
        nodes, pods = parts.informers.nodes.known, parts.informers.pods.known
        log.info("Scheduling: %d nodes, %d pods are known", len(nodes), len(pods))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BACKLOG_SECONDS):
                await self._until_first_pods_are_scheduled()
        self._may_serve.set()
        await self._is_serving.wait()
        if not self._standbys_watch:
            self._watch_custom_resources()

    async def _look_for_another(self) -> None:
        """Warn if another process schedules: without leader election this one schedules beside it."""
        settings, parts = self._settings, self._parts
        options = settings.leader_election.options("", settings.selection)
        identity = parts.presence.identity if parts.presence is not None else ""
        holder = await other_leader(parts.connection, options, parts.clock, identity)
        if holder:
            self._warn_of_another(holder)

    def _warn_of_another(self, holder: str) -> None:
        if holder in self._others:
            return
        self._others.add(holder)
        log.warning(
            "Another scheduler is active: %s. Both schedule the same pods and bind against each other; stop one, or "
            "run this one with --leader-elect and the same Lease",
            holder,
        )

    def _watch_custom_resources(self) -> None:
        for name, work in self._parts.profiles.watches().items():
            self._spawn(name, work)

    async def _until_first_pods_are_scheduled(self) -> None:
        scheduler, clock = self._parts.scheduler, self._parts.clock
        while not scheduler.context.queue.readings.is_idle or scheduler.binding_count:
            await clock.sleep(_LOOK_SECONDS)

    async def _stand_by(self, election: LeaderElection) -> None:
        """Wait for the Lease with everything loaded, then read what changed while this process was a standby."""
        parts = self._parts
        self._may_serve.set()
        parts.readiness.stand_by(lambda: f"standby, {election.holder or 'no process'} leads")
        if self._standbys_watch:
            self._watch_custom_resources()
        await election.leading.wait()
        parts.readiness.lead()
        if self._delays_caches:
            self._watch_cluster()
        await parts.profiles.read()
        # Statuses that the previous leader wrote in the meantime are not in memory yet.
        parts.group_statuses.take_over()

    @property
    def _standbys_watch(self) -> bool:
        """Whether standbys watch custom resources: every replica serves the webhook, which must not need the Lease."""
        return self._parts.election is not None and self._settings.webhook is not None

    @property
    def _delays_caches(self) -> bool:
        return self._parts.election is not None and self._settings.delay_cache_until_active

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = asyncio.create_task(work, name=name)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        fault = task.exception()
        if fault is None and task.get_name() in _ENDING:
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

    # -- stopping -----------------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGUSR2, self._parts.debugger.start)

    def _signalled(self, number: signal.Signals) -> None:
        log.info("Stopping: %s", number.name)
        self._stop_requested.set()

    async def _until_stop_or_fault(self) -> None:
        await self._stop_requested.wait()

    async def _stop(self) -> None:
        """Stop in order, within the grace period of the settings."""
        parts = self._parts
        parts.readiness.stop()
        grace = min(self._settings.graceful_stop_seconds, _LOST_STOP_SECONDS if self._lease_lost else float("inf"))
        self._stopping(grace)
        deadline = parts.clock.now() + grace * 0.9
        # Stop first whatever may start new work. The informers stay: they confirm the last binds.
        watches = {_watch_task(resource) for resource, _ in parts.informers}
        await parts.debugger.stop()
        early = [name for name in self._tasks if name not in watches and name not in (_ELECTION, _PRESENCE)]
        await self._end(early, grace * 0.2)
        await parts.scheduler.stop(grace * 0.4)
        await parts.writer.stop(max(0.1, deadline - parts.clock.now() - grace * 0.2))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, deadline - parts.clock.now())):
                await parts.profiles.finish()
        await self._end(list(self._tasks), max(0.1, deadline - parts.clock.now()))
        # Released last, when no request of this process is in flight any more.
        if parts.election is not None:
            await parts.election.release(max(0.5, deadline - parts.clock.now()))
        elif parts.presence is not None:
            await parts.presence.release(min(_PRESENCE_SECONDS, max(0.5, deadline - parts.clock.now())))
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
