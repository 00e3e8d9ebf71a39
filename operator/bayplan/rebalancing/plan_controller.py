"""The controller of RebalancePlans.

    spec ──▶ plan ──dry run──▶ Planned
               │ moves, one after the other
               ▼
             Moving: destination checked ─▶ room held there ─▶ evicted ─▶ replacement bound to it ─▶ next move
               │ each step within the time of one move                        │ elsewhere, or not at all
               ▼                                                              ▼
           Completed                                                       Stopped

One move is made at a time, of all plans. After a restart, a plan that was Moving is planned again, with the moves that
are left of its budget: the replacement of the last move is scheduled as any pod. Reasons that may pass, such as a
PodDisruptionBudget without allowed disruptions, are waited for within the time of a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from bayplan.process.copies import BackgroundDocuments, Document
from bayplan.rebalancing.building import plan_document
from bayplan.rebalancing.documents import PlanDocument, PlannedMove
from bayplan.rebalancing.objectives import piece_of
from bayplan.resources.conditions import ConditionUpdate, set_condition
from bayplan.resources.rebalance_plan import (
    MAX_MOVES,
    PlannedMoveStatus,
    RebalancePlan,
    RebalancePlanSpec,
    RebalancePlanStatus,
)
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.errors import ClusterWriteError, ConfigError, NotFoundError, SchedulerCoreError
from scheduler_core.gangs.held_room import EndReason, HeldPod, HeldRoom, Holder, OwnPods, Terms
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
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_STEPS_IN_COPY = 10_000_000
COMPLETED = "Completed"
_LONGEST_GAIN = 1024


class StoredPlan(Struct, frozen=True):
    """A RebalancePlan as it is watched."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class EvictionRefusedError(ClusterWriteError):
    """The API server refuses an eviction for now, because of a PodDisruptionBudget."""


