"""The scheduling cycle: from popped to assumed, reserved and permitted, without awaiting.

Owns the synchronous half of an attempt and its unwinding. What it leaves to the binding cycle is an attempt with a
node, or nothing, when it failed. Follows kube-scheduler v1.36.3 (``schedulingCycle``).
"""

from __future__ import annotations

import logging

from scheduler_core.cycle import class_choice
from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import begin_attempt, scheduling_ended
from scheduler_core.cycle.decision_log import subject_of
from scheduler_core.cycle.departure import tell_unused_promise
from scheduler_core.cycle.failure import Failure, handle_failure, no_fit, of_status, reference_to
from scheduler_core.cycle.gang_domains import domain_of_members
from scheduler_core.cycle.measures import ERROR, UNSCHEDULABLE, end_broken_point
from scheduler_core.cycle.node_selection import NoNodesError, find_feasible, select_node
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cycle_times import ENDS, Point
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.pods_to_activate import take_pods_to_activate
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Event
from scheduler_core.runtime.permitting import run_permit
from scheduler_core.runtime.post_filtering import run_post_filters
from scheduler_core.runtime.reserving import run_reserve, run_unreserve

log = logging.getLogger(__name__)
_POST_FILTER, _RESERVE, _PERMIT = ENDS[Point.POST_FILTER], ENDS[Point.RESERVE], ENDS[Point.PERMIT]
_UNRESERVED = ENDS[Point.UNRESERVE][Code.SUCCESS]


