"""Running pods taken off the live columns and members put on, until the block ends.

Owns the undoing: afterwards every pod is on its row, in its place among the row's pods, and no member holds anything,
so that nobody can tell. Must not know who is a victim. Why on the live columns: a cycle does not await, and the
profile's whole path can then be asked about members as in any other cycle.

What it leaves are entries in the change log, which make readers look once more at rows that are as they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.scheduling import release, reserve
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


class GangOverlay:
    """One overlay.

    Args:
        context: The shared parts.

    Attributes:
        held: Attempts of members that hold a node, in the order of taking it, by the member's UID.
    """

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._nodes = context.cache.columns
        self.held: dict[str, Attempt] = {}
        self._taken: dict[str, tuple[PodInfo, int]] = {}
        self._orders: dict[int, dict[str, PodInfo]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for attempt in reversed(list(self.held.values())):
            release(self._context, attempt)
        self.held.clear()
        for info, row in reversed(self._taken.values()):
            self._nodes.add_pod(info, row)
        self._taken.clear()
        for row, order in self._orders.items():
            pods = self._nodes.pods[row]
            pods.clear()
            pods.update(order)
        self._orders.clear()

    def take(self, pods: Iterable[PodInfo]) -> list[PodInfo]:
        """Take running pods off their rows.

        Returns:
            Those that were on a row; the others are taken already, or on a node that is not known.
        """
        taken = [info for info in pods if info.row != NO_ROW]
        for info in taken:
            row = info.row
            self._remember(row)
            self._nodes.remove_pod(info)
            self._taken[info.uid] = info, row
        return taken

    def put_back(self, pods: Iterable[PodInfo]) -> list[int]:
        """Put pods that were taken back where they run, and leave alone those that were not; the rows."""
        rows = []
        for info in pods:
            taken = self._taken.pop(info.uid, None)
            if taken is not None:
                self._nodes.add_pod(info, taken[1])
                rows.append(taken[1])
        return rows

    def hold(self, attempt: Attempt, node_name: str) -> bool:
        """Assume and reserve a member; if that fails, it holds nothing."""
        self._remember(self._nodes.row_of(node_name))
        if reserve(self._context, attempt, node_name) is not None:
            release(self._context, attempt)
            return False
        self.held[attempt.info.uid] = attempt
        return True

    def let_go(self, attempt: Attempt) -> None:
        """Give back what a member holds."""
        del self.held[attempt.info.uid]
        release(self._context, attempt)

    def _remember(self, row: int) -> None:
        if row not in self._orders:
            self._orders[row] = dict(self._nodes.pods[row])
