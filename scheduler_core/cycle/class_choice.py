"""The choice of a node from what earlier pods of the same class computed.

``choose`` runs before and ``learn`` after the full search in every scheduling cycle, of single pods and gang members.
"""

from __future__ import annotations

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import reuse_failed
from scheduler_core.cycle.node_selection import Feasible, row_of_ties
from scheduler_core.framework.recorder import CycleStage
from scheduler_core.framework.status import Code
from scheduler_core.metrics.cycle_recorder import CycleRecorder
from scheduler_core.runtime.equivalence.reuse import Evaluation, PodClasses

_SAMPLED = 10
"""Sampling interval: of the timed attempts of known classes, one in this many runs the full scheduling cycle."""


def choose(context: CycleContext, attempt: Attempt) -> str:
    """Return the node for a pod whose class is known; "" to fall back to the full scheduling cycle."""
    classes = _classes(context, attempt)
    if classes is None:
        return ""
    recorder = attempt.recorder
    assert recorder is not None, "an attempt without a recorder reuses no results"
    # The stage Reuse stays, the stages after it run again.
    stages = len(recorder.left)
    try:
        found = _evaluate(context, attempt, classes, recorder)
    except Exception as error:
        recorder.interrupt()
        recorder.rewind(stages)
        reuse_failed(context, attempt, error)
        return ""
    if found is None:
        recorder.rewind(stages)
        return ""
    context.metrics.profiles[attempt.instance.name].reused += 1
    found.state.recorder = recorder
    attempt.state = found.state
    attempt.feasible_count = found.feasible_count
    return context.cache.columns.node_name(row_of_ties(context, attempt, found.best))


def learn(context: CycleContext, attempt: Attempt, feasible: Feasible) -> None:
    """Store what the full scheduling cycle computed for a pod that found its node."""
    classes = _classes(context, attempt)
    if classes is None or len(feasible.rows) < 2 or feasible.node_names is not None or feasible.nominated_only:
        return
    try:
        classes.learn(attempt.instance, attempt.info, attempt.state, context.cache.columns)
    except Exception as error:
        # A plugin's reuse check raised; the pod has its node all the same.
        reuse_failed(context, attempt, error)


def _evaluate(
    context: CycleContext, attempt: Attempt, classes: PodClasses, recorder: CycleRecorder
) -> Evaluation | None:
    instance, nodes = attempt.instance, context.cache.columns
    recorder.enter(CycleStage.REUSE)
    found = classes.lookup(instance, attempt.info, nodes)
    recorder.leave(CycleStage.REUSE, Code.SUCCESS)
    if found is None:
        return None
    if attempt.is_sampled:
        # Timing the plugins costs as much as many reused cycles. A plugin that may read anything is called anyway.
        is_turn = classes.untimed % _SAMPLED == 0
        classes.untimed += 1
        if is_turn or found.every_time.reads_anything:
            return None
        attempt.is_sampled = False
    return found.evaluate(instance, attempt.info, nodes, recorder, attempt.among)


def _classes(context: CycleContext, attempt: Attempt) -> PodClasses | None:
    """Return the classes of the profile's revision; None if anything but rows and Node objects can matter.

    That is so with nominated nodes, reservations, extenders and a percentage of nodes to score.
    """
    instance = attempt.instance
    if not context.options.reuses_results or context.reservations or len(context.queue.nominator) or instance.extenders:
        return None
    if attempt.info.pod.status.nominated_node_name or context.options.percentage_of(instance) < 100:
        return None
    return context.classes_of(instance)
