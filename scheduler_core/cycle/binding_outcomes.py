"""How binding cycles end: the pod is bound, its bind failed, another scheduler bound it, or the cycle is cancelled.

A bind whose response was lost is read until its outcome is known (:mod:`scheduler_core.cycle.binding_cycle`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import FailedAttempts, Failure
from scheduler_core.cycle.freed_capacity_event import FreedCapacity, on_node
from scheduler_core.cycle.internal_errors import InternalErrors, try_all, try_twice
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.status import Code
from scheduler_core.metrics.attempt_reports import DECISIONS, log_bound
from scheduler_core.metrics.profile_metrics import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.ports import Clock, ClusterWriter, Event, ObjectReference
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.binding import run_post_binds
from scheduler_core.snapshot.cluster_cache import ClusterCache, PodState
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)
_POST_BIND = CycleStage.POST_BIND


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingOutcomes:
    """Ends binding cycles.

    Args:
        rival_bound: Receives a pod that another client bound, once it is counted on its node.
    """

    cache: ClusterCache
    queue: SchedulingQueue
    writer: ClusterWriter
    clock: Clock
    report: CycleReport
    assumed: AssumedPods
    failures: FailedAttempts
    freed: FreedCapacity
    errors: InternalErrors
    rival_bound: Callable[[PodInfo], None]

    def bound(self, attempt: Attempt) -> None:
        info, pod, instance = attempt.info, attempt.info.pod, attempt.instance
        note = f"Successfully assigned {info.key} to {attempt.node_name}"
        regarding = ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, info.uid)
        event = Event(regarding, "Normal", "Scheduled", "Binding", note, reporting_controller=instance.name)
        recorder = attempt.state.recorder
        logging_steps: tuple[tuple[Any, ...], ...] = ()
        post_binds: tuple[tuple[Any, ...], ...] = ()
        if DECISIONS.isEnabledFor(logging.DEBUG):
            counts = attempt.feasible_count, self.cache.columns.count
            logging_steps = ((log_bound, attempt.queued, attempt.log_fields, *counts),)
        if instance.post_bind:
            post_binds = ((run_post_binds, instance, attempt.state, info, attempt.node_name),)
        # The pod is bound, so an error in one of these steps must not keep the others from running.
        try_all(
            (self.cache.finish_binding, info.uid, self.clock.now()),
            (self.queue.scheduled, attempt.queued),
            (self.writer.record, event),
            (self.report.pod_bound, attempt),
            *logging_steps,
            (recorder.enter, _POST_BIND),
            *post_binds,
            (recorder.leave, _POST_BIND, Code.SUCCESS),
            (self.report.binding_ended, attempt, SCHEDULED),
            (attempt.end,),
        )
        if attempt.state.to_activate is not None:
            try_twice(self.queue.activate, attempt.state.to_activate.take())

    def interrupted(self, attempt: Attempt, failure: Failure | None, fault: Exception) -> None:
        """End a binding cycle whose end raised.

        Args:
            failure: Why the pod is not bound to its node; None for a bound pod, which stays on its node.
        """
        if failure is None:
            text = "the end of the bind of pod %s failed in the scheduler itself"
            try_twice(log.error, text, attempt.info.key, exc_info=fault, extra=attempt.log_fields())
            try_twice(self.bound, attempt)
            return
        if failure.bound_to and try_twice(self._bound_elsewhere, attempt, failure.bound_to):
            return
        self.errors.interrupted(attempt.queued, attempt, fault)

    def cancelled(self, attempt: Attempt) -> None:
        """Release the pod of a cancelled binding cycle, and drop it from the queue."""
        try_twice(self.assumed.release_unbound, attempt)
        try_twice(self.failures.drop, attempt)

    def failed(self, attempt: Attempt, failure: Failure) -> None:
        """Handle a failed bind."""
        if failure.bound_to:
            self._bound_elsewhere(attempt, failure.bound_to)
            return
        pod, node_name = attempt.info.pod, attempt.node_name
        self.assumed.release_unbound(attempt)
        self.report.binding_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)
        if failure.is_error:
            self.freed.report(pod, node_name)
            self.failures.handle(attempt, failure)
        else:
            # Requeued before the room is reported, because its own release must not activate a rejected pod.
            self.failures.handle(attempt, failure)
            self.freed.report(pod, node_name, exclude=attempt.info.uid)

    def _bound_elsewhere(self, attempt: Attempt, rival_node_name: str) -> None:
        """Count a pod on the node to which another scheduler bound it, release it here and end its attempt."""
        info, node_name, nominator = attempt.info, attempt.node_name, self.queue.nominator
        nominated_node, nominated = nominator.node_of(info.uid), nominator.nomination_of(info.uid)
        text = (
            "another scheduler has bound pod %s of profile %s to node %s, while node %s was chosen here; make sure "
            "that only one scheduler serves each schedulerName"
        )
        # kube-scheduler v1.37.1 requeues such a pod until a watch shows it bound (``handleSchedulingFailure``). Here it
        # is not requeued, also if one of these steps raises: it is bound, so another bind would be rejected too, and
        # PodScheduled=False or FailedScheduling would be false.
        try_all(
            # First, so that its room is never free: the watch may be late.
            (self._count_there, attempt, rival_node_name),
            (self.assumed.release_unbound, attempt),
            (self.report.binding_ended, attempt, ERROR),
            (self.report.bind_lost, attempt, node_name, rival_node_name),
            (log.warning, text, info.key, attempt.instance.name, rival_node_name, node_name),
            (attempt.end,),
            (self._leave_queue, attempt),
            (self.freed.report, info.pod, node_name),
        )
        if nominated is not None:
            try_twice(self.freed.nomination_unused, nominated, nominated_node, rival_node_name)

    def _leave_queue(self, attempt: Attempt) -> None:
        uid = attempt.info.uid
        held = self.queue.find(uid)
        if held is attempt.queued:
            self.queue.remove(uid)
        if held is None or held is attempt.queued:
            # Otherwise it was removed and added again, and that entry does not belong to this attempt.
            self.queue.done(uid)

    def _count_there(self, attempt: Attempt, rival_node_name: str) -> None:
        placed = self.cache.get(attempt.info.uid)
        if placed is not None and placed.state is not PodState.ADDED:
            # An unknown pod was deleted meanwhile; no later event would remove it from the cache.
            self.rival_bound(self.cache.add_pod(on_node(rival_node_name, placed.info.pod)))