def schedule(context: CycleContext, queued: QueuedPod) -> Attempt | None:
    """Run one scheduling cycle.

    Args:
        context: The shared parts.
        queued: The popped pod; if its profile is not live, it is parked.

    Returns:
        The attempt, whose pod is assumed on a node and is to be bound; None if it failed or was not to be made.
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
    """Begin an attempt; None if none is to be made, and the pod is then taken care of."""
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
        keep_to_domain(context, attempt)
    return attempt


def keep_to_domain(context: CycleContext, attempt: Attempt) -> None:
    """Let a member that joins its gang alone look where the others are, if all are to be in one domain."""
    gang = context.queue.gangs.of_uid(attempt.info.uid)
    topology = None if gang is None or gang.group is None else gang.group.topology
    if gang is None or topology is None or not topology.is_required:
        return
    # In an order that does not depend on hashes, as in a group cycle: the domain is that of the first.
    placed = [held.info for uid in sorted(gang.placed) if (held := context.cache.get(uid)) is not None]
    domain = domain_of_members(context.cache.columns, topology, placed)
    if domain is not None:
        attempt.among, attempt.among_reason = domain.among, f"node(s) were outside the gang's domain {domain}"


def failure_of(attempt: Attempt, error: Exception) -> Failure:
    """The failure that an exception stands for."""
    end_broken_point(attempt.state.times, error)
    if isinstance(error, NoNodesError):
        return Failure(str(error))
    if isinstance(error, SchedulerCoreError):
        return Failure(str(error), is_error=True)
    text = "scheduling pod %s failed in the scheduler itself"
    log.error(text, attempt.info.key, exc_info=error, extra=subject_of(attempt))
    return Failure(f"internal error: {type(error).__name__}: {error}; please report it", is_error=True)


def conclude(context: CycleContext, attempt: Attempt, failure: Failure | None) -> Attempt | None:
    """End the cycle: hand the attempt on to its binding cycle, or give back what it holds and tell why."""
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
    """Whether nothing is to be done: the pod is being deleted, or placed already."""
    pod = queued.info.pod
    if pod.metadata.deletion_timestamp is not None:
        note = f"skip schedule deleting pod: {pod.key}"
        teller = pod.spec.scheduler_name
        context.writer.record(
            Event(reference_to(pod), "Warning", "FailedScheduling", "Scheduling", note, reporting_controller=teller)
        )
        _hollow_promise(context, pod)
        return True
    return context.cache.get(queued.uid) is not None


def _hollow_promise(context: CycleContext, pod: Pod) -> None:
    """Keep of a node promised to a pod that is in no queue any more only that somebody was promised it.

    A finalizer may hold the pod for long, and it will never need the room. kube-scheduler v1.36.3 knows from its queues
    what promised pods need (``PriorityQueue.nominatedPodToInfo``); of one in none it knows the name alone, so that it
    counts as a pod of priority 0 that requests nothing.
    """
    promised = context.queue.nominator.node_of(pod.metadata.uid)
    if promised:
        meta = pod.metadata
        bare = Pod(ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid))
        context.queue.nominator.nominate(context.cache.columns.compile_pod(bare), promised)


def _decide(context: CycleContext, attempt: Attempt) -> Failure | None:
    node_name = class_choice.choose(context, attempt)
    if not node_name:
        feasible = find_feasible(context, attempt)
        if not len(feasible.rows):
            return no_fit(feasible.diagnosis, _run_post_filters(context, attempt, feasible.diagnosis))
        node_name = select_node(context, attempt, feasible)
        class_choice.learn(context, attempt, feasible)
    return hold(context, attempt, node_name)


def _run_post_filters(context: CycleContext, attempt: Attempt, diagnosis: Diagnosis) -> str | None:
    """Let PostFilter plugins help.

    Returns:
        The node to be promised; "" takes a promise back, None leaves it.
    """
    outcome = run_post_filters(attempt.instance, attempt.state, attempt.info, context.cache.columns, diagnosis)
    attempt.state.times.end(_POST_FILTER[outcome.status.code])
    diagnosis.post_filter_message = outcome.status.message
    return outcome.nominated_node


def hold(context: CycleContext, attempt: Attempt, node_name: str) -> Failure | None:
    """Assume, reserve and permit; what is held when that fails is released by the caller."""
    failure = reserve(context, attempt, node_name)
    spend_promise(context, attempt)
    return failure or permit(context, attempt)


def reserve(context: CycleContext, attempt: Attempt, node_name: str) -> Failure | None:
    """Assume and reserve: the half of :func:`hold` that :func:`release` undoes without a trace."""
    context.cache.assume(attempt.info, node_name)
    attempt.node_name = node_name
    if attempt.queued.group is not None:
        context.queue.gangs.assumed(attempt.info.uid)
    status = run_reserve(attempt.instance, attempt.state, attempt.info, node_name)
    attempt.state.times.end(_RESERVE[status.code])
    return None if status.is_success else of_status(status)


def spend_promise(context: CycleContext, attempt: Attempt) -> None:
    """The pod has a node: what it was promised is free for others."""
    promised = context.queue.nominator.node_of(attempt.info.uid)
    context.queue.nominator.withdraw(attempt.info.uid)
    tell_unused_promise(context, attempt.info.pod, promised, attempt.node_name)


def permit(context: CycleContext, attempt: Attempt) -> Failure | None:
    """Ask Permit about a pod that is assumed and reserved."""
    status, waits = run_permit(attempt.instance, attempt.state, attempt.info, attempt.node_name)
    attempt.state.times.end(_PERMIT[status.code])
    if status.code is Code.WAIT:
        context.waiting.add(attempt.info, attempt.node_name, waits)
        return None
    return None if status.is_success else of_status(status)


def release(context: CycleContext, attempt: Attempt) -> None:
    """Give back what an attempt holds, in reverse order of taking it; nothing where it holds nothing."""
    if not attempt.node_name:
        return
    context.waiting.discard(attempt.info.uid)
    run_unreserve(attempt.instance, attempt.state, attempt.info, attempt.node_name)
    attempt.state.times.end(_UNRESERVED)
    context.cache.forget(attempt.info)
    if attempt.queued.group is not None:
        context.queue.gangs.released(attempt.info.uid)
    attempt.node_name = ""
