"""The binding cycle: wait on Permit, PreBind, Bind, PostBind, run as a task of its own.

It ends with the pod bound, or with everything released in reverse order and the pod requeued, unless another scheduler
has bound the pod (``lost_binds``). Follows kube-scheduler v1.36.3 (``bindingCycle``).

A pod that is rejected before Permit has passed is unschedulable and is requeued by the events that occurred meanwhile;
any later failure is retried after backoff. If the outcome of a bind is unknown, the pod is read until it is known.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import binding_ended, permit_waited, pod_bound
from scheduler_core.cycle.failure import Failure, handle_failure, of_status, reference_to, too_late
from scheduler_core.cycle.freed_room import report_freed_room
from scheduler_core.cycle.lost_binds import node_of_rival, record_lost_bind
from scheduler_core.cycle.scheduling import release
from scheduler_core.errors import BoundElsewhereError, ClusterWriteError, ExtenderError, WriteTimeoutError
from scheduler_core.framework.pods_to_activate import take_pods_to_activate
from scheduler_core.framework.recorder import CycleStage
from scheduler_core.framework.status import SUCCESS, Code, Status, error
from scheduler_core.metrics.decision_log import log_bound
from scheduler_core.metrics.profile_metrics import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.ports import Binding, Event, PodStatusPatch
from scheduler_core.runtime.binding import run_binds, run_post_binds, run_pre_bind_pre_flights
from scheduler_core.runtime.extenders import binder_of
from scheduler_core.runtime.pre_binding import run_pre_binds
from scheduler_core.snapshot.cluster_cache import ClusterCache, Placement

log = logging.getLogger(__name__)
_PRE_BIND_PRE_FLIGHT, _PRE_BIND = CycleStage.PRE_BIND_PRE_FLIGHT, CycleStage.PRE_BIND
_BIND, _POST_BIND = CycleStage.BIND, CycleStage.POST_BIND

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 16.0


async def bind(context: CycleContext, attempt: Attempt) -> bool:
    """Run one binding cycle.

    Returns:
        Whether the pod was bound. Raises only if its task is cancelled, after it has released the pod.
    """
    together = attempt.gang
    try:
        return await _run_binding(context, attempt)
    finally:
        if together is not None:
            together.ended()


async def _run_binding(context: CycleContext, attempt: Attempt) -> bool:
    try:
        failure = await _try_to_bind(context, attempt)
        # The steps below change state that a cycle suspended for an extender still reads.
        await context.suspension.over()
    except BaseException:
        if attempt.gang is not None:
            attempt.gang.failed(attempt.info.uid, attempt.info.key, "the scheduler stops")
        release(context, attempt)
        context.queue.done(attempt.info.uid)
        attempt.instance.end()
        raise
    rival_node_name = node_of_rival(context.cache, attempt)
    if failure is None and rival_node_name:
        # The answer was processed late, and a watch is more recent than a bind that never took effect.
        failure = Failure(f"the pod is bound to node {rival_node_name}", is_error=True)
    if failure is not None:
        if attempt.gang is not None:
            attempt.gang.failed(attempt.info.uid, attempt.info.key, failure.message)
        rival_node_name = failure.bound_to or rival_node_name
        if rival_node_name:
            record_lost_bind(context, attempt, rival_node_name)
        else:
            _unwind(context, attempt, failure)
        return False
    _finish(context, attempt)
    return True


async def _try_to_bind(context: CycleContext, attempt: Attempt) -> Failure | None:
    try:
        return await _bind(context, attempt)
    except Exception as fault:
        attempt.state.recorder.interrupt()
        log.exception("binding pod %s failed in the scheduler itself", attempt.info.key, extra=attempt.log_fields())
        return Failure(f"internal error: {type(fault).__name__}: {fault}; please report it", is_error=True)


async def _bind(context: CycleContext, attempt: Attempt) -> Failure | None:
    instance, state, info, node_name = attempt.instance, attempt.state, attempt.info, attempt.node_name
    waits = context.waiting.get(info.uid) is not None
    has_to_prepare, recorder = False, state.recorder
    if instance.pre_bind:
        recorder.enter(_PRE_BIND_PRE_FLIGHT)
        status = run_pre_bind_pre_flights(instance, state, info, node_name)
        recorder.leave(_PRE_BIND_PRE_FLIGHT, status.code)
        if status.code is Code.ERROR:
            return of_status(status)
        has_to_prepare = status.is_success
    if has_to_prepare or waits:
        _write_expected_node(context, attempt)
    if waits:
        recorder.enter(CycleStage.WAIT_ON_PERMIT)
        status = await context.waiting.wait(info.uid)
        recorder.leave(CycleStage.WAIT_ON_PERMIT, status.code)
        permit_waited(context, attempt, status)
        if not status.is_success:
            return of_status(status)
    # A failure from here on always backs off, so its events need not be recorded.
    context.queue.end_recording(info.uid)
    if has_to_prepare:
        await context.suspension.over()
        recorder.enter(_PRE_BIND)
        with context.services.in_pre_bind.hold(info, node_name) as held:
            status = await run_pre_binds(instance, state, held)
        recorder.leave(_PRE_BIND, status.code)
        if not status.is_success:
            return too_late(status)
    if attempt.gang is not None:
        status = await attempt.gang.ready(info.uid)
        if not status.is_success:
            return too_late(status)
    if node_of_rival(context.cache, attempt):
        return Failure("another scheduler has bound the pod", is_error=True)
    recorder.enter(_BIND)
    try:
        status = await _write_bind(context, attempt)
    except BoundElsewhereError as taken:
        recorder.leave(_BIND, Code.ERROR)
        return Failure(str(taken), is_error=True, bound_to=taken.node_name)
    recorder.leave(_BIND, status.code)
    if status.is_success or _is_seen_bound(context.cache, attempt):
        return None
    return too_late(status)


def _is_seen_bound(cache: ClusterCache, attempt: Attempt) -> bool:
    """Return whether a watch has shown the pod on the node; the bind then took effect even if its response was lost."""
    placed = cache.get(attempt.info.uid)
    return placed is not None and placed.placement is Placement.ADDED and placed.info.node_name == attempt.node_name


async def _write_bind(context: CycleContext, attempt: Attempt) -> Status:
    """Bind the pod with the extender that binds such pods, or else with the Bind plugins.

    If an extender with ``ignorable`` fails, the Bind plugins bind the pod, but only after a read has shown that the
    extender did not: two binds of one pod could otherwise race.

    Raises:
        BoundElsewhereError: Another scheduler has bound the pod to another node.
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
            log.warning(text, info.key, fault, extra=attempt.log_fields())
        else:
            return SUCCESS
    try:
        return await run_binds(instance, attempt.state, info, node_name)
    except WriteTimeoutError as lost:
        return await _read_outcome(context, attempt, lost)


