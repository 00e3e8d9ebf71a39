"""The controller of RebalancePlans.

    spec ──▶ plan ──dry run──▶ Planned
               │ another plan makes moves: Pending until these have ended
               │ moves, in their order
               ▼
             Moving: destination checked ─▶ room held there ─▶ evicted ─▶ replacement bound to it ─▶ next move
               │ each step within the time of one move                        │ elsewhere, or not at all
               ▼                                                              ▼
           Completed                                                       Stopped

One plan makes moves at a time, one after the other, or some of them at the same time; dry runs do not wait for it. Room
for a gang is held from the first move on. After a restart, this room and that of the moves that were not over are held
again before the first cycle, and the replacements are awaited; then the plan is planned again, with the moves that are
left of its budget. Reasons that may pass, such as a PodDisruptionBudget without allowed disruptions, are waited for
within the time of a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from bayplan.kube.custom_resources import ObjectPath, replace_status
from bayplan.kube.http.api_request import ApiRequest, path_part
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.timing import delay_of_try, wait_at_most
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.process.copies import BackgroundDocuments, Document
from bayplan.rebalancing.gang_rooms import GangRooms, record_plan_event
from bayplan.rebalancing.plan_documents import MemberRoom, PlanDocument, plan_document
from bayplan.rebalancing.plan_run import COMPLETED, PlanRun, full_second, has_failed_search, is_open
from bayplan.rebalancing.pod_moves import AwaitedMove, EvictionRefusedError, MoveRequests, PodMoves
from bayplan.resources.conditions import ConditionUpdate, problems_message, set_condition
from bayplan.resources.rebalance_plan import RebalancePlan, RebalancePlanStatus
from bayplan.resources.resource_model import API_VERSION, GROUP, VERSION
from scheduler_core.errors import (
    ClusterWriteError,
    ConfigError,
    NotFoundError,
    SchedulerCoreError,
    ServerUnavailableError,
)
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.ports import Clock
from scheduler_core.rebalance.requests import RebalanceRequest
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

_EVICTION_SECONDS = 10.0
_SETTLE_SECONDS = 5.0
"""Maximum time that the first scheduling cycle waits for the room of an earlier process."""
_PLURAL = RebalancePlan.definition.plural
_LOOK_SECONDS = 1.0
_STEPS_IN_COPY = 10_000_000
_WRITE_INITIAL_SECONDS, _WRITE_MAXIMUM_SECONDS = 1.0, 30.0
_SEARCH_INITIAL_SECONDS, _SEARCH_MAXIMUM_SECONDS = 10.0, 300.0


class StoredPlan(Struct, frozen=True):
    """A RebalancePlan as it is watched."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class PlanRequests(MoveRequests, Protocol):
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
    """Plans and makes moves while this process leads; ``restored`` when all earlier room is held again."""

    def __init__(
        self, scheduler: Scheduler, documents: BackgroundDocuments, requests: PlanRequests, clock: Clock
    ) -> None:
        self._scheduler = scheduler
        self._documents = documents
        self._requests = requests
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._has_changed = asyncio.Event()
        self._moving = ""
        """Name of the plan that makes moves now, or awaits those of an earlier process; "" for none."""
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
        """Make plans and moves until cancelled, from when all plans are ``listed`` for the first time."""
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
        async with asyncio.TaskGroup() as tasks:
            while True:
                timer = self._clock.call_later(_LOOK_SECONDS, self._has_changed.set)
                await self._has_changed.wait()
                timer.cancel()
                self._has_changed.clear()
                for name in sorted(self._entries, key=lambda each: (not self._entries[each].resumed, each)):
                    if name != self._moving and await self._guarded(name):
                        self._moving = name
                        tasks.create_task(self._in_turn(name))

    async def _in_turn(self, name: str) -> None:
        try:
            await self._guarded(name, may_move=True)
        finally:
            self._moving = ""
            self._has_changed.set()

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

    async def _guarded(self, name: str, *, may_move: bool = False) -> bool:
        try:
            return await self.reconcile(name, may_move=may_move)
        except NotFoundError:
            return False
        except ClusterWriteError as error:
            log.warning("RebalancePlan %s: the status cannot be written: %s", name, error)
        except Exception:
            # The other plans are made all the same.
            log.exception("RebalancePlan %s failed because of a bug; please report it", name)
            await self._clock.sleep(_LOOK_SECONDS)
        return False

    async def reconcile(self, name: str, *, may_move: bool) -> bool:
        """Plan, if that is due.

        Args:
            may_move: Whether the moves are made, too, and those of an earlier process are awaited.

        Returns:
            Whether moves are due, and no other plan makes any.
        """
        entry = self._entries.get(name)
        if entry is None or self._clock.now() < entry.write_after:
            return False
        if entry.status is not None and entry.write_failures:
            await self.write(name, entry.stored.metadata.uid, entry.status)
        plan = entry.model()
        if isinstance(plan, ConfigError):
            await self._reject(entry, plan)
            return False
        if entry.resumed and not may_move:
            return not self._moving
        status = plan.status if entry.status is None else entry.status
        resumed, entry.resumed = entry.resumed, []
        if resumed:
            status = await self._end_resumed(plan, status, resumed)
        entry.status = status
        if not self._is_due(entry, plan, status):
            if status.room is not None and not self.rooms.is_held(name):
                self.rooms.release(name)
                await self.write(name, plan.metadata.uid, status.model_copy(update={"room": None}))
            return False
        run = PlanRun(self, plan, status)
        at = None if is_open(plan, status) else self._next_time(plan, status)
        if plan.spec.suspend:
            await run.suspend(status)
        elif at is not None and at > self.now():
            await run.await_time(at)
        elif plan.spec.dry_run or may_move:
            try:
                await run.make()
            finally:
                self._note_search(entry)
        elif not self._moving:
            return True
        elif status.observed_generation != plan.metadata.generation or status.phase in (None, "Pending"):
            # The status of an earlier run stays until the next one.
            await run.await_turn(status, self._moving)
        return False

    def _note_search(self, entry: _Entry) -> None:
        """Let a plan whose search failed wait, longer after each failure, as pods wait after an error of a plugin."""
        if entry.status is None or not has_failed_search(entry.status):
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
                "last_moved_at": full_second(self.now()),
            }
        )
        if failures and self.is_current(plan) and status.observed_generation == plan.metadata.generation:
            status = await PlanRun(self, plan, status).stop(status, failures[0])
        return status

    def _next_time(self, plan: RebalancePlan, status: RebalancePlanStatus) -> datetime | None:
        """Return the next time of the schedule, or the first one that was missed; None without a schedule.

        As for a CronJob, a time that passed while the plan was suspended, changed or made is missed; times before the
        controller has seen the schedule are not.
        """
        times, stored = plan.spec.times, status.next_schedule_time
        if times is None:
            return None
        if stored is not None and times.first_after(stored - timedelta(seconds=1)) == stored:
            return stored
        return times.first_after(self.now())

    def _is_due(self, entry: _Entry, plan: RebalancePlan, status: RebalancePlanStatus) -> bool:
        if plan.spec.suspend:
            return (status.observed_generation, status.phase) != (plan.metadata.generation, "Suspended")
        if status.observed_generation != plan.metadata.generation or status.phase in (
            None,
            "Pending",
            "Moving",
            "Invalid",
        ):
            return True
        if has_failed_search(status):
            return self._clock.now() >= entry.search_after
        if plan.spec.schedule is not None:
            return status.next_schedule_time is None or self.now() >= status.next_schedule_time
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
        record_plan_event(self._scheduler, plan, kind, reason, message)

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