class PlanRequests(Protocol):
    """Requests of the controller."""

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evict a pod through the Eviction API.

        Raises:
            EvictionRefusedError: A PodDisruptionBudget allows no disruption now.
            NotFoundError: The pod is gone.
        """

    async def write_status(self, name: str, status: dict[str, Any]) -> None:
        """Replace the status of a plan."""


@dataclass(frozen=True, slots=True)
class _Eviction:
    """A move that is made now.

    Attributes:
        until: Time at which it has failed, in the clock's seconds.
    """

    plan: RebalancePlan
    move: PlannedMove
    info: PodInfo
    replacement: PodInfo
    until: float


class RebalancePlans:
    """Plans and makes moves; it runs only while this process leads."""

    def __init__(
        self, scheduler: Scheduler, documents: BackgroundDocuments, requests: PlanRequests, clock: Clock
    ) -> None:
        self._scheduler = scheduler
        self._documents = documents
        self._requests = requests
        self._clock = clock
        self._plans: dict[str, StoredPlan] = {}
        self._statuses: dict[str, RebalancePlanStatus] = {}
        """Last written statuses, because the watch may lag behind a write."""
        self._has_changed = asyncio.Event()

    def plan_changed(self, plan: StoredPlan) -> None:
        name = plan.metadata.name
        known = self._plans.get(name)
        if known is not None and known.metadata.uid != plan.metadata.uid:
            self._statuses.pop(name, None)
        self._plans[name] = plan
        self._has_changed.set()

    def plan_deleted(self, plan: StoredPlan) -> None:
        self._plans.pop(plan.metadata.name, None)
        self._statuses.pop(plan.metadata.name, None)

    async def run(self, listed: Awaitable[None]) -> None:
        """Make plans and moves until cancelled.

        Args:
            listed: Ends when all plans are listed for the first time.
        """
        await listed
        while True:
            timer = self._clock.call_later(_LOOK_SECONDS, self._has_changed.set)
            await self._has_changed.wait()
            timer.cancel()
            self._has_changed.clear()
            for name in sorted(self._plans):
                await self._guarded(name)

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
        stored = self._plans.get(name)
        if stored is None:
            return
        try:
            plan = RebalancePlan.from_object(_body(stored))
        except ConfigError as error:
            await self._reject(stored, error)
            return
        status = self._statuses.setdefault(name, plan.status)
        if not self._is_due(plan, status):
            return
        run = _Run(self, plan, status)
        await run.make()

    def _is_due(self, plan: RebalancePlan, status: RebalancePlanStatus) -> bool:
        if status.observed_generation != plan.metadata.generation or status.phase in (None, "Moving", "Invalid"):
            return True
        interval, ended = plan.spec.interval_seconds, status.completed_at
        return interval is not None and (ended is None or (self._clock.wall() - ended).total_seconds() >= interval)

    async def _reject(self, stored: StoredPlan, error: ConfigError) -> None:
        generation = stored.metadata.generation
        known = self._statuses.get(stored.metadata.name)
        if known is not None and known.observed_generation == generation:
            return
        problems = "; ".join(map(str, error.problems))
        update = ConditionUpdate(COMPLETED, "False", "InvalidSpec", problems)
        conditions = set_condition([], update, generation, self._clock.wall())
        status = RebalancePlanStatus(observed_generation=generation, phase="Invalid", conditions=tuple(conditions))
        await self.write(stored.metadata.name, status)

    # -- for one run --------------------------------------------------------------------------------------------

    async def write(self, name: str, status: RebalancePlanStatus) -> None:
        self._statuses[name] = status
        await self._requests.write_status(name, status.model_dump(mode="json", by_alias=True, exclude_none=True))

    def is_current(self, plan: RebalancePlan) -> bool:
        """Return whether the object still has this spec."""
        stored = self._plans.get(plan.metadata.name)
        meta = None if stored is None else stored.metadata
        return meta is not None and (meta.uid, meta.generation) == (plan.metadata.uid, plan.metadata.generation)

    def now(self) -> datetime:
        return self._clock.wall()

    def record(self, plan: RebalancePlan, kind: str, reason: str, message: str) -> None:
        meta = plan.metadata
        regarding = ObjectReference("RebalancePlan", meta.name, "", meta.uid, API_VERSION)
        self._scheduler.context.writer.record(Event(regarding, kind, reason, "Rebalancing", message))

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

    async def move(self, plan: RebalancePlan, request: RebalanceRequest, move: PlannedMove) -> str:
        """Make one move; return why it failed, "" if the replacement is bound to its node."""
        until = self._clock.now() + plan.spec.move_timeout_seconds
        reason = ""
        while self._clock.now() < until and self.is_current(plan):
            info = self._running(move)
            if info is None:
                return f"pod {move.pod} has ended or was moved already"
            await self._scheduler.context.suspension.over()
            reason, replacement = plan_search(self._scheduler.context, self._scheduler.reservations).check(
                request, info, move.target
            )
            if replacement is not None:
                made = await self._evicted(_Eviction(plan, move, info, replacement, until))
                if made is not None:
                    return made
                reason = "a PodDisruptionBudget allows no disruption"
            await self._clock.sleep(_LOOK_SECONDS)
        return reason or "the plan has changed"

    def _running(self, move: PlannedMove) -> PodInfo | None:
        placed = self._scheduler.context.cache.get(move.uid)
        is_there = placed is not None and placed.info.pod.spec.node_name == move.source
        return placed.info if placed is not None and is_there else None

    async def _evicted(self, eviction: _Eviction) -> str | None:
        """Hold the destination, evict the pod, and await the replacement; None if the eviction is refused for now."""
        plan, move = eviction.plan, eviction.move
        ended: asyncio.Future[EndReason] = asyncio.get_running_loop().create_future()
        room = self._room(eviction, lambda reason: None if ended.done() else ended.set_result(reason))
        if not await self._held(room):
            return f"the room on node {move.target} was taken"
        before = set(room.settled)
        try:
            meta = eviction.info.pod.metadata
            await self._requests.evict(meta.namespace, meta.name, meta.uid)
            self.record(plan, "Normal", "Evicted", f"Evicted pod {move.pod}, whose replacement gets node {move.target}")
            reason = await ended
        except EvictionRefusedError:
            return None
        except NotFoundError:
            return f"pod {move.pod} has ended"
        except ClusterWriteError as error:
            # The API server may have evicted it all the same.
            return f"the eviction of pod {move.pod} failed: {error}"
        finally:
            await self._released(room)
        if reason is EndReason.EXPIRED:
            return f"no replacement of pod {move.pod} was bound within {plan.spec.move_timeout_seconds} s"
        placed = [self._scheduler.context.cache.get(uid) for uid in room.settled - before]
        nodes = sorted({each.info.node_name for each in placed if each is not None})
        if move.target in nodes:
            return ""
        return f"the replacement of pod {move.pod} is on node {', '.join(nodes) or 'none'} and not on {move.target}"

    def _room(self, eviction: _Eviction, on_end: Callable[[EndReason], None]) -> HeldRoom:
        plan, move, pod = eviction.plan, eviction.move, eviction.info.pod
        owners = (owner.uid for owner in pod.metadata.owner_references if owner.controller)
        pods = OwnPods(pod.metadata.namespace, owner_uid=next(owners))
        holder = Holder("RebalancePlan", "", plan.metadata.name, f"{plan.metadata.uid}/{move.uid}", pods)
        terms = Terms(until=eviction.until, prefers_slots=True, on_end=on_end)
        nodes = self._scheduler.context.cache.columns
        return HeldRoom(holder, [HeldPod(eviction.replacement, "", move.target)], nodes, terms)

    async def _held(self, room: HeldRoom) -> bool:
        reservations, began = self._scheduler.reservations, list[bool]()
        suspension = self._scheduler.context.suspension
        await suspension.over()
        suspension.run_or_defer(lambda: began.append(reservations.hold(room)))
        return began[0]

    async def _released(self, room: HeldRoom) -> None:
        held = self._scheduler.reservations.held
        if held.of(room.holder.uid) is not None:
            suspension = self._scheduler.context.suspension
            await suspension.over()
            suspension.run_or_defer(held.end, room.holder.uid)


class _Run:
    """One plan of an object, and its moves."""

    def __init__(self, plans: RebalancePlans, plan: RebalancePlan, status: RebalancePlanStatus) -> None:
        self._plans = plans
        self._plan = plan
        is_resumed = status.phase == "Moving" and status.observed_generation == plan.metadata.generation
        self._before = status.moved if is_resumed else 0
        """Moves that count against the budget already."""
        self._status = RebalancePlanStatus(
            observed_generation=plan.metadata.generation, moved=self._before, conditions=status.conditions
        )

    async def make(self) -> None:
        spec, plans = self._plan.spec, self._plans
        left = spec.budget.moves - self._before
        if left <= 0:
            await self._end("Completed", "True", "BudgetUsed", "All moves of the budget are made")
            return
        try:
            request = request_of(spec, left)
            found = await plans.search(request)
        except SchedulerCoreError as error:
            await self._end("Stopped", "False", "SearchFailed", f"The plan cannot be made: {error}")
            return
        self._status = self._status.model_copy(
            update={
                "planned": self._before + len(found.moves),
                "gain": found.headline[:_LONGEST_GAIN],
                "cost": found.cost,
                "planned_at": plans.now(),
                "moves": tuple(
                    PlannedMoveStatus(pod=each.pod, uid=each.uid, source=each.source, target=each.target)
                    for each in found.moves[:MAX_MOVES]
                ),
            }
        )
        if spec.dry_run:
            await self._end("Planned", "True", "DryRun", found.headline)
        elif not found.moves:
            await self._end("Completed", "True", "NoMoves", found.headline)
        else:
            plans.record(self._plan, "Normal", "Planned", found.headline)
            await self._write("Moving")
            await self._moves(request, found)

    async def _moves(self, request: RebalanceRequest, found: PlanDocument) -> None:
        plans, per_minute = self._plans, self._plan.spec.budget.moves_per_minute
        for number, move in enumerate(found.moves):
            if not plans.is_current(self._plan):
                # The object is reconciled again, or it is gone.
                return
            if number and per_minute is not None:
                await plans.pause(60 / per_minute)
            self._mark(number, "Evicting")
            await self._write("Moving")
            failure = await plans.move(self._plan, request, move)
            if failure:
                self._mark(number, "Failed")
                if plans.is_current(self._plan):
                    await self._end("Stopped", "False", "MoveFailed", failure)
                return
            self._mark(number, "Moved")
            self._status = self._status.model_copy(update={"moved": self._status.moved + 1})
        await self._end("Completed", "True", "Moved", found.headline)

    def _mark(self, number: int, state: str) -> None:
        moves = list(self._status.moves)
        moves[number] = moves[number].model_copy(update={"state": state})
        self._status = self._status.model_copy(update={"moves": tuple(moves)})

    async def _write(self, phase: str) -> None:
        self._status = self._status.model_copy(update={"phase": phase})
        await self._plans.write(self._plan.metadata.name, self._status)

    async def _end(self, phase: str, status: str, reason: str, message: str) -> None:
        now, meta = self._plans.now(), self._plan.metadata
        update = ConditionUpdate(COMPLETED, "True" if status == "True" else "False", reason, message)
        conditions = set_condition(list(self._status.conditions), update, meta.generation, now)
        self._status = self._status.model_copy(update={"conditions": tuple(conditions), "completed_at": now})
        await self._write(phase)
        kind = "Normal" if status == "True" else "Warning"
        self._plans.record(self._plan, kind, "Completed" if status == "True" else "Stopped", message)


def request_of(spec: RebalancePlanSpec, moves: int) -> RebalanceRequest:
    """Return the request of a spec.

    Args:
        moves: Moves that are left of the budget.
    """
    scope = Scope(
        frozenset(spec.scope.profiles),
        frozenset(spec.scope.namespaces),
        None if not spec.scope.pod_labels else equality_matcher(spec.scope.pod_labels),
        None if not spec.scope.node_labels else equality_matcher(spec.scope.node_labels),
    )
    return RebalanceRequest(_objective(spec), scope, Limits(moves, spec.budget.cost))


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


def _body(stored: StoredPlan) -> dict[str, Any]:
    meta = stored.metadata
    metadata = {"name": meta.name, "uid": meta.uid, "generation": meta.generation}
    return {
        "apiVersion": API_VERSION, "kind": "RebalancePlan", "metadata": metadata,
        "spec": stored.spec, **({"status": stored.status} if stored.status else {}),
    }  # fmt: skip
