"""Pods of attempts in progress that a plugin may end: those that wait at Permit, and those whose PreBind runs.

::

    (Permit passed) ──hold──▶ RUNNING ──finish──▶ FINISHED: the pod is being bound, cancel returns False
                                 └──cancel──▶ CANCELLED: PreBind is interrupted, the attempt ends with an error

A pod that is cancelled before its bind runs nowhere, so preemption need not delete it. Its task is interrupted, because
PreBind may wait minutes for a volume.

Follows kube-scheduler v1.37.1 (``framework/runtime/waiting_pods_map.go``, where each plugin has a timer of its own, and
``pods_in_prebind_map.go``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from scheduler_core.config.config_model import seconds as duration_of
from scheduler_core.framework.status import SUCCESS, Status, error, unschedulable
from scheduler_core.ports import Clock, Timer
from scheduler_core.snapshot.pod_info import PodInfo


def is_task_cancelled() -> bool:
    """Return whether the current task is being cancelled, as bindings in progress are when the process stops."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


class WaitingPod:
    """A pod that waits because a Permit plugin returned Wait; the wait ends exactly once."""

    def __init__(self, pod: PodInfo, node_name: str, waits: dict[str, float], clock: Clock) -> None:
        self.pod = pod
        self.node_name = node_name
        self.since = clock.now()
        self._outcome: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._deadlines = {plugin: self.since + seconds for plugin, seconds in waits.items()}
        self._timers: dict[str, Timer] = {
            plugin: clock.call_later(seconds, partial(self._time_out, plugin, seconds))
            for plugin, seconds in waits.items()
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

    def _time_out(self, plugin: str, seconds: float) -> None:
        self.reject(plugin, f"rejected due to timeout after waiting {duration_of(seconds)} at plugin {plugin}")

    def _end(self, status: Status) -> bool:
        if self._outcome.done():
            return False
        for timer in self._timers.values():
            timer.cancel()
        self._outcome.set_result(status)
        return True


class WaitingPods:
    """The pods of all profiles that wait at Permit, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.entries: dict[str, WaitingPod] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self.entries.values()))

    def get(self, uid: str) -> WaitingPod | None:
        return self.entries.get(uid)

    def add(self, pod: PodInfo, node_name: str, waits: dict[str, float]) -> WaitingPod:
        entry = self.entries[pod.uid] = WaitingPod(pod, node_name, waits, self._clock)
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


class PodInPreBind:
    """A pod whose PreBind runs in the current task; *reason* is why it was cancelled, None if it was not."""

    def __init__(self, pod: PodInfo, node_name: str) -> None:
        self.pod = pod
        self.node_name = node_name
        self._task = asyncio.current_task()
        self.reason: str | None = None
        self._is_uncancelled = False
        self._is_finished = False

    def cancel(self, reason: str) -> bool:
        """Cancel PreBind, which ends the attempt with an error; return False if PreBind is over."""
        if self._is_finished:
            return False
        if self.reason is None:
            self.reason = reason
            if self._task is not None:
                self._task.cancel(reason)
        return True

    def finish(self) -> None:
        """Mark PreBind as over; the pod can no longer be cancelled."""
        self._is_finished = True
        self.uncancel()

    def uncancel(self) -> bool:
        """Undo the task cancellation of :meth:`cancel`, so that the task can unwind the attempt.

        Returns:
            Whether the task may continue; False if it is cancelled for another reason as well, or only for that.
        """
        if self.reason is None or self._task is None:
            return False
        if self._is_uncancelled:
            return not self._task.cancelling()
        self._is_uncancelled = True
        return not self._task.uncancel()


class PodsInPreBind:
    """The pods of all profiles whose PreBind plugins run, oldest first."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInPreBind] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodInPreBind]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> PodInPreBind | None:
        return self._pods.get(uid)

    @contextmanager
    def hold(self, pod: PodInfo, node_name: str) -> Iterator[PodInPreBind]:
        """Register a pod whose PreBind runs within the block, in the current task."""
        held = self._pods[pod.uid] = PodInPreBind(pod, node_name)
        try:
            yield held
        finally:
            self._pods.pop(pod.uid, None)
