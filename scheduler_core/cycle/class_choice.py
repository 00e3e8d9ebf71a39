"""The choice of a node from what earlier pods of the same class computed.

``choose`` and ``learn`` stand before and after the full search in every scheduling cycle, of single pods and of gang
members alike.
"""

from __future__ import annotations

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import reuse_failed
from scheduler_core.cycle.node_selection import Feasible, row_of_ties
from scheduler_core.runtime.equivalence.reuse import Evaluation, PodClasses

_SAMPLED = 10
"""Sampling interval: of the timed attempts of known classes, one in this many runs the full scheduling cycle."""


def choose(context: CycleContext, attempt: Attempt) -> str:
    """Return the node for a pod whose class is known; "" to fall back to the full scheduling cycle."""
    classes = _classes(context, attempt)
    if classes is None:
        return ""
    ended = len(attempt.state.times.ends)
    try:
        found = _evaluate(context, attempt, classes)
    except Exception as error:
        attempt.state.times.truncate(ended)
        reuse_failed(context, attempt, error)
        return ""
    if found is None:
        return ""
    context.measures.profiles[attempt.instance.name].reused += 1
    found.state.times = attempt.state.times
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


def _evaluate(context: CycleContext, attempt: Attempt, classes: PodClasses) -> Evaluation | None:
    instance, nodes, times = attempt.instance, context.cache.columns, attempt.state.times
    found = classes.lookup(instance, attempt.info, nodes)
    if found is None:
        return None
    if attempt.is_sampled:
        # Timing the plugins costs as much as many reused cycles. A plugin that may read anything is called anyway.
        is_turn = classes.untimed % _SAMPLED == 0
        classes.untimed += 1
        if is_turn or found.every_time.reads_anything:
            return None
        attempt.is_sampled = False
    return found.evaluate(instance, attempt.info, nodes, times, attempt.among)


def _classes(context: CycleContext, attempt: Attempt) -> PodClasses | None:
    """Return the classes of the profile's revision; None if anything but rows and Node objects can matter.

    That is so with nominated nodes, reservations, extenders and a percentage of nodes to score.
    """
    instance = attempt.instance
    if not context.reuses_results or context.reservations or len(context.queue.nominator) or instance.extenders:
        return None
    if attempt.info.pod.status.nominated_node_name or context.percentage_of(instance) < 100:
        return None
    return context.classes_of(instance)
