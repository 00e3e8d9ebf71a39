"""Builds the operator's status from its parts, in the scheduler's event loop between two cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import bayplan
from bayplan.gangs.group_phase import Tally, evaluate_gang
from bayplan.gangs.group_status import INVALID_SPEC
from bayplan.introspection.status_model import (
    CacheState,
    ContestedNodeState,
    DevicesState,
    ExtenderState,
    GangState,
    InformerState,
    LeftAlone,
    Nomination,
    PlannedMoveState,
    PlanState,
    ProfileState,
    QueuedPodState,
    ReservationCounts,
    Status,
    WaitingPodState,
)
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import CLAIMS, ServerSupport
from bayplan.kube.watches.informer import Informer
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.texts.document_formats import item_or_error
from scheduler_core.cycle.contested_nodes import ContestedNode, is_overcommitted
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.devices.pools import PooledSlice, pool_counters
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.scheduler_metrics import ProfileRecord
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.sub_queues import QueueCounts
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.cluster_cache import PodState
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, devices_in_use, newest_slices

DEFAULT_LIMIT = 20
"""Default maximum number of pods for each place in the queue."""
_NO_GROUP, _ERROR = "NoGroup", "Error"
_NO_GROUP_MESSAGE = "The PodGroup does not exist; its members wait for it."


@dataclass(frozen=True, slots=True)
class StatusSources:
    """Parts of the operator that the status is built from.

    Attributes:
        informers: Informers by plural of the resource.
        extenders: Returns the extenders of a live profile by scheduler name, with the states of their circuit breakers.
        selector: Label selector of the served profiles; "" for all.
        server: Version of the API server, and what it lacks.
        reservations: Returns the numbers of NodeReservations of a namespace ("" for all); None if they are not read.
        plans: Returns the RebalancePlans with their last statuses; None without the feature gate.
    """

    scheduler: Scheduler
    readiness: Readiness
    informers: Mapping[str, Informer[Any]] = field(default_factory=dict)
    extenders: Callable[[str], tuple[ExtenderState, ...]] = lambda _: ()
    selector: str = ""
    server: ServerSupport = field(default_factory=ServerSupport)
    reservations: Callable[[str], ReservationCounts | None] = lambda _: None
    plans: Callable[[], Iterable[RebalancePlan]] | None = None


def operator_status(sources: StatusSources, started: float, limit: int = DEFAULT_LIMIT, namespace: str = "") -> Status:
    """Return the status of the operator.

    Args:
        limit: Maximum number of pods for each place in the queue, and of gangs; 0 for all, with the pods of other
            schedulers.
        namespace: Namespace of the pods and gangs; "" for all. The numbers of profiles, nodes and devices are of all.
    """
    prefix = f"{namespace}/" if namespace else ""
    context = sources.scheduler.context
    now, claims = context.clock.now(), sources.informers.get(CLAIMS)
    by_place: dict[str, list[QueuedPod]] = {}
    for place, pod in context.queue.readings.places():
        if limit and place == "parked" and not context.profiles.meant_by(pod.profile):
            continue
        if not pod.info.key.startswith(prefix):
            continue
        by_place.setdefault(place, []).append(pod)
    shown = [
        _queued(context, place, pod, now) for place, pods in by_place.items() for pod in islice(pods, limit or None)
    ]
    contested = context.contested.current()
    gangs = [each for each in _waiting_gangs(context, now) if each.gang.startswith(prefix)]
    return Status(
        version=bayplan.__version__,
        role=sources.readiness.role,
        missing=tuple(sources.readiness.missing),
        warnings=tuple(sources.readiness.warnings(names_all=True)),
        uptime_seconds=round(now - started, 1),
        binding=sources.scheduler.binding_count,
        is_suspended=context.suspension.is_on,
        profiles=profile_states(context, sources.extenders),
        places={place: len(pods) for place, pods in by_place.items()},
        parked=dict(Counter(pod.profile for pod in by_place.get("parked", ()))),
        queue=tuple(shown),
        waiting=tuple(each for each in _waiting(context, now) if each.pod.startswith(prefix)),
        nominations=tuple(
            Nomination(info.key, node)
            for node in sorted(context.queue.nominator.nodes())
            for info in context.queue.nominator.nominated_pods(node)
            if info.key.startswith(prefix)
        ),
        cache=_cache(context),
        informers=tuple(informer_state(*each) for each in sources.informers.items()),
        waiting_gangs=len(gangs),
        gangs=tuple(gangs[: limit or None]),
        selector=sources.selector,
        server=sources.server,
        devices=devices_state(context.cache.columns.devices, None if claims is None else claims.path),
        namespace=namespace,
        contested=len(contested),
        contested_nodes=tuple(_contested(context, node, prefix) for node in contested[: limit or None]),
        reservations=sources.reservations(namespace),
        plans=() if sources.plans is None else plan_states(sources.plans(), limit),
    )


def informer_state(resource: str, informer: Informer[Any]) -> InformerState:
    unreadable, undelivered = len(informer.unreadable), len(informer.undelivered)
    return InformerState(resource, len(informer.known), informer.synced, informer.last_error, unreadable, undelivered)


def plan_states(plans: Iterable[RebalancePlan], limit: int) -> tuple[PlanState, ...]:
    """Return the states of plans by name, each with ``limit`` moves, 0 for all."""
    return tuple(_plan_state(plan, limit) for plan in sorted(plans, key=lambda each: each.metadata.name))


def _plan_state(plan: RebalancePlan, limit: int) -> PlanState:
    spec, status = plan.spec, plan.status
    shown = status.moves[: limit or None]
    return PlanState(
        name=plan.metadata.name,
        objective=spec.objective,
        dry_run=spec.dry_run,
        phase=status.phase or "",
        planned=status.planned,
        moved=status.moved,
        cost=status.cost,
        gain=status.gain or "",
        message=next((each.message for each in status.conditions if each.type == "Completed"), ""),
        moves=tuple(PlannedMoveState(each.pod, each.source, each.target, each.state) for each in shown),
        omitted=len(status.moves) - len(shown),
        left_alone=tuple(LeftAlone(each.reason, each.count, each.pods) for each in status.left_alone),
    )


def _contested(context: CycleContext, node: ContestedNode, prefix: str) -> ContestedNodeState:
    """Return the state of a contested node, with the pods whose key has a prefix."""
    wall = context.clock.wall()
    return ContestedNodeState(
        node=node.name,
        rivals=tuple(node.rivals),
        pods=tuple(pod for pod in node.pods if pod.startswith(prefix)),
        count=node.count,
        seconds=round(max(0.0, (wall - node.since).total_seconds()), 1),
        last_seconds=round(max(0.0, (wall - node.last).total_seconds()), 1),
        is_overcommitted=is_overcommitted(context.cache.columns, node.name),
        is_avoided=node.name in context.contested.avoided,
    )


def profile_states(
    context: CycleContext, extenders: Callable[[str], tuple[ExtenderState, ...]]
) -> tuple[ProfileState, ...]:
    """Return the live profiles with the lengths of their queues, by name."""
    counts, wall = context.queue.readings.counts(), context.clock.wall()
    states = []
    for instance in context.profiles:
        count = counts.get(instance.name, QueueCounts())
        # Not by the key, which would add a record.
        record = context.metrics.records.get(instance.name, ProfileRecord())
        states.append(
            ProfileState(
                name=instance.name,
                revision=instance.revision,
                in_flight=instance.in_flight,
                active=count.active,
                backoff=count.backoff,
                unschedulable=count.unschedulable,
                gated=count.gated,
                scheduled=record.scheduled,
                rejected=record.unschedulable,
                errors=record.errors,
                last_error=record.last_error,
                last_error_seconds=_seconds_since(record.last_error_at, wall),
                extenders=item_or_error(
                    "the extenders of a profile", partial(extenders, instance.name), _failed_extenders
                ),
            )
        )
    return tuple(sorted(states, key=lambda state: state.name))


def _seconds_since(then: datetime | None, now: datetime) -> float | None:
    return None if then is None else round(max(0.0, (now - then).total_seconds()), 1)


def _failed_extenders(problem: str) -> tuple[ExtenderState, ...]:
    return (ExtenderState("", "Unknown", problem),)


def _queued(context: CycleContext, place: str, pod: QueuedPod, now: float) -> QueuedPodState:
    return QueuedPodState(
        pod=pod.info.key,
        place=place,
        profile=pod.profile,
        priority=pod.info.priority,
        seconds=round(max(0.0, now - pod.timestamp), 1),
        attempts=pod.attempts,
        rejected_by=tuple(sorted(pod.rejected_by)),
        gated_by=pod.gated_by,
        reasons=tuple(pod.gate_reasons),
        backoff_seconds=round(max(0.0, pod.backoff_until - now), 1) if "backoff" in place.lower() else 0.0,
        nominated_node=context.queue.nominator.node_of(pod.uid),
    )


def _waiting(context: CycleContext, now: float) -> tuple[WaitingPodState, ...]:
    return tuple(
        WaitingPodState(
            pod=entry.pod.key,
            node=entry.node_name,
            seconds=round(now - entry.since, 1),
            plugins={plugin: round(deadline - now, 1) for plugin, deadline in entry.deadlines().items()},
        )
        for entry in context.waiting
    )


def _cache(context: CycleContext) -> CacheState:
    cache = context.cache
    assumed = tuple(
        Nomination(placed.info.key, placed.info.node_name)
        for placed in cache.placed_pods()
        if placed.state is not PodState.ADDED
    )
    return CacheState(cache.columns.count, len(cache), assumed)


def _waiting_gangs(context: CycleContext, now: float) -> list[GangState]:
    """Return the waiting gangs, highest priority first, then oldest first."""
    waiting = [gang for gang in context.queue.gangs if gang_waits(gang)]
    waiting.sort(key=lambda gang: (-gang.priority, gang.since, gang.key))
    return [gang_state(gang, now) for gang in waiting]


def gang_waits(gang: Gang) -> bool:
    """Return whether a gang needs members that have no node."""
    if gang.group is not None and not gang.needed:
        return False
    return _without_node(gang) > 0


def _without_node(gang: Gang) -> int:
    return sum(
        uid not in gang.placed and not pod.is_terminal and pod.metadata.deletion_timestamp is None
        for uid, pod in gang.pods.items()
    )


def gang_state(gang: Gang, now: float) -> GangState:
    """Return the state of a waiting gang; if that fails, with the error as its message."""

    def failed(problem: str) -> GangState:
        return GangState(str(gang.key), gang.key.source.value, "", 0, 0, 0, 0, 0, 0.0, reason=_ERROR, message=problem)

    return item_or_error("the state of a gang", lambda: _gang_state(gang, now), failed)


def _gang_state(gang: Gang, now: float) -> GangState:
    group, reason, message = gang.group, _NO_GROUP, _NO_GROUP_MESSAGE
    if gang.refusal:
        reason, message = INVALID_SPEC, gang.refusal
    if group is not None:
        verdict = evaluate_gang(gang, Tally.of(gang), group.min_member)
        reason, message = verdict.reason, verdict.message
    unit = gang.unit
    entry = unit.entry
    return GangState(
        gang=str(gang.key),
        api=gang.key.source.value,
        place="" if entry is None or not unit.has_quorum else entry.place.label,
        priority=gang.priority,
        min_member=0 if group is None else group.min_member,
        needed=0 if group is None else gang.needed,
        # The members of an unknown group are held at their gate, not with the gang.
        waiting=_without_node(gang) if group is None else len(gang.waiting),
        placed=len(gang.placed),
        seconds=round(max(0.0, now - gang.since), 1),
        reservation=gang.reservation,
        reason=reason,
        message=message,
    )


def devices_state(devices: DeviceIndex, claims_path: str | None) -> DevicesState:
    """Count devices, their pools and resource claims.

    Pools are counted over the whole cluster, while the search for devices reads them as one node sees them: a pool
    whose slices target several nodes is complete here if all of its slices exist.
    """
    pools = newest_slices(devices.hardware.inventory.slices())
    checks = devices.hardware.features.partitionable_devices
    states = [_pool_state(slices, validates_counters=checks) for slices in pools.values()]
    allocated = [claim.status.allocation is not None for claim in devices.claims]
    in_flight = sum(
        claim.status.allocation is None and devices.in_flight(claim.metadata.uid) is not None
        for claim in devices.claims
    )
    return DevicesState(
        api_version="" if claims_path is None else claims_path.removeprefix("/apis/").rpartition("/")[0],
        problem=devices.withheld,
        devices=sum(len(each.names) for slices in pools.values() for each in slices),
        in_use=len(devices_in_use(devices)),
        pools_complete=states.count("complete"),
        pools_incomplete=states.count("incomplete"),
        pools_invalid=states.count("invalid"),
        claims_allocated=sum(allocated),
        claims_pending=len(allocated) - sum(allocated) - in_flight,
        claims_in_flight=in_flight,
    )


def _pool_state(slices: list[PooledSlice], *, validates_counters: bool) -> str:
    """Return ``complete``, ``incomplete`` or ``invalid`` for the newest slices of a pool."""
    slices.sort(key=lambda each: each.name)
    present = [each for each in slices if not each.is_missing]
    if len(present) != slices[0].slice_count:
        return "incomplete"
    return "invalid" if pool_counters(present, validates_counters=validates_counters) is None else "complete"
