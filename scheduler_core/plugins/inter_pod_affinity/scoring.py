"""Score of InterPodAffinity: the weighted terms per topology domain, summed and normalized.

Weights of one topology key are added per row before they are summed per domain, because there are few keys however many
terms there are.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/interpodaffinity/scoring.go``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Scores
from scheduler_core.kernels.domain_counts import DomainTable
from scheduler_core.snapshot.indexes.pod_index import Counts, TermCounts, TermKind
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

WeightTables = tuple[DomainTable, ...]
"""Sum of weights per domain, one table per topology key."""

WEIGHTS: StateKey[WeightTables] = StateKey("InterPodAffinity/weights")

_Part = tuple[str, int, Counts]
"""A topology key, a weight, and the number of pods per row that it applies to."""
_PartOfOthers = tuple[str, int, TermCounts]


def has_preferences(pod: PodInfo) -> bool:
    """Return whether a pod has preferred terms."""
    return bool(pod.terms.preferred or pod.terms.preferred_anti)


def weight_tables(pod: PodInfo, nodes: NodeColumns, args: InterPodAffinityArgs) -> WeightTables:
    """Return the sums of weights per domain, without keys whose sums are all 0."""
    size = nodes.size
    by_row: dict[str, NDArray[np.int64]] = {}
    for key, weight, counts in _own_parts(pod, nodes):
        weighted = np.multiply(counts[:size], weight, dtype=np.int64)
        by_row[key] = np.add(by_row[key], weighted, out=by_row[key]) if key in by_row else weighted
    for key, weight, held in _parts_of_others(pod, nodes, args):
        nodes.steps.upkeep()
        if key not in by_row:
            by_row[key] = np.zeros(size, dtype=np.int64)
        held.add_to(by_row[key], weight)
    tables: list[DomainTable] = []
    for key, amounts in by_row.items():
        column = nodes.label_column(key)
        table = DomainTable.of_rows(amounts, column.ids, len(column.values))
        if table.counts.any():
            tables.append(table)
    return tuple(tables)


def _own_parts(pod: PodInfo, nodes: NodeColumns) -> Iterator[_Part]:
    index = nodes.pod_index
    for term in pod.terms.preferred:
        yield term.topology_key, term.weight, index.query(term.query).total
    for term in pod.terms.preferred_anti:
        yield term.topology_key, -term.weight, index.query(term.query).total


def _parts_of_others(pod: PodInfo, nodes: NodeColumns, args: InterPodAffinityArgs) -> Iterator[_PartOfOthers]:
    index, hard_weight = nodes.pod_index, args.hard_pod_affinity_weight
    if hard_weight > 0:
        for held in index.matching_terms(TermKind.REQUIRED, pod):
            yield held.term.topology_key, hard_weight, held
    for held in index.matching_terms(TermKind.PREFERRED, pod):
        yield held.term.topology_key, held.term.weight, held
    for held in index.matching_terms(TermKind.PREFERRED_ANTI, pod):
        yield held.term.topology_key, -held.term.weight, held


def summed_weights(tables: WeightTables, count: int, rows: Rows) -> Scores:
    """Return the sum of the weights of each row's domains, int64[count]."""
    scores: Scores | None = None
    for table in tables:
        weights = table.counts.take(table.ids[rows])
        scores = weights if scores is None else np.add(scores, weights, out=scores)
    return np.zeros(count, dtype=np.int64) if scores is None else scores


def normalized(raw: Scores) -> Scores:
    """Scale scores between the lowest, 0, and the highest, 100; all are 0 if they are equal."""
    if not len(raw):
        return raw
    lowest = int(raw.min())
    span = int(raw.max()) - lowest
    if span == 0:
        return np.zeros(len(raw), dtype=np.int64)
    # Division before multiplication, in float64, as in kube-scheduler; the other order rounds differently.
    shares = (raw - lowest).astype(np.float64) / float(span)
    return (shares * float(MAX_NODE_SCORE)).astype(np.int64)
