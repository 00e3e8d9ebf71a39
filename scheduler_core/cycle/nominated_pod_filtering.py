"""Filtering with nominated pods, as if they ran on their nodes already.

A node is feasible only if the pod fits both with and without the pods of the same or higher priority that are
nominated to it. Only nodes with nominations are filtered twice.

Follows kube-scheduler v1.37.1 (``RunFilterPluginsWithNominatedPods``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.runtime.filtering import pod_added, run_filters, sum_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.snapshot.row_cache import RowSums

_MANY = 3
"""Number of rows from which a copy of the sums is faster than adding pods to the columns."""


def filter_with_nominated_pods(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    nominator: NominatedPods,
    *,
    among: AbstractSet[int] | None = None,
    find_cached: Callable[[str], object | None] | None = None,
) -> dict[int, int]:
    """Filter the nodes to which pods of the same or higher priority are nominated, as if these ran there.

    Args:
        among: The only rows to filter; None for all.
        find_cached: Returns the assumed or bound pod of a UID, None for none.

    Returns:
        Verdicts by row, for rows with nominations that count.
    """
    if not nominator.node_by_uid:
        return {}
    nominations = dict(nominated_by_row(pod, nodes, nominator, among=among, find_cached=find_cached))
    filters = None
    if len(nominations) >= _MANY:
        filters = sum_filters(instance, state, pod, nodes, sorted(nominations))
    if filters is None:
        verdicts = {}
        for row, others in nominations.items():
            # Plugins count added pods in the cycle state, which the next row must not see.
            dry_run = state.clone()
            with ColumnsOverlay(nodes) as overlay:
                for other in others:
                    overlay.add(other, row)
                    pod_added(instance, dry_run, pod, other, nodes)
                verdicts[row] = int(run_filters(instance, dry_run, pod, nodes, np.array([row], dtype=np.intp))[0])
        return verdicts
    # On several rows, sums are faster than adding the pods to the columns.
    sums, rows = RowSums(nodes, filters.rows), filters.rows.tolist()
    sums.add((place, other) for place, row in enumerate(rows) for other in nominations[row])
    return dict(zip(rows, filters.verdicts(sums).tolist(), strict=True))


def nominated_by_row(
    pod: PodInfo,
    nodes: NodeColumns,
    nominator: NominatedPods,
    *,
    among: AbstractSet[int] | None = None,
    find_cached: Callable[[str], object | None] | None = None,
) -> Iterator[tuple[int, list[PodInfo]]]:
    """Yield the rows with nominations that count for ``pod``, with the nominated pods; arguments as above."""
    if among is not None and len(among) < len(nominator):
        named: Iterable[tuple[int, str | None]] = [(row, nodes.names[row]) for row in sorted(among)]
    else:
        named = [(nodes.row_of(name), name) for name in nominator.nodes()]
    for row, node_name in named:
        if node_name is None or row == NO_ROW or (among is not None and row not in among):
            continue
        # Members of a gang are assumed while they are nominated, sometimes as copies with another priority, and count
        # already.
        nominated = [
            other
            for other in nominator.nominated_pods(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid and other.row == NO_ROW
            if find_cached is None or find_cached(other.uid) is None
        ]
        if nominated:
            yield row, nominated
