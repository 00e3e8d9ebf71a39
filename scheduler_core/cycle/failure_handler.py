"""Handling of a failed attempt: the pod's condition, its event, its way back into the queue, and delays of preemption.

Messages are kube-scheduler's. Whatever was assumed or reserved must be released before.

A profile may wait for a node that an autoscaler adds before it evicts pods. The delay begins with the first rejected
attempt of the pod or gang, which autoscalers see. A node that comes requeues the pod by its event; otherwise a timer
activates it, and the next attempt may preempt.

Follows kube-scheduler v1.37.1 (``handleSchedulingFailure``).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.framework.diagnosis import Diagnosis, no_node_text
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Status
from scheduler_core.metrics.attempt_reports import log_unschedulable
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import Clock, ClusterWriter, Event, ObjectReference, PodStatusPatch, Timer
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.queueing.waiting_causes import NO_NODE_HELPS, SCHEDULER_ERROR
from scheduler_core.runtime.framework_instance import FrameworkInstance

log = logging.getLogger(__name__)

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULING_GATED = "SchedulingGated"
FAILED_SCHEDULING = "FailedScheduling"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        rejected_by: Plugins that rejected the pod; empty for errors.
        pending_on: Those of them that returned Pending.
        nominated_node: The node to nominate; "" clears the nomination, None takes that of the pod's status.
        bound_to: The node to which another scheduler has bound the pod, "" for none.
        given_up_steps: Steps after which the attempt was given up; 0 if it was not.
        is_of_cluster: Whether the error is a failed write to the cluster, and not one of a plugin or the profile.
        is_gated: Whether the pod is gated. More nodes do not help a gated pod, so an autoscaler must not add any.
        is_helped_by_nodes: Whether new nodes may help the pod; always true for pods without a gang, as in
            kube-scheduler.
        is_delayed: Whether preemption waits for a new node.
    """

    message: str
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = frozenset()
    is_error: bool = False
    nominated_node: str | None = ""
    bound_to: str = ""
    is_gated: bool = False
    given_up_steps: int = 0
    is_of_cluster: bool = False
    is_helped_by_nodes: bool = True
    is_delayed: bool = False

    @property
    def reason(self) -> str:
        if self.is_gated:
            return SCHEDULING_GATED
        if self.is_error:
            return SCHEDULER_ERROR
        return UNSCHEDULABLE if self.is_helped_by_nodes else NO_NODE_HELPS


def no_fit(diagnosis: Diagnosis, nominated_node: str | None, *, is_delayed: bool = False) -> Failure:
    """Return the failure of a pod without a feasible node."""
    return Failure(
        diagnosis.message(),
        frozenset(diagnosis.rejected_by),
        frozenset(diagnosis.pending_on),
        nominated_node=nominated_node,
        is_delayed=is_delayed,
    )


def of_status(status: Status) -> Failure:
    """Return the failure of a pod that a plugin rejected after its node was chosen, or that met an error there."""
    if not status.is_rejected:
        message = status.message or f"plugin {status.plugin} answered {status.code_name}"
        return Failure(message, is_error=True, is_of_cluster=status.is_of_cluster)
    message = no_node_text(1, Counter(status.reasons))
    plugins = frozenset((status.plugin,))
    return Failure(message, plugins, plugins if status.code_name == "Pending" else frozenset())


def too_late(status: Status) -> Failure:
    """Return the failure of a pod after Permit: whichever plugin rejected it, it is retried after backoff."""
    message = status.message or f"plugin {status.plugin} answered {status.code_name}"
    return Failure(message, is_error=not status.is_rejected, is_of_cluster=status.is_of_cluster)


def failed_scheduling(pod: Pod, message: str, profile: str) -> Event:
    regarding = ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
    return Event(regarding, "Warning", FAILED_SCHEDULING, "Scheduling", message, reporting_controller=profile)


