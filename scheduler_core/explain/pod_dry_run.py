"""Dry run of one attempt for one pod, which returns the result of every step.

Explanations, dry runs and the parity tests use it. Each step is the function that a scheduling cycle runs, so an
explanation always agrees with the scheduler.

Differences from a cycle: all nodes are evaluated whatever percentage is set, nodes are scored even if only one is
feasible, and PostFilter plugins return a preview instead of acting on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import Feasible, NodeSelection, NoNodesError, score_feasible
from scheduler_core.cycle.gang_constraints import MemberDomains
from scheduler_core.cycle.scheduling_cycle import restrict_to_domain
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.extension_points import PostFilterPreview, Scores
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import PostFilterOutcome, preview_post_filters
from scheduler_core.runtime.scoring import PluginScores
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_OUTSIDE = "node(s) were outside the gang's domain"


@dataclass(frozen=True, slots=True)
class GangContext:
    """The gang with which a pod is scheduled.

    Attributes:
        uids: UIDs of its members; their deletion is not proposed.
        labels: Labels of the nodes of its domain; empty for all nodes. Labels rather than rows, because a dry run may
            add nodes.
    """

    uids: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)

    def among(self, nodes: NodeColumns) -> NDArray[np.bool_]:
        """Return the nodes with these labels, bool per row."""
        among = nodes.alive.copy()
        for key, value in self.labels.items():
            column = nodes.label_column(key)
            number = column.values.find(value)
            among &= (column.ids == number) if number is not None else False
        return among


ALONE = GangContext()


@dataclass(slots=True)
class Examination:
    """Result of every step of an attempt; the fields of a step that was not reached have their defaults.

    Attributes:
        gate: Success, or the status of the PreEnqueue plugin that rejects the pod; no further step was run then.
        pre_filter_nodes: The only nodes that PreFilter allows, which may not exist; None for all.
        nominated_only: Whether the pod's nominated node is feasible, so that no other was evaluated.
        rejected_by: Plugins whose events may requeue the pod; empty if it is schedulable.
        feasible: Feasible nodes, in the order of rows.
        scores: Scores by plugin, int64 per node of ``feasible``; without plugins that were skipped.
        totals: int64 per node of ``feasible``; empty if no Score plugin is enabled.
        best: Nodes with the highest total, sorted.
        node: The one of them that the attempt selects; "" if no node is feasible.
        message: Why no node is feasible, as in the FailedScheduling event; "" if one is.
        post_filter: Result of PostFilter; None if it was not reached or the profile has no such plugin.
        preemption: What PostFilter would do; None for nothing.
        device_preemption: What it would do if the profile preempted for devices, which it does not; None for nothing.
        planned_writes: Returns what PreBind would write for a feasible node, while nothing changes.
        error: Error that ended the attempt; "" for none.
    """

    pod: PodInfo
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
    node: str = ""
    message: str = ""
    post_filter: PostFilterOutcome | None = None
    preemption: PostFilterPreview | None = None
    device_preemption: PostFilterPreview | None = None
    planned_writes: Callable[[str], Mapping[str, Any] | None] | None = None
    error: str = ""
    gang_context: GangContext = ALONE


@dataclass(frozen=True, slots=True)
class Examiner:
    """Dry-runs attempts."""

    nodes: NodeColumns
    gangs: Gangs
    selection: NodeSelection
    domains: MemberDomains
    clock: Clock

    def examine(self, instance: FrameworkInstance, pod: PodInfo, number: int = 1) -> Examination:
        """Dry-run an attempt for a pod, up to the selected node; nothing is changed.

        Args:
            instance: The profile; it need not be live.
            pod: A pod compiled with the columns; it need not be in the queue.
            number: Number of the attempt, by which ties between nodes are resolved.

        Returns:
            The result of every step. An error of a plugin ends the attempt and is returned in ``error``.
        """
        found = Examination(pod)
        queued = self.queued(pod)
        rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
        of_group = self.gangs.gate(queued, places_gangs=instance.places_gangs)
        if of_group.is_success or pod.pod.spec.scheduling_gates:
            found.gate = rules.preview_gate(queued)
        found.gate = of_group if found.gate.is_success else found.gate
        if not found.gate.is_success:
            found.rejected_by = frozenset((found.gate.plugin,))
            return found
        attempt = Attempt(queued, pod, instance, self.clock.now(), number=number)
        restrict_to_domain(self.domains, attempt)
        with _recorded_errors(found):
            feasible = self._filter(attempt, found)
            if len(feasible.rows):
                _note_scores(self.selection, attempt, feasible, found)
                found.planned_writes = partial(_planned_writes, attempt)
            elif instance.post_filter:
                _note_post_filters(self.nodes, attempt, feasible, found)
        return found

    def examine_member(self, instance: FrameworkInstance, queued: QueuedPod, gang_context: GangContext) -> Examination:
        """Run PreFilter and Filter on the gang's domain for one member, while other members may be assumed on nodes."""
        found = Examination(queued.info, gang_context=gang_context)
        with _recorded_errors(found):
            self._filter(self.attempt(gang_context, instance, queued), found)
        if gang_context.labels and found.rejected:
            among, row_of = gang_context.among(self.nodes), self.nodes.row_of
            found.rejected = {name: why for name, why in found.rejected.items() if among[row_of(name)]}
        return found

    def examine_alone(
        self, instance: FrameworkInstance, pod: PodInfo, among: NDArray[np.bool_] | None = None
    ) -> Examination:
        """Run PreFilter, Filter and Score for a pod without a gang and without PreEnqueue, up to the selected node.

        Args:
            among: The nodes to consider, bool per row; None for all.
        """
        found = Examination(pod)
        with _recorded_errors(found):
            attempt = self.attempt(ALONE, instance, QueuedPod(pod, self.clock.now(), 0))
            if among is not None:
                attempt.among, attempt.among_reason = among, _OUTSIDE
            feasible = self._filter(attempt, found)
            if len(feasible.rows):
                _note_scores(self.selection, attempt, feasible, found)
        return found

    def _filter(self, attempt: Attempt, found: Examination) -> Feasible:
        feasible = self.selection.find_feasible(attempt, everywhere=True)
        _note_nodes(self.nodes, feasible, found)
        return feasible

    def attempt(self, gang_context: GangContext, instance: FrameworkInstance, queued: QueuedPod) -> Attempt:
        """Return an attempt for a pod, restricted to the nodes of its gang's domain."""
        attempt = Attempt(queued, queued.info, instance, self.clock.now())
        if gang_context.labels:
            attempt.among, attempt.among_reason = gang_context.among(self.nodes), _OUTSIDE
        return attempt

    def queued(self, info: PodInfo) -> QueuedPod:
        """Return a queue entry for a pod that need not be in the queue, with its gang."""
        queued = QueuedPod(info, self.clock.now(), 0)
        queued.group = self.gangs.key_of(info.pod)
        return queued


