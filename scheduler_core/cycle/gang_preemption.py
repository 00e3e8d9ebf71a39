"""Preemption for gangs: all or nothing.

Owns whether a gang may preempt, where it looks, which of several plans it takes, and what follows: pods are evicted
only if the whole quorum then fits, members are promised the nodes that were found for them, and the gang waits. Must
not know how victims are found (:mod:`scheduler_core.cycle.gang_victims`) nor how they are made to leave (the PostFilter
plugin).

Differs from kube-scheduler v1.36.3 (``pkg/scheduler/schedule_one_podgroup.go``, behind a gate): there the victims are
those whose return the group does not allow; here the plan that does the least harm is taken. A group with a topology
constraint never preempts there; here that holds for groups of Kubernetes' own API only. A profile with extenders that
judge nodes preempts for no gang: victims would be chosen without their say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.gang_domains import candidate_domains
from scheduler_core.cycle.gang_failure import GangFailure, not_enough_free
from scheduler_core.cycle.gang_trial import ANYWHERE, Where
from scheduler_core.cycle.gang_victims import GangPlan, GangRequest, plan_in
from scheduler_core.cycle.group_views import GangViews
from scheduler_core.cycle.node_selection import find_feasible
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.disruption_units import DisruptionUnits
from scheduler_core.framework.gang_preemptor import GangEviction, GangPreemptor
from scheduler_core.framework.preemptions import Preemptor, holder_of
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.model.pod_group import GroupSource, PodGroup
from scheduler_core.ports import ObjectReference
from scheduler_core.queueing.gang import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

PREEMPTING = "Preempting"
_NEVER = "Never"
_ENOUGH_PLANS = 8
"""After how many plans the search over domains ends, unless each of them violates a budget."""
_NOT_SERVED = "the profile enables no plugin that preempts for gangs"
_TURNED_OFF = "preemption for gangs is turned off"
_EXTENDED = "extenders of the profile judge nodes, and would have no say in the choice of victims"
_CONSTRAINED = "pod groups of scheduling.k8s.io with a topology constraint do not preempt"
_BY_POLICY = "not eligible due to preemptionPolicy=Never."
_UNDER_WAY = "waiting for the preemption for this gang to be finished"
_NOBODY = "no pod of lower priority runs where the gang could go"
_NO_HELP = "the quorum would not fit either if pods of lower priority were gone"


@dataclass(frozen=True, slots=True)
class GangPreview:
    """Who would be evicted for a gang.

    Attributes:
        plan: What would be done; None for nothing.
        reason: Why nothing; "" with a plan.
        waits_for_victims: Whether that is because victims of an earlier preemption are still leaving.
    """

    plan: GangPlan | None
    reason: str = ""
    waits_for_victims: bool = False


@dataclass(frozen=True, slots=True)
class _Asking:
    """A gang that asks, and its waiting members of one profile, in the order in which they are placed."""

    gang: Gang
    group: PodGroup
    instance: FrameworkInstance
    members: tuple[QueuedPod, ...]


def preview_gang_preemption(
    context: CycleContext, gang: Gang, instance: FrameworkInstance | None = None
) -> GangPreview:
    """Who would be evicted for a gang that does not fit; changes nothing.

    Args:
        context: The shared parts; they are as before when this returns.
        gang: The gang.
        instance: The profile that is asked; None for the live one of the gang's members.
    """
    if gang.group is None or not gang.needed or not gang.has_quorum:
        return GangPreview(None, "the gang has no quorum that waits")
    waiting = sorted(gang.waiting.values(), key=lambda pod: (-pod.info.priority, pod.sequence))
    profile = waiting[0].profile if gang.entry is None else gang.entry.profile
    instance = instance or context.profiles.get(profile)
    if instance is None:
        return GangPreview(None, f'the profile "{profile}" is not live')
    members = tuple(pod for pod in waiting if pod.profile == profile)
    try:
        return _preview(context, _Asking(gang, gang.group, instance, members))
    except SchedulerCoreError as error:
        return GangPreview(None, str(error))


def gang_preemption(
    context: CycleContext, gang: Gang, instance: FrameworkInstance, failure: GangFailure
) -> tuple[GangFailure, GangEviction | None]:
    """Let a gang that was turned away preempt, if it helps.

    Args:
        context: The shared parts.
        gang: The gang, which holds nothing.
        instance: The profile's revision that decided.
        failure: Why the gang was turned away.

    Returns:
        What is to be told, with the nodes that members are promised; and what :func:`evict` is to be called with when
        it has been told, None for nothing.
    """
    if failure.is_error:
        return failure, None
    preview = preview_gang_preemption(context, gang, instance)
    if preview.waits_for_victims:
        nominator = context.queue.nominator
        kept = {uid: nominator.node_of(uid) for uid in gang.waiting if nominator.node_of(uid)}
        told = f"{preview.reason}; {failure.message}"
        return replace(failure, reason=PREEMPTING, message=told, nominations=kept, victims=gang.victims), None
    plan = preview.plan
    if plan is None or gang.group is None:
        return failure, None
    names = tuple((info.pod.metadata.namespace, info.pod.metadata.name) for info in plan.victims)
    told = f"{_sentence(plan)}; {failure.message}"
    rejected_by = failure.rejected_by | plan.rejected_by
    failure = replace(
        failure, reason=PREEMPTING, message=told, rejected_by=rejected_by, nominations=plan.nodes, victims=names
    )
    if not plan.victims:
        return failure, None
    node_names = tuple(dict.fromkeys(plan.nodes.values()))
    preemptor = _preemptor(gang, gang.group, instance)
    return failure, GangEviction(preemptor, plan.victims, node_names, frozenset(gang.pods))


def evict(instance: FrameworkInstance, eviction: GangEviction) -> None:
    """Make the victims leave; the gang's entry is held back until that is issued."""
    preemptor = preemptor_of(instance)
    assert preemptor is not None
    preemptor.evict_for_gang(eviction)


