"""Computes plans on the present state of a scheduler; all moves are undone at the end.

::

    movable pods ─▶ moves for the objective, each after all earlier ones ─▶ gain ─▶ undone
                        │ gain nothing, or exceed the limits: left out
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_core.cycle.gang_constraints import only
from scheduler_core.errors import AttemptLimitError
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.worlds import DryProfiles, SearchWorld
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.rebalance.defragmentation import Defragmentation
from scheduler_core.rebalance.emptying import Emptying
from scheduler_core.rebalance.movable_pods import MovablePods
from scheduler_core.rebalance.mover import NO_DESTINATION, Mover
from scheduler_core.rebalance.requests import (
    Consolidate,
    Defragment,
    Drain,
    Limits,
    MakeRoom,
    PlanState,
    RebalancePlan,
    RebalanceRequest,
    Spread,
)
from scheduler_core.rebalance.room_making import RoomWorld, make_room
from scheduler_core.rebalance.spread_repair import SpreadRepair
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """Searches moves, between two cycles; nothing is changed.

    Args:
        queue: The queue of the scheduler, whose gangs and nominations count.
        world: World with sinks of its own.
    """

    profiles: ProfileTable
    queue: SchedulingQueue
    world: SearchWorld

    def plan(self, request: RebalanceRequest, limit: int | None = None) -> RebalancePlan:
        """Return the plan for a request.

        Args:
            limit: Maximum number of steps; None for that of dry runs.
        """
        world, plan = self.world, RebalancePlan()
        mover = Mover(world, self.profiles, request.limits)
        movable = self._movable(request, mover.left)
        with world.steps.dry_run(limit=limit), mover.undone():
            try:
                match request.objective:
                    case Consolidate() | Drain() as objective:
                        Emptying(mover, movable, objective).run(plan)
                    case Defragment() as objective:
                        Defragmentation(mover, movable, objective).run(plan)
                    case Spread():
                        SpreadRepair(mover, movable).run(plan)
                    case MakeRoom(gang=key):
                        self._make_room(key, mover, movable, plan)
            except AttemptLimitError as reached:
                plan.state, plan.reason = PlanState.GAVE_UP, f"the search was {reached}"
            plan.moves, plan.steps = tuple(mover.moves), world.steps.spent
        if not plan.gain.fits:
            moved = {move.info.key for move in plan.moves}
            plan.left = {name: why for name, why in mover.left.items() if name not in moved}
        if not plan.moves and not plan.reason:
            plan.reason = "none gains anything"
        return plan

    def check(self, request: RebalanceRequest, info: PodInfo, target: str) -> tuple[str, PodInfo | None]:
        """Return why a pod of a plan may not be moved to a node now, and its replacement if it may."""
        nodes = self.world.nodes
        for name in (info.pod.spec.node_name, target):
            row = nodes.row_of(name)
            if row == NO_ROW or not nodes.alive[row]:
                return f"node {name} was deleted", None
        why = self._movable(request).why_not(info)
        if why:
            return why, None
        mover = Mover(self.world, self.profiles, Limits())
        with self.world.steps.dry_run(), mover.undone():
            if mover.move(info, only(self.world.nodes, target)):
                return "", mover.moves[0].replacement
        why = mover.left[info.key]
        return (f"node {target} is not feasible for its replacement any more" if why == NO_DESTINATION else why), None

    def _movable(self, request: RebalanceRequest, left: dict[str, str] | None = None) -> MovablePods:
        group_of = self.queue.gangs.key_of
        return MovablePods(self.world.nodes, self.profiles, group_of, request.scope, {} if left is None else left)

    def _make_room(self, key: GroupKey, mover: Mover, movable: MovablePods, plan: RebalancePlan) -> None:
        gang = self.queue.gangs.get(key)
        if gang is None or gang.group is None:
            plan.reason = f"there is no PodGroup {key}"
            return
        if gang.unit is not gang:
            plan.reason = f"PodGroup {key} is part of a tree, for which no room is made"
            return
        if not gang.needed or not gang.has_quorum:
            plan.reason = f"gang {key} has no quorum that waits"
            return
        profiles = {queued.profile for queued in gang.waiting.values()}
        instance = DryProfiles(self.profiles).get(min(profiles))
        if instance is None or len(profiles) > 1:
            plan.reason = (
                f"the members of gang {key} need one live profile; their profiles: {', '.join(sorted(profiles))}"
            )
            return
        plan.gain.fits, world = False, RoomWorld(self.world, mover, movable)
        with self.queue.nominator.without(gang.waiting):
            plan.room = make_room(world, mover, self.world, PlacementRequest.of(gang, instance))
        plan.gain.fits = bool(plan.room)
        if not mover.moves:
            text = "fits without moves" if plan.gain.fits else "does not fit, even after moves"
            plan.reason = f"gang {key} {text}"
