"""Pods that are alike, cycle after cycle: what the plugins prepared for one serves the next.

Owns when that is exact, from one scheduling cycle to another: the pods read alike in everything but who they are, every
plugin that judged the first says that its answers follow from rows and signature, and those with a PreFilter or a
PreScore tell that these would answer and prepare the same again. Which nodes fit, and how they score, is then known but
for the rows that have changed. Where anything else could matter (promised nodes, reservations, a percentage of nodes, a
cycle whose plugins are timed) the whole way is taken.

What is kept is made when a kind of pod comes for the second time among the last few kinds; pods that are all different
pay for a comparison. Must not decide otherwise than the whole way does; a law in the tests holds both equal.
"""

from __future__ import annotations

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.node_selection import Feasible
from scheduler_core.cycle.ranked_choice import best_of
from scheduler_core.framework.cycle_times import ENDS, Point
from scheduler_core.framework.status import Code

_SAMPLED = 10
"""Of so many alike pods whose plugins would be timed, one is."""
_ENDED = tuple(ENDS[point][Code.SUCCESS] for point in (Point.PRE_FILTER, Point.FILTER, Point.PRE_SCORE, Point.SCORE))


def decided(context: CycleContext, attempt: Attempt, feasible: Feasible) -> None:
    """A pod has found its node on the whole way: keep what serves pods like it."""
    results = context.results_of(attempt)
    if results is None or not _may_serve(context, attempt):
        # Its plugins were timed, or nothing is remembered at all: it says nothing new of the others.
        return
    info, kinds = attempt.info, context.kinds_of(attempt.instance)
    kind = kinds.find(info)
    if kind is None:
        kinds.add(info, results)
    elif len(feasible.rows) < 2 or feasible.node_names is not None or feasible.nominated_only:
        kind.forget()
    else:
        kind.keep(info, attempt.state, context.cache.columns)


def choose(context: CycleContext, attempt: Attempt) -> str:
    """The node of a pod that is like an earlier one; "" if it is to go the whole way.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    if not context.remembers or not _may_serve(context, attempt):
        return ""
    kinds = context.kinds_of(attempt.instance)
    kind = kinds.find(attempt.info)
    if kind is None or kind.state is None:
        return ""
    if attempt.is_sampled:
        # To time the plugins costs as much as many such pods: it is done for one in a hundred of them.
        kinds.unsampled += 1
        if kinds.unsampled % _SAMPLED == 0:
            return ""
        attempt.is_sampled = False
    nodes = context.cache.columns
    ranking = kind.ranked(nodes, nodes.alive) if all(check() for check in kind.checks) else None
    if ranking is None:
        kind.forget()
        return ""
    if ranking.fitting < 2:
        # None or one is left, which is for the whole way to say, and to tell why.
        return ""
    for end in _ENDED:
        attempt.state.times.end(end)
    return best_of(context, attempt, kind.state, ranking)


def _may_serve(context: CycleContext, attempt: Attempt) -> bool:
    """Whether nothing but rows can matter to the attempt."""
    if context.reservations or len(context.queue.nominator) or attempt.among is not None:
        return False
    if attempt.info.pod.status.nominated_node_name or attempt.instance.extenders:
        return False
    return context.percentage_of(attempt.instance) >= 100
