"""Which pods may preempt, and which pods may be preempted, by conditions that need no filter.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go``
(``PodEligibleToPreemptOthers``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import Code
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"

_NEVER = "Never"
_NOT_BY_POLICY = "not eligible due to preemptionPolicy=Never."
_NOT_WHILE_VICTIMS_END = "not eligible due to a terminating pod on the nominated node."


def why_not_eligible(pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis, nominated: str) -> str:
    """Return why ``pod`` may not preempt now; "" if it may.

    A pod whose victims still terminate waits for them, unless its nominated node can no longer become feasible.

    Args:
        nominated: Its nominated node as the nominator has it, which the pod's status may not show yet; "" for none.
    """
    if pod.pod.spec.preemption_policy == _NEVER:
        return _NOT_BY_POLICY
    nominated = nominated or pod.pod.status.nominated_node_name
    if not nominated:
        return ""
    row = nodes.row_of(nominated)
    if row == NO_ROW or _code_of(row, diagnosis) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return ""
    return _NOT_WHILE_VICTIMS_END if awaits_victims(pod.priority, nodes, row) else ""


def awaits_victims(priority: int, nodes: NodeColumns, row: int) -> bool:
    """Return whether preempted pods below a priority still terminate on a row."""
    return any(
        info.priority < priority and (info.is_cancelled or is_ending_by_preemption(info.pod))
        for info in nodes.pods[row].values()
    )


def _code_of(row: int, diagnosis: Diagnosis) -> Code:
    if not diagnosis.pre_filter.is_success:
        return diagnosis.pre_filter.code
    return diagnosis.status_of(row).code


def rows_to_try(diagnosis: Diagnosis, nodes: NodeColumns) -> NDArray[np.intp]:
    """Return the rows where preemption may help, intp[k], ascending."""
    if diagnosis.pre_filter.is_success:
        return diagnosis.rows_with(Code.UNSCHEDULABLE)
    if diagnosis.pre_filter.code is Code.UNSCHEDULABLE:
        return np.flatnonzero(nodes.alive)
    return np.empty(0, dtype=np.intp)


def lower_priority_pods(pod: PodInfo, nodes: NodeColumns, row: int) -> list[PodInfo]:
    """Return the pods of a row that ``pod`` may preempt."""
    priority = pod.priority
    return [running for running in nodes.pods[row].values() if running.priority < priority]


def is_ending_by_preemption(pod: Pod) -> bool:
    """Return whether a pod is being deleted because a scheduler preempted it."""
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTION_BY_SCHEDULER
    return False
