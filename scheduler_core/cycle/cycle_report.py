"""Starts the recorder of a cycle; reports the finished cycle to metrics, the log of slow cycles and the tracer."""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.errors import PluginError
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.recorder import NOT_RECORDED
from scheduler_core.framework.status import Status
from scheduler_core.metrics.cycle_recorder import CycleRecorder
from scheduler_core.metrics.profile_metrics import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.metrics.slow_cycles import CycleSubject
from scheduler_core.ports import CycleTrace
from scheduler_core.runtime.framework_instance import FrameworkInstance

log = logging.getLogger(__name__)
_BEGUN = "begin_attempt() sets the recorder"


def begin_attempt(context: CycleContext, queued: QueuedPod, instance: FrameworkInstance) -> Attempt:
    """Return a new attempt, whose scheduling cycle starts now."""
    recorder, is_sampled = context.recording.recorders.take(), context.metrics.sample_next_cycle()
    attempt = Attempt(queued, queued.info, instance, recorder.times[0], recorder, is_sampled=is_sampled)
    attempt.state.recorder = recorder
    return attempt


def scheduling_ended(context: CycleContext, attempt: Attempt, result: str = "") -> None:
    """Report a scheduling cycle.

    Args:
        context: The shared parts.
        attempt: The attempt.
        result: The result of the attempt; empty if a binding cycle follows.
    """
    recorder, instance, metrics = attempt.recorder, attempt.instance, context.metrics
    assert recorder is not None, _BEGUN
    started, ended, slow = recorder.times[0], recorder.times[-1], context.recording.slow_cycles
    metrics.profiles[instance.name].stages.add(recorder)
    metrics.searches.observe((ended if attempt.search_ended is None else attempt.search_ended) - started)
    if ended - started >= slow.seconds:
        subject = CycleSubject(attempt.info.key, instance.name, context.cache.columns.count, attempt.feasible_count)
        slow.report(subject, recorder)
    if context.recording.tracer is not None:
        attempt.trace = _trace(context, attempt, recorder, "scheduling", result or SCHEDULED)
    if attempt.is_sampled:
        metrics.plugins_ran(recorder)
    if result:
        release_recorder(context, attempt)
    else:
        # The binding cycle starts now. It may wait long, and until then the times would fill the CPU's caches.
        recorder.start()


def reuse_failed(context: CycleContext, attempt: Attempt, fault: Exception) -> None:
    """Count an error in what one pod's cycle reuses for the next; the full scheduling cycle decides instead.

    The error may be the plugin's own, which the full cycle then reports as well. The first one of each plugin of a
    profile is logged.
    """
    plugin, name = fault.plugin if isinstance(fault, PluginError) else "", attempt.instance.name
    counts = context.metrics.profiles[name].reuse_errors
    counts[plugin] = counts.get(plugin, 0) + 1
    if counts[plugin] == 1:
        text = "reuse of results failed for pod %s (profile %s, plugin %s): the full scheduling cycle decides"
        where = {"pod": attempt.info.key, "profile": name, "plugin": plugin}
        log.warning(text, attempt.info.key, name, plugin or "none", exc_info=fault, extra=where)


def release_recorder(context: CycleContext, attempt: Attempt) -> None:
    """Return the recorder of an attempt to the pool; nothing more is recorded."""
    assert attempt.recorder is not None, _BEGUN
    context.recording.recorders.release(attempt.recorder)
    attempt.recorder, attempt.state.recorder = None, NOT_RECORDED


def permit_waited(context: CycleContext, attempt: Attempt, status: Status) -> None:
    """Report a wait at Permit, the last stage of the recorder."""
    assert attempt.recorder is not None, _BEGUN
    entered, left = attempt.recorder.times[-2:]
    context.metrics.permit_waited(status.code, left - entered)


def binding_ended(context: CycleContext, attempt: Attempt, result: str) -> None:
    """Report a binding cycle."""
    recorder = attempt.recorder
    assert recorder is not None, _BEGUN
    context.metrics.profiles[attempt.instance.name].stages.add(recorder)
    if context.recording.tracer is not None:
        _trace(context, attempt, recorder, "binding", result)
    if attempt.is_sampled:
        context.metrics.plugins_ran(recorder)
    release_recorder(context, attempt)


def pod_bound(context: CycleContext, attempt: Attempt) -> None:
    """Report an attempt that succeeded; the durations include its binding cycle."""
    metrics, queued = context.metrics, attempt.queued
    now = context.clock.now()
    metrics.profiles[attempt.instance.name].scheduled.observe(now - attempt.started)
    metrics.pod_bound(queued.attempts, now - queued.first_attempt)


def attempt_failed(context: CycleContext, attempt: Attempt, *, is_error: bool) -> None:
    """Report an attempt that failed in either cycle."""
    seconds = context.clock.now() - attempt.started
    context.metrics.profiles[attempt.instance.name].attempts[ERROR if is_error else UNSCHEDULABLE].observe(seconds)


def _trace(context: CycleContext, attempt: Attempt, recorder: CycleRecorder, kind: str, result: str) -> object:
    info = attempt.info
    assert context.recording.tracer is not None
    trace = CycleTrace(
        kind,
        info.pod.metadata.namespace,
        info.pod.metadata.name,
        attempt.instance.name,
        attempt.instance.revision,
        attempt.node_name,
        result,
        recorder.times[0],
        recorder.now(),
        recorder.stages(),
    )
    return context.recording.tracer.record(trace, attempt.trace)
