"""Moves that make room for a gang: the world in which a member gets a node, or one from which pods are moved first.

The search for domains and members is that of all placements (``placement.engine``). A member that is infeasible gets
the node from which the fewest pods must be moved; each of them has another node, with all earlier moves and members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.errors import AttemptLimitError
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.placement.engine import Policy, Steps, World, at_once, place
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.subsets import all_subsets
from scheduler_core.placement.worlds import SearchWorld
from scheduler_core.rebalance.movable_pods import MovablePods
from scheduler_core.rebalance.mover import Mark, Mover, cost_of, largest_first
from scheduler_core.rebalance.requests import Move, Room
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_INFEASIBLE = Failure("infeasible even after moves")
_NODE_REASON = "node(s) are not the node from which pods are moved"
_PODS_PER_STEP = 20
_MAX_TRIED = 50
"""Nodes of the least costs from which moves are tried for one member."""


class RoomWorld(SearchWorld):
    """The nodes as they are after moves; an undo also undoes the moves of the members."""

    is_minimal: ClassVar[bool] = True

    def __init__(self, search: SearchWorld, mover: Mover, movable: MovablePods) -> None:
        super().__init__(search.cache, search.assumed, search.selection, search.clock, search.steps)
        self._mover = mover
        self._movable = movable
        self._begun: Mark = mover.mark()

    def fill(
        self, instance: FrameworkInstance, found: Placement, members: Sequence[QueuedPod], needed: int
    ) -> Steps[None]:
        self._begun = self._mover.mark()
        yield from super().fill(instance, found, members, needed)

    def undo(self, attempts: Sequence[Attempt]) -> None:
        del attempts
        self._mover.undo(self._begun)

    def seat(self, attempt: Attempt) -> Steps[Failure | None]:
        """Assume a member on a feasible node, or on the node that needs the cheapest moves."""
        yield from ()
        if self.seat_at_once(attempt) is None:
            return None
        for row in self._in_order_of_cost(attempt):
            if self._is_seated_after_moves(attempt.queued, attempt.instance, row):
                return None
        return _INFEASIBLE

    def _in_order_of_cost(self, attempt: Attempt) -> Iterator[int]:
        """Yield the rows that have room by amounts without their movable pods, the least cost of moves first."""
        nodes = self.nodes
        rows = np.flatnonzero(nodes.alive if attempt.among is None else attempt.among & nodes.alive)
        estimates: list[tuple[int, str, int]] = []
        for row in rows.tolist():
            pods = self._movable_on(row)
            self.steps.spend(1 + len(pods) // _PODS_PER_STEP)
            cost = self._least_cost(attempt.info, row, pods)
            if cost is not None:
                estimates.append((cost, nodes.node_name(row), row))
        yield from (row for *_, row in sorted(estimates)[:_MAX_TRIED])

    def _movable_on(self, row: int) -> list[PodInfo]:
        # Members and replacements of the search are not bound, and are not reported as left alone.
        pods = [info for info in self.nodes.pods[row].values() if info.pod.spec.node_name]
        return [info for info in pods if not self._movable.why_not(info)]

    def _least_cost(self, member: PodInfo, row: int, pods: Sequence[PodInfo]) -> int | None:
        """Return a lower bound of the cost of moves after which a node has room; None if it has none even then."""
        if not pods:
            return None
        most = 1
        cheapest = min(map(cost_of, pods))
        for column, amount in member.fit:
            missing = amount - int(self.nodes.allocatable[column, row] - self.nodes.requested[column, row])
            freed = sorted((dict(info.accounted).get(column, 0) for info in pods), reverse=True)
            count = 0
            while missing > 0 and count < len(freed):
                missing -= freed[count]
                count += 1
            if missing > 0:
                return None
            most = max(most, count)
        return most * cheapest

    def _is_seated_after_moves(self, queued: QueuedPod, instance: FrameworkInstance, row: int) -> bool:
        """Move pods off a node and assume a member there; return whether that succeeded, else nothing is changed."""
        name = self.nodes.node_name(row)
        here = Where(only(self.nodes, name), _NODE_REASON)
        leaving = self._to_be_moved(lambda: self.begin(instance, queued, here), row)
        if not leaving or not self._mover.allows(leaving):
            return False
        elsewhere = ~only(self.nodes, name) & self.nodes.alive
        with self._mover.all_or_nothing() as group:
            are_moved = all(self._mover.move(info, elsewhere) for info in leaving)
            if are_moved and self.seat_at_once(self.begin(instance, queued, here)) is None:
                group.commit()
        return group.is_committed

    def _to_be_moved(self, begin: Callable[[], Attempt], row: int) -> list[PodInfo]:
        """Return the pods of a node without which a member is feasible there, as few as possible; empty for none."""
        pods = sorted(self._movable_on(row), key=lambda info: (-cost_of(info), -info.priority, info.key))
        with ColumnsOverlay(self.nodes) as overlay:
            overlay.remove(pods)
            if not len(self.find(begin()).rows):
                return []
            for info in pods:
                overlay.restore([info])
                if not len(self.find(begin()).rows):
                    overlay.remove([info])
            return largest_first(overlay.removed)


def make_room(world: RoomWorld, mover: Mover, search: SearchWorld, request: PlacementRequest) -> tuple[Room, ...]:
    """Make the moves after which a gang fits.

    The moves are made again without the members, in their order, and each move without which the gang also fits is
    left out.

    Returns:
        The room of the members then; empty if the gang does not fit.

    Raises:
        AttemptLimitError: The search was given up; no moves are made.
    """
    begun = mover.mark()

    def fits(policy: Policy | None, among: World) -> bool:
        with mover.all_or_nothing():
            found, rejection = at_once(place(request, among, policy))
            made[:] = mover.moves
            room[:] = [] if found is None else [Room(each.info, each.node_name) for each in found.placed]
        if rejection.limit is not None:
            raise rejection.limit
        return found is not None

    def fits_after(moves: Sequence[Move]) -> bool:
        mover.undo(begun)
        return mover.repeat(moves) and fits(None, search)

    made: list[Move] = []
    room: list[Room] = []
    try:
        # Moves make room in any domain.
        if not fits(Policy(subsets=all_subsets), world):
            return ()
        moves = list(made)
        if not fits_after(moves):
            mover.undo(begun)
            return ()
        for move in sorted(moves, key=lambda each: -each.cost):
            others = [each for each in moves if each is not move]
            if fits_after(others):
                moves = others
        return tuple(room) if fits_after(moves) else ()
    except AttemptLimitError:
        mover.undo(begun)
        raise
