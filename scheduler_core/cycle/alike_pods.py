"""Pods that are alike, cycle after cycle: what the plugins prepared for one serves the next.

Owns when that is exact, from one scheduling cycle to another. Pods that read alike in everything but who they are get
the same answer from every plugin that says that its answers follow from rows and signature, and that tells how long its
PreFilter and its PreScore would prepare the same: which nodes fit by these, and how they score, is known but for the
rows that have changed. Plugins that cannot say so, such as those that count over domains, are asked about each pod; and
so are those that read resources, about pods that differ in nothing else. Where anything more could matter (promised
nodes, reservations, a percentage of nodes, a cycle whose plugins are timed) the whole way is taken.

What is kept is made when a kind of pod comes for the second time among the last few kinds; pods that are all different
pay for a comparison. Must not decide otherwise than the whole way does; a law in the tests holds both equal.
"""

from __future__ import annotations

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import reuse_failed
from scheduler_core.cycle.node_selection import Feasible
from scheduler_core.cycle.pod_kinds import PodKind
from scheduler_core.cycle.ranked_choice import choose_among

_SAMPLED = 10
"""Of so many alike pods whose plugins would be timed, one is."""


def decided(context: CycleContext, attempt: Attempt, feasible: Feasible) -> None:
    """A pod has found its node on the whole way: keep what serves pods like it."""
    results = context.results_of(attempt)
    if results is None or not _may_serve(context, attempt):
        # Its plugins were timed, or nothing is remembered at all: it says nothing new of the others.
        return
    info, kinds = attempt.info, context.kinds_of(attempt.instance)
    is_usual = len(feasible.rows) > 1 and feasible.node_names is None and not feasible.nominated_only
    try:
        for kind, resources_differ in ((kinds.find(info), False), (kinds.family(info), True)):
            if kind is None:
                kinds.add(PodKind(info, results, resources_differ))
            elif not is_usual:
                kind.forget()
            elif kind.prepared is None:
                kind.keep(info, attempt.state, context.cache.columns)
    except Exception as error:
        # A plugin's signature or check raised; the pod has its node all the same.
        reuse_failed(context, attempt, error)


def choose(context: CycleContext, attempt: Attempt) -> str:
    """Return the node of a pod that is like an earlier one, or "" for the full scheduling cycle.

    An error falls back to the full cycle and is counted.
    """
    if not context.remembers or not _may_serve(context, attempt):
        return ""
    try:
        return _choose(context, attempt)
    except Exception as error:
        reuse_failed(context, attempt, error)
        return ""


def _choose(context: CycleContext, attempt: Attempt) -> str:
    kinds = context.kinds_of(attempt.instance)
    own = kinds.find(attempt.info)
    # A pod that is the second of its kind goes the whole way, for the sake of those to come.
    kind = kinds.family(attempt.info) if own is None else own
    if kind is None or kind.repetition is None:
        return ""
    if attempt.is_sampled:
        # To time the plugins costs as much as many such pods: it is done for one in a hundred of them, but where there
        # is a plugin of which nobody knows what it does.
        is_turn = kinds.unsampled % _SAMPLED == 0
        kinds.unsampled += 1
        if is_turn or kind.repetition.again.is_opaque:
            return ""
        attempt.is_sampled = False
    nodes = context.cache.columns
    try:
        ranking = kind.ranked(nodes, nodes.alive) if kind.repetition.holds else None
    except Exception:
        # Rows may be half refreshed.
        kind.forget()
        raise
    if ranking is None:
        kind.forget()
        return ""
    if own is None:
        kinds.add(PodKind(attempt.info, kind.results))
    return choose_among(context, attempt, kind, ranking)


def _may_serve(context: CycleContext, attempt: Attempt) -> bool:
    """Whether nothing but rows can matter to the attempt."""
    if context.reservations or len(context.queue.nominator) or attempt.among is not None:
        return False
    if attempt.info.pod.status.nominated_node_name or attempt.instance.extenders:
        return False
    return context.percentage_of(attempt.instance) >= 100
