"""Filtering as if nominated pods were on their nodes already.

Owns the second opinion: a row passes only if the pod fits both with and without the nominated pods of no lower
priority that are promised it. Only rows that are promised to anyone cost anything. The pods are put on the live columns
and taken off again, which nobody sees, since a cycle does not await.

Follows kube-scheduler v1.36.3 (``RunFilterPluginsWithNominatedPods``).
"""

from __future__ import annotations

import numpy as np

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import PreFilterExtensions
from scheduler_core.framework.status import Status
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.answers import checked
from scheduler_core.runtime.filtering import run_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_ADD_POD = "preFilterAddPod"


def judge_with_nominated_pods(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, nominator: NominatedPods
) -> dict[int, int]:
    """Judge the rows that are promised to pods of no lower priority, as if those ran there.

    Returns:
        The verdict by row; a row that is not named is promised to nobody who counts.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    if not len(nominator):
        return {}
    verdicts: dict[int, int] = {}
    for node_name in nominator.nodes():
        row = nodes.row_of(node_name)
        if row == NO_ROW:
            continue
        promised = [
            other
            for other in nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid and other.row == NO_ROW
        ]
        if promised:
            verdicts[row] = int(_judge_row(instance, state, pod, nodes, (row, promised))[0])
    return verdicts


def _judge_row(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    promise: tuple[int, list[PodInfo]],
) -> Verdicts:
    row, promised = promise
    what_if = state.clone()
    placed: list[PodInfo] = []
    try:
        for other in promised:
            nodes.add_pod(other, row)
            placed.append(other)
            for plugin in instance.pre_filter:
                if plugin.name in what_if.skip_filter or not isinstance(plugin, PreFilterExtensions):
                    continue
                try:
                    status = checked(plugin.add_pod(what_if, pod, other, nodes, row), Status, plugin.name, _ADD_POD)
                except Exception as fault:
                    raise _fault(plugin.name, fault) from fault
                if not status.is_success:
                    raise PluginError(plugin.name, _ADD_POD, status.message or f"answered {status.code_name}")
        return run_filters(instance, what_if, pod, nodes, np.array([row], dtype=np.intp))
    finally:
        for other in reversed(placed):
            nodes.remove_pod(other)


def _fault(plugin: str, fault: Exception) -> PluginError:
    if isinstance(fault, PluginError):
        return fault
    return PluginError(plugin, _ADD_POD, f"raised {type(fault).__name__}: {fault}")
