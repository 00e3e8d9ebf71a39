"""Filtering as if nominated pods were on their nodes already.

Owns the second opinion: a row passes only if the pod fits both with and without the nominated pods of no lower
priority that are promised it. Only rows that are promised to anyone cost anything. The pods are put on the live columns
and taken off again, which nobody sees, since a cycle does not await.

Follows kube-scheduler v1.36.3 (``RunFilterPluginsWithNominatedPods``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.row_sums import RowSums
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.filtering import run_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.pre_filter_extensions import pod_added
from scheduler_core.runtime.sum_filters import sum_filters
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, HostPort, PodInfo

_MANY = 3
"""From so many rows on, changing sums in a copy is quicker than putting pods on rows."""


def judge_with_nominated_pods(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    nominator: NominatedPods,
    *,
    among: Container[int] | None = None,
    find_placed: Callable[[str], object | None] | None = None,
) -> dict[int, int]:
    """Judge the rows that are promised to pods of no lower priority, as if those ran there.

    Args:
        instance: The profile.
        state: The attempt's state; it is cloned for each row.
        pod: The pod to place.
        nodes: The columns; they are as before when this returns.
        nominator: The promises.
        among: The only rows to judge; None for all.
        find_placed: Gives the placed pod of a UID, None for none. Who is placed keeps no promise beside its place: a
            gang's members are tried while they are promised nodes, at times as copies of another priority.

    Returns:
        The verdict by row; a row that is not named is promised to nobody who counts.

    Raises:
        PluginError: A plugin raised, or answered what its point does not allow.
    """
    if not len(nominator):
        return {}
    promises = dict(promised_pods(pod, nodes, nominator, among=among, find_placed=find_placed))
    filters = None
    if len(promises) >= _MANY:
        filters = sum_filters(instance, state, pod, nodes, sorted(promises))
    if filters is None:
        return {row: int(_judge_row(instance, state, pod, nodes, (row, others))[0]) for row, others in promises.items()}
    sums, rows = RowSums(nodes, filters.rows), filters.rows.tolist()
    sums.add((place, other) for place, row in enumerate(rows) for other in promises[row])
    return dict(zip(rows, filters.verdicts(sums).tolist(), strict=True))


def promised_pods(
    pod: PodInfo,
    nodes: NodeColumns,
    nominator: NominatedPods,
    *,
    among: Container[int] | None = None,
    find_placed: Callable[[str], object | None] | None = None,
) -> Iterator[tuple[int, list[PodInfo]]]:
    """The rows that are promised to pods which count for ``pod``, with these; arguments as above."""
    for node_name in nominator.nodes():
        row = nodes.row_of(node_name)
        if row == NO_ROW or (among is not None and row not in among):
            continue
        promised = [
            other
            for other in nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid and other.row == NO_ROW
            if find_placed is None or find_placed(other.uid) is None
        ]
        if promised:
            yield row, promised


def _judge_row(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    promise: tuple[int, list[PodInfo]],
) -> Verdicts:
    row, promised = promise
    dry_run = state.clone()
    placed: list[PodInfo] = []
    revealed: list[HostPort] = []
    try:
        for other in promised:
            nodes.add_pod(other, row)
            placed.append(other)
            revealed += nodes.host_ports.reveal(row, other.host_ports)
            pod_added(instance, dry_run, pod, other, nodes)
        return run_filters(instance, dry_run, pod, nodes, np.array([row], dtype=np.intp))
    finally:
        for other in reversed(placed):
            nodes.remove_pod(other)
        nodes.host_ports.hide(row, revealed)