def patch_status(
    writer: ClusterWriter,
    pod: Pod,
    failure: Failure,
    *,
    queued: QueuedPod | None = None,
    nominations: NominatedPods | None = None,
) -> bool:
    """Write the PodScheduled condition and the nomination if they differ from the pod's status.

    Args:
        queued: The pod in the queue, which stores the last written condition; None if it is not there.
        nominations: All nominations, if the failure may change that of the pod.

    Returns:
        Whether the condition changes.
    """
    condition = PodCondition(POD_SCHEDULED, "False", failure.reason, failure.message, pod.metadata.generation)
    known = next((entry for entry in pod.status.conditions if entry.type == POD_SCHEDULED), None)
    reported = None if queued is None else queued.reported_condition
    # The pod as last seen may lack what was written before, so both are also written if the last write differs.
    stands = known is not None and known.has_same_content(condition)
    stands = stands and (reported is None or reported.has_same_content(condition))
    nominated = failure.nominated_node
    is_unseen = nominations is not None and nominations.is_unseen(pod.metadata.uid)
    if nominated == pod.status.nominated_node_name and not is_unseen:
        nominated = None
    if stands and nominated is None:
        return False
    meta = pod.metadata
    is_known = known == condition and reported in (None, condition)
    if queued is not None:
        queued.reported_condition = condition
    if nominations is not None and nominated is not None:
        nominations.written(meta.uid, nominated)
    writer.patch_pod_status(
        PodStatusPatch(meta.namespace, meta.name, meta.uid, None if is_known else condition, nominated)
    )
    return not stands


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """Reports failed attempts and requeues their pods."""

    queue: SchedulingQueue
    writer: ClusterWriter
    report: CycleReport
    freed: FreedCapacity
    delays: PreemptionDelays

    def drop(self, attempt: Attempt) -> None:
        """Drop the released pod of a cancelled attempt from the queue."""
        self.queue.done(attempt.info.uid)
        attempt.end()

    def handle(self, attempt: Attempt, failure: Failure) -> None:
        """Report a failed attempt and requeue the pod, unless it was bound or deleted meanwhile."""
        queued, profile = attempt.queued, attempt.instance.name
        self.report.attempt_failed(
            attempt, failure.message, is_error=failure.is_error, is_of_cluster=failure.is_of_cluster
        )
        if failure.is_error:
            extra = attempt.log_fields() | {"result": "error"}
            text = "pod %s cannot be scheduled by profile %s: %s"
            log.warning(text, attempt.info.key, profile, failure.message, extra=extra)
        else:
            log_unschedulable(queued, attempt.log_fields, failure.message)
        attempt.end()
        held = self.queue.find(queued.uid)
        if held is not queued:
            # It was removed from the queue. If it was added again, that entry does not belong to this attempt.
            if held is None:
                self.queue.done(queued.uid)
            return
        if not failure.is_error and queued.unschedulable_since is None:
            queued.unschedulable_since = attempt.started
        queued.rejected_by, queued.pending_on = failure.rejected_by, failure.pending_on
        # Before the requeue, which ends the nomination of a pod that is gated or parked.
        self.queue.nominator.decide(queued.info, failure.nominated_node)
        if failure.is_delayed and queued.unschedulable_since is not None:
            self.delays.note(queued, attempt.instance, queued.unschedulable_since)
        pod, nominator = queued.info.pod, self.queue.nominator
        node_name, nominated = nominator.node_of(queued.uid), nominator.nomination_of(queued.uid)
        self.queue.failed(queued, failure.given_up_steps)
        if nominated is not None:
            if not nominator.node_of(queued.uid):
                self.freed.nomination_ended(nominated, node_name)
            else:
                # It may be nominated to another node than before.
                self.freed.nominated_devices_freed(queued.uid)
        if pod.has_deferred_resize:
            # The pod runs: PodScheduled=False or FailedScheduling would be false.
            return
        self.writer.record(failed_scheduling(pod, failure.message, profile))
        patch_status(self.writer, pod, failure, queued=queued, nominations=nominator)


# -- delay of preemption ----------------------------------------------------------------------------------------------

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


@dataclass(slots=True, eq=False)
class PreemptionDelays:
    """Activates pods and gangs whose delay has ended: at once, or when a suspended cycle has ended."""

    _queue: SchedulingQueue
    _clock: Clock
    _run: Callable[[Callable[[], None]], None]
    _due: dict[str, float] = field(default_factory=dict)
    _timer: Timer | None = None
    _next: float = 0.0

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
