"""The scheduling cycle of a profile with extenders: the same steps, and extender calls between them.

The cycle is suspended while it awaits an extender, so that all of its steps see the same state of the cluster.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/schedule_one.go`` (``findNodesThatFitPod``, ``evaluateNominatedNode``,
``prioritizeNodes``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure, delay_of, no_fit
from scheduler_core.cycle.filter_and_score import Feasible, FilterRun, NodeSelection, score_feasible
from scheduler_core.cycle.gang_constraints import NodeReservations
from scheduler_core.cycle.reuse_or_search import note_reserved
from scheduler_core.cycle.scheduling_cycle import SchedulingCycle, failure_of
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import ExtenderError
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code, Status
from scheduler_core.runtime.extenders import PreemptionConsultation, run_extender_filters, run_extender_scores
from scheduler_core.runtime.post_filtering import run_post_filters_with

log = logging.getLogger(__name__)
_EXTENDERS = CycleStage.EXTENDERS
_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)


class ExtendedChoice:
    """The steps in which extenders take part: they filter and score nodes, and select preemption candidates.

    Args:
        rejections: Receives pods that reservations made unschedulable; None in dry runs.
    """

    def __init__(self, selection: NodeSelection, rejections: NodeReservations | None = None) -> None:
        self._selection = selection
        self._rejections = rejections
        self._nodes = selection.nodes

    async def choose(self, attempt: Attempt) -> tuple[str, Diagnosis]:
        """Return a node for a pod, without assume and preemption; "" and the complete diagnosis for none."""
        feasible = await self._find_feasible(attempt)
        if not len(feasible.rows):
            note_reserved(self._rejections, attempt, feasible.diagnosis)
            return "", feasible.diagnosis
        return await self._select(attempt, feasible.rows), feasible.diagnosis

    async def _find_feasible(self, attempt: Attempt) -> Feasible:
        search = FilterRun(attempt, self._selection)
        if search.is_rejected:
            return search.ended(_NO_ROWS)
        rejections: dict[str, Status] = {}
        try:
            nominated = await self._filter(attempt, search.first_tried(), rejections)
        except ExtenderError as error:
            attempt.state.recorder.interrupt()
            # The search of all nodes calls the extender again, and fails if the error persists.
            text = "nominated node of pod %s is not evaluated first, because an extender failed: %s"
            log.warning(text, attempt.info.key, error, extra=attempt.log_fields())
            nominated = _NO_ROWS
        if len(nominated):
            return search.ended(nominated, nominated_only=True)
        rows = search.rows()
        left = await self._filter(attempt, rows, rejections)
        return search.rejected_by_extenders(rejections) if len(rows) and not len(left) else search.ended(left)

    async def _filter(
        self, attempt: Attempt, rows: NDArray[np.intp], rejections: dict[str, Status]
    ) -> NDArray[np.intp]:
        if not len(rows):
            return rows
        nodes = self._nodes
        names = [nodes.node_name(row) for row in rows.tolist()]
        attempt.state.recorder.enter(_EXTENDERS)
        left = await run_extender_filters(attempt.instance.extenders, attempt.info, names, rejections)
        attempt.state.recorder.leave(_EXTENDERS, Code.SUCCESS)
        # An extender may return the nodes in another order, or one twice.
        return rows if left is names else np.array(sorted({nodes.row_of(name) for name in left}), dtype=np.intp)

    async def _select(self, attempt: Attempt, rows: NDArray[np.intp]) -> str:
        nodes, row = self._nodes, int(rows[0])
        if len(rows) > 1:
            totals = score_feasible(nodes, attempt, rows).totals
            names = [nodes.node_name(each) for each in rows.tolist()]
            attempt.state.recorder.enter(_EXTENDERS)
            totals = totals + await run_extender_scores(attempt.instance.extenders, attempt.info, names)
            attempt.state.recorder.leave(_EXTENDERS, Code.SUCCESS)
            row = self._selection.best_row(attempt, rows, totals)
        return nodes.node_name(row)

    async def preempt(self, attempt: Attempt, diagnosis: Diagnosis) -> Failure:
        """Run the PostFilter plugins with extenders for a pod without a feasible node; return why it has none."""
        consultation = PreemptionConsultation(attempt.instance.extenders, self._nodes)
        attempt.state.recorder.enter(CycleStage.POST_FILTER)
        outcome = await run_post_filters_with(
            attempt.instance, attempt.state, attempt.info, diagnosis, consultation, delay=delay_of(attempt)
        )
        attempt.state.recorder.leave(CycleStage.POST_FILTER, outcome.status.code)
        diagnosis.post_filter_message = outcome.status.message
        return no_fit(diagnosis, outcome.nominated_node, is_delayed=outcome.is_delayed)


@dataclass(frozen=True, slots=True)
class ExtendedCycle:
    """Scheduling cycles of profiles with extenders."""

    cycle: SchedulingCycle
    choice: ExtendedChoice
    suspension: Suspension

    async def schedule(self, queued: QueuedPod) -> Attempt | None:
        """Run one scheduling cycle, suspended while extenders answer.

        Returns:
            The attempt, whose pod is assumed and must be bound; None if it failed or the pod was skipped. If the cycle
            is cancelled, the pod is released and requeued. Changes that arrive meanwhile are applied before this
            returns.
        """
        with self.suspension.of_cycle():
            attempt = None
            try:
                attempt = self.cycle.begin(queued)
                if attempt is None:
                    return None
                try:
                    failure = await self._decide(attempt)
                except Exception as error:
                    failure = failure_of(attempt, error)
                return self.cycle.conclude(attempt, failure)
            except Exception as error:
                self.cycle.errors.interrupted(queued, attempt, error)
                return None
            except BaseException:
                if attempt is not None:
                    self.cycle.cancel(attempt)
                raise

    async def _decide(self, attempt: Attempt) -> Failure | None:
        node_name, diagnosis = await self.choice.choose(attempt)
        if not node_name:
            return await self.choice.preempt(attempt, diagnosis)
        return self.cycle.assumed.reserve_and_permit(attempt, node_name)
