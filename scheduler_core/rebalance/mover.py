"""Moves on the live columns: a pod is removed in an overlay, and its replacement is assumed on the node that it gets.

Each move is made after all earlier ones, so that the filters of the profile accept its node then. All moves are undone
together when the search ends.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.movable_pod import cost_of_move
from scheduler_core.model.pod import PodStatus
from scheduler_core.placement.subsets import exempted_resources, member_room
from scheduler_core.placement.worlds import DryProfiles, SearchWorld
from scheduler_core.rebalance.movable_pods import MovablePods, replace_claims
from scheduler_core.rebalance.requests import Limits, Move, RebalancePlan
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.held_claims import has_claims
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_STEPS_OF_MOVE = 5
_MOVED = "moved/"
"""First part of the UID of a replacement."""
NO_DESTINATION = "no other node has room for it, with the moves before"
_OVER_LIMIT = "the limits of the plan allow no further moves"
_REASON = "node(s) are not destinations of the plan"
Mark = tuple[int, tuple[int, int]]
Rows = NDArray[np.intp]
Choice = Callable[[Rows], int]
"""Returns one of at least one feasible rows, ascending."""


def cost_of(info: PodInfo) -> int:
    """Return the cost of moving a pod."""
    return 1 + cost_of_move(info.pod)


@dataclasses.dataclass
class MoveGroup:
    """Moves that are made together or not at all."""

    is_committed: bool = False

    def commit(self) -> None:
        self.is_committed = True


class Mover:
    """Makes moves one after the other, and undoes the last ones.

    Attributes:
        moves: The moves that are made now, in order.
        left: Why pods were left alone in a step of the search, by ``namespace/name``; a later step may move them.
    """

    def __init__(self, world: SearchWorld, profiles: ProfileTable, limits: Limits) -> None:
        self.nodes: NodeColumns = world.nodes
        self.moves: list[Move] = []
        self.left: dict[str, str] = {}
        self._made: list[tuple[ColumnsOverlay, Attempt]] = []
        self._world = world
        self._limits = limits
        self._instances = DryProfiles(profiles)
        self._cost = 0

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo all moves on exit."""
        mark = self.mark()
        try:
            yield
        finally:
            self.undo(mark)

    def mark(self) -> Mark:
        """Return the argument with which :meth:`undo` undoes what is moved and assumed from now on."""
        return len(self.moves), self._world.assumed.mark()

    def undo(self, mark: Mark) -> None:
        count, begun = mark
        # The last move first: it may have moved the replacement of an earlier one.
        while len(self._made) > count:
            overlay, attempt = self._made[-1]
            self._world.assumed.release(attempt)
            overlay.undo()
            self._made.pop()
        self._world.assumed.undo(*begun)
        self._cost -= sum(move.cost for move in self.moves[count:])
        del self.moves[count:]

    @contextmanager
    def all_or_nothing(self) -> Iterator[MoveGroup]:
        """Undo what is moved and assumed in the block, unless it commits."""
        group, mark = MoveGroup(), self.mark()
        try:
            yield group
        finally:
            if not group.is_committed:
                self.undo(mark)

    def allows(self, infos: Sequence[PodInfo]) -> bool:
        """Return whether the limits allow to move some more pods."""
        moves, cost = self._limits.moves, self._limits.cost
        is_allowed = moves is None or len(self.moves) + len(infos) <= moves
        if is_allowed and cost is not None:
            is_allowed = self._cost + sum(map(cost_of, infos)) <= cost
        if not is_allowed:
            self.left.update((info.key, _OVER_LIMIT) for info in infos)
        return is_allowed

    def move(self, info: PodInfo, among: NDArray[np.bool_], choose: Choice | None = None) -> bool:
        """Move a pod to one of some nodes; return whether one of them is feasible, with nothing changed otherwise.

        Args:
            among: The nodes, bool per row.
            choose: Selects one of the feasible nodes; None selects as the profile does.
        """
        self._world.steps.spend(_STEPS_OF_MOVE)
        source = self.nodes.node_name(info.row)
        if self.is_moved(info) and has_claims(info.pod):
            # Its claims are hypothetical, and have no devices yet.
            self.left[info.key] = NO_DESTINATION
            return False
        with self.all_or_nothing() as group:
            overlay = ColumnsOverlay(self.nodes)
            overlay.__enter__()
            overlay.remove([info])
            seated = self._seat(info, overlay, among, choose)
            if isinstance(seated, str):
                self.left[info.key] = seated
                return False
            group.commit()
        self._made.append((overlay, seated))
        move = Move(info, seated.info, source, seated.node_name, cost_of(info))
        self.moves.append(move)
        self._cost += move.cost
        return True

    @staticmethod
    def is_moved(info: PodInfo) -> bool:
        """Return whether a pod is the replacement of one that was moved."""
        return info.uid.startswith(_MOVED)

    def move_once(self, search: Callable[[bool], None]) -> None:
        """Run a search that may move pods on, and move each pod at once to its last node.

        Args:
            search: Makes moves; called with whether it may move pods on that it has moved. If the last nodes are not
                feasible in any order, it is called again and may not.
        """
        begun = self.mark()
        try:
            search(True)
        finally:
            final = self.final_moves()
            is_once = len(final) == len(self.moves)
            if not is_once:
                self.undo(begun)
        if not is_once and not self.repeat(final):
            self.undo(begun)
            search(False)

    def final_moves(self) -> list[Move]:
        """Return one move for each pod, to its last node, in the order of the first moves."""
        found: dict[str, Move] = {}
        first: dict[str, str] = {}
        for move in self.moves:
            uid = first.get(move.info.uid, move.info.uid)
            first[move.replacement.uid] = uid
            found[uid] = dataclasses.replace(found[uid], target=move.target) if uid in found else move
        return list(found.values())

    def repeat(self, moves: Sequence[Move]) -> bool:
        """Make moves to the given nodes, in an order in which the nodes are feasible; return whether there is one."""
        left = list(moves)
        while left:
            failed = [move for move in left if not self.move(move.info, only(self.nodes, move.target))]
            if len(failed) == len(left):
                return False
            left = failed
        return True

    def _seat(
        self, info: PodInfo, overlay: ColumnsOverlay, among: NDArray[np.bool_], choose: Choice | None
    ) -> Attempt | str:
        """Assume the replacement of a pod that the overlay removes; return why that is not possible if it is not."""
        instance = self._instances.get(info.pod.spec.scheduler_name)
        if instance is None:
            return NO_DESTINATION
        try:
            replacement = self._replacement(info, overlay)
            rows = among & (member_room(self.nodes, [replacement], exempts=exempted_resources(instance)) > 0)
            if not rows.any():
                return NO_DESTINATION
            attempt = self._world.begin(instance, QueuedPod(replacement, 0.0, 0), Where(rows, _REASON))
            feasible = self._world.find(attempt)
            if not len(feasible.rows):
                return NO_DESTINATION
            if choose is None:
                name = self._world.selection.select(attempt, feasible)
            else:
                name = self.nodes.node_name(choose(feasible.rows))
            failure = self._world.assumed.reserve_or_release(attempt, name)
        except AttemptLimitError:
            raise
        except SchedulerCoreError as error:
            # A plugin raised: the pod stays where it is.
            return f"its replacement cannot be scheduled: {error}"
        return attempt if failure is None else NO_DESTINATION

    def _replacement(self, info: PodInfo, overlay: ColumnsOverlay) -> PodInfo:
        """Return the pod that a controller creates in place of another one, as far as filters read it."""
        pod = info.pod
        uid = f"{_MOVED}{pod.metadata.uid}"
        meta = replace(pod.metadata, uid=uid, deletion_timestamp=None, creation_timestamp=None)
        spec = replace(pod.spec, node_name="")
        status = replace_claims(overlay, self.nodes.devices, pod, uid) if has_claims(pod) else PodStatus()
        return self.nodes.compile_pod(replace(pod, metadata=meta, spec=spec, status=status))


