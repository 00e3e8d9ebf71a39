"""The controller of RebalancePlans.

    spec ──▶ plan ──dry run──▶ Planned
               │ moves, in their order
               ▼
             Moving: destination checked ─▶ room held there ─▶ evicted ─▶ replacement bound to it ─▶ next move
               │ each step within the time of one move                        │ elsewhere, or not at all
               ▼                                                              ▼
           Completed                                                       Stopped

One plan is made at a time; its moves are made one after the other, or some of them at the same time. Room for a gang is
held from the first move on. After a restart, this room and that of the moves that were not over are held again before
the first cycle, and the replacements are awaited; then the plan is planned again, with the moves that are left of its
budget. Reasons that may pass, such as a PodDisruptionBudget without allowed disruptions, are waited for within the time
of a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from bayplan.kube.timing import delay_of_try
from bayplan.process.copies import BackgroundDocuments, Document
from bayplan.rebalancing.building import plan_document
from bayplan.rebalancing.documents import MemberRoom, PlanDocument, PlanGain, PlannedMove
from bayplan.rebalancing.gang_rooms import GangRooms
from bayplan.rebalancing.objectives import piece_of
from bayplan.rebalancing.pod_moves import CHANGED, AwaitedMove, Evictions, MoveOrder, PodMoves
from bayplan.resources.conditions import ConditionUpdate, problems_message, set_condition
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
from bayplan.resources.resource_model import API_VERSION
from bayplan.texts.document_formats import listed
from scheduler_core.errors import ClusterWriteError, ConfigError, NotFoundError, SchedulerCoreError
from scheduler_core.gangs.held_room import EndReason
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.selectors import equality_matcher
from scheduler_core.ports import Clock, Event, ObjectReference
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
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_STEPS_IN_COPY = 10_000_000
_WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS = 1.0, 30.0
_SEARCH_INITIAL_SECONDS, _SEARCH_MAXIMUM_SECONDS = 10.0, 300.0
COMPLETED = "Completed"
_SEARCH_FAILED = "SearchFailed"
_LONGEST_GAIN = 1024


class StoredPlan(Struct, frozen=True):
    """A RebalancePlan as it is watched."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class PlanRequests(Evictions, Protocol):
    """Requests of the controller."""

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        """Replace the status of a plan; raises NotFoundError if the plan with this UID is gone."""


@dataclass(frozen=True, slots=True)
class _Resumed:
    """A move that an earlier process began.

    Attributes:
        held: The replacement that is awaited; "" if it is bound to its node, or why the move has failed.
    """

    number: int
    held: AwaitedMove | str


@dataclass(slots=True)
class _Entry:
    """What is known about one object.

    Attributes:
        stored: The object as it was watched last.
        read: Its model, or why it has none; None if it was not read since its spec changed.
        status: The last status, written or not, because the watch may lag behind a write; None before the first.
        resumed: The moves that an earlier process began.
        write_failures: Number of failed writes of the status in succession; it is written again while above 0.
        write_after: Clock time before which the plan waits after a failed write.
        search_failures: Number of failed searches in succession.
        search_after: Clock time at which a plan whose search failed is made again.
    """

    stored: StoredPlan
    read: RebalancePlan | ConfigError | None = None
    status: RebalancePlanStatus | None = None
    resumed: list[_Resumed] = field(default_factory=list)
    write_failures: int = 0
    write_after: float = 0.0
    search_failures: int = 0
    search_after: float = 0.0

    def model(self) -> RebalancePlan | ConfigError:
        """Return the model; it is built once for each spec."""
        if self.read is None:
            try:
                self.read = RebalancePlan.from_object(_body(self.stored))
            except ConfigError as error:
                self.read = error
        return self.read


