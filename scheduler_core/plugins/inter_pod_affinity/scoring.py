"""How InterPodAffinity ranks nodes: the weighted terms that meet in the node's domains.

Owns the sums of weights by topology domain and their normalisation. Must not know filters. Weights of one key are added
up by row before they are summed by domain, since the number of keys is small however many terms there are.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/interpodaffinity/scoring.go``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Scores
from scheduler_core.kernels.domains import DomainTable
from scheduler_core.plugins.inter_pod_affinity.filtering import as_incoming
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_index import Counts, TermKind
from scheduler_core.snapshot.pod_info import PodInfo

WeightTables = tuple[DomainTable, ...]
"""Per topology key, the sum of weights by domain; negative where it speaks against the domain."""

WEIGHTS: StateKey[WeightTables] = StateKey("InterPodAffinity/weights")

_Part = tuple[str, int, Counts]
"""A topology key, a weight and how many pods of each row it stands for."""


def has_preferences(pod: PodInfo) -> bool:
    """Whether a pod prefers anything itself."""
    return bool(pod.terms.preferred or pod.terms.preferred_anti)


def weight_tables(pod: PodInfo, nodes: NodeColumns, args: InterPodAffinityArgs) -> WeightTables:
    """Sum up what speaks for and against each domain; keys of which nothing does are left out."""
    size = nodes.size
    by_row: dict[str, NDArray[np.int64]] = {}
    for key, weight, counts in (*_own_parts(pod, nodes), *_parts_of_others(pod, nodes, args)):
        weighted = np.multiply(counts[:size], weight, dtype=np.int64)
        by_row[key] = np.add(by_row[key], weighted, out=by_row[key]) if key in by_row else weighted
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
        yield term.topology_key, term.weight, index.query(as_incoming(term.query)).total
    for term in pod.terms.preferred_anti:
        yield term.topology_key, -term.weight, index.query(as_incoming(term.query)).total


def _parts_of_others(pod: PodInfo, nodes: NodeColumns, args: InterPodAffinityArgs) -> Iterator[_Part]:
    index, hard_weight = nodes.pod_index, args.hard_pod_affinity_weight
    if hard_weight > 0:
        for held in index.terms_about(TermKind.REQUIRED, pod):
            yield held.term.topology_key, hard_weight, held.holders
    for held in index.terms_about(TermKind.PREFERRED, pod):
        yield held.term.topology_key, held.term.weight, held.holders
    for held in index.terms_about(TermKind.PREFERRED_ANTI, pod):
        yield held.term.topology_key, -held.term.weight, held.holders


def summed_weights(tables: WeightTables, count: int, rows: Rows) -> Scores:
    """Add up the weights of each row's domains, int64[count]."""
    scores: Scores | None = None
    for table in tables:
        weights = table.counts.take(table.ids[rows])
        scores = weights if scores is None else np.add(scores, weights, out=scores)
    return np.zeros(count, dtype=np.int64) if scores is None else scores


def normalized(raw: Scores) -> Scores:
    """Spread scores between the lowest, which becomes 0, and the highest, 100; all are 0 where they do not differ."""
    if not len(raw):
        return raw
    lowest = int(raw.min())
    span = int(raw.max()) - lowest
    if span == 0:
        return np.zeros(len(raw), dtype=np.int64)
    # Divided first and multiplied then, in float64, as the reference does: the other order rounds elsewhere.
    shares = (raw - lowest).astype(np.float64) / float(span)
    return (shares * float(MAX_NODE_SCORE)).astype(np.int64)
