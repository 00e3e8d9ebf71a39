"""How binding cycles end: the pod is bound, its bind failed, another scheduler bound it, or the cycle is cancelled."""

from __future__ import annotations

import logging

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.bound_elsewhere import PodsBoundElsewhere
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import FailedAttempts, Failure
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.internal_errors import InternalErrors, try_all, try_twice
from scheduler_core.framework.cycle_stages import CycleStage
from scheduler_core.framework.pods_to_activate import take_pods_to_activate
from scheduler_core.framework.status import Code
from scheduler_core.metrics.attempt_reports import log_bound
from scheduler_core.metrics.profile_metrics import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.ports import Clock, ClusterWriter, Event, ObjectReference
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.binding import run_post_binds
from scheduler_core.snapshot.cluster_cache import ClusterCache

log = logging.getLogger(__name__)
_POST_BIND = CycleStage.POST_BIND


class BoundPods:
    """Records pods that were bound, and runs PostBind.

    Args:
        cache: Confirms the pods when a watch shows them.
        queue: The queue.
        writer: Writer of events.
        clock: Time.
        report: Report of cycles.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        queue: SchedulingQueue,
        writer: ClusterWriter,
        clock: Clock,
        report: CycleReport,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._writer = writer
        self._clock = clock
        self._report = report

    def record(self, attempt: Attempt) -> None:
        """Record a bound pod and end its attempt."""
        info, pod, instance = attempt.info, attempt.info.pod, attempt.instance
        note = f"Successfully assigned {pod.key} to {attempt.node_name}"
        regarding = ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, info.uid)
        event = Event(regarding, "Normal", "Scheduled", "Binding", note, reporting_controller=instance.name)
        recorder = attempt.state.recorder
        # The pod is bound, so an error in one of these steps must not keep the others from running.
        try_all(
            (self._cache.finish_binding, info.uid, self._clock.now()),
            (self._queue.scheduled, attempt.queued),
            (self._writer.record, event),
            (self._report.pod_bound, attempt),
            (log_bound, attempt.queued, attempt.log_fields, attempt.feasible_count, self._cache.columns.count),
            (recorder.enter, _POST_BIND),
            (run_post_binds, instance, attempt.state, info, attempt.node_name),
            (recorder.leave, _POST_BIND, Code.SUCCESS),
            (self._report.binding_ended, attempt, SCHEDULED),
            (attempt.end,),
        )
        named = take_pods_to_activate(attempt.state)
        if named:
            try_twice(self._queue.activate, named)


class FailedBinds:
    """Handles binding cycles that end without a bind.

    Args:
        lost: Records pods that another scheduler has bound.
        assumed: Releases pods.
        failed: Reports and requeues failed attempts.
        room: Reports freed room.
        report: Report of cycles.
        errors: Requeues and reports pods after an exception.
        bound: Records bound pods.
    """

    def __init__(
        self,
        *,
        lost: PodsBoundElsewhere,
        assumed: AssumedPods,
        failed: FailedAttempts,
        room: FreedCapacity,
        report: CycleReport,
        errors: InternalErrors,
        bound: BoundPods,
    ) -> None:
        self._errors = errors
        self._bound = bound
        self._lost = lost
        self._assumed = assumed
        self._failed = failed
        self._room = room
        self._report = report

    def interrupted(self, attempt: Attempt, failure: Failure | None, fault: Exception) -> None:
        """End a binding cycle whose end raised.

        Args:
            attempt: The attempt.
            failure: Why the pod is not bound; None for a bound pod, which stays on its node.
            fault: The exception.
        """
        if failure is None:
            text = "the end of the bind of pod %s failed in the scheduler itself"
            try_twice(log.error, text, attempt.info.key, exc_info=fault, extra=attempt.log_fields())
            try_twice(self._bound.record, attempt)
            return
        self._errors.interrupted(attempt.queued, attempt, fault)

    def cancelled(self, attempt: Attempt) -> None:
        """Release the pod of a cancelled binding cycle, and drop it from the queue."""
        try_twice(self._assumed.release_unbound, attempt)
        try_twice(self._failed.drop, attempt)

    def record(self, attempt: Attempt, failure: Failure, rival_node_name: str) -> None:
        """Handle a failed bind.

        A rejected pod is requeued before the room is reported, because its own release must not activate it.

        Args:
            attempt: The attempt.
            failure: Why the pod is not bound to its node.
            rival_node_name: The node to which another scheduler has bound the pod; "" to requeue the pod.
        """
        if rival_node_name:
            self._lost.record(attempt, rival_node_name)
            return
        pod, node_name = attempt.info.pod, attempt.node_name
        self._assumed.release_unbound(attempt)
        self._report.binding_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)
        if failure.is_error:
            self._room.report(pod, node_name)
            self._failed.handle(attempt, failure)
        else:
            self._failed.handle(attempt, failure)
            self._room.report(pod, node_name, exclude=attempt.info.uid)