class RebalancePlans:
    """Plans and makes moves; it runs only while this process leads.

    Attributes:
        restored: Set when the room that an earlier process held for moves and gangs is held again.
    """

    def __init__(
        self, scheduler: Scheduler, documents: BackgroundDocuments, requests: PlanRequests, clock: Clock
    ) -> None:
        self._scheduler = scheduler
        self._documents = documents
        self._requests = requests
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._has_changed = asyncio.Event()
        self.restored = asyncio.Event()
        self.moves = PodMoves(scheduler, requests, clock)
        self.rooms = GangRooms(scheduler)

    def plan_changed(self, plan: StoredPlan) -> None:
        meta = plan.metadata
        entry = self._entries.get(meta.name)
        if entry is None or entry.stored.metadata.uid != meta.uid:
            self._release(meta.name)
            self._entries[meta.name] = _Entry(plan)
        else:
            if entry.stored.metadata.generation != meta.generation:
                entry.read = None
                self._release(meta.name)
            entry.stored = plan
        self._has_changed.set()

    def plan_deleted(self, plan: StoredPlan) -> None:
        self._release(plan.metadata.name)
        self._entries.pop(plan.metadata.name, None)

    def _release(self, name: str) -> None:
        """End the room that no move uses yet."""
        self.rooms.release(name)
        entry = self._entries.get(name)
        if entry is not None:
            self.moves.release_later(entry.stored.metadata.uid)

    def plans(self) -> list[RebalancePlan]:
        """Return the valid plans with their last statuses, written or not."""
        found = list[RebalancePlan]()
        for entry in self._entries.values():
            plan = entry.model()
            if isinstance(plan, RebalancePlan):
                found.append(plan if entry.status is None else plan.model_copy(update={"status": entry.status}))
        return found

    async def run(self, listed: asyncio.Event) -> None:
        """Make plans and moves until cancelled.

        Args:
            listed: Set when all plans are listed for the first time.
        """
        await listed.wait()
        for name, entry in sorted(self._entries.items()):
            try:
                if self._entries.get(name) is entry:
                    await self._restore(name, entry)
            except Exception:
                # The room of the others is held again all the same, and scheduling starts.
                log.exception("Room of RebalancePlan %s is not held again because of a bug; please report it", name)
        self.restored.set()
        # The first cycles come before the first search.
        self._has_changed.clear()
        while True:
            timer = self._clock.call_later(_LOOK_SECONDS, self._has_changed.set)
            await self._has_changed.wait()
            timer.cancel()
            self._has_changed.clear()
            for name in sorted(self._entries, key=lambda each: (not self._entries[each].resumed, each)):
                await self._guarded(name)

    async def _restore(self, name: str, entry: _Entry) -> None:
        """Hold the room again that an earlier process held for a gang, and for the replacement that it awaited."""
        plan = entry.model()
        if isinstance(plan, ConfigError):
            # The plan is rejected when it is reconciled.
            return
        await self._restore_gang_room(plan)
        for number, move in enumerate(plan.status.moves):
            if plan.status.phase == "Moving" and move.state == "Evicting" and move.awaited is not None:
                held: AwaitedMove | str | None
                try:
                    held = await self.moves.resume(plan, move, move.awaited)
                except SchedulerCoreError as error:
                    held = f"the move of pod {move.pod} cannot be resumed: {error}"
                if held is not None:
                    entry.resumed.append(_Resumed(number, held))
                    log.info("RebalancePlan %s: the move of pod %s is resumed", name, move.pod)

    async def _restore_gang_room(self, plan: RebalancePlan) -> None:
        room, is_current = plan.status.room, plan.status.observed_generation == plan.metadata.generation
        if room is None or not is_current or plan.spec.gang is None or plan.status.phase not in ("Moving", COMPLETED):
            return
        left = (room.until - self._clock.wall()).total_seconds()
        if left <= 0:
            return
        members = [MemberRoom(each.pod, each.uid, each.node) for each in room.members]
        in_the_way = {each.uid for each in plan.status.moves if each.state in ("Pending", "Evicting")}
        if await self._hold(plan, members, in_the_way, left):
            log.info("RebalancePlan %s: the room of its gang is held again", plan.metadata.name)

    async def _guarded(self, name: str) -> None:
        try:
            await self.reconcile(name)
        except NotFoundError:
            return
        except ClusterWriteError as error:
            log.warning("RebalancePlan %s: the status cannot be written: %s", name, error)
        except Exception:
            # The other plans are made all the same.
            log.exception("RebalancePlan %s failed because of a bug; please report it", name)
            await self._clock.sleep(_LOOK_SECONDS)

    async def reconcile(self, name: str) -> None:
        """Plan, and make the moves, if that is due."""
        entry = self._entries.get(name)
        if entry is None or self._clock.now() < entry.write_after:
            return
        if entry.status is not None and entry.write_failures:
            await self.write(name, entry.stored.metadata.uid, entry.status)
        plan = entry.model()
        if isinstance(plan, ConfigError):
            await self._reject(entry, plan)
            return
        status = plan.status if entry.status is None else entry.status
        resumed, entry.resumed = entry.resumed, []
        if resumed:
            status = await self._end_resumed(plan, status, resumed)
        entry.status = status
        if not self._is_due(entry, plan, status):
            if status.room is not None and not self.rooms.is_held(name):
                self.rooms.release(name)
                await self.write(name, plan.metadata.uid, status.model_copy(update={"room": None}))
            return
        run = _Run(self, plan, status)
        if plan.spec.suspend:
            await run.suspend(status)
            return
        try:
            await run.make()
        finally:
            self._note_search(entry)

    def _note_search(self, entry: _Entry) -> None:
        """Let a plan whose search failed wait, longer after each failure, as pods wait after an error of a plugin."""
        if entry.status is None or not _has_failed_search(entry.status):
            entry.search_failures = 0
            return
        entry.search_failures += 1
        delay = delay_of_try(entry.search_failures, _SEARCH_INITIAL_SECONDS, _SEARCH_MAXIMUM_SECONDS)
        entry.search_after = self._clock.now() + delay

    async def _end_resumed(
        self, plan: RebalancePlan, status: RebalancePlanStatus, resumed: Sequence[_Resumed]
    ) -> RebalancePlanStatus:
        """Await the replacements, and return the status with the moves; if one has failed, the plan stops."""
        moves, failures, cost = list(status.moves), list[str](), status.moved_cost
        for each in resumed:
            failure = each.held if isinstance(each.held, str) else await self.moves.outcome(each.held)
            failures += [failure] if failure else []
            state = "Failed" if failure else "Moved"
            cost += 0 if failure else moves[each.number].cost
            moves[each.number] = moves[each.number].model_copy(update={"state": state, "awaited": None})
        # Not written: the status of the next plan has the counts, and until then a restart finds the replacement.
        status = status.model_copy(
            update={
                "moves": tuple(moves),
                "moved": status.moved + len(resumed) - len(failures),
                "moved_cost": cost,
                "last_moved_at": _full_second(self.now()),
            }
        )
        if failures and self.is_current(plan) and status.observed_generation == plan.metadata.generation:
            status = await _Run(self, plan, status).stop(status, failures[0])
        return status

    def _is_due(self, entry: _Entry, plan: RebalancePlan, status: RebalancePlanStatus) -> bool:
        if plan.spec.suspend:
            return (status.observed_generation, status.phase) != (plan.metadata.generation, "Suspended")
        if status.observed_generation != plan.metadata.generation or status.phase in (None, "Moving", "Invalid"):
            return True
        if _has_failed_search(status):
            return self._clock.now() >= entry.search_after
        interval, ended = plan.spec.interval_seconds, status.completed_at
        return interval is not None and (ended is None or (self._clock.wall() - ended).total_seconds() >= interval)

    async def _reject(self, entry: _Entry, error: ConfigError) -> None:
        meta = entry.stored.metadata
        if entry.status is not None and entry.status.observed_generation == meta.generation:
            return
        update = ConditionUpdate(COMPLETED, "False", "InvalidSpec", problems_message(error.problems))
        conditions = set_condition([], update, meta.generation, self._clock.wall())
        status = RebalancePlanStatus(observed_generation=meta.generation, phase="Invalid", conditions=tuple(conditions))
        self.rooms.release(meta.name)
        await self.write(meta.name, meta.uid, status)

    # -- for one run --------------------------------------------------------------------------------------------

    async def write(self, name: str, uid: str, status: RebalancePlanStatus) -> None:
        """Write the status of an object; after an error it is written again later.

        Raises:
            NotFoundError: The object is gone.
            ClusterWriteError: The status is not written, or that is not known.
        """
        entry = self.set_status(name, uid, status)
        if entry is None:
            raise NotFoundError(f"RebalancePlan {name} with UID {uid} is gone")
        written = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            await self._requests.write_status(name, uid, written)
        except ClusterWriteError:
            entry.write_failures += 1
            delay = delay_of_try(entry.write_failures, _WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS)
            entry.write_after = self._clock.now() + delay
            raise
        entry.write_failures = 0

    def set_status(self, name: str, uid: str, status: RebalancePlanStatus) -> _Entry | None:
        """Store the last status of an object; return what is known about the object, None if it is gone."""
        entry = self._entries.get(name)
        if entry is None or entry.stored.metadata.uid != uid:
            return None
        entry.status = status
        return entry

    def is_current(self, plan: RebalancePlan) -> bool:
        """Return whether the object still has this spec."""
        entry = self._entries.get(plan.metadata.name)
        meta = None if entry is None else entry.stored.metadata
        return meta is not None and (meta.uid, meta.generation) == (plan.metadata.uid, plan.metadata.generation)

    def now(self) -> datetime:
        return self._clock.wall()

    def record(self, plan: RebalancePlan, kind: str, reason: str, message: str) -> None:
        meta = plan.metadata
        regarding = ObjectReference("RebalancePlan", meta.name, "", meta.uid, API_VERSION)
        self._scheduler.context.writer.record(Event(regarding, kind, reason, "Rebalancing", message))

    async def hold(self, plan: RebalancePlan, found: PlanDocument, seconds: float) -> bool:
        """Hold the room of a gang for some seconds; return whether it exists."""
        return await self._hold(plan, found.room, {each.uid for each in found.moves}, seconds)

    async def _hold(
        self, plan: RebalancePlan, members: Sequence[MemberRoom], in_the_way: Collection[str], seconds: float
    ) -> bool:
        is_held = await self.rooms.hold(plan, members, in_the_way, self._clock.now() + seconds)
        if self.is_current(plan):
            return is_held
        # The room may have begun after the release for the change.
        self.rooms.release(plan.metadata.name)
        return False

    def extend(self, plan: RebalancePlan, seconds: float) -> None:
        """Let the room of a gang end after some seconds."""
        self.rooms.extend(plan.metadata.name, self._clock.now() + seconds)

    async def search(self, request: RebalanceRequest) -> PlanDocument:
        """Return the plan for the present state, from a copy of the process if the cluster is large."""
        scheduler = self._scheduler
        background = scheduler.context.background

        def make() -> Document:
            steps = _STEPS_IN_COPY if background.is_copy else None
            return Document(200, msgspec.json.encode(plan_document(scheduler, request, steps)))

        await scheduler.context.suspension.over()
        document = await self._documents.build(make)
        return msgspec.json.decode(document.body, type=PlanDocument)

    async def pause(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class _Run:
    """One plan of an object, and its moves."""

    def __init__(self, plans: RebalancePlans, plan: RebalancePlan, status: RebalancePlanStatus) -> None:
        self._plans = plans
        self._plan = plan
        self._failures: list[str] = []
        self._taken = ""
        """Why no further moves begin; those that gain nothing without each other and have begun are finished."""
        self._error: Exception | None = None
        self._write_turn = asyncio.Lock()
        is_open = status.phase == "Moving" or _has_failed_search(status)
        is_resumed = is_open and status.observed_generation == plan.metadata.generation
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
        )

    async def make(self) -> None:
        spec, plans = self._plan.spec, self._plans
        left = spec.budget.moves - self._before
        cost = None if spec.budget.cost is None else spec.budget.cost - self._cost_before
        if left <= 0 or (cost is not None and cost <= 0):
            await self._end("Completed", "True", "BudgetUsed", "All moves of the budget are made")
            return
        try:
            request = request_of(spec, Limits(left, cost))
            found = await plans.search(request)
        except SchedulerCoreError as error:
            text = f"The plan cannot be made: {error}; it is tried again"
            await self._end("Stopped", "False", _SEARCH_FAILED, text)
            return
        if not plans.is_current(self._plan):
            return
        self._status = self._status.model_copy(
            update={
                "planned": self._before + len(found.moves),
                "gain": found.headline[:_LONGEST_GAIN],
                "effect": _effect_of(found.gain),
                "cost": self._cost_before + found.cost,
                "left_alone": tuple(
                    LeftAlonePods(reason=each.reason[:_LONGEST_GAIN], count=each.count, pods=each.pods[:MAX_NAMED_PODS])
                    for each in found.left_alone[:MAX_REASONS]
                ),
                "planned_at": plans.now(),
                "moves": tuple(
                    PlannedMoveStatus(
                        pod=each.pod, uid=each.uid, source=each.source, target=each.target, cost=each.cost
                    )
                    for each in found.moves[:MAX_MOVES]
                ),
            }
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
            members = (MemberRoomStatus(pod=each.pod, uid=each.uid, node=each.node) for each in found.room)
            until = _full_second(plans.now() + timedelta(seconds=seconds))
            room = GangRoom(until=until, members=tuple(members)[:MAX_MEMBERS])
        self._status = self._status.model_copy(update={"room": room})
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
            until = _full_second(self._plans.now() + timedelta(seconds=seconds))
            self._status = self._status.model_copy(update={"room": room.model_copy(update={"until": until})})

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
        self._status = self._status.model_copy(update={"moves": tuple(moves)})

    def _mark_moved(self, number: int) -> None:
        self._mark(number, "Moved")
        status = self._status
        # After a restart, no other move takes this replacement for its own.
        moves = tuple(self._plans.moves.with_replacements(each) for each in status.moves)
        update = {"moves": moves, "moved": status.moved + 1, "moved_cost": status.moved_cost + moves[number].cost}
        self._status = status.model_copy(update={**update, "last_moved_at": _full_second(self._plans.now())})

    async def _write(self, phase: str) -> None:
        self._status = self._status.model_copy(update={"phase": phase})
        meta = self._plan.metadata
        # Of two writes at the same time the older one could arrive last.
        async with self._write_turn:
            await self._plans.write(meta.name, meta.uid, self._status)

    def _conclude(self, status: str, reason: str, message: str) -> None:
        """Set the condition Completed."""
        update = ConditionUpdate(COMPLETED, "True" if status == "True" else "False", reason, message)
        generation, now = self._plan.metadata.generation, self._plans.now()
        conditions = set_condition(list(self._status.conditions), update, generation, now)
        self._status = self._status.model_copy(update={"conditions": tuple(conditions)})

    async def _end(self, phase: str, status: str, reason: str, message: str) -> None:
        gang, is_held = self._plan.spec.gang, self._plans.rooms.is_held(self._plan.metadata.name)
        if phase == COMPLETED and gang is not None and gang.hold_seconds and is_held:
            self._extend_room(gang.hold_seconds)
        else:
            self._plans.rooms.release(self._plan.metadata.name)
            self._status = self._status.model_copy(update={"room": None})
        self._conclude(status, reason, message)
        self._status = self._status.model_copy(update={"completed_at": self._plans.now()})
        kind = "Normal" if status == "True" else "Warning"
        self._plans.record(self._plan, kind, "Completed" if status == "True" else "Stopped", message)
        # At last: after an error it is written again, and the event is not recorded again.
        await self._write(phase)


def request_of(spec: RebalancePlanSpec, limits: Limits) -> RebalanceRequest:
    """Return the request of a spec.

    Args:
        limits: What is left of the budget.
    """
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


def _has_failed_search(status: RebalancePlanStatus) -> bool:
    """Return whether a plan was not made because of an error, such as one of a plugin, and is tried again."""
    return status.phase == "Stopped" and any(each.reason == _SEARCH_FAILED for each in status.conditions)


def _with_missing(found: PlanDocument) -> str:
    """Return the headline of a plan, with the nodes to drain that do not exist."""
    if not found.missing_nodes:
        return found.headline
    names = listed(found.missing_nodes)
    return f"{found.headline}; spec.drain.nodes: there is no node {names}; correct or remove the name"


def _effect_of(gain: PlanGain) -> PlanEffect:
    return PlanEffect(
        nodes_emptied=len(gain.nodes_emptied),
        empty_nodes=gain.nodes_emptied[:MAX_NAMED_NODES],
        pieces_before=gain.pieces_before,
        pieces_after=gain.pieces_after,
        excess_before=gain.excess_before,
        excess_after=gain.excess_after,
        gang_fits=gain.gang_fits,
    )


def _full_second(moment: datetime) -> datetime:
    """Return the next full second, because statuses have no fractions: a rate is never exceeded."""
    return (moment + timedelta(seconds=1, microseconds=-1)).replace(microsecond=0)


def _body(stored: StoredPlan) -> dict[str, Any]:
    meta = stored.metadata
    metadata = {"name": meta.name, "uid": meta.uid, "generation": meta.generation}
    return {
        "apiVersion": API_VERSION, "kind": "RebalancePlan", "metadata": metadata,
        "spec": stored.spec, **({"status": stored.status} if stored.status else {}),
    }  # fmt: skip
