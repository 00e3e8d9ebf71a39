"""Rules out topology domains in which no member of a gang is feasible, without a try in each of them.

With a topology such as the hostname there are as many domains as nodes. A member's filters give the same result for a
node whichever domain is tried, so one run of them over all nodes decides for all domains in which nothing is assumed
yet. It is made after the first try in which no member is feasible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.filter_and_score import Feasible
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance

FeasibleRows = Callable[[FrameworkInstance, QueuedPod], Feasible | None]
"""Returns where a member is feasible in any domain, with the complete diagnosis; None if that cannot be decided."""


class DomainScreen:
    """Rules out domains for one group of one cycle, as long as nothing is assumed that it has not seen.

    Args:
        instance: The profile's revision that decides.
        needed: How many members must be feasible together.
        feasible_rows: Where a member is feasible.

    Attributes:
        ruled_out: Names of the domains that were ruled out.
        rejected_by: Plugins that reject members in them.
        pending_on: Those of them that returned Pending.
    """

    def __init__(self, instance: FrameworkInstance, needed: int, feasible_rows: FeasibleRows) -> None:
        self._instance = instance
        self._needed = needed
        self._feasible_rows = feasible_rows
        self._masks: dict[tuple[str, ...], NDArray[np.bool_] | None] = {}
        self._of_class: dict[object, NDArray[np.bool_] | None] = {}
        self.ruled_out: dict[str, None] = {}
        self.rejected_by: set[str] = set()
        self.pending_on: set[str] = set()

    def none_feasible(self, order: Sequence[QueuedPod]) -> None:
        """Screen further domains for this order of members: a try has failed without a feasible member."""
        tried = self._first(order)
        if tried not in self._masks:
            self._masks[tried] = self._mask(order)

    def rules_out(self, where: Where, order: Sequence[QueuedPod]) -> bool:
        """Return whether no member that a try of this order would try is feasible in a domain."""
        if not self._masks or where.rows is None:
            return False
        mask = self._masks.get(self._first(order))
        if mask is None or mask[where.rows].any():
            return False
        self.ruled_out[where.name] = None
        return True

    def _first(self, order: Sequence[QueuedPod]) -> tuple[str, ...]:
        """Return the UIDs of the members that are tried until the quorum is out of reach."""
        return tuple(queued.uid for queued in order[: max(1, len(order) - self._needed + 1)])

    def _mask(self, order: Sequence[QueuedPod]) -> NDArray[np.bool_] | None:
        """Return the rows on which one of these members is feasible, bool per row; None if that cannot be decided."""
        found: NDArray[np.bool_] | None = None
        for queued in order[: max(1, len(order) - self._needed + 1)]:
            pod_class = filter_class(self._instance, queued.info)
            if pod_class not in self._of_class:
                self._of_class[pod_class] = self._feasible(queued)
            mask = self._of_class[pod_class]
            if mask is None:
                return None
            found = mask if found is None else found | mask
        return found

    def _feasible(self, queued: QueuedPod) -> NDArray[np.bool_] | None:
        feasible = self._feasible_rows(self._instance, queued)
        if feasible is None:
            return None
        self.rejected_by |= feasible.diagnosis.rejected_by | {GANG_SCHEDULING}
        self.pending_on |= feasible.diagnosis.pending_on
        mask = np.zeros(len(feasible.diagnosis.verdicts), dtype=np.bool_)
        mask[feasible.rows] = True
        return mask
