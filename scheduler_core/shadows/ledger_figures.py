"""Packing and spread of the cluster as it is, and as it would be with a shadow's choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

import numpy as np
from msgspec import Struct

from scheduler_core.cycle.percentage_of_nodes import ZONE_LABEL
from scheduler_core.kernels.packing import imbalance, unusable_shares
from scheduler_core.snapshot.node_columns import NodeColumns

Requests = tuple[tuple[str, int], ...]
"""(resource, amount) of what a pod requests, with amounts above 0."""


class StateFigures(Struct, frozen=True):
    """Figures of one state of the cluster.

    Attributes:
        empty_nodes: Nodes without pods.
        imbalance: By resource, the standard deviation of the nodes' utilization, 0 to 0.5.
        unusable: By resource, the share of its free amount on nodes where a carried pod would not fit, averaged over
            the carried pods, 0 to 1.
        zone_skew: Difference between the zones with the most and the fewest carried pods; None without two zones.
        placed: Number of carried pods that have a node.
    """

    empty_nodes: int
    imbalance: Mapping[str, float]
    unusable: Mapping[str, float]
    zone_skew: int | None
    placed: int


class LedgerFigures(Struct, frozen=True):
    """Estimate of the effect of a shadow's choices.

    Attributes:
        since: Start of the period, UTC.
        pods: Number of pods that were carried forward.
        moved: Number of those that have another node than in the cluster, or none.
        live: The cluster as it is.
        shadow: The cluster with the shadow's choices for these pods.
    """

    since: datetime
    pods: int
    moved: int
    live: StateFigures
    shadow: StateFigures


def measure(nodes: NodeColumns, kinds: Mapping[Requests, int], placed: Iterable[str]) -> StateFigures:
    """Measure the present state of the columns.

    Args:
        nodes: The columns.
        kinds: Number of carried pods by their requests.
        placed: Nodes of the carried pods that have one.
    """
    alive = np.flatnonzero(nodes.alive)
    requested, allocatable = nodes.requested[:, alive], nodes.allocatable[:, alive]
    columns = {name: column for column in range(len(allocatable)) if (name := nodes.resources.keys[column])}
    balances = {name: imbalance(requested[column], allocatable[column]) for name, column in columns.items()}
    amounts = np.maximum(allocatable - requested, 0)
    free = {name: amounts[column] for name, column in columns.items()}
    slots = nodes.allowed_pods[alive] > nodes.pod_count[alive]
    known = [(requests, count) for requests, count in kinds.items() if all(name in free for name, _ in requests)]
    found = list(placed)
    return StateFigures(
        empty_nodes=int((nodes.pod_count[alive] == 0).sum()),
        imbalance={name: value for name, value in balances.items() if value is not None},
        unusable=unusable_shares(free, slots, known),
        zone_skew=_zone_skew(nodes, found),
        placed=len(found),
    )


def _zone_skew(nodes: NodeColumns, placed: Iterable[str]) -> int | None:
    zones = [None if node is None else node.metadata.labels.get(ZONE_LABEL) for node in nodes.nodes]
    counts = Counter({zone: 0 for zone in zones if zone is not None})
    if len(counts) < 2:
        return None
    for name in placed:
        zone = zones[nodes.row_of(name)]
        if zone is not None:
            counts[zone] += 1
    return max(counts.values()) - min(counts.values())
