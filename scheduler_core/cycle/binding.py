"""The binding cycle: wait on Permit, PreBind, Bind, PostBind, as a task of its own.

Owns the asynchronous half of an attempt. However it ends, the pod is bound and confirmed to the cache, or everything is
given back in reverse order and the pod waits again, unless someone else has bound it (``lost_binds``). Follows
kube-scheduler v1.36.3 (``bindingCycle``).

Until Permit is passed the pod can still be called unschedulable and keeps the events of its time; whatever happens
after that, it is retried after backoff and by no plugin's word. A bind whose outcome is unknown is read until known.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import begin_binding, binding_ended, permit_waited, pod_bound
from scheduler_core.cycle.decision_log import subject_of, tell_bound
from scheduler_core.cycle.departure import tell_departure
from scheduler_core.cycle.failure import Failure, handle_failure, of_status, reference_to, too_late
from scheduler_core.cycle.lost_binds import let_go, node_of_rival
from scheduler_core.cycle.measures import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.cycle.scheduling import release
from scheduler_core.errors import BoundElsewhereError, ClusterWriteError, ExtenderError, WriteTimeoutError
from scheduler_core.framework.cycle_times import ENDS, Point
from scheduler_core.framework.pods_to_activate import take_pods_to_activate
from scheduler_core.framework.status import SUCCESS, Code, Status, error
from scheduler_core.ports import Binding, Event, PodStatusPatch
from scheduler_core.runtime.binding import run_binds, run_post_binds, run_pre_bind_pre_flights
from scheduler_core.runtime.extenders import binder_of
from scheduler_core.runtime.pre_binding import run_pre_binds
from scheduler_core.snapshot.cluster_cache import Placement

log = logging.getLogger(__name__)
_PRE_BIND_PRE_FLIGHT, _PRE_BIND, _BIND = ENDS[Point.PRE_BIND_PRE_FLIGHT], ENDS[Point.PRE_BIND], ENDS[Point.BIND]
_POST_BOUND = ENDS[Point.POST_BIND][Code.SUCCESS]

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 16.0


async def bind(context: CycleContext, attempt: Attempt) -> bool:
    """Run one binding cycle to its end.

    Returns:
        Whether the pod was bound. Never raises but when its task is cancelled, and then has released the pod.
    """
    begin_binding(attempt)
    together = attempt.gang
    try:
        return await _bind_to_the_end(context, attempt)
    finally:
        if together is not None:
            together.ended()


async def _bind_to_the_end(context: CycleContext, attempt: Attempt) -> bool:
    try:
        failure = await _try_to_bind(context, attempt)
        # What follows changes what a cycle reads that waits for an extender.
        await context.suspension.over()
    except BaseException:
        if attempt.gang is not None:
            attempt.gang.failed(attempt.info.uid, attempt.info.key, "the scheduler stops")
        release(context, attempt)
        context.queue.done(attempt.info.uid)
        attempt.instance.end()
        raise
    if failure is not None:
        if attempt.gang is not None:
            attempt.gang.failed(attempt.info.uid, attempt.info.key, failure.message)
        rival_node_name = failure.bound_to or node_of_rival(context, attempt)
        if rival_node_name:
            let_go(context, attempt, rival_node_name)
        else:
            _unwind(context, attempt, failure)
        return False
    _finish(context, attempt)
    return True


async def _try_to_bind(context: CycleContext, attempt: Attempt) -> Failure | None:
    try:
        return await _bind(context, attempt)
    except Exception as fault:
        log.exception("binding pod %s failed in the scheduler itself", attempt.info.key, extra=subject_of(attempt))
        return Failure(f"internal error: {type(fault).__name__}: {fault}; please report it", is_error=True)


async def _bind(context: CycleContext, attempt: Attempt) -> Failure | None:
    instance, state, info, node_name = attempt.instance, attempt.state, attempt.info, attempt.node_name
    waits = context.waiting.get(info.uid) is not None
    has_to_prepare, times = False, state.times
    if instance.pre_bind:
        status = run_pre_bind_pre_flights(instance, state, info, node_name)
        times.end(_PRE_BIND_PRE_FLIGHT[status.code])
        if status.code is Code.ERROR:
            return of_status(status)
        has_to_prepare = status.is_success
    if has_to_prepare or waits:
        _tell_expectation(context, attempt)
    if waits:
        status = await context.waiting.wait(info.uid)
        permit_waited(context, attempt, status)
        if not status.is_success:
            return of_status(status)
    # Who is rejected from here on backs off whatever happened, so nothing need be kept for it.
    context.queue.end_recording(info.uid)
    if has_to_prepare:
        await context.suspension.over()
        with context.in_pre_bind.hold(info, node_name) as held:
            status = await run_pre_binds(instance, state, held)
        times.end(_PRE_BIND[status.code])
        if not status.is_success:
            return too_late(status)
    if attempt.gang is not None:
        status = await attempt.gang.ready(info.uid)
        if not status.is_success:
            return too_late(status)
    if node_of_rival(context, attempt):
        return Failure("another scheduler has bound the pod", is_error=True)
    try:
        status = await _write_bind(context, attempt)
    except BoundElsewhereError as taken:
        times.end(_BIND[Code.ERROR])
        return Failure(str(taken), is_error=True, bound_to=taken.node_name)
    times.end(_BIND[status.code])
    if status.is_success or _is_seen_bound(context, attempt):
        return None
    return too_late(status)


def _is_seen_bound(context: CycleContext, attempt: Attempt) -> bool:
    """Whether a watch has shown the pod on the node: then the bind did happen, whatever became of its answer."""
    placed = context.cache.get(attempt.info.uid)
    return placed is not None and placed.placement is Placement.ADDED and placed.info.node_name == attempt.node_name


async def _write_bind(context: CycleContext, attempt: Attempt) -> Status:
    """Bind the pod, by an extender where one does that for this pod.

    An extender that may be ignored leaves the pod to the Bind plugins when it fails, and is then known not to have
    bound it: there, two binds of one pod would meet.

    Raises:
        BoundElsewhereError: Someone else has bound the pod to another node.
    """
    instance, info, node_name = attempt.instance, attempt.info, attempt.node_name
    binder = binder_of(instance.extenders, info.pod)
    if binder is not None:
        meta = info.pod.metadata
        try:
            await binder.client.bind(Binding(meta.namespace, meta.name, meta.uid, node_name))
        except ExtenderError as fault:
            status = await _read_outcome(context, attempt, fault)
            if status.is_success or not binder.config.ignorable:
                return status
            text = "pod %s is bound without an extender that may be ignored: %s"
            log.warning(text, info.key, fault, extra=subject_of(attempt))
        else:
            return SUCCESS
    try:
        return await run_binds(instance, attempt.state, info, node_name)
    except WriteTimeoutError as lost:
        return await _read_outcome(context, attempt, lost)


async def _read_outcome(context: CycleContext, attempt: Attempt, lost: WriteTimeoutError | ExtenderError) -> Status:
    """Find out what became of a bind whose answer was lost or unclear; the node stays held until it is known.

    Giving the node back on a guess would overcommit it, if the guess is wrong.

    Raises:
        BoundElsewhereError: Someone else has bound the pod to another node.
    """
    meta, node_name, pause = attempt.info.pod.metadata, attempt.node_name, _FIRST_PAUSE_SECONDS
    while True:
        try:
            pod = await context.writer.read_pod(meta.namespace, meta.name)
            break
        except ClusterWriteError as unread:
            text = "whether pod %s is bound to node %s cannot be read: %s"
            log.warning(text, attempt.info.key, node_name, unread, extra=subject_of(attempt))
        await context.clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    if pod is not None and pod.metadata.uid == meta.uid and pod.spec.node_name:
        if pod.spec.node_name == node_name:
            return SUCCESS
        raise BoundElsewhereError(f"the pod was read and is bound to node {pod.spec.node_name}", pod.spec.node_name)
    how = "failed" if isinstance(lost, ExtenderError) else "was not answered"
    return error(f"the pod was read and is not bound to node {node_name}, after its bind {how}: {lost}")


def _tell_expectation(context: CycleContext, attempt: Attempt) -> None:
    """Write the node that the pod is about to get, for those who watch while Permit or PreBind take their time.

    A bind takes it back by itself: the API server clears the nomination of a pod that it binds.
    """
    pod = attempt.info.pod
    if pod.status.nominated_node_name == attempt.node_name:
        return
    meta = pod.metadata
    attempt.is_node_told = True
    context.writer.patch_pod_status(
        PodStatusPatch(meta.namespace, meta.name, meta.uid, nominated_node_name=attempt.node_name)
    )


def _finish(context: CycleContext, attempt: Attempt) -> None:
    info, pod = attempt.info, attempt.info.pod
    context.cache.finish_binding(info.uid, context.clock.now())
    context.queue.scheduled(attempt.queued)
    record = context.record(attempt.instance.name)
    record.scheduled += 1
    record.last_scheduled = context.clock.wall()
    note = f"Successfully assigned {pod.key} to {attempt.node_name}"
    teller = attempt.instance.name
    context.writer.record(Event(reference_to(pod), "Normal", "Scheduled", "Binding", note, reporting_controller=teller))
    pod_bound(context, attempt)
    tell_bound(attempt, context.cache.columns.count)
    run_post_binds(attempt.instance, attempt.state, info, attempt.node_name)
    attempt.state.times.end(_POST_BOUND)
    binding_ended(context, attempt, SCHEDULED)
    named = take_pods_to_activate(attempt.state)
    if named:
        context.queue.activate(named)
    attempt.instance.end()


def _unwind(context: CycleContext, attempt: Attempt, failure: Failure) -> None:
    """Give back, let others have what became free, and let the pod wait again.

    A rejected pod must not be woken by its own release, so it is put back first; one that met an error may be.
    """
    pod, node_name = attempt.info.pod, attempt.node_name
    release(context, attempt)
    binding_ended(context, attempt, ERROR if failure.is_error else UNSCHEDULABLE)
    if failure.is_error:
        tell_departure(context, pod, node_name)
        handle_failure(context, attempt, failure)
    else:
        handle_failure(context, attempt, failure)
        tell_departure(context, pod, node_name, but=attempt.info.uid)
