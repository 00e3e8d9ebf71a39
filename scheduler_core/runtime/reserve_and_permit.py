"""Reserve, Permit, and the pods that wait there.

A wait ends exactly once: all plugins allow the pod, one rejects it, or one times out.

Follows kube-scheduler v1.37.1 (``framework/runtime/waiting_pods_map.go``): each plugin has its own timer of at most 15
minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from scheduler_core.config.duration import seconds as duration_of
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitResult, ReservePlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler_core.ports import Clock, Timer
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import checked, raised, refused
from scheduler_core.snapshot.pod_info import PodInfo

MAX_TIMEOUT_SECONDS = 15 * 60.0


def run_permit(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str
) -> tuple[Status, dict[str, float]]:
    """Run Permit.

    Returns:
        Success; or a rejection or an error with its plugin; or Wait, with the timeout in seconds of each such plugin.
    """
    waits: dict[str, float] = {}
    recorder = state.recorder
    for plugin in instance.permit:
        try:
            result = checked(plugin.permit(state, pod, node_name), PermitResult, plugin.name, "permit")
            seconds = min(MAX_TIMEOUT_SECONDS, float(result.timeout_seconds))
        except Exception as fault:
            return raised(plugin.name, "permit", pod, fault), {}
        status = result.status
        recorder.plugin_left((plugin.name, status.code, recorder.now()))
        if status.code is Code.WAIT:
            waits[plugin.name] = seconds
        elif not status.is_success:
            return refused(status, plugin.name, "permit"), {}
    return (Status(Code.WAIT), waits) if waits else (SUCCESS, {})


class WaitingPodEntry:
    """A waiting pod; see :class:`scheduler_core.framework.handle.WaitingPod`."""

    def __init__(self, pod: PodInfo, node_name: str, waits: dict[str, float], clock: Clock) -> None:
        self.pod = pod
        self.node_name = node_name
        self.since = clock.now()
        self._outcome: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._deadlines = {plugin: self.since + seconds for plugin, seconds in waits.items()}
        self._timers: dict[str, Timer] = {
            plugin: clock.call_later(seconds, self._time_out(plugin, seconds)) for plugin, seconds in waits.items()
        }

    @property
    def is_refused(self) -> bool:
        """Whether the wait ended without the approval of all plugins, even if no task has seen that yet."""
        outcome = self._outcome
        return outcome.done() and (outcome.cancelled() or not outcome.result().is_success)

    def pending_plugins(self) -> list[str]:
        """Return the plugins that have not allowed the pod yet."""
        return list(self._timers)

    def deadlines(self) -> dict[str, float]:
        """Return the plugins that have not allowed the pod yet, with the times at which they time out."""
        return {plugin: self._deadlines[plugin] for plugin in self._timers}

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of ``plugin``; the last plugin ends the wait."""
        timer = self._timers.pop(plugin, None)
        if timer is None:
            return
        timer.cancel()
        if not self._timers:
            self._end(SUCCESS)

    def reject(self, plugin: str, reason: str) -> bool:
        """Reject the pod on behalf of ``plugin``; return False if the wait had ended before."""
        return self._end(unschedulable(reason).of(plugin))

    def preempt(self, plugin: str, reason: str) -> bool:
        """End the wait with an error, which is retried with backoff; return False if the wait had ended before."""
        return self._end(error(f"waiting on permit for pod: {reason}").of(plugin))

    def abandon(self) -> None:
        """End the wait without a status; a task that awaits it is cancelled."""
        for timer in self._timers.values():
            timer.cancel()
        self._outcome.cancel()

    async def outcome(self) -> Status:
        """Wait for the end and return Success, or the rejection with its plugin."""
        return await self._outcome

    def _time_out(self, plugin: str, seconds: float) -> _TimeOut:
        return _TimeOut(self, plugin, seconds)

    def _end(self, status: Status) -> bool:
        if self._outcome.done():
            return False
        for timer in self._timers.values():
            timer.cancel()
        self._outcome.set_result(status)
        return True


class _TimeOut:
    """Timeout of one plugin."""

    def __init__(self, entry: WaitingPodEntry, plugin: str, seconds: float) -> None:
        self._entry, self._plugin, self._seconds = entry, plugin, seconds

    def __call__(self) -> None:
        waited = duration_of(self._seconds)
        self._entry.reject(self._plugin, f"rejected due to timeout after waiting {waited} at plugin {self._plugin}")


class WaitingPodMap:
    """All pods of all profiles that wait at Permit; see :class:`scheduler_core.framework.handle.WaitingPods`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.entries: dict[str, WaitingPodEntry] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[WaitingPodEntry]:
        return iter(list(self.entries.values()))

    def get(self, uid: str) -> WaitingPodEntry | None:
        """Return the entry of a pod, None if it does not wait."""
        return self.entries.get(uid)

    def add(self, pod: PodInfo, node_name: str, waits: dict[str, float]) -> WaitingPodEntry:
        """Start the wait of a pod."""
        entry = self.entries[pod.uid] = WaitingPodEntry(pod, node_name, waits, self._clock)
        return entry

    def reject(self, uid: str) -> bool:
        """Reject a pod without a plugin, because it was deleted; return whether it waited."""
        entry = self.entries.get(uid)
        return entry is not None and entry.reject("", "removed")

    def abandon_all(self) -> None:
        """End all waits without a status, because the process stops; the pods did not fail."""
        for entry in self:
            entry.abandon()

    def discard(self, uid: str) -> None:
        """End the wait of a pod without a status; no effect if it does not wait."""
        entry = self.entries.pop(uid, None)
        if entry is not None:
            entry.abandon()

    async def wait(self, uid: str) -> Status:
        """Wait for the end of a pod's wait; return Success at once if it does not wait."""
        entry = self.entries.get(uid)
        if entry is None:
            return SUCCESS
        try:
            return await entry.outcome()
        finally:
            self.entries.pop(uid, None)


log = logging.getLogger(__name__)


def run_reserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Reserve until a plugin does not succeed and return its status; the caller runs Unreserve."""
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in instance.reserve:
        try:
            status = plugin.reserve(state, pod, node_name)
            if type(status) is not Status:
                status = checked(status, Status, plugin.name, "reserve")
        except Exception as fault:
            return raised(plugin.name, "reserve", pod, fault)
        left((plugin.name, status.code, now()))
        if not status.is_success:
            return refused(status, plugin.name, "reserve")
    return SUCCESS


def run_unreserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of all plugins in reverse order; a built-in one that raises is called once more."""
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in reversed(instance.reserve):
        if not _is_unreserved(plugin, state, pod, node_name) and plugin.name in instance.built_in:
            _is_unreserved(plugin, state, pod, node_name)
        left((plugin.name, Code.SUCCESS, now()))


def _is_unreserved(plugin: ReservePlugin, state: CycleState, pod: PodInfo, node_name: str) -> bool:
    try:
        plugin.unreserve(state, pod, node_name)
    except Exception:  # logged; the reservations of the other plugins must be undone all the same
        log.exception(
            "plugin %s raised at unreserve for pod %s; its reservation may leak",
            plugin.name,
            pod.key,
            extra={"pod": pod.key, "plugin": plugin.name, "node": node_name},
        )
        return False
    return True
