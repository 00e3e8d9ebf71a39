"""One run of a RebalancePlan: the search, the room that is held, the moves, and the status after each step.

Moves that gain nothing alone have their destinations held together before the first of them begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from bayplan.rebalancing.plan_documents import PlanDocument, PlanGain, PlannedMove, piece_of
from bayplan.rebalancing.pod_moves import CHANGED, MoveOrder
from bayplan.resources.conditions import ConditionUpdate, find_condition, set_condition
from bayplan.resources.rebalance_plan import (
    MAX_MEMBERS,
    MAX_MOVES,
    MAX_NAMED_NODES,
    MAX_NAMED_PODS,
    MAX_REASONS,
    AwaitedPod,
    GangRoom,
    LeftAlonePods,
    MemberRoomStatus,
    PlanEffect,
    PlannedMoveStatus,
    RebalancePlan,
    RebalancePlanSpec,
    RebalancePlanStatus,
)
from bayplan.resources.resource_model import format_time
from bayplan.texts.document_formats import listed
from scheduler_core.errors import ClusterWriteError, SchedulerCoreError
from scheduler_core.gangs.held_room import EndReason
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.selectors import equality_matcher
from scheduler_core.rebalance.requests import (
    Consolidate,
    Drain,
    Limits,
    MakeRoom,
    Objective,
    RebalanceRequest,
    Scope,
    Spread,
)

if TYPE_CHECKING:
    from bayplan.rebalancing.plan_controller import RebalancePlans

log = logging.getLogger(__name__)

COMPLETED = "Completed"
_SEARCH_FAILED = "SearchFailed"
_LONGEST_GAIN = 1024


class PlanRun:
    """One plan of an object, and its moves."""

    def __init__(self, plans: RebalancePlans, plan: RebalancePlan, status: RebalancePlanStatus) -> None:
        self._plans = plans
        self._plan = plan
        self._failures: list[str] = []
        self._taken = ""
        """Why no further moves begin; those that gain nothing without each other and have begun are finished."""
        self._error: Exception | None = None
        self._write_turn = asyncio.Lock()
        is_resumed = is_open(plan, status)
        self._before = status.moved if is_resumed else 0
        """Moves that count against the budget already."""
        self._cost_before = status.moved_cost if is_resumed else 0
        self._status = RebalancePlanStatus(
            observed_generation=plan.metadata.generation,
            moved=self._before,
            moved_cost=self._cost_before,
            last_moved_at=status.last_moved_at,
            room=status.room if is_resumed else None,
            conditions=status.conditions,
            last_schedule_time=status.last_schedule_time,
            next_schedule_time=status.next_schedule_time if is_resumed else None,
        )

    async def await_time(self, at: datetime) -> None:
        """Write the time of the schedule at which the plan is made."""
        self._plans.rooms.release(self._plan.metadata.name)
        self._update(next_schedule_time=at)
        self._conclude("False", "Scheduled", f"The next plan is made at {format_time(at)}")
        await self._write("Scheduled")

    async def await_turn(self, before: RebalancePlanStatus, moving: str) -> None:
        """Write that the moves of another plan are made first, unless the status has that."""
        text = f"RebalancePlan {moving} makes moves; this plan is made when its moves have ended"
        condition, generation = find_condition(before.conditions, COMPLETED), self._plan.metadata.generation
        is_written = condition is not None and condition.message == text and before.phase == "Pending"
        if is_written and before.observed_generation == generation:
            return
        # A time of the schedule that has passed is not missed.
        self._update(next_schedule_time=before.next_schedule_time)
        self._conclude("False", "AwaitingTurn", text)
        await self._write("Pending")

    async def make(self) -> None:
        spec, plans, times = self._plan.spec, self._plans, self._plan.spec.times
        if times is not None and self._status.next_schedule_time is None:
            # In the status before the first eviction: after a restart the time does not count as missed.
            now = plans.now()
            self._update(last_schedule_time=times.last_until(now), next_schedule_time=times.first_after(now))
        left = spec.budget.moves - self._before
        cost = None if spec.budget.cost is None else spec.budget.cost - self._cost_before
        if left <= 0 or (cost is not None and cost <= 0):
            await self._end("Completed", "True", "BudgetUsed", "All moves of the budget are made")
            return
        try:
            request = request_of(spec, Limits(left, cost))
            found = await plans.search(request)
        except SchedulerCoreError as error:
            await self._end_search(str(error))
            return
        except Exception as error:
            log.exception(
                "RebalancePlan %s cannot be made because of a bug; please report it", self._plan.metadata.name
            )
            await self._end_search(f"a bug, please report it: {type(error).__name__}: {error}")
            return
        if not plans.is_current(self._plan):
            return
        self._update(
            planned=self._before + len(found.moves),
            gain=found.headline[:_LONGEST_GAIN],
            effect=_effect_of(found.gain),
            cost=self._cost_before + found.cost,
            left_alone=tuple(
                LeftAlonePods(reason=each.reason[:_LONGEST_GAIN], count=each.count, pods=each.pods[:MAX_NAMED_PODS])
                for each in found.left_alone[:MAX_REASONS]
            ),
            planned_at=plans.now(),
            moves=tuple(PlannedMoveStatus(**asdict(each)) for each in found.moves[:MAX_MOVES]),
        )
        is_held = not spec.dry_run and await self._hold_room(found)
        if not plans.is_current(self._plan):
            return
        if found.missing_nodes and not found.moves:
            await self._end("Stopped", "False", "NodesNotFound", _with_missing(found))
        elif spec.dry_run:
            await self._end("Planned", "True", "DryRun", _with_missing(found))
        elif found.room and not is_held:
            await self._end("Stopped", "False", "RoomTaken", "The room for the gang was taken before the first move")
        elif not found.moves:
            await self._end("Completed", "True", "NoMoves", found.headline)
        else:
            plans.record(self._plan, "Normal", "Planned", found.headline)
            self._conclude("False", "Moving", f"The moves are made: {found.headline}")
            await self._write("Moving")
            await self._moves(request, found)

    async def _end_search(self, error: str) -> None:
        text = f"The plan cannot be made: {error}; it is tried again"
        await self._end("Stopped", "False", _SEARCH_FAILED, text)

    async def _hold_room(self, found: PlanDocument) -> bool:
        """Hold the room of the gang of the plan, if it has one; return whether room is held."""
        plans, room = self._plans, None
        is_held = False
        if not found.room:
            plans.rooms.release(self._plan.metadata.name)
        else:
            seconds = self._room_seconds
            is_held = await plans.hold(self._plan, found, seconds)
        if is_held:
            members = (MemberRoomStatus(**asdict(each)) for each in found.room)
            until = full_second(plans.now() + timedelta(seconds=seconds))
            room = GangRoom(until=until, members=tuple(members)[:MAX_MEMBERS])
        self._update(room=room)
        return is_held

    @property
    def _room_seconds(self) -> float:
        """Time for which room for a gang is held from the beginning of a move on."""
        spec = self._plan.spec
        assert spec.gang is not None
        rate = spec.budget.moves_per_minute
        return spec.move_timeout_seconds + spec.gang.hold_seconds + (0 if rate is None else 60 / rate)

    def _extend_room(self, seconds: float) -> None:
        room = self._status.room
        if room is not None:
            self._plans.extend(self._plan, seconds)
            until = full_second(self._plans.now() + timedelta(seconds=seconds))
            self._update(room=room.model_copy(update={"until": until}))

    async def suspend(self, before: RebalancePlanStatus) -> None:
        """Write that no moves are made; the moves of the earlier spec stay in the status."""
        self._plans.rooms.release(self._plan.metadata.name)
        # The pods of the moves that are still Evicting were not evicted.
        unmade = {"state": "Pending", "awaited": None}
        moves = tuple(each.model_copy(update=unmade) if each.state == "Evicting" else each for each in before.moves)
        generation = self._plan.metadata.generation
        self._status = before.model_copy(update={"observed_generation": generation, "room": None, "moves": moves})
        self._conclude("False", "Suspended", "spec.suspend is true: no moves are made until it is false")
        await self._write("Suspended")

    async def stop(self, status: RebalancePlanStatus, failure: str) -> RebalancePlanStatus:
        """End a plan whose move has failed; return the status."""
        self._status = status
        await self._end("Stopped", "False", "MoveFailed", failure)
        return self._status

    async def _moves(self, request: RebalanceRequest, found: PlanDocument) -> None:
        try:
            await self._all_moves(request, found)
        finally:
            self._plans.moves.release_later(self._plan.metadata.uid)

    async def _all_moves(self, request: RebalanceRequest, found: PlanDocument) -> None:
        plans, budget = self._plans, self._plan.spec.budget
        most = 1 if budget.moves_per_minute is not None else budget.concurrent_moves
        async with asyncio.TaskGroup() as tasks:
            made: set[asyncio.Task[None]] = set()
            for number, move in enumerate(found.moves):
                while made and (len(made) >= most or not plans.moves.may_begin(move)):
                    _, made = await asyncio.wait(made, return_when=asyncio.FIRST_COMPLETED)
                if not await self._hold_together(found.moves, number):
                    # The moves of a node whose first pod was evicted are made all the same.
                    continue
                if self._status.room is not None:
                    self._extend_room(self._room_seconds)
                await self._keep_rate()
                if not self._is_wanted():
                    break
                begin = partial(self._begin, number)
                order = MoveOrder(self._plan, request, move, self._is_wanted, begin)
                plans.moves.begin(move)
                made.add(tasks.create_task(self._move(number, order)))
        # Not all changes are written if the plan was changed, or after an error.
        plans.set_status(self._plan.metadata.name, self._plan.metadata.uid, self._status)
        if self._taken:
            self._failures.append(self._taken)
        # Unless it is current, the object is reconciled again, or it is gone.
        if self._failures and plans.is_current(self._plan):
            await self._end("Stopped", "False", "MoveFailed", self._failures[0])
        if self._error is not None:
            raise self._error
        if not self._failures and plans.is_current(self._plan) and not await self._is_over():
            await self._end("Completed", "True", "Moved", _with_missing(found))

    async def _hold_together(self, moves: Sequence[PlannedMove], number: int) -> bool:
        """Hold the destinations of a move and of those without which it gains nothing; return whether it may be made.

        Without all moves for a gang, it does not fit; without all moves off a node, it is not empty.
        """
        held = self._plans.moves
        together: Sequence[PlannedMove] = ()
        match self._plan.spec.objective:
            case "MakeRoom":
                together = moves[number:]
            case "Consolidate" | "Defragment":
                together = [each for each in moves[number:] if each.source == moves[number].source]
        if not self._taken and len(together) > 1:
            self._taken = await held.hold_later(self._plan, together, moves)
        return not self._taken or held.is_held_later(self._plan, moves[number])

    async def _move(self, number: int, order: MoveOrder) -> None:
        """Make a move. Errors are raised when the other moves that are made at the same time have ended."""
        try:
            failure = await self._plans.moves.make(order)
            if failure == CHANGED:
                self._mark(number, "Pending")
            elif failure:
                self._mark(number, "Failed")
                self._failures.append(failure)
            else:
                self._mark_moved(number)
                if any(each.state != "Moved" for each in self._status.moves):
                    await self._write("Moving")
        except Exception as error:  # noqa: BLE001 - raised later
            self._error = error

    def _is_wanted(self) -> bool:
        """Return whether further pods may be evicted."""
        plans = self._plans
        has_failed = bool(self._failures) or self._error is not None
        return not has_failed and plans.is_current(self._plan) and plans.rooms.ended(self._plan.metadata.name) is None

    async def _is_over(self) -> bool:
        """End the plan if the gang needs no further moves, or its room has ended."""
        ended = self._plans.rooms.ended(self._plan.metadata.name)
        if ended is EndReason.CONSUMED:
            await self._end("Completed", "True", "GangBound", "The members of the gang are bound without further moves")
        elif ended is EndReason.EXPIRED:
            await self._end("Stopped", "False", "RoomExpired", "The gang is gone, or its room has ended")
        return ended is not None

    async def _keep_rate(self) -> None:
        """Wait until the rate allows a move, also one that comes after those of an earlier process."""
        rate, last = self._plan.spec.budget.moves_per_minute, self._status.last_moved_at
        if rate is not None and last is not None:
            seconds = 60 / rate - (self._plans.now() - last).total_seconds()
            # The wall clock may be set back.
            await self._plans.pause(min(max(seconds, 0.0), 60 / rate + 1))

    async def _begin(self, number: int, awaited: AwaitedPod) -> None:
        before = self._status.moves[number]
        if before.awaited != awaited:
            self._mark(number, "Evicting", awaited)
            try:
                await self._write("Moving")
            except ClusterWriteError:
                # The next try must write it again: no pod is evicted before its move is in the stored status.
                self._mark(number, before.state, before.awaited)
                raise

    def _mark(self, number: int, state: str, awaited: AwaitedPod | None = None) -> None:
        moves = list(self._status.moves)
        moves[number] = moves[number].model_copy(update={"state": state, "awaited": awaited})
        self._update(moves=tuple(moves))

    def _mark_moved(self, number: int) -> None:
        self._mark(number, "Moved")
        status = self._status
        # After a restart, no other move takes this replacement for its own.
        moves = tuple(self._plans.moves.with_replacements(each) for each in status.moves)
        self._update(
            moves=moves,
            moved=status.moved + 1,
            moved_cost=status.moved_cost + moves[number].cost,
            last_moved_at=full_second(self._plans.now()),
        )

    def _update(self, **fields: Any) -> None:
        self._status = self._status.model_copy(update=fields)

    async def _write(self, phase: str) -> None:
        self._update(phase=phase)
        meta = self._plan.metadata
        # Of two writes at the same time the older one could arrive last.
        async with self._write_turn:
            await self._plans.write(meta.name, meta.uid, self._status)

    def _conclude(self, status: str, reason: str, message: str) -> None:
        """Set the condition Completed."""
        update = ConditionUpdate(COMPLETED, "True" if status == "True" else "False", reason, message)
        generation, now = self._plan.metadata.generation, self._plans.now()
        conditions = set_condition(list(self._status.conditions), update, generation, now)
        self._update(conditions=tuple(conditions))

    async def _end(self, phase: str, status: str, reason: str, message: str) -> None:
        gang, is_held = self._plan.spec.gang, self._plans.rooms.is_held(self._plan.metadata.name)
        if phase == COMPLETED and gang is not None and gang.hold_seconds and is_held:
            self._extend_room(gang.hold_seconds)
        else:
            self._plans.rooms.release(self._plan.metadata.name)
            self._update(room=None)
        self._conclude(status, reason, message)
        self._update(completed_at=self._plans.now())
        kind = "Normal" if status == "True" else "Warning"
        self._plans.record(self._plan, kind, "Completed" if status == "True" else "Stopped", message)
        # At last: after an error it is written again, and the event is not recorded again.
        await self._write(phase)


def request_of(spec: RebalancePlanSpec, limits: Limits) -> RebalanceRequest:
    """Return the request of a spec, with what is left of the budget."""
    scope = Scope(
        frozenset(spec.scope.profiles),
        frozenset(spec.scope.namespaces),
        None if not spec.scope.pod_labels else equality_matcher(spec.scope.pod_labels),
        None if not spec.scope.node_labels else equality_matcher(spec.scope.node_labels),
    )
    return RebalanceRequest(_objective(spec), scope, limits)


def _objective(spec: RebalancePlanSpec) -> Objective:
    if spec.drain is not None:
        labels = spec.drain.labels
        return Drain(frozenset(spec.drain.nodes or ()), None if not labels else equality_matcher(labels))
    if spec.gang is not None:
        return MakeRoom(GroupKey(GroupSource.BAYPLAN, spec.gang.namespace, spec.gang.name))
    if spec.defragment is not None:
        piece = piece_of(spec.defragment.resource, spec.defragment.amount)
        if piece is None:
            raise SchedulerCoreError("spec.defragment: write an amount above 0 of a resource of nodes")
        return piece
    return Spread() if spec.objective == "Spread" else Consolidate()


def is_open(plan: RebalancePlan, status: RebalancePlanStatus) -> bool:
    """Return whether a plan was begun for this spec and is continued: what it has moved counts against its budget."""
    is_open = status.phase == "Moving" or has_failed_search(status)
    return is_open and status.observed_generation == plan.metadata.generation


def has_failed_search(status: RebalancePlanStatus) -> bool:
    """Return whether a plan was not made because of an error, such as one of a plugin, and is tried again."""
    return status.phase == "Stopped" and any(each.reason == _SEARCH_FAILED for each in status.conditions)


def _with_missing(found: PlanDocument) -> str:
    """Return the headline of a plan, with the nodes to drain that do not exist."""
    if not found.missing_nodes:
        return found.headline
    names = listed(found.missing_nodes)
    return f"{found.headline}; spec.drain.nodes: there is no node {names}; correct or remove the name"


def _effect_of(gain: PlanGain) -> PlanEffect:
    fields = asdict(gain)
    names: tuple[str, ...] = fields.pop("nodes_emptied")
    return PlanEffect(nodes_emptied=len(names), empty_nodes=names[:MAX_NAMED_NODES], **fields)


def full_second(moment: datetime) -> datetime:
    """Return the next full second, because statuses have no fractions: a rate is never exceeded."""
    return (moment + timedelta(seconds=1, microseconds=-1)).replace(microsecond=0)