class MoveSearch(ABC):
    """A search for the moves that reach one objective."""

    def __init__(self, mover: Mover, movable: MovablePods) -> None:
        self._mover = mover
        self._movable = movable
        self._nodes = mover.nodes

    @abstractmethod
    def run(self, plan: RebalancePlan) -> None:
        """Make the moves, and record in the plan what they reach.

        Raises:
            AttemptLimitError: The search was given up; the moves that are made are valid.
        """

    def _may_move(self, info: PodInfo, moves_twice: bool) -> bool:
        return moves_twice if self._mover.is_moved(info) else not self._movable.why_not(info)

    def _free_rows(self, candidates: Callable[[], list[int]], is_freed: Callable[[int], bool]) -> None:
        """Move pods off the nodes, in rounds, until a round frees none."""
        is_progress = True
        while is_progress:
            before = self._nodes.pod_count.copy()
            is_progress = False
            for row in candidates():
                # A node that got pods is tried in the next round; otherwise these pods would be moved on and on.
                if self._nodes.pod_count[row] <= before[row] and is_freed(row):
                    is_progress = True

    def _least(self, rows: Rows, values: NDArray[np.float64 | np.int64]) -> int:
        """Return the row with the least value, the first by name of equal ones."""
        tied: list[int] = rows[np.flatnonzero(values == values.min())].tolist()
        return min(tied, key=self._nodes.node_name)


def largest_first(pods: Sequence[PodInfo]) -> list[PodInfo]:
    """Return pods in the order in which they are moved: those that request more are harder to place."""
    return sorted(pods, key=lambda info: (sorted(info.fit, reverse=True), info.key), reverse=True)