async def _read_outcome(context: CycleContext, attempt: Attempt, lost: WriteTimeoutError | ExtenderError) -> Status:
    """Return the outcome of a bind whose response was lost or unclear, by reading the pod until that succeeds.

    The pod stays assumed meanwhile: releasing the node on a wrong guess would overcommit it.

    Raises:
        BoundElsewhereError: Another scheduler has bound the pod to another node.
    """
    meta, node_name, pause = attempt.info.pod.metadata, attempt.node_name, _FIRST_PAUSE_SECONDS
    while True:
        try:
            pod = await context.writer.read_pod(meta.namespace, meta.name)
            break
        except ClusterWriteError as unread:
            text = "whether pod %s is bound to node %s cannot be read: %s"
            log.warning(text, attempt.info.key, node_name, unread, extra=attempt.log_fields())
        await context.clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    if pod is not None and pod.metadata.uid == meta.uid and pod.spec.node_name:
        if pod.spec.node_name == node_name:
            return SUCCESS
        raise BoundElsewhereError(f"the pod was read and is bound to node {pod.spec.node_name}", pod.spec.node_name)
    how = "failed" if isinstance(lost, ExtenderError) else "was not answered"
    return error(f"the pod was read and is not bound to node {node_name}, after its bind {how}: {lost}")


def _write_expected_node(context: CycleContext, attempt: Attempt) -> None:
    """Write the chosen node as the pod's nomination, so that it is visible while Permit or PreBind take time.

    It need not be cleared after the bind: the API server clears the nomination of a pod that it binds.
    """
    pod = attempt.info.pod
    if pod.status.nominated_node_name == attempt.node_name:
        return
    meta = pod.metadata
    attempt.has_written_nomination = True
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
    controller = attempt.instance.name
    context.writer.record(
        Event(reference_to(pod), "Normal", "Scheduled", "Binding", note, reporting_controller=controller)
    )
    pod_bound(context, attempt)
    log_bound(attempt.queued, attempt.log_fields, attempt.feasible_count, context.cache.columns.count)
    recorder = attempt.state.recorder
    recorder.enter(_POST_BIND)
    run_post_binds(attempt.instance, attempt.state, info, attempt.node_name)
    recorder.leave(_POST_BIND, Code.SUCCESS)
    binding_ended(context, attempt, SCHEDULED)
    named = take_pods_to_activate(attempt.state)
    if named:
        context.queue.activate(named)
    attempt.instance.end()


def _unwind(context: CycleContext, attempt: Attempt, failure: Failure) -> None:
    """Release the pod's node, report the freed room and requeue the pod.

    A rejected pod is requeued before the room is reported, because its own release must not activate it.
    """
    pod, node_name = attempt.info.pod, attempt.node_name
    release(context, attempt)
    binding_ended(context, attempt, ERROR if failure.is_error else UNSCHEDULABLE)
    if failure.is_error:
        report_freed_room(context.queue, context.reservations, pod, node_name)
        handle_failure(context, attempt, failure)
    else:
        handle_failure(context, attempt, failure)
        report_freed_room(context.queue, context.reservations, pod, node_name, exclude=attempt.info.uid)