def preemptor_of(instance: FrameworkInstance) -> GangPreemptor | None:
    """The profile's plugin that makes room for gangs, None if it enables none."""
    return next((plugin for plugin in instance.post_filter if isinstance(plugin, GangPreemptor)), None)


def _sentence(plan: GangPlan) -> str:
    place = f" in {plan.where.name}" if plan.where.name else ""
    members = f"all {len(plan.nodes)} members that must be placed together fit{place}"
    ending = ""
    if plan.awaited:
        ending = f"{_counted(len(plan.awaited), 'pod')} that {'ends' if len(plan.awaited) == 1 else 'end'} already"
    if not plan.victims:
        return f"waiting for {ending}, after which {members}"
    text = f"preempting: {_counted(len(plan.victims), 'pod')} would go on {_counted(len(plan.victim_nodes), 'node')}"
    return f"{text} so that {members}{f', when {ending} are gone too' if ending else ''}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _preemptor(gang: Gang, group: PodGroup, instance: FrameworkInstance) -> Preemptor:
    key = gang.key
    version = "v1alpha2" if key.source is GroupSource.NATIVE else "v1alpha1"
    reference = ObjectReference("PodGroup", key.name, key.namespace, group.uid, f"{key.source.value}/{version}")
    return Preemptor(group.uid, "podgroup", str(key), instance.name, gang.priority, reference, group=key)


# -- may it, and where -------------------------------------------------------------------------------------------


def _preview(context: CycleContext, asking: _Asking) -> GangPreview:
    if not context.gangs_preempt:
        return GangPreview(None, _TURNED_OFF)
    preemptor = preemptor_of(asking.instance)
    if preemptor is None:
        return GangPreview(None, _NOT_SERVED)
    if any(each.config.filter_verb or each.config.preempt_verb for each in asking.instance.extenders):
        return GangPreview(None, _EXTENDED)
    if not asking.group.may_preempt:
        return GangPreview(None, _CONSTRAINED)
    if any(queued.info.pod.spec.preemption_policy == _NEVER for queued in asking.members):
        return GangPreview(None, _BY_POLICY)
    if context.preemptions.get(holder_of(asking.gang.key)) is not None:
        return GangPreview(None, _UNDER_WAY, waits_for_victims=True)
    if _awaits_victims(context, asking, preemptor):
        return GangPreview(None, "waiting for pods that were preempted to end", waits_for_victims=True)
    nodes, priority = context.cache.columns, asking.gang.priority
    rows = np.flatnonzero(nodes.alive)
    rows = rows[nodes.priorities.below(priority, rows)]
    if not len(rows):
        return GangPreview(None, _NOBODY)
    units = DisruptionUnits(GangViews(context))
    spared = units.spared_by(priority) | frozenset(asking.gang.pods)
    running = (info for row in rows.tolist() for info in nodes.pods[row].values())
    going = tuple(
        info for info in running if info.pod.metadata.deletion_timestamp is not None and info.priority < priority
    )
    request = GangRequest(asking.instance, preemptor, priority, asking.gang.needed, units, spared, going)
    with context.queue.nominator.without(asking.gang.waiting):
        plan = _least_harmful(context, asking, request)
    return GangPreview(None, _NO_HELP) if plan is None else GangPreview(plan)


