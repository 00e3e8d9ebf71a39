"""Why a pod fits on no node, and the message that reports it.

Verdicts stay numbers until they are read: after a failed attempt over 5,000 nodes only the few distinct verdicts are
decoded. The wording follows kube-scheduler v1.37.1 (``framework/types.go``, ``FitError.Error``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.pod_group import GroupKey

NO_NODE_AVAILABLE = "0/{count} nodes are available"
EXTENDER = "Extender"
"""Listed among the plugins that rejected a pod if extenders did."""

Verdicts = NDArray[np.int32]
"""int32 per row: 0 passes; else ``plugin_position + 1 << 16 | code & 0xffff``."""


def counted_reasons(rejections: Iterable[tuple[Status, int]]) -> Counter[str]:
    """Return the number of nodes by reason, from rejections with the number of nodes that each applies to."""
    counts: Counter[str] = Counter()
    for status, count in rejections:
        for reason in status.reasons:
            counts[reason] += count
    return counts


def no_node_text(node_count: int, reasons: Mapping[str, int]) -> str:
    """Return the text for nodes that are not feasible, with their number by reason."""
    text = NO_NODE_AVAILABLE.format(count=node_count) + ":"
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"{text} {', '.join(parts)}." if parts else text


class Diagnosis(Struct):
    """Result of the filters in a failed attempt.

    Attributes:
        verdicts: One per row; 0 for rows that have no node or were not evaluated.
        evaluated: bool per row: the row has a node and the filters ran on it.
        pre_filter: PreFilter's rejection of the pod as a whole; Success if there was none.
        rejected_by: Plugins that rejected the pod on a node or as a whole.
        pending_on: Those of them that returned Pending.
        reserved_for: Gangs whose reserved nodes are among those that rejected the pod; empty if a node is feasible.
    """

    node_count: int
    verdicts: Verdicts
    evaluated: NDArray[np.bool_]
    decode: Callable[[int], Status]
    pre_filter: Status = SUCCESS
    rejected_by: set[str] = field(default_factory=set)
    pending_on: set[str] = field(default_factory=set)
    post_filter_message: str = ""
    reserved_for: frozenset[GroupKey] = frozenset()

    def counted(self) -> Iterator[tuple[Status, int]]:
        """Yield each distinct rejection with the number of nodes that it applies to."""
        values, counts = np.unique(self.verdicts[self.evaluated], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            if value:
                yield self.decode(value), count

    def status_of(self, row: int) -> Status:
        """Return why a row was rejected; Success if it was not rejected or not evaluated."""
        verdict = int(self.verdicts[row])
        return self.decode(verdict) if verdict and self.evaluated[row] else SUCCESS

    def rows_with(self, code: Code) -> NDArray[np.intp]:
        """Return the rows that were rejected with ``code``, ascending."""
        matching = [value for value in np.unique(self.verdicts[self.evaluated]).tolist() if value]
        matching = [value for value in matching if self.decode(value).code is code]
        return np.flatnonzero(np.isin(self.verdicts, matching) & self.evaluated)

    def message(self) -> str:
        """Return the text of the FailedScheduling event and of the PodScheduled condition."""
        if self.pre_filter.is_success:
            text = no_node_text(self.node_count, counted_reasons(self.counted()))
        else:
            text = no_node_text(self.node_count, {})
            text += f" {self.pre_filter.message}." if self.pre_filter.message else ""
        if self.post_filter_message:
            text += f" {self.post_filter_message}"
        return text
