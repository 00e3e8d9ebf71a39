"""Ledger of a shadow's own choices, carried forward for a bounded time.

The comparison of single decisions uses the live state, on which the shadow's earlier choices have no effect. The ledger
estimates their effect: for a limited number of pods and a limited time, the shadow decides on the live state with its
own earlier choices in place of those of the live profile. Then the ledger starts again from the live state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np
from msgspec import Struct, field

from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.cycle.filter_and_score import ZONE_LABEL
from scheduler_core.kernels.resource_scores import imbalance, unusable_shares
from scheduler_core.ports import Clock
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

MAX_PODS = 300
MAX_SECONDS = 600.0
_MEASURE_SECONDS = 1.0

Requests = tuple[tuple[str, int], ...]
"""(resource, amount) of what a pod requests, with amounts above 0."""


class StateFigures(Struct, frozen=True):
    """Figures of one state of the cluster.

    Attributes:
        imbalance: By resource, the standard deviation of the nodes' utilization, 0 to 0.5.
        unusable: By resource, the share of its free amount on nodes where a carried pod would not fit, averaged over
            the carried pods, 0 to 1.
        zone_skew: Difference between the zones with the most and the fewest carried pods; None without two zones.
    """

    empty_nodes: int
    imbalance: Mapping[str, float]
    unusable: Mapping[str, float]
    zone_skew: int | None
    placed: int


class LedgerFigures(Struct, frozen=True):
    """Estimate of the effect of a shadow's choices; *moved* pods have another node than in the cluster, or none."""

    since: datetime
    pods: int
    moved: int
    live: StateFigures
    shadow: StateFigures


Decide = Callable[[DecidedPod], str | None]
"""Decides a pod on the present columns; returns the node, "" for none, None for an error."""


class _Carried(Struct):
    """A pod with its node in the cluster and the shadow's choice, "" for none."""

    info: PodInfo
    live_node: str
    node_name: str
    requests: Requests


class _Period(Struct):
    """What is carried since the last start.

    Attributes:
        moved: UIDs of those whose choice differs from the cluster.
    """

    started: float
    since: datetime
    pods: dict[str, _Carried] = field(default_factory=dict)
    moved: dict[str, None] = field(default_factory=dict)


class ShadowLedger:
    """Choices of one shadow that are carried forward.

    Attributes:
        seconds: Time that the last call of :meth:`carry` took; set by its caller.
    """

    def __init__(self, cache: ClusterCache, clock: Clock) -> None:
        self._cache = cache
        self._nodes: NodeColumns = cache.columns
        self._clock = clock
        self._measured = float("-inf")
        self._period = _Period(clock.now(), clock.wall())
        self.figures: LedgerFigures | None = None
        self.seconds = 0.0

    @property
    def differs(self) -> bool:
        """Whether any choice differs from the cluster, so that decisions depend on the ledger."""
        return bool(self._period.moved)

    def carry(self, decided: Sequence[DecidedPod], decide: Decide) -> None:
        """Carry decisions, the last of the live state, forward; those with ``skipped`` stay as they are."""
        now = self._clock.now()
        if len(self._period.pods) >= MAX_PODS or now - self._period.started >= MAX_SECONDS:
            self._period = _Period(now, self._clock.wall())
        with ColumnsOverlay(self._nodes) as overlay:
            overlay.remove(each.info for each in reversed(decided) if each.node_name)
            self._apply(overlay, {each.info.uid for each in decided})
            for each in decided:
                self._carry(overlay, each, decide)
            if self._is_due():
                shadow = self._measure(carried=True)
                overlay.undo()
                period = self._period
                self.figures = LedgerFigures(
                    period.since, len(period.pods), len(period.moved), self._measure(carried=False), shadow
                )

    def _carry(self, overlay: ColumnsOverlay, pod: DecidedPod, decide: Decide) -> None:
        period, info = self._period, pod.info
        chosen = None if pod.skipped else decide(pod)
        if chosen is None or (chosen and not self._fits(info, chosen)):
            overlay.restore((info,))
            return
        requests = tuple(sorted((name, amount) for name, amount in info.requests.fit.items() if amount > 0))
        period.pods[info.uid] = _Carried(info, pod.node_name, chosen, requests)
        if chosen == pod.node_name:
            period.moved.pop(info.uid, None)
            overlay.restore((info,))
            return
        period.moved[info.uid] = None
        if chosen:
            overlay.add(info, self._nodes.row_of(chosen))

    def _apply(self, overlay: ColumnsOverlay, deciding: set[str]) -> None:
        """Move the carried pods to the shadow's nodes; pods that are gone, or no longer fit there, are dropped."""
        period = self._period
        moving = []
        for uid in [uid for uid in period.moved if uid not in deciding]:
            carried = period.pods[uid]
            placed = self._cache.get(uid)
            if (placed is None) == bool(carried.live_node) or (placed and placed.info.node_name != carried.live_node):
                # It was deleted, or scheduled in the meantime without a comparison.
                self._drop(uid)
                continue
            if placed is not None:
                carried.info = placed.info
            moving.append(carried)
        overlay.remove(each.info for each in moving)
        for each in moving:
            if not each.node_name:
                continue
            if self._fits(each.info, each.node_name):
                overlay.add(each.info, self._nodes.row_of(each.node_name))
            else:
                overlay.restore((each.info,))
                self._drop(each.info.uid)

    def _fits(self, info: PodInfo, node_name: str) -> bool:
        """Return whether the node has room; decisions that were not carried may have used it."""
        nodes, row = self._nodes, self._nodes.row_of(node_name)
        if row == NO_ROW or nodes.pod_count[row] >= nodes.allowed_pods[row]:
            return False
        return all(
            nodes.requested.item(column, row) + amount <= nodes.allocatable.item(column, row)
            for column, amount in info.accounted
        )

    def _drop(self, uid: str) -> None:
        self._period.moved.pop(uid, None)
        self._period.pods.pop(uid, None)

    def _is_due(self) -> bool:
        now, period = self._clock.now(), self._period
        if now - self._measured < _MEASURE_SECONDS and len(period.pods) < MAX_PODS:
            return False
        self._measured = now
        return True

    def _measure(self, *, carried: bool) -> StateFigures:
        pods, nodes = self._period.pods.values(), self._nodes
        names = (each.node_name if carried else each.live_node for each in pods)
        placed = [name for name in names if nodes.row_of(name) != NO_ROW]
        alive = np.flatnonzero(nodes.alive)
        requested, allocatable = nodes.requested[:, alive], nodes.allocatable[:, alive]
        columns = {name: column for column in range(len(allocatable)) if (name := nodes.resources.keys[column])}
        balances = {name: imbalance(requested[column], allocatable[column]) for name, column in columns.items()}
        amounts = np.maximum(allocatable - requested, 0)
        free = {name: amounts[column] for name, column in columns.items()}
        slots = nodes.allowed_pods[alive] > nodes.pod_count[alive]
        kinds = Counter(each.requests for each in pods if all(name in free for name, _ in each.requests))
        return StateFigures(
            empty_nodes=int((nodes.pod_count[alive] == 0).sum()),
            imbalance={name: value for name, value in balances.items() if value is not None},
            unusable=unusable_shares(free, slots, list(kinds.items())),
            zone_skew=_zone_skew(nodes, placed),
            placed=len(placed),
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
