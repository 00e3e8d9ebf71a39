"""Why a pod fits nowhere, as the filters left it, and the one sentence that is made of it.

Owns the verdicts per row and their decoding. Verdicts stay numbers until someone asks: a failed attempt over 5,000
nodes decodes the handful of distinct ones, never one per node. Wording follows kube-scheduler v1.36.3
(``framework/types.go``, ``FitError.Error``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.framework.status import SUCCESS, Code, Status

NO_NODE_AVAILABLE = "0/{count} nodes are available"

Verdicts = NDArray[np.int32]
"""int32 per row: 0 passes; else ``plugin_position + 1 << 16 | code & 0xffff``."""


class Diagnosis(Struct):
    """What is known about a failed attempt.

    Attributes:
        node_count: Nodes that exist.
        verdicts: One per row; rows that are not alive or were not evaluated hold 0.
        evaluated: bool per row: alive and judged.
        decode: The status behind a verdict that is not 0.
        pre_filter: PreFilter's rejection of the pod as a whole; Success if it did not.
        rejected_by: Plugins that rejected the pod on a node or as a whole.
        pending_on: Of those, the ones that answered Pending.
        post_filter_message: What PostFilter adds.
    """

    node_count: int
    verdicts: Verdicts
    evaluated: NDArray[np.bool_]
    decode: Callable[[int], Status]
    pre_filter: Status = SUCCESS
    rejected_by: set[str] = field(default_factory=set)
    pending_on: set[str] = field(default_factory=set)
    post_filter_message: str = ""

    def counted(self) -> Iterator[tuple[Status, int]]:
        """Each distinct rejection and on how many nodes it stands."""
        values, counts = np.unique(self.verdicts[self.evaluated], return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            if value:
                yield self.decode(value), count

    def status_of(self, row: int) -> Status:
        """Why a row was rejected; Success if it was not, or not looked at."""
        verdict = int(self.verdicts[row])
        return self.decode(verdict) if verdict and self.evaluated[row] else SUCCESS

    def rows_with(self, code: Code) -> NDArray[np.intp]:
        """Rows that were rejected with ``code``, ascending."""
        matching = [value for value in np.unique(self.verdicts[self.evaluated]).tolist() if value]
        matching = [value for value in matching if self.decode(value).code is code]
        return np.flatnonzero(np.isin(self.verdicts, matching) & self.evaluated)

    def message(self) -> str:
        """The text of the FailedScheduling event and of the PodScheduled condition."""
        text = NO_NODE_AVAILABLE.format(count=self.node_count) + ":"
        if not self.pre_filter.is_success:
            text += f" {self.pre_filter.message}." if self.pre_filter.message else ""
        else:
            per_reason: dict[str, int] = {}
            for status, count in self.counted():
                for reason in status.reasons:
                    per_reason[reason] = per_reason.get(reason, 0) + count
            parts = sorted(f"{count} {reason}" for reason, count in per_reason.items())
            if parts:
                text += f" {', '.join(parts)}."
        if self.post_filter_message:
            text += f" {self.post_filter_message}"
        return text