@contextmanager
def _recorded_errors(found: Examination) -> Iterator[None]:
    try:
        yield
    except NoNodesError as error:
        found.message = str(error)
    except SchedulerCoreError as error:
        found.error = found.message = str(error)


def _planned_writes(attempt: Attempt, node_name: str) -> Mapping[str, Any] | None:
    plugins = attempt.instance.pre_bind
    found = [plugin.planned_writes(attempt.state, attempt.info, node_name) for plugin in plugins]
    writes = [each for each in found if each is not None]
    return {name: written for each in writes for name, written in each.items()} if writes else None


def _note_nodes(columns: NodeColumns, feasible: Feasible, found: Examination) -> None:
    diagnosis = feasible.diagnosis
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


def may_free_devices(instance: FrameworkInstance, rejected_by: Container[str]) -> bool:
    """Return whether preemption for devices, which the profile does not enable, may help a pod."""
    devices = (name for name, plugin in instance.plugins.items() if plugin.may_free_devices)
    return any(name in rejected_by for name in devices) and not instance.config.preemption.devices


def _note_post_filters(columns: NodeColumns, attempt: Attempt, feasible: Feasible, found: Examination) -> None:
    diagnosis = feasible.diagnosis
    arguments = attempt.instance, attempt.state, attempt.info, columns, diagnosis
    outcome, found.preemption = preview_post_filters(*arguments)
    found.post_filter = outcome
    if not outcome.status.is_success and may_free_devices(attempt.instance, diagnosis.rejected_by):
        with attempt.instance.freeing_devices():
            forced, preview = preview_post_filters(*arguments)
        if forced.status.is_success:
            found.device_preemption = preview
    diagnosis.post_filter_message = outcome.status.message
    found.message = diagnosis.message()


def _note_scores(selection: NodeSelection, attempt: Attempt, feasible: Feasible, found: Examination) -> None:
    columns, tied = selection.nodes, feasible.rows
    totals: Scores = np.zeros(len(tied), dtype=np.int64)
    if attempt.instance.scores:
        table = score_feasible(columns, attempt, feasible.rows, keep_parts=True)
        found.scores, found.totals = table.parts, table.totals
        totals = table.totals
    tied = selection.best_rows(tied, totals)
    found.best = tuple(sorted(columns.node_name(row) for row in tied.tolist()))
    found.node = columns.node_name(selection.row_of_ties(attempt, tied))


@dataclass(slots=True)
class CopiesFit:
    """Result of the dry run.

    Attributes:
        nodes: Node of each copy that fits.
        first: Result for the first copy.
        rejected: Result for the copy that does not fit; None if all fit.
    """

    first: Examination
    nodes: list[str] = field(default_factory=list)
    rejected: Examination | None = None


def fit_copies(
    examiner: Examiner,
    columns: NodeColumns,
    instance: FrameworkInstance,
    pod: Pod,
    count: int,
    *,
    among: NDArray[np.bool_] | None = None,
) -> CopiesFit:
    """Schedule copies of a pod one after another, as a dry run; nothing is changed.

    Args:
        pod: A pod that need not exist; its node, its nomination and its gang are ignored.
        among: The nodes to consider, bool per row; None for all.

    Raises:
        SchedulerCoreError: The pod cannot be compiled.
    """
    found: CopiesFit | None = None
    with ColumnsOverlay(columns) as overlay:
        for number in range(count):
            info = columns.compile_pod(_copy(pod, number))
            examined = examiner.examine_alone(instance, info, among)
            found = found or CopiesFit(examined)
            if not examined.node:
                found.rejected = examined
                break
            found.nodes.append(examined.node)
            overlay.add(info, columns.row_of(examined.node))
    assert found is not None
    return found


def _copy(pod: Pod, number: int) -> Pod:
    meta = replace(pod.metadata, uid=f"copy-{number}-of-{pod.metadata.uid}", deletion_timestamp=None)
    return replace(
        pod,
        metadata=meta,
        spec=replace(pod.spec, node_name="", scheduling_gates=()),
        status=replace(pod.status, nominated_node_name="", phase="Pending"),
    )
