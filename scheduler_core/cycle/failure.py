"""What becomes of a pod whose attempt failed.

Owns the words (condition and event, as kube-scheduler words them) and the way back into the queue. Must not undo
anything: what was assumed or reserved is unwound by the step that did it, before it comes here.

Follows kube-scheduler v1.36.3 (``handleSchedulingFailure``).
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import attempt_failed
from scheduler_core.cycle.decision_log import subject_of, tell_unschedulable
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import Status
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import Event, ObjectReference, PodStatusPatch

log = logging.getLogger(__name__)

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed.

    Attributes:
        message: The whole text.
        rejected_by: Plugins that turned the pod away; empty for errors.
        pending_on: Of those, the ones that answered Pending.
        is_error: Whether it is an error rather than a rejection.
        nominated_node: The node to be promised; "" takes a promise back, None leaves what the pod's status says.
        bound_to: The node to which someone else has bound the pod, "" where that is not so.
        is_gated: Whether the pod is not tried at all; more nodes do not help it, so an autoscaler must not add any.
    """

    message: str
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = frozenset()
    is_error: bool = False
    nominated_node: str | None = ""
    bound_to: str = ""
    is_gated: bool = False

    @property
    def reason(self) -> str:
        """The reason of the PodScheduled condition."""
        if self.is_gated:
            return SCHEDULING_GATED
        return SCHEDULER_ERROR if self.is_error else UNSCHEDULABLE


def no_fit(diagnosis: Diagnosis, nominated_node: str | None) -> Failure:
    """The pod fits nowhere."""
    return Failure(
        diagnosis.message(),
        frozenset(diagnosis.rejected_by),
        frozenset(diagnosis.pending_on),
        nominated_node=nominated_node,
    )


def of_status(status: Status) -> Failure:
    """A plugin turned the pod away after its node was chosen, or failed."""
    if not status.is_rejected:
        return Failure(status.message or f"plugin {status.plugin} answered {status.code_name}", is_error=True)
    message = "0/1 nodes are available:"
    if status.reasons:
        counts = Counter(status.reasons)
        message += " " + ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())) + "."
    plugins = frozenset((status.plugin,))
    return Failure(message, plugins, plugins if status.code_name == "Pending" else frozenset())


def too_late(status: Status) -> Failure:
    """A plugin turned the pod away, or failed, after Permit: whoever it was, the pod is retried after backoff."""
    return Failure(
        status.message or f"plugin {status.plugin} answered {status.code_name}", is_error=not status.is_rejected
    )


def reference_to(pod: Pod) -> ObjectReference:
    """The pod as events name it."""
    return ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)


def handle_failure(context: CycleContext, attempt: Attempt, failure: Failure) -> None:
    """Tell why, and let the pod wait again, unless it is bound or gone meanwhile."""
    queued, profile = attempt.queued, attempt.instance.name
    record = context.record(profile)
    attempt_failed(context, attempt, is_error=failure.is_error)
    if failure.is_error:
        record.errors += 1
        record.last_error = f"{attempt.info.key}: {failure.message}"
        extra = subject_of(attempt) | {"result": "error"}
        text = "pod %s cannot be scheduled by profile %s: %s"
        log.warning(text, attempt.info.key, profile, failure.message, extra=extra)
    else:
        record.unschedulable += 1
        tell_unschedulable(attempt, failure.message)
    attempt.instance.end()
    held = context.queue.find(queued.uid)
    if held is not queued:
        # It was removed. Should it have come back, then what it does now is none of this attempt's business.
        if held is None:
            context.queue.done(queued.uid)
        return
    queued.rejected_by, queued.pending_on = failure.rejected_by, failure.pending_on
    context.queue.nominator.decide(queued.info, failure.nominated_node)
    pod = queued.info.pod
    context.queue.failed(queued)
    context.writer.record(
        Event(
            reference_to(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            failure.message,
            reporting_controller=profile,
        )
    )
    patch_status(context, pod, failure, is_node_told=attempt.is_node_told)


def patch_status(context: CycleContext, pod: Pod, failure: Failure, *, is_node_told: bool = False) -> bool:
    """Write the PodScheduled condition and the nomination where they are not as they should be.

    Args:
        context: The shared parts.
        pod: The pod as last seen.
        failure: Why it waits.
        is_node_told: Whether the attempt wrote a nomination, which the pod as it was last seen might not show yet.

    Returns:
        Whether the condition says something else than before.
    """
    condition = PodCondition(POD_SCHEDULED, "False", failure.reason, failure.message, pod.metadata.generation)
    known = next((entry for entry in pod.status.conditions if entry.type == POD_SCHEDULED), None)
    stands = known is not None and known.says_as(condition)
    nominated = failure.nominated_node
    if nominated == pod.status.nominated_node_name and not is_node_told:
        nominated = None
    if stands and nominated is None:
        return False
    meta = pod.metadata
    context.writer.patch_pod_status(
        PodStatusPatch(meta.namespace, meta.name, meta.uid, None if known == condition else condition, nominated)
    )
    return not stands
