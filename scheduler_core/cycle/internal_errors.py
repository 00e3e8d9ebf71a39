"""The end of a cycle that an exception interrupted, wherever it was raised.

::

    exception ─▶ what no binding cycle has taken over is undone ─▶ requeued with the backoff of errors ─▶ reported

The scheduling loop goes on, and only the pod or gang of the cycle fails. Each step here runs whatever the other steps
raise, because the part that is broken may be needed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import Failure, failed_scheduling, patch_status
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import error_message
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.ports import Clock, ClusterWriter, Timer
from scheduler_core.queueing.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)
P = ParamSpec("P")
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 1.0, 60.0
_FAILED = "a step that must not fail raised: %s"


def try_twice(step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
    """Run a step of the recovery, once more if it raises; return whether it ended."""
    for _ in range(2):
        try:
            step(*args, **kwargs)
        except Exception:
            log.exception(_FAILED, getattr(step, "__qualname__", step))
        else:
            return True
    return False


def try_all(*steps: tuple[Any, ...]) -> None:
    """Run steps, each a function and its arguments, as :func:`try_twice` does; one that raises stops no other step."""
    # Not by try_twice: every bound pod takes these steps, and one more call for each of them is slow.
    for step, *args in steps:
        for _ in range(2):
            try:
                step(*args)
            except Exception:
                log.exception(_FAILED, getattr(step, "__qualname__", step))
            else:
                break


class RepeatedTimers:
    """Clock whose timers run again if they raise, after 1 s, 2 s, and so on up to a minute.

    They run again, too, if a change that they report while a cycle is suspended fails when it is applied.
    """

    def __init__(self, clock: Clock, suspension: Suspension) -> None:
        self._clock = clock
        self._suspension = suspension
        self.now, self.wall, self.sleep = clock.now, clock.wall, clock.sleep

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` after ``seconds``, and again later if it raises."""
        return self._clock.call_later(seconds, partial(self._run, callback, _FIRST_DELAY_SECONDS))

    def _run(self, callback: Callable[[], None], delay: float) -> None:
        try:
            if self._suspension.is_on:
                with self._suspension.reporting_later_errors(partial(self._repeat, callback, delay)):
                    callback()
            else:
                callback()
        except Exception:
            log.exception("a timer failed in the scheduler itself; it runs again in %g s", delay)
            self._repeat(callback, delay)

    def _repeat(self, callback: Callable[[], None], delay: float) -> None:
        self._clock.call_later(delay, partial(self._run, callback, min(2 * delay, _LONGEST_DELAY_SECONDS)))


@dataclass(slots=True, eq=False)
class InternalErrors:
    """Ends the cycles that an exception interrupted.

    Args:
        queue: The queue; pods that it delays because of an error are reported here too.
    """

    queue: SchedulingQueue
    assumed: AssumedPods
    writer: ClusterWriter
    metrics: SchedulerMetrics
    report: CycleReport

    def __post_init__(self) -> None:
        self.queue.on_error.append(self.report_pod)
        self.queue.on_odd_key.append(self._report_key)

    def undo(self) -> None:
        """Release what cycles have assumed and no binding cycle has taken over, and end hypothetical changes."""
        try_twice(self.assumed.undo)

    def interrupted(
        self, queued: QueuedPod, attempt: Attempt | None, fault: Exception, nominated_node: str | None = None
    ) -> None:
        """End the cycle of one pod: undo, requeue, report.

        Args:
            attempt: Its attempt, whose pod may be assumed; None if it had not begun.
            nominated_node: The nomination of the pod from now on, as in :class:`Failure`.
        """
        text = "the cycle of pod %s failed in the scheduler itself"
        try_twice(log.error, text, queued.info.key, exc_info=fault, extra={"pod": queued.info.key})
        if attempt is not None:
            try_twice(self.assumed.release, attempt)
        # Also members of its gang, and what a plugin's dry run has left.
        self.undo()
        if attempt is not None:
            try_twice(attempt.end)
            if attempt.recorder is not None:
                try_twice(self.report.release_recorder, attempt)
        is_waiting = self.requeue(queued)
        if is_waiting:
            try_twice(self._set_nomination, queued, nominated_node)
            self.report_pod(queued, error_message(fault), nominated_node)

    def requeue(self, queued: QueuedPod) -> bool:
        """Requeue a pod or gang in flight with the backoff of errors; return whether it is still in the queue."""
        queue = self.queue
        if queue.find(queued.uid) is not queued:
            if queue.find(queued.uid) is None:
                try_twice(queue.done, queued.uid)
            return False
        if queue.is_in_flight(queued.uid):
            queued.rejected_by = queued.pending_on = frozenset()
            try_twice(queue.failed, queued)
        if queue.is_in_flight(queued.uid) or queued.place is Place.NOWHERE:
            # The queue itself raised twice. A pod that is in no place would never be tried again.
            try_twice(queue.delay_faulty, queued, RuntimeError("the pod could not be requeued"))
        return True

    def _set_nomination(self, queued: QueuedPod, node_name: str | None) -> None:
        """Set the nomination; None lets that of the pod's status count again, if the cycle has ended it in memory."""
        is_counted = queued.place not in (Place.GATED, Place.PARKED) and not isinstance(queued, QueuedGang)
        if is_counted and (node_name is not None or not self.queue.nominator.node_of(queued.uid)):
            self.queue.nominator.decide(queued.info, node_name)

    def report_pod(self, queued: QueuedPod, message: str, nominated_node: str | None = None) -> None:
        """Report an error by the profile's counts, the pod's condition and nomination, and an event."""
        pod, profile = queued.info.pod, queued.profile
        try_twice(self._count, profile, f"{queued.info.key}: {message}")
        if not pod.has_deferred_resize:
            try_twice(self.writer.record, failed_scheduling(pod, message, profile))
            failure = Failure(message, is_error=True, nominated_node=nominated_node)
            try_twice(patch_status, self.writer, pod, failure, queued=queued, nominations=self.queue.nominator)

    def _report_key(self, queued: QueuedPod, problem: str) -> None:
        pod, profile = queued.info.pod, queued.profile
        message = (
            f"the QueueSort plugin returned a key that does not compare with the keys of other pods: {problem}; "
            "pods are ordered by the kinds of the values there. Correct the plugin, or the field that it reads"
        )
        try_twice(self._count, profile, f"{queued.info.key}: {message}")
        try_twice(self.writer.record, failed_scheduling(pod, message, profile))

    def _count(self, profile: str, message: str) -> None:
        self.metrics.internal_errors += 1
        self.report.profile_failed(profile, message)
