"""One move of a plan: its room is held, the pod is evicted, and its replacement is awaited.

What a later process needs to await the replacement is written before the eviction, so that a restart resumes the move.
Destinations of moves that begin later can be held, too: no pod uses this room, and each move replaces it by its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from bayplan.fit.room_search import RoomHolding
from bayplan.rebalancing.gang_rooms import record_plan_event
from bayplan.rebalancing.plan_documents import PlannedMove
from bayplan.resources.rebalance_plan import MAX_PODS_OF_NODE, AwaitedPod, PlannedMoveStatus, RebalancePlan
from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.errors import ClusterWriteError, NotFoundError, SchedulerCoreError
from scheduler_core.gangs.held_room import EndReason, HeldPod, HeldRoom, Holder, OwnPods, Terms
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.pod import Container, Pod, PodSpec, PodStatus, ResourceClaimReference, ResourceRequirements
from scheduler_core.model.pod_requests import CPU
from scheduler_core.model.pod_volumes import NO_VOLUMES
from scheduler_core.ports import Clock
from scheduler_core.rebalance.requests import RebalanceRequest
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_LOOK_SECONDS = 1.0
CHANGED = "the plan has changed"


class EvictionRefusedError(ClusterWriteError):
    """The API server refuses an eviction for now, because of a PodDisruptionBudget."""


class _NotBegunError(SchedulerCoreError):
    """What resumes a move after a restart cannot be written now."""


class MoveRequests(Protocol):
    """Requests of a move."""

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evict a pod through the Eviction API.

        Raises:
            EvictionRefusedError: A PodDisruptionBudget allows no disruption now.
            NotFoundError: The pod is gone.
        """


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """A move that is to be made.

    Attributes:
        is_current: Returns whether the move is still wanted; called before each try, and last before the eviction.
        on_begin: Writes what is needed to resume the move; called before the eviction.
    """

    plan: RebalancePlan
    request: RebalanceRequest
    move: PlannedMove
    is_current: Callable[[], bool]
    on_begin: Callable[[AwaitedPod], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A move that is made now."""

    target: str
    priority: int
    is_unconstrained: bool


@dataclass(frozen=True, slots=True)
class AwaitedMove:
    """A replacement that is awaited, and the UIDs of pods of its controller that are not it."""

    plan: RebalancePlan
    pod: str
    target: str
    room: HeldRoom
    ended: asyncio.Future[EndReason]
    before: frozenset[str]


class PodMoves:
    """Makes moves, and resumes those that an earlier process began."""

    def __init__(self, scheduler: Scheduler, evictions: MoveRequests, clock: Clock) -> None:
        self._scheduler = scheduler
        self._evictions = evictions
        self._clock = clock
        self._holding = RoomHolding(scheduler)
        self._begun: dict[str, _Begun] = {}
        """Moves that are made now, by UID of the pod."""
        self._counted: dict[str, str] = {}
        """Replaced pods by UID of the replacement: a pod replaces one other."""
        self._later: dict[str, dict[str, HeldRoom]] = {}
        """Room of moves that have no room of their own yet, by UID of the plan and of the pod."""

    def may_begin(self, move: PlannedMove) -> bool:
        """Return whether a move may be made at the same time as those that are made now.

        While replacements wait, filters do not see them, and held room replaces them. It does so for pods without
        constraints to other pods, volumes and claims, and against pods of at most the priority of the replacement.
        """
        info = self._running(move.uid, move.source)
        if info is None or not self._begun:
            return True
        return is_unconstrained(info) and all(
            each.is_unconstrained and (each.target != move.target or each.priority >= info.priority)
            for each in self._begun.values()
        )

    def begin(self, move: PlannedMove) -> None:
        """Register a move that :meth:`make` is about to make."""
        info = self._running(move.uid, move.source)
        if info is not None:
            self._begun[move.uid] = _Begun(move.target, info.priority, is_unconstrained(info))

    async def hold_later(self, plan: RebalancePlan, moves: Sequence[PlannedMove], among: Sequence[PlannedMove]) -> str:
        """Hold the destinations of moves that have not begun, until they end or :meth:`release_later` is called.

        Args:
            among: All moves of the plan: their pods count as leaving.

        Returns:
            Why a destination cannot be held, and then no further one is; "" if all are.
        """
        in_the_way = frozenset(each.uid for each in among)
        new = [each for each in moves if not self.is_held_later(plan, each)]
        for move in new:
            info, failure = self._running(move.uid, move.source), ""
            if info is None:
                failure = f"pod {move.pod} has ended or was moved already"
            elif not await self._hold_later(plan, move, info, in_the_way):
                failure = f"the room on node {move.target} was taken"
            if failure:
                for each in new:
                    self._release_later(plan.metadata.uid, each.uid)
                return failure
        return ""

    def is_held_later(self, plan: RebalancePlan, move: PlannedMove) -> bool:
        """Return whether the destination of a move is held with others, or was until the move began."""
        return move.uid in self._later.get(plan.metadata.uid, {})

    async def _hold_later(
        self, plan: RebalancePlan, move: PlannedMove, info: PodInfo, in_the_way: frozenset[str]
    ) -> bool:
        columns = self._scheduler.context.cache.columns
        slot = HeldPod(columns.compile_pod(_without_node(info.pod)), "", move.target)
        # No pod has this owner: replacements of earlier moves of the same controller have room of their own.
        no_pods = OwnPods(info.pod.metadata.namespace, owner_uid=f"later/{move.uid}", are_new=True)
        room = HeldRoom(_holder(plan, move.pod, move.uid, no_pods), [slot], columns, Terms(in_the_way))
        self._later.setdefault(plan.metadata.uid, {})[move.uid] = room
        return await self._holding.hold(room)

    def release_later(self, plan_uid: str) -> None:
        """End the room of all moves of a plan that have not begun."""
        for uid in tuple(self._later.get(plan_uid, ())):
            self._release_later(plan_uid, uid)

    def _release_later(self, plan_uid: str, uid: str) -> None:
        of_plan = self._later.get(plan_uid, {})
        room = of_plan.pop(uid, None)
        if room is not None:
            self._scheduler.reservations.release(room)
        if not of_plan:
            self._later.pop(plan_uid, None)

    async def make(self, order: MoveOrder) -> str:
        """Make one move; return why it failed, "" if the replacement is bound to its node.

        :data:`CHANGED` is returned if the pod is not evicted because the move is not wanted any more.
        """
        later = self._later.get(order.plan.metadata.uid, {}).get(order.move.uid)
        try:
            return await self._make(order, later)
        finally:
            self._begun.pop(order.move.uid, None)
            self._release_later(order.plan.metadata.uid, order.move.uid)

    async def _make(self, order: MoveOrder, later: HeldRoom | None) -> str:
        move, until = order.move, self._clock.now() + order.plan.spec.move_timeout_seconds
        reason = ""
        while self._clock.now() < until and order.is_current():
            info = self._running(move.uid, move.source)
            if info is None:
                return f"pod {move.pod} has ended or was moved already"
            await self._scheduler.context.suspension.over()
            if later is not None:
                # No cycle begins between the check and the beginning of the move's own room.
                self._scheduler.reservations.release(later)
            search = plan_search(self._scheduler.context, self._scheduler.reservations)
            reason, replacement = search.check(order.request, info, move.target)
            if replacement is not None:
                try:
                    return await self._evicted(order, info, replacement, until)
                except EvictionRefusedError:
                    reason = "a PodDisruptionBudget allows no disruption"
                except _NotBegunError as error:
                    reason = f"the status cannot be written, without which no pod is evicted: {error}"
            if later is not None and order.is_current():
                await self._holding.hold(later)
            await self._clock.sleep(_LOOK_SECONDS)
        return reason if reason and order.is_current() else CHANGED

    async def resume(
        self, plan: RebalancePlan, move: PlannedMoveStatus, awaited: AwaitedPod
    ) -> AwaitedMove | str | None:
        """Hold the room of a move again that an earlier process began; its time begins again.

        Returns:
            None if the pod is not evicted, "" if its replacement is bound to the node, or why the move has failed.
        """
        await self._scheduler.context.suspension.over()
        running = self._running(move.uid, move.source)
        if running is not None and not running.is_leaving:
            return None
        namespace = move.pod.partition("/")[0]
        if self._count(self._own_pods_on(move.target, namespace, awaited.owner) - set(awaited.others), move.pod):
            return ""
        info = self._scheduler.context.cache.columns.compile_pod(_expected_pod(move, awaited))
        until = self._clock.now() + plan.spec.move_timeout_seconds
        held = await self._hold(plan, move.pod, move.uid, HeldPod(info, "", move.target), until)
        return held or f"the room on node {move.target} was taken"

    async def outcome(self, held: AwaitedMove) -> str:
        """Await the replacement; return why the move failed, "" if the replacement is bound to its node."""
        try:
            reason = await held.ended
        finally:
            await self._holding.end(held.room)
        if reason is EndReason.EXPIRED:
            within = f"was bound within {held.plan.spec.move_timeout_seconds} s"
            return f"no replacement of pod {held.pod} {within}; see its controller, or raise spec.moveTimeoutSeconds"
        cache = self._scheduler.context.cache
        found = {uid: cache.get(uid) for uid in held.room.settled - held.before - self._counted.keys()}
        placed = {uid: each.info.node_name for uid, each in found.items() if each is not None}
        if self._count((uid for uid, name in placed.items() if name == held.target), held.pod):
            return ""
        nodes = sorted(set(placed.values()))
        return f"the replacement of pod {held.pod} is on node {', '.join(nodes) or 'none'} and not on {held.target}"

    async def _evicted(self, order: MoveOrder, info: PodInfo, replacement: PodInfo, until: float) -> str:
        """Hold the destination, evict the pod, and await the replacement; return why that failed, "" if it did not.

        Raises:
            EvictionRefusedError: The eviction is refused for now.
            _NotBegunError: The pod is not evicted, because what resumes the move cannot be written now.
        """
        move, meta = order.move, info.pod.metadata
        held = await self._hold(order.plan, move.pod, move.uid, HeldPod(replacement, "", move.target), until)
        if held is None:
            return f"the room on node {move.target} was taken"
        try:
            await self._begin(order, info)
            if not order.is_current():
                return CHANGED
            await self._evictions.evict(meta.namespace, meta.name, meta.uid)
            note = f"Evicted pod {move.pod}, whose replacement gets node {move.target}"
            record_plan_event(self._scheduler, order.plan, "Normal", "Evicted", note)
            return await self.outcome(held)
        except EvictionRefusedError:
            raise
        except NotFoundError:
            return f"pod {move.pod} has ended"
        except ClusterWriteError as error:
            # The API server may have evicted it all the same.
            return f"the eviction of pod {move.pod} failed: {error}"
        finally:
            await self._holding.end(held.room)

    def _count(self, uids: Iterable[str], replaced: str) -> bool:
        """Let one of some pods replace a pod; return False if each of them is the replacement of another one."""
        uid = min(set(uids) - self._counted.keys(), default="")
        if uid:
            cache = self._scheduler.context.cache
            self._counted = {each: pod for each, pod in self._counted.items() if cache.get(each)} | {uid: replaced}
        return bool(uid)

    async def _begin(self, order: MoveOrder, info: PodInfo) -> None:
        try:
            await order.on_begin(self._awaited(info, order.move.target))
        except ClusterWriteError as error:
            raise _NotBegunError(str(error)) from error

    def _awaited(self, info: PodInfo, target: str) -> AwaitedPod:
        pod, owner = info.pod, _controller_of(info.pod)
        requests = {name: f"{amount}m" if name == CPU else str(amount) for name, amount in info.requests.fit.items()}
        others = self._own_pods_on(target, pod.metadata.namespace, owner)
        return AwaitedPod(
            owner=owner,
            requests=requests,
            priority=info.priority,
            has_claims=bool(pod.spec.resource_claims),
            others=tuple(sorted(others)[:MAX_PODS_OF_NODE]),
        )

    def with_replacements(self, move: PlannedMoveStatus) -> PlannedMoveStatus:
        """Return a move whose awaited pod is none of those that replace other pods."""
        awaited = move.awaited
        if awaited is None:
            return move
        pods = self._own_pods_on(move.target, move.pod.partition("/")[0], awaited.owner)
        replacements = {uid for uid in pods if self._counted.get(uid, move.pod) != move.pod}
        others = sorted(replacements.union(awaited.others))[:MAX_PODS_OF_NODE]
        return move.model_copy(update={"awaited": awaited.model_copy(update={"others": tuple(others)})})

    def _running(self, uid: str, source: str) -> PodInfo | None:
        placed = self._scheduler.context.cache.get(uid)
        is_there = placed is not None and placed.info.pod.spec.node_name == source
        return placed.info if placed is not None and is_there else None

    def _own_pods_on(self, node_name: str, namespace: str, owner: str) -> set[str]:
        nodes, own = self._scheduler.context.cache.columns, OwnPods(namespace, owner_uid=owner)
        row = nodes.row_of(node_name)
        pods = {} if row == NO_ROW else nodes.pods[row]
        return {uid for uid, info in pods.items() if own.include(info.pod, None)}

    async def _hold(
        self, plan: RebalancePlan, pod: str, uid: str, replacement: HeldPod, until: float
    ) -> AwaitedMove | None:
        ended: asyncio.Future[EndReason] = asyncio.get_running_loop().create_future()
        own = replacement.info.pod
        pods = OwnPods(own.metadata.namespace, owner_uid=_controller_of(own))
        terms = Terms(
            until=until,
            prefers_slots=True,
            on_end=lambda reason: None if ended.done() else ended.set_result(reason),
        )
        holder = _holder(plan, pod, uid, pods)
        room = HeldRoom(holder, [replacement], self._scheduler.context.cache.columns, terms)
        if not await self._holding.hold(room):
            return None
        return AwaitedMove(plan, pod, replacement.node_name, room, ended, frozenset(room.settled))


def is_unconstrained(info: PodInfo) -> bool:
    """Return whether a pod has no constraints to other pods, no volumes that are searched, and no claims."""
    spec = info.pod.spec
    affinity = spec.affinity
    has_terms = affinity is not None and (affinity.pod_affinity, affinity.pod_anti_affinity) != (None, None)
    return not (has_terms or spec.topology_spread_constraints or spec.resource_claims or info.volumes is not NO_VOLUMES)


def _holder(plan: RebalancePlan, pod: str, uid: str, pods: OwnPods) -> Holder:
    return Holder("RebalancePlan", "", f"{plan.metadata.name} ({pod})", f"{plan.metadata.uid}/{uid}", pods)


def _without_node(pod: Pod) -> Pod:
    meta = replace(pod.metadata, uid=f"later/{pod.metadata.uid}")
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus())


def _controller_of(pod: Pod) -> str:
    return next(owner.uid for owner in pod.metadata.owner_references if owner.controller)


def _expected_pod(move: PlannedMoveStatus, awaited: AwaitedPod) -> Pod:
    """Return a pod that needs the room of an evicted pod."""
    namespace, _, name = move.pod.partition("/")
    owners = (OwnerReference("", "", awaited.owner, controller=True),)
    containers = (Container("main", resources=ResourceRequirements(requests=dict(awaited.requests))),)
    metadata = ObjectMeta(name, namespace, f"resumed/{move.uid}", owner_references=owners)
    # Held room keeps other pods with claims off the node if the pod has some, whatever they are.
    claims = (ResourceClaimReference("claim"),) if awaited.has_claims else ()
    return Pod(metadata, PodSpec(priority=awaited.priority, containers=containers, resource_claims=claims))