class ApiPlanRequests:
    """Implementation of :class:`PlanRequests`."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(name)}/eviction"
        try:
            await self._connection.request(
                ApiRequest("POST", path, msgspec.json.encode(body), timeout=_EVICTION_SECONDS)
            )
        except ServerUnavailableError as error:
            # 429 for a budget without allowed disruptions, and 500 if several budgets select the pod.
            raise EvictionRefusedError(str(error)) from error

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        await replace_status(self._connection, ObjectPath(GROUP, VERSION, _PLURAL, name), uid, status)


class RebalancePlanSource:
    """The controller with its watch."""

    def __init__(
        self,
        scheduler: Scheduler,
        connection: ApiConnection,
        informers: ClusterInformers,
        clock: Clock,
        documents: BackgroundDocuments,
    ) -> None:
        self._informers = informers
        self.plans = RebalancePlans(scheduler, documents, ApiPlanRequests(connection), clock)

    async def settle(self) -> None:
        """Wait until the room of a move that an earlier process began is held again, at most some seconds."""
        await wait_at_most(self.plans.restored, _SETTLE_SECONDS)

    async def run(self) -> None:
        """Watch the plans and make them, until cancelled."""
        plans, listed = self.plans, asyncio.Event()
        sink = FeedSink(plans.plan_changed, lambda _, new: plans.plan_changed(new), plans.plan_deleted, listed.set)
        path = f"/apis/{GROUP}/{VERSION}/{_PLURAL}"
        informer = self._informers.begin(f"{_PLURAL}.{GROUP}", path, StoredPlan, sink)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await plans.run(listed)


def _body(stored: StoredPlan) -> dict[str, Any]:
    meta = stored.metadata
    metadata = {"name": meta.name, "uid": meta.uid, "generation": meta.generation}
    return {
        "apiVersion": API_VERSION, "kind": "RebalancePlan", "metadata": metadata,
        "spec": stored.spec, **({"status": stored.status} if stored.status else {}),
    }  # fmt: skip