def _awaits_victims(context: CycleContext, asking: _Asking, preemptor: GangPreemptor) -> bool:
    """Whether pods that were preempted still end on a node that a member is promised, unless that became hopeless."""
    nodes, nominator = context.cache.columns, context.queue.nominator
    for queued in asking.members:
        name = nominator.node_of(queued.uid) or queued.info.pod.status.nominated_node_name
        row = nodes.row_of(name) if name else NO_ROW
        if row == NO_ROW:
            continue
        if preemptor.is_awaited(asking.gang.priority, row) and not _is_hopeless(context, asking, queued, row):
            return True
    return False


def _is_hopeless(context: CycleContext, asking: _Asking, queued: QueuedPod, row: int) -> bool:
    attempt = Attempt(queued, queued.info, asking.instance, context.clock.now())
    attempt.among = np.zeros(context.cache.columns.size, dtype=np.bool_)
    attempt.among[row] = True
    feasible = find_feasible(context, attempt, everywhere=True)
    if len(feasible.rows):
        return False
    diagnosis = feasible.diagnosis
    if not diagnosis.pre_filter.is_success:
        return diagnosis.pre_filter.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return diagnosis.status_of(row).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def _least_harmful(context: CycleContext, asking: _Asking, request: GangRequest) -> GangPlan | None:
    """Look everywhere that the group may go; the first of equally harmless plans."""
    best: GangPlan | None = None
    found = 0
    for where, orders in _places(context, asking, request):
        plan = next((plan for order in orders if (plan := _plan(context, asking, request, (where, order)))), None)
        if plan is None:
            continue
        found += 1
        if best is None or plan.harm < best.harm:
            best = plan
        if not best.victims or (found >= _ENOUGH_PLANS and not best.pdb_violations):
            break
    return best


def _plan(
    context: CycleContext, asking: _Asking, request: GangRequest, way: tuple[Where, Sequence[QueuedPod]]
) -> GangPlan | None:
    plan = plan_in(context, request, *way)
    if plan is None or asking.gang.placed or not asking.group.min_resources:
        return plan
    leaving = (*plan.victims, *request.going)
    return plan if not_enough_free(context.cache.columns, asking.group, leaving) is None else None


def _places(
    context: CycleContext, asking: _Asking, request: GangRequest
) -> Iterator[tuple[Where, list[Sequence[QueuedPod]]]]:
    """Domains that have room for the quorum when they are empty, in their order; then anywhere, if that may be."""
    nodes, topology, members = context.cache.columns, asking.group.topology, asking.members
    largest_first = sorted(members, key=lambda pod: sorted(pod.info.fit), reverse=True)
    is_uniform = len({pod.info.fit for pod in members}) <= 1
    orders: list[Sequence[QueuedPod]] = [members] if is_uniform else [members, largest_first]
    if topology is not None:
        infos = [pod.info for pod in members]
        cached = (context.cache.get(uid) for uid in sorted(asking.gang.placed))
        placed = [each.info for each in cached if each is not None]
        room = _room_when_empty(nodes, infos)
        for domain in candidate_domains(nodes, topology, infos, request.needed, placed):
            rows = np.flatnonzero(domain.among)
            if room[rows].sum() >= request.needed and nodes.priorities.below(request.priority, rows).any():
                reason = f"node(s) were outside the gang's domain {domain}"
                yield Where(domain.among, reason, str(domain)), orders
    if topology is None or not topology.is_required:
        yield ANYWHERE, orders


def _room_when_empty(nodes: NodeColumns, members: Sequence[PodInfo]) -> NDArray[np.int64]:
    """int64 per row: how many of the smallest members an empty node would have room for, never too few."""
    room = np.where(nodes.alive, nodes.allowed_pods, 0).astype(np.int64)
    common = set.intersection(*({column for column, _ in info.fit} for info in members))
    for column in common:
        smallest = min(dict(info.fit)[column] for info in members)
        room = np.minimum(room, nodes.allocatable[column] // smallest)
    return room
