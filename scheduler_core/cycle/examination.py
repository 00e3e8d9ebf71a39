"""One attempt for one pod that changes nothing, with every part of it kept.

Owns the walk for those who want to know why: explanations, what-if questions and the parity tests. It must not decide
anything itself: each step is the very function that a scheduling cycle runs, so an explanation cannot drift from what
the scheduler does.

Differs from a cycle on purpose: all nodes are looked at whatever percentage is set, and nodes are scored even where
only one fits. PostFilter is not run but asked what it would do, since it acts on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.node_selection import Feasible, NoNodesError, find_feasible, score_feasible
from scheduler_core.cycle.scheduling import keep_to_domain
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.extension_points import PostFilterPreview
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.queueing.gang_entries import group_gate
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import PostFilterOutcome, preview_post_filters
from scheduler_core.runtime.scoring import PluginScores
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_OUTSIDE = "node(s) were outside the gang's domain"


class Companions(Struct, frozen=True):
    """The gang with which a pod is placed.

    Attributes:
        uids: Its members, whose going helps nobody.
        labels: Labels of the nodes among which it goes; empty for all nodes. Why labels and not rows: what is tried in
            thought may bring nodes.
    """

    uids: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)

    def among(self, nodes: NodeColumns) -> NDArray[np.bool_]:
        """The nodes with those labels, bool per row."""
        among = nodes.alive.copy()
        for key, value in self.labels.items():
            column = nodes.label_column(key)
            number = column.values.find(value)
            among &= (column.ids == number) if number is not None else False
        return among


ALONE = Companions()


class Examination(Struct):
    """What one attempt finds, step by step; a step that was not reached left its fields as they are here.

    Attributes:
        pod: The pod.
        profile: The scheduler name that was asked.
        gate: Success, or the PreEnqueue plugin's answer that holds the pod back; then nothing else was run.
        pre_filter: Success, or PreFilter's rejection of the pod as a whole; then no node was looked at.
        pre_filter_nodes: The only nodes that PreFilter leaves, which may not exist; None for all.
        nominated_only: Whether the pod's nominated node fits, so that no other was looked at.
        rejected: Each node that does not fit, and why.
        rejected_by: Plugins whose events may bring the pod back; empty if it fits.
        feasible: Nodes that fit, in the order of rows.
        scores: Each Score plugin's part, int64 per node of ``feasible``; plugins that were skipped are absent.
        totals: int64 per node of ``feasible``; empty where no Score plugin is enabled.
        best: Nodes of the highest total, sorted; the pod goes to one of them.
        message: Why the pod fits nowhere, as the FailedScheduling event words it; "" if it fits.
        post_filter: What PostFilter would answer; None if it was not reached, or the profile has no such plugin.
        preemption: What it would do; None if there is nothing that it could.
        error: What kept a step from being finished; "" if nothing did.
        companions: The gang with which the pod is placed.
    """

    pod: PodInfo
    profile: str
    gate: Status = SUCCESS
    pre_filter: Status = SUCCESS
    pre_filter_nodes: frozenset[str] | None = None
    nominated_only: bool = False
    rejected: dict[str, Status] = field(default_factory=dict)
    rejected_by: frozenset[str] = frozenset()
    feasible: tuple[str, ...] = ()
    scores: dict[str, PluginScores] = field(default_factory=dict)
    totals: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    best: tuple[str, ...] = ()
    message: str = ""
    post_filter: PostFilterOutcome | None = None
    preemption: PostFilterPreview | None = None
    error: str = ""
    companions: Companions = ALONE

    def attempt(self, context: CycleContext, instance: FrameworkInstance, queued: QueuedPod) -> Attempt:
        """An attempt for a pod among the nodes that are open to it."""
        attempt = Attempt(queued, queued.info, instance, context.clock.now())
        if self.companions.labels:
            attempt.among, attempt.among_reason = self.companions.among(context.cache.columns), _OUTSIDE
        return attempt


def examine_member(
    context: CycleContext, instance: FrameworkInstance, queued: QueuedPod, companions: Companions
) -> Examination:
    """Look for nodes for one member of a gang, others of which may be in place; no further than that.

    Args:
        context: The shared parts; nothing in them is changed.
        instance: The profile that is asked.
        queued: The member in the queue.
        companions: Its gang.

    Returns:
        What was found. Nodes that are not open to the gang are left out of it.
    """
    found = Examination(queued.info, instance.name, companions=companions)
    try:
        feasible = find_feasible(context, found.attempt(context, instance, queued), everywhere=True)
        _note_nodes(context, feasible, found)
    except NoNodesError as error:
        found.message = str(error)
    except SchedulerCoreError as error:
        found.error = found.message = str(error)
    columns = context.cache.columns
    if companions.labels and found.rejected:
        among = companions.among(columns)
        found.rejected = {name: why for name, why in found.rejected.items() if among[columns.row_of(name)]}
    return found


def examine(context: CycleContext, instance: FrameworkInstance, pod: PodInfo) -> Examination:
    """Try to place a pod, up to the choice among the best nodes.

    Args:
        context: The shared parts; nothing in them is changed.
        instance: The profile that is asked; it need not be live.
        pod: A pod compiled with the context's columns; neither accounted nor queued by this.

    Returns:
        Every part. A plugin's fault ends the attempt and stands in ``error``.
    """
    found = Examination(pod, instance.name)
    queued = queued_to_ask(context, pod)
    rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
    of_group = group_gate(context.queue.gangs, queued.group)
    if of_group.is_success or pod.pod.spec.scheduling_gates:
        found.gate = rules.gate(queued)
    found.gate = of_group if found.gate.is_success else found.gate
    if not found.gate.is_success:
        found.rejected_by = frozenset((found.gate.plugin,))
        return found
    attempt = Attempt(queued, pod, instance, context.clock.now())
    keep_to_domain(context, attempt)
    try:
        feasible = find_feasible(context, attempt, everywhere=True)
        _note_nodes(context, feasible, found)
        if len(feasible.rows):
            _note_scores(context, attempt, feasible, found)
        elif instance.post_filter:
            _note_post_filters(context, attempt, feasible, found)
    except NoNodesError as error:
        found.message = str(error)
    except SchedulerCoreError as error:
        found.error = found.message = str(error)
    return found


def queued_to_ask(context: CycleContext, info: PodInfo) -> QueuedPod:
    """A pod as if it were in the queue, with the gang to which it belongs."""
    queued = QueuedPod(info, context.clock.now(), 0)
    queued.group = context.queue.gangs.key_of(info.pod)
    return queued


def _note_nodes(context: CycleContext, feasible: Feasible, found: Examination) -> None:
    diagnosis, columns = feasible.diagnosis, context.cache.columns
    found.pre_filter = diagnosis.pre_filter
    found.pre_filter_nodes = feasible.node_names
    found.nominated_only = feasible.nominated_only
    found.feasible = tuple(columns.node_name(row) for row in feasible.rows.tolist())
    if not found.feasible:
        found.message = diagnosis.message()
        found.rejected_by = frozenset(diagnosis.rejected_by)
    if not diagnosis.pre_filter.is_success or feasible.nominated_only:
        return
    statuses: dict[int, Status] = {}
    for row in np.flatnonzero((diagnosis.verdicts != 0) & columns.alive).tolist():
        verdict = int(diagnosis.verdicts[row])
        status = statuses.get(verdict)
        if status is None:
            status = statuses[verdict] = diagnosis.decode(verdict)
        found.rejected[columns.node_name(row)] = status


def _note_post_filters(context: CycleContext, attempt: Attempt, feasible: Feasible, found: Examination) -> None:
    columns, diagnosis = context.cache.columns, feasible.diagnosis
    outcome, found.preemption = preview_post_filters(attempt.instance, attempt.state, attempt.info, columns, diagnosis)
    found.post_filter = outcome
    diagnosis.post_filter_message = outcome.status.message
    found.message = diagnosis.message()


def _note_scores(context: CycleContext, attempt: Attempt, feasible: Feasible, found: Examination) -> None:
    if not attempt.instance.scores:
        found.best = tuple(sorted(found.feasible))
        return
    table = score_feasible(context, attempt, feasible.rows, keep_parts=True)
    found.scores, found.totals = table.parts, table.totals
    top = np.flatnonzero(table.totals == table.totals.max()).tolist()
    found.best = tuple(sorted(found.feasible[position] for position in top))
