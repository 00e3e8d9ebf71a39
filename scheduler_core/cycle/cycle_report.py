"""What is told of a cycle when it is over: its numbers, a word if it was slow, its spans.

Owns the order of telling, for scheduling and for binding cycles alike. It must not change how an attempt goes on:
whoever runs the cycle calls it at the end and forgets it.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.measures import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.cycle.slow_cycles import CycleSubject, stages_of
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_times import ENDS, UNTIMED, Point
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Status
from scheduler_core.ports import CycleTrace, Stage
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.plugin_order import plugin_order

log = logging.getLogger(__name__)


def begin_attempt(context: CycleContext, queued: QueuedPod, instance: FrameworkInstance) -> Attempt:
    """Begin an attempt, and its scheduling cycle's times with it."""
    times = context.times.take()
    attempt = Attempt(
        queued, queued.info, instance, times.point_times[0], is_sampled=context.measures.next_is_sampled()
    )
    attempt.state.times = times
    return attempt


def scheduling_ended(context: CycleContext, attempt: Attempt, result: str = "") -> None:
    """Tell of a scheduling cycle.

    Args:
        context: The shared parts.
        attempt: The attempt.
        result: How the attempt ended, if it did; empty if it goes on to its binding cycle.
    """
    times, instance = attempt.state.times, attempt.instance
    context.measures.profiles[instance.name].scheduling.add(times)
    if result:
        context.measures.count_preemptions(times, plugin_order(instance, attempt.state))
    readings, slow = times.point_times, context.slow_cycles
    if readings[-1] - readings[0] >= slow.seconds:
        subject = CycleSubject(attempt.info.key, instance.name, context.cache.columns.count, attempt.feasible_count)
        slow.tell(subject, times, plugin_order(instance, attempt.state))
    if context.tracer is not None:
        attempt.trace = _trace(context, attempt, "scheduling", result or SCHEDULED)
    if attempt.is_sampled:
        context.measures.sampled.add(instance, attempt.state)
    if result:
        _give_back(context, attempt)
    else:
        # The attempt may wait long for its binding cycle: what nobody needs any more would fill the CPU's caches.
        times.clear()


def reuse_failed(context: CycleContext, attempt: Attempt, fault: Exception) -> None:
    """Count an error in what one pod's cycle reuses for the next; the full scheduling cycle decides instead.

    The error may be the plugin's own, which the full cycle then reports as well. The first one of each plugin of a
    profile is logged.
    """
    plugin, name = fault.plugin if isinstance(fault, PluginError) else "", attempt.instance.name
    counts = context.measures.profile(name).reuse_errors
    counts[plugin] = counts.get(plugin, 0) + 1
    if counts[plugin] == 1:
        text = "reuse of results failed for pod %s (profile %s, plugin %s): the full scheduling cycle decides"
        where = {"pod": attempt.info.key, "profile": name, "plugin": plugin}
        log.warning(text, attempt.info.key, name, plugin or "none", exc_info=fault, extra=where)


def _give_back(context: CycleContext, attempt: Attempt) -> None:
    context.times.release(attempt.state.times)
    attempt.state.times = UNTIMED


def begin_binding(attempt: Attempt) -> None:
    """Begin the times of an attempt's binding cycle."""
    attempt.state.times.start()


def permit_waited(context: CycleContext, attempt: Attempt, status: Status) -> None:
    """Tell of a wait at Permit that is over."""
    times = attempt.state.times
    begun = times.point_times[-1]
    times.end(ENDS[Point.WAIT_ON_PERMIT][status.code])
    context.measures.permit_waited(status.code, times.point_times[-1] - begun)


def binding_ended(context: CycleContext, attempt: Attempt, result: str) -> None:
    """Tell of a binding cycle."""
    context.measures.profiles[attempt.instance.name].binding.add(attempt.state.times)
    if context.tracer is not None:
        _trace(context, attempt, "binding", result)
    if attempt.is_sampled:
        context.measures.sampled.add(attempt.instance, attempt.state)
    _give_back(context, attempt)


def pod_bound(context: CycleContext, attempt: Attempt) -> None:
    """Tell of an attempt that succeeded; the durations include its binding cycle."""
    measures, queued = context.measures, attempt.queued
    now = context.clock.now()
    measures.profiles[attempt.instance.name].scheduled.observe(now - attempt.started)
    measures.pod_bound(queued.attempts, now - queued.first_attempt)


def attempt_failed(context: CycleContext, attempt: Attempt, *, is_error: bool) -> None:
    """Tell of an attempt that failed, in whichever cycle."""
    result = ERROR if is_error else UNSCHEDULABLE
    context.measures.attempt_failed(attempt.instance.name, result, context.clock.now() - attempt.started)


def _trace(context: CycleContext, attempt: Attempt, kind: str, result: str) -> object:
    times, info = attempt.state.times, attempt.info
    assert context.tracer is not None
    stages = tuple(Stage(each.name, each.started, each.ended, each.code.name) for each in stages_of(times))
    trace = CycleTrace(
        kind,
        info.pod.metadata.namespace,
        info.pod.metadata.name,
        attempt.instance.name,
        attempt.instance.revision,
        attempt.node_name,
        result,
        times.started,
        times.now(),
        stages,
    )
    return context.tracer.record(trace, attempt.trace)
