"""Delay of preemption: a profile may wait for a node that an autoscaler adds before it evicts pods.

The delay begins with the first rejected attempt of the pod or gang, which autoscalers see. A node
that comes requeues the pod by its event; otherwise a timer activates it, and the next attempt may preempt.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance

_EARLY_SECONDS = 0.001
"""Tolerance for timers that run early; without it an attempt may be delayed once more."""


def seconds_left(instance: FrameworkInstance, since: float | None, now: float) -> float:
    """Return for how long an attempt must not preempt yet; 0 or less if it may.

    Args:
        since: When the pod or gang was unschedulable first, in the clock's seconds; None for the present time.
        now: The time, in the clock's seconds.
    """
    seconds = instance.config.preemption.delay_seconds
    return (now if since is None else since) + seconds - now if seconds else 0.0


def delayed(instance: FrameworkInstance, since: float | None, started: float) -> str:
    """Return the message of an attempt that must not preempt yet; "" if it may.

    It has no times, so that the condition does not change.

    Args:
        since: When the pod or gang was unschedulable first, in the clock's seconds; None for the present time.
    """
    if seconds_left(instance, since, started) <= _EARLY_SECONDS:
        return ""
    seconds = instance.config.preemption.delay_seconds
    return f"preemption: waits until {seconds} s after the first attempt for a new node"


def delay_of(attempt: Attempt) -> str:
    """Return the message of a pod's attempt that must not preempt yet; "" if it may, as a pod with a node may."""
    if attempt.info.pod.spec.node_name:
        return ""
    return delayed(attempt.instance, attempt.queued.unschedulable_since, attempt.started)


class PreemptionDelays:
    """Activates pods and gangs whose delay has ended.

    Args:
        run: Calls a function at once, or when a suspended cycle has ended.
    """

    def __init__(self, queue: SchedulingQueue, clock: Clock, run: Callable[[Callable[[], None]], None]) -> None:
        self._queue = queue
        self._clock = clock
        self._run = run
        self._due: dict[str, float] = {}
        self._timer: Timer | None = None
        self._next = 0.0

    def note(self, entry: QueuedPod, instance: FrameworkInstance, since: float) -> None:
        """Set the timer of a pod or gang whose preemption is delayed."""
        due = self._due[entry.uid] = since + instance.config.preemption.delay_seconds
        if self._timer is None or due < self._next:
            self._set(due)

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = due
        self._timer = self._clock.call_later(max(0.0, due - self._clock.now()), lambda: self._run(self._end))

    def _end(self) -> None:
        self._timer, now = None, self._clock.now() + _EARLY_SECONDS
        ended = [uid for uid, due in self._due.items() if due <= now]
        # First, so that the timer that is run again after an error activates them.
        self._queue.activate(ended)
        for uid in ended:
            del self._due[uid]
        if self._due:
            self._set(min(self._due.values()))
