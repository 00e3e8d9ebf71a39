"""The scheduling cycle of one pod: from the pop to assumed, reserved and permitted, without awaiting.

Follows kube-scheduler v1.36.3 (``schedulingCycle``).
"""

from __future__ import annotations

import logging

from scheduler_core.cycle import class_choice
from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import begin_attempt, scheduling_ended
from scheduler_core.cycle.failure import Failure, handle_failure, no_fit, of_status, reference_to
from scheduler_core.cycle.freed_room import report_unused_nomination
from scheduler_core.cycle.gang_constraints import MemberDomains
from scheduler_core.cycle.node_selection import NoNodesError, find_feasible, select_node
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.pods_to_activate import take_pods_to_activate
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.recorder import CycleStage
from scheduler_core.framework.status import Code
from scheduler_core.metrics.profile_metrics import ERROR, UNSCHEDULABLE
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Event
from scheduler_core.runtime.permitting import run_permit
from scheduler_core.runtime.post_filtering import run_post_filters
from scheduler_core.runtime.reserving import run_reserve, run_unreserve

log = logging.getLogger(__name__)
_POST_FILTER, _RESERVE = CycleStage.POST_FILTER, CycleStage.RESERVE
_PERMIT, _UNRESERVE = CycleStage.PERMIT, CycleStage.UNRESERVE


def schedule(context: CycleContext, queued: QueuedPod) -> Attempt | None:
    """Run one scheduling cycle.

    Args:
        context: The shared parts.
        queued: The popped pod; if its profile is not live, it is parked.

    Returns:
        The attempt, whose pod is assumed and must be bound; None if it failed or the pod was skipped.
    """
    attempt = begin(context, queued)
    if attempt is None:
        return None
    try:
        failure = _decide(context, attempt)
    except Exception as error:
        failure = failure_of(attempt, error)
    return conclude(context, attempt, failure)


def begin(context: CycleContext, queued: QueuedPod) -> Attempt | None:
    """Begin an attempt; None if the pod is parked or skipped instead."""
    instance = context.profiles.get(queued.profile)
    if instance is None:
        context.queue.failed(queued)
        return None
    if _skip(context, queued):
        context.queue.done(queued.uid)
        return None
    instance.begin()
    attempt = begin_attempt(context, queued, instance)
    if queued.group is not None:
        restrict_to_domain(context.member_domains, attempt)
    return attempt


def restrict_to_domain(domains: MemberDomains, attempt: Attempt) -> None:
    """Restrict a member that is scheduled alone to the domain of its gang, if the gang requires one."""
    domain = domains.of_member(attempt.info.uid)
    if domain is not None:
        attempt.among, attempt.among_reason = domain.among, domain.reason


def failure_of(attempt: Attempt, error: Exception) -> Failure:
    """Return the failure for an exception."""
    attempt.state.recorder.interrupt()
    if isinstance(error, NoNodesError):
        return Failure(str(error))
    if isinstance(error, SchedulerCoreError):
        return Failure(str(error), is_error=True)
    text = "scheduling pod %s failed in the scheduler itself"
    log.error(text, attempt.info.key, exc_info=error, extra=attempt.log_fields())
    return Failure(f"internal error: {type(error).__name__}: {error}; please report it", is_error=True)


def conclude(context: CycleContext, attempt: Attempt, failure: Failure | None) -> Attempt | None:
    """End the cycle: return the attempt for its binding cycle, or release the pod and report the failure."""
    if failure is None:
        scheduling_ended(context, attempt)
        named = take_pods_to_activate(attempt.state)
        if named:
            context.queue.activate(named)
        return attempt
    release(context, attempt)
    scheduling_ended(context, attempt, ERROR if failure.is_error else UNSCHEDULABLE)
    handle_failure(context, attempt, failure)
    return None


def _skip(context: CycleContext, queued: QueuedPod) -> bool:
    """Return whether the pod must be skipped: it is being deleted, or is assumed or bound already."""
    pod = queued.info.pod
    if pod.metadata.deletion_timestamp is not None:
        note = f"skip schedule deleting pod: {pod.key}"
        controller = pod.spec.scheduler_name
        context.writer.record(
            Event(reference_to(pod), "Warning", "FailedScheduling", "Scheduling", note, reporting_controller=controller)
        )
        _strip_nomination(context, pod)
        return True
    return context.cache.get(queued.uid) is not None


