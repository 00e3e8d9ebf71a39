"""The binding cycle: wait on Permit, PreBind, Bind, PostBind, as a task of its own.

Owns the asynchronous half of an attempt. However it ends, the pod is bound and confirmed to the cache, or everything is
given back in reverse order and the pod waits again. Follows kube-scheduler v1.36.3 (``bindingCycle``).

Until Permit is passed the pod can still be called unschedulable and keeps the events of its time; after that only
errors can happen, and it is retried after backoff.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.failure import handle_failure, of_status, reference_to
from scheduler_core.cycle.scheduling import release
from scheduler_core.framework.cluster_events import ASSIGNED_POD_DELETE
from scheduler_core.framework.status import Code, Status, error
from scheduler_core.ports import Event, PodStatusPatch
from scheduler_core.runtime.binding import run_binds, run_post_binds, run_pre_bind_pre_flights, run_pre_binds

log = logging.getLogger(__name__)


async def bind(context: CycleContext, attempt: Attempt) -> bool:
    """Run one binding cycle to its end.

    Returns:
        Whether the pod was bound. Never raises but when its task is cancelled, and then has released the pod.
    """
    try:
        status = await _bind(context, attempt)
    except Exception as fault:
        log.exception("binding pod %s failed in the scheduler itself", attempt.info.key)
        status = error(f"internal error: {type(fault).__name__}: {fault}; please report it")
    except BaseException:
        release(context, attempt)
        context.queue.done(attempt.info.uid)
        attempt.instance.end()
        raise
    if not status.is_success:
        _unwind(context, attempt, status)
        return False
    _finish(context, attempt)
    return True


async def _bind(context: CycleContext, attempt: Attempt) -> Status:
    instance, state, info, node_name = attempt.instance, attempt.state, attempt.info, attempt.node_name
    waits = context.waiting.get(info.uid) is not None
    if instance.pre_bind or waits:
        status = run_pre_bind_pre_flights(instance, state, info, node_name)
        if status.code is Code.ERROR:
            return status
        if status.is_success or waits:
            _tell_expectation(context, attempt)
        status = await context.waiting.wait(info.uid)
        if not status.is_success:
            return status
        status = await run_pre_binds(instance, state, info, node_name)
        if not status.is_success:
            return _as_error(status)
    return _as_error(await run_binds(instance, state, info, node_name))


def _as_error(status: Status) -> Status:
    """After Permit a pod cannot be turned away any more: a rejection there is an error, retried after backoff."""
    if status.is_success or status.code is Code.ERROR:
        return status
    return Status(Code.ERROR, status.reasons, status.plugin)


def _tell_expectation(context: CycleContext, attempt: Attempt) -> None:
    """Write the node that the pod is about to get, for those who watch while Permit or PreBind take their time."""
    meta = attempt.info.pod.metadata
    context.writer.patch_pod_status(
        PodStatusPatch(meta.namespace, meta.name, meta.uid, nominated_node_name=attempt.node_name)
    )


def _finish(context: CycleContext, attempt: Attempt) -> None:
    info, pod = attempt.info, attempt.info.pod
    context.cache.finish_binding(info.uid, context.clock.now())
    context.queue.done(info.uid)
    record = context.record(attempt.instance.name)
    record.scheduled += 1
    record.last_scheduled = context.clock.wall()
    note = f"Successfully assigned {pod.key} to {attempt.node_name}"
    context.writer.record(Event(reference_to(pod), "Normal", "Scheduled", "Binding", note))
    run_post_binds(attempt.instance, attempt.state, info, attempt.node_name)
    attempt.instance.end()


def _unwind(context: CycleContext, attempt: Attempt, status: Status) -> None:
    """Give back, let others have what became free, and let the pod wait again.

    A rejected pod must not be woken by its own release, so it is put back first; one that met an error may be.
    """
    release(context, attempt)
    failure = of_status(status)
    if status.is_rejected:
        handle_failure(context, attempt, failure)
        context.queue.on_event(ASSIGNED_POD_DELETE, attempt.info.pod, None, but=attempt.info.uid)
    else:
        context.queue.on_event(ASSIGNED_POD_DELETE, attempt.info.pod, None)
        handle_failure(context, attempt, failure)
