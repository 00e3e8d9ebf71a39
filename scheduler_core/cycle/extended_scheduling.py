"""The scheduling cycle of a profile with extenders: the same steps, and extender calls between them.

The cycle is suspended while it awaits an extender, so that all of its steps see the same state of the cluster.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/schedule_one.go`` (``findNodesThatFitPod``, ``evaluateNominatedNode``,
``prioritizeNodes``).
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.failure import Failure, no_fit
from scheduler_core.cycle.node_selection import Feasible, Search, best_row, score_feasible
from scheduler_core.cycle.scheduling import begin, conclude, failure_of, release, reserve_and_permit
from scheduler_core.errors import ExtenderError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.recorder import CycleStage
from scheduler_core.framework.status import Code, Status
from scheduler_core.runtime.extenders import PreemptionConsultation, run_extender_filters, run_extender_scores
from scheduler_core.runtime.post_filtering import run_post_filters_with

log = logging.getLogger(__name__)
_EXTENDERS = CycleStage.EXTENDERS


async def schedule_with_extenders(context: CycleContext, queued: QueuedPod) -> Attempt | None:
    """Run one scheduling cycle, suspended while extenders answer.

    Args:
        context: The shared parts; changes that arrive meanwhile are applied to them before this returns.
        queued: The popped pod, whose profile has extenders.

    Returns:
        The attempt, whose pod is assumed and must be bound; None if it failed or the pod was skipped. If the cycle is
        cancelled, the pod is released and requeued.
    """
    attempt = begin(context, queued)
    if attempt is None:
        return None
    with context.suspension.of_cycle():
        try:
            failure = await _decide(context, attempt)
        except Exception as error:
            failure = failure_of(attempt, error)
        except BaseException:
            release(context, attempt)
            context.queue.failed(queued)
            attempt.instance.end()
            raise
        return conclude(context, attempt, failure)


async def choose_with_extenders(context: CycleContext, attempt: Attempt) -> tuple[str, Failure | None]:
    """Choose a node for a pod, without assuming the pod and without preemption.

    Returns:
        The name of the node; or "" and the failure.

    Raises:
        SchedulerCoreError: A plugin or an extender failed.
    """
    feasible = await _find_feasible(context, attempt)
    if not len(feasible.rows):
        return "", no_fit(feasible.diagnosis, None)
    return await _select_node(context, attempt, feasible.rows), None


async def _decide(context: CycleContext, attempt: Attempt) -> Failure | None:
    feasible = await _find_feasible(context, attempt)
    if not len(feasible.rows):
        return no_fit(feasible.diagnosis, await _run_post_filters(context, attempt, feasible.diagnosis))
    return reserve_and_permit(context, attempt, await _select_node(context, attempt, feasible.rows))


async def _find_feasible(context: CycleContext, attempt: Attempt) -> Feasible:
    search = Search(context, attempt)
    if search.is_rejected:
        return search.ended(_NO_ROWS)
    rejections: dict[str, Status] = {}
    try:
        nominated = await _filter_with_extenders(context, attempt, search.nominated(), rejections)
    except ExtenderError as error:
        attempt.state.recorder.interrupt()
        # The search of all nodes calls the extender again, and fails if the error persists.
        text = "nominated node of pod %s is not evaluated first, because an extender failed: %s"
        log.warning(text, attempt.info.key, error, extra=attempt.log_fields())
        nominated = _NO_ROWS
    if len(nominated):
        return search.ended(nominated, nominated_only=True)
    rows = search.rows()
    left = await _filter_with_extenders(context, attempt, rows, rejections)
    return search.rejected_by_extenders(rejections) if len(rows) and not len(left) else search.ended(left)


async def _filter_with_extenders(
    context: CycleContext, attempt: Attempt, rows: NDArray[np.intp], rejections: dict[str, Status]
) -> NDArray[np.intp]:
    if not len(rows):
        return rows
    nodes = context.cache.columns
    names = [nodes.node_name(row) for row in rows.tolist()]
    attempt.state.recorder.enter(_EXTENDERS)
    left = await run_extender_filters(attempt.instance.extenders, attempt.info, names, rejections)
    attempt.state.recorder.leave(_EXTENDERS, Code.SUCCESS)
    return rows if left is names else np.array(sorted({nodes.row_of(name) for name in left}), dtype=np.intp)


async def _run_post_filters(context: CycleContext, attempt: Attempt, diagnosis: Diagnosis) -> str | None:
    consultation = PreemptionConsultation(attempt.instance.extenders, context.cache.columns)
    attempt.state.recorder.enter(CycleStage.POST_FILTER)
    outcome = await run_post_filters_with(attempt.instance, attempt.state, attempt.info, diagnosis, consultation)
    attempt.state.recorder.leave(CycleStage.POST_FILTER, outcome.status.code)
    diagnosis.post_filter_message = outcome.status.message
    return outcome.nominated_node


async def _select_node(context: CycleContext, attempt: Attempt, rows: NDArray[np.intp]) -> str:
    nodes, row = context.cache.columns, int(rows[0])
    if len(rows) > 1:
        totals = score_feasible(context.cache.columns, attempt, rows).totals
        names = [nodes.node_name(each) for each in rows.tolist()]
        attempt.state.recorder.enter(_EXTENDERS)
        totals = totals + await run_extender_scores(attempt.instance.extenders, attempt.info, names)
        attempt.state.recorder.leave(_EXTENDERS, Code.SUCCESS)
        row = best_row(context, attempt, rows, totals)
    return nodes.node_name(row)


_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)
