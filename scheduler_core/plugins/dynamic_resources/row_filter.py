"""Filter and Score of DynamicResources on rows: one search for each class of nodes, and no loop over nodes.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``Filter``) and
``extendeddynamicresources.go`` (``filterExtendedResources``).
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from scheduler_core.devices.allocator import Allocator, NodeAllocation
from scheduler_core.devices.behaviours import BehaviourTable
from scheduler_core.devices.search import size_ranks
from scheduler_core.errors import UndecidedRowsError
from scheduler_core.framework.extension_points import Codes, Scores
from scheduler_core.framework.status import Code
from scheduler_core.plugins.dynamic_resources.node_allocation import (
    CANNOT_FIT,
    NOT_AVAILABLE,
    REASONS,
    STALE_EXTENDED_CLAIM,
    UNSUPPORTED_CODE,
    BindingLimit,
    NodeClasses,
    NodeSearch,
    PodDevices,
)
from scheduler_core.plugins.dynamic_resources.pod_claims import unsupporting_rows
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.node_selector_matching import NodeMatching

_CODES = {reason: number for number, reason in enumerate(REASONS, 1)}
_FAILED = -1
_FIT_STEPS = 100
"""Weight of alternatives beside sizes: the best size counts less than the next better alternative."""


class RowFilter:
    """Searches devices on rows."""

    def __init__(self, nodes: NodeColumns, plugin: str) -> None:
        self.nodes = nodes
        self._plugin = plugin
        self._matching = NodeMatching(nodes)
        self._classes: WeakKeyDictionary[BehaviourTable, NodeClasses] = WeakKeyDictionary()

    def filter(self, attempt: PodDevices, rows: NDArray[np.intp], limits: BindingLimit) -> Codes:
        """Return int16 per row: 0 for a feasible node, else one more than the index of the reason.

        Raises:
            UndecidedRowsError: A claim or a class is wrong; kube-scheduler fails the attempt, too.
        """
        codes: Codes = np.zeros(len(rows), dtype=np.int16)
        unsupporting = unsupporting_rows(self.nodes, rows) if attempt.skipping else None
        if attempt.extended_claim is None:
            positions: NDArray[np.intp] | slice = slice(None)
            if unsupporting is not None:
                _check_pending(attempt, unsupporting, codes)
                positions = np.flatnonzero(codes == 0)
            self._search(attempt, attempt.search(frozenset()), rows, positions, codes)
        elif attempt.extended_claim.spec.devices.request_list is not None:
            codes[:] = _CODES[STALE_EXTENDED_CLAIM]
            return codes
        else:
            numbers, sets = attempt.provided_through_devices(rows)
            codes[numbers < 0] = _CODES[CANNOT_FIT]
            if unsupporting is not None:
                _check_pending(attempt, unsupporting, codes)
            for number, names in enumerate(sets):
                if names or attempt.has_user_claims:
                    searched = np.flatnonzero((numbers == number) & (codes == 0))
                    self._search(attempt, attempt.search(names), rows, searched, codes)
        self._check_allocated(attempt, rows, limits, codes, unsupporting)
        return codes

    def _search(
        self,
        attempt: PodDevices,
        search: NodeSearch,
        rows: NDArray[np.intp],
        positions: NDArray[np.intp] | slice,
        codes: Codes,
    ) -> None:
        """Set the codes of rows that provide the same resources through devices."""
        allocator, nodes = search.allocator, self.nodes
        searched = rows[positions]
        if attempt.is_found or allocator is None or not len(searched):
            return
        search.classes = self._refreshed(allocator)
        distinct, first, inverse = np.unique(search.classes[searched], return_index=True, return_inverse=True)
        by_class: Codes = np.zeros(len(distinct), dtype=np.int16)
        for position in np.argsort(first).tolist():
            node = nodes.nodes[searched.item(first.item(position))]
            if node is None:
                continue
            status = search.run(distinct.item(position), node)
            if status is not None and status.code is Code.ERROR:
                by_class[position] = _FAILED
                codes[positions] = by_class[inverse]
                raise UndecidedRowsError(self._plugin, codes, {_FAILED: status.message})
            if status is not None:
                by_class[position] = _CODES[status]
        codes[positions] = by_class[inverse]

    def _refreshed(self, allocator: Allocator) -> NDArray[np.int64]:
        stored = self._classes.get(allocator.table)
        if stored is None:
            stored = self._classes[allocator.table] = NodeClasses(self.nodes)
        return stored.refresh(allocator)

    def _check_allocated(
        self,
        attempt: PodDevices,
        rows: NDArray[np.intp],
        limits: BindingLimit,
        codes: Codes,
        unsupporting: NDArray[np.bool_] | None,
    ) -> None:
        """Reject rows that cannot reach or use the devices of an allocated claim, or where these failed."""
        passed = (codes == 0) & self.nodes.alive[rows]
        for index, matcher in enumerate(attempt.matchers):
            blocked = passed
            if attempt.is_usable(index, limits):
                lacking = unsupporting if index in attempt.skipping else None
                if matcher is None and lacking is None:
                    continue
                blocked = np.zeros_like(passed) if matcher is None else passed & ~self._matching.selector(matcher, rows)
                if lacking is not None:
                    blocked |= passed & lacking
            if blocked.any():
                attempt.unavailable.add(index)
                codes[blocked] = _CODES[NOT_AVAILABLE]


def _check_pending(attempt: PodDevices, unsupporting: NDArray[np.bool_], codes: Codes) -> None:
    """Reject rows that cannot skip operations, if an allocation that is not written yet needs that."""
    if attempt.pending_skipping is not None:
        codes[unsupporting & (codes == 0)] = UNSUPPORTED_CODE


def raw_scores(attempt: PodDevices, rows: NDArray[np.intp], *, best_fit: bool) -> Scores:
    """Return int64 per row: the sum, over requests with alternatives, of 8 minus the index of the one in use.

    With ``best_fit`` that counts 100 times, and 99 is added for the smallest devices among the rows down to 0 for the
    largest ones.
    """
    scores: Scores = np.zeros(len(rows), dtype=np.int64)
    if not best_fit and not attempt.has_alternatives:
        return scores
    parts = _found(attempt, rows)
    values = iter(_values([each for found, _, _ in parts for each in found if each], attempt, best_fit=best_fit))
    for found, positions, inverse in parts:
        scores[positions] = np.array([0 if each is None else next(values) for each in found], dtype=np.int64)[inverse]
    return scores


def _values(found: Sequence[NodeAllocation], attempt: PodDevices, *, best_fit: bool) -> list[int]:
    preferred = [attempt.preference(each) for each in found]
    if not best_fit:
        return preferred
    ranks = size_ranks([each.size for each in found])
    largest = max(1, *ranks) if ranks else 1
    fits = [(_FIT_STEPS - 1) * (largest - rank) // largest for rank in ranks]
    return [value * _FIT_STEPS + fit for value, fit in zip(preferred, fits, strict=True)]


def _found(
    attempt: PodDevices, rows: NDArray[np.intp]
) -> list[tuple[list[NodeAllocation | None], NDArray[np.intp], NDArray[np.intp]]]:
    """Return what Filter found by class of nodes, the positions of the searched rows, and the class of each of them."""
    if attempt.extended_claim is None:
        numbers: NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
        sets = [frozenset[str]()]
    else:
        numbers, sets = attempt.provided_through_devices(rows)
    parts = []
    for number, names in enumerate(sets):
        search = attempt.searches.get(names)
        if search is None or not len(search.classes):
            continue
        positions = np.flatnonzero(numbers == number)
        distinct, inverse = np.unique(search.classes[rows[positions]], return_inverse=True)
        parts.append(([search.by_class.get(each) for each in distinct.tolist()], positions, inverse))
    return parts