def _strip_nomination(context: CycleContext, pod: Pod) -> None:
    """Keep the nomination of a pod that has left the queue, but drop the pod's requests and priority.

    A finalizer may delay its deletion for long, and the pod never needs the room. kube-scheduler v1.36.3 looks
    nominated pods up in its queues (``PriorityQueue.nominatedPodToInfo``); one that is in none of them counts as a pod
    of priority 0 without requests.
    """
    nominated = context.queue.nominator.node_of(pod.metadata.uid)
    if nominated:
        meta = pod.metadata
        bare = Pod(ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid))
        context.queue.nominator.nominate(context.cache.columns.compile_pod(bare), nominated)


def _decide(context: CycleContext, attempt: Attempt) -> Failure | None:
    node_name = class_choice.choose(context, attempt)
    if not node_name:
        feasible = find_feasible(context, attempt)
        if not len(feasible.rows):
            return no_fit(feasible.diagnosis, _run_post_filters(context, attempt, feasible.diagnosis))
        node_name = select_node(context, attempt, feasible)
        class_choice.learn(context, attempt, feasible)
    return reserve_and_permit(context, attempt, node_name)


def _run_post_filters(context: CycleContext, attempt: Attempt, diagnosis: Diagnosis) -> str | None:
    """Run the PostFilter plugins.

    Returns:
        The node to nominate; "" clears the nomination, None keeps it.
    """
    attempt.state.recorder.enter(_POST_FILTER)
    outcome = run_post_filters(attempt.instance, attempt.state, attempt.info, context.cache.columns, diagnosis)
    attempt.state.recorder.leave(_POST_FILTER, outcome.status.code)
    diagnosis.post_filter_message = outcome.status.message
    return outcome.nominated_node


def reserve_and_permit(context: CycleContext, attempt: Attempt, node_name: str) -> Failure | None:
    """Assume the pod, run Reserve and Permit; the caller releases the pod if that fails."""
    failure = reserve(context, attempt, node_name)
    end_nomination(context, attempt)
    return failure or permit(context, attempt)


def reserve(context: CycleContext, attempt: Attempt, node_name: str) -> Failure | None:
    """Assume the pod and run Reserve; :func:`release` undoes this completely."""
    if attempt.recorder is not None:
        attempt.search_ended = attempt.recorder.times[-1]
    context.cache.assume(attempt.info, node_name)
    attempt.node_name = node_name
    if attempt.queued.group is not None:
        context.queue.gangs.assumed(attempt.info.uid)
    recorder = attempt.state.recorder
    recorder.enter(_RESERVE)
    status = run_reserve(attempt.instance, attempt.state, attempt.info, node_name)
    recorder.leave(_RESERVE, status.code)
    return None if status.is_success else of_status(status)


def end_nomination(context: CycleContext, attempt: Attempt) -> None:
    """Withdraw the nomination of an assumed pod, and report the room if that was another node."""
    nominated = context.queue.nominator.node_of(attempt.info.uid)
    context.queue.nominator.withdraw(attempt.info.uid)
    report_unused_nomination(context.queue, attempt.info.pod, nominated, attempt.node_name)


def permit(context: CycleContext, attempt: Attempt) -> Failure | None:
    """Run Permit for a pod that is assumed and reserved."""
    recorder = attempt.state.recorder
    recorder.enter(_PERMIT)
    status, waits = run_permit(attempt.instance, attempt.state, attempt.info, attempt.node_name)
    recorder.leave(_PERMIT, status.code)
    if status.code is Code.WAIT:
        context.waiting.add(attempt.info, attempt.node_name, waits)
        return None
    return None if status.is_success else of_status(status)


def release(context: CycleContext, attempt: Attempt) -> None:
    """Release the pod of an attempt: run Unreserve and drop it from the cache; no effect if it is not assumed."""
    if not attempt.node_name:
        return
    context.waiting.discard(attempt.info.uid)
    recorder = attempt.state.recorder
    recorder.enter(_UNRESERVE)
    run_unreserve(attempt.instance, attempt.state, attempt.info, attempt.node_name)
    recorder.leave(_UNRESERVE, Code.SUCCESS)
    context.cache.forget(attempt.info)
    if attempt.queued.group is not None:
        context.queue.gangs.released(attempt.info.uid)
    attempt.node_name = ""
