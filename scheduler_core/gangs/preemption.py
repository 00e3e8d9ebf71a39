"""Preemption for gangs: pods are evicted only if the whole quorum is then feasible.

This module decides whether a gang may preempt, in which domains, and with which plan. The members are nominated to
their nodes, and the gang is requeued. :mod:`scheduler_core.placement.victims` selects victims; the PostFilter plugin
evicts them.

Groups of ``scheduling.k8s.io`` and trees preempt as in kube-scheduler v1.37.1
(``pkg/scheduler/framework/preemption/podgrouppreemption.go``, behind a gate): their victims are the pods that cannot
stay beside the group. For other gangs the least harmful plan is used. A
profile whose extenders filter nodes preempts for no gang, because extenders cannot take part in the selection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.gang_preemptor import EvictionLimits, GangEviction, GangPreemptor, ties_by_cost
from scheduler_core.framework.group_view import DisruptionUnit, DisruptionUnits, GroupViews
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay, Preemptor, holder_of
from scheduler_core.gangs.failure_handler import GangFailure, not_enough_free, of_rejection, quorum_text
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.placement.engine import Policy, Verdict, at_once, place
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.subsets import Domain, all_subsets
from scheduler_core.placement.victims import EvictableRoom, GangPlan, VictimRequest, VictimWorld, awaits_victims
from scheduler_core.placement.worlds import CycleWorld, SearchWorld, without_extenders
from scheduler_core.ports import ObjectReference
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.waiting_causes import SCHEDULER_ERROR
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.held_claims import HeldClaims, claim_keys
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

PREEMPTING = "Preempting"
_NEVER = "Never"
_ENOUGH_PLANS = 8
"""Number of plans after which the search over domains ends, unless all of them violate a budget."""
_PODS_PER_STEP = 20
"""Running pods among which those that terminate are selected in a step."""
_NO_PLUGIN = "the profile enables no plugin that preempts for gangs"
_TURNED_OFF = "preemption for gangs is turned off"
_HAS_EXTENDERS = "extenders of the profile filter nodes or preempt, and cannot take part in the choice of victims"
_CONSTRAINED = "pod groups of scheduling.k8s.io/v1alpha2 with a topology constraint do not preempt"
_BY_POLICY = "not eligible due to preemptionPolicy=Never."
_UNDER_WAY = "waiting for the preemption for this gang to be finished"
_NO_VICTIMS = "no pod of lower priority runs where the gang could go"
_TOO_FEW_FREE = "less than the group's minResources free in the cluster"
_NO_HELP = "the quorum would not fit either if pods of lower priority were gone"
_IMPOSSIBLE = "impossible: even without the pods of lower priority the nodes have too few resources for the quorum"

_REFERENCE_WORDS = {
    _NO_VICTIMS: "No preemption victims found for incoming preemptor",
    _BY_POLICY: _BY_POLICY,
}
_ONGOING = "ongoing preemption on nominated nodes"


@dataclass(frozen=True, slots=True)
class GangPreview:
    """Result of a dry run of preemption for a gang.

    Attributes:
        reason: Why there is no plan; "" with a plan.
        waits_for_victims: Whether victims of an earlier preemption are still terminating.
        is_given_up: Whether the search was given up, so that there may be a plan.
        quorum: What the quorum of a native group lacks without the pods that it may preempt; "" for other groups.
    """

    plan: GangPlan | None
    reason: str = ""
    waits_for_victims: bool = False
    is_given_up: bool = False
    quorum: str = ""


def _refused(reason: str) -> str:
    return f"the quorum would fit only with {reason}"


def evict(instance: FrameworkInstance, eviction: GangEviction) -> None:
    """Evict the victims; the gang's entry is gated until all evictions are issued."""
    preemptor = preemptor_of(instance)
    assert preemptor is not None
    preemptor.evict_for_gang(eviction)


def preemptor_of(instance: FrameworkInstance) -> GangPreemptor | None:
    """Return the profile's plugin that preempts for gangs, None for none."""
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


def eviction_of(
    gang: Gang, instance: FrameworkInstance, victims: Sequence[PodInfo], node_names: Sequence[str]
) -> GangEviction:
    """Return the eviction of victims for a gang, whose members are nominated to some nodes."""
    assert gang.group is not None
    preemptor = _preemptor(gang, gang.group, instance)
    return GangEviction(preemptor, tuple(victims), tuple(node_names), frozenset(gang.pods))


def _preemptor(gang: Gang, group: PodGroup, instance: FrameworkInstance) -> Preemptor:
    key = gang.key
    reference = ObjectReference(key.source.kind, key.name, key.namespace, group.uid, group.api_version)
    kind = key.source.kind.lower()
    return Preemptor(group.uid, kind, str(key), instance.name, gang.priority, reference, group=key)


def terminating_pods(nodes: NodeColumns, rows: NDArray[np.intp], priority: int) -> tuple[PodInfo, ...]:
    """Return the pods on some rows that terminate and have a lower priority."""
    running = (info for row in rows.tolist() for info in nodes.pods[row].values())
    return tuple(info for info in running if info.is_leaving and info.priority < priority)


def are_min_resources_free(nodes: NodeColumns, request: PlacementRequest, gone: Iterable[PodInfo]) -> bool:
    """Return whether the group's ``minResources`` are free when some pods are gone."""
    group = request.gang.group
    if group is None or not group.min_resources:
        return True
    with ColumnsOverlay(nodes) as overlay:
        overlay.remove(gone)
        return not_enough_free(request.instance, nodes, request.gang) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPreemption:
    """Plans preemptions for gangs."""

    cache: ClusterCache
    nominator: NominatedPods
    groups: GroupViews
    search: SearchWorld
    members: CycleWorld
    preemptions: PreemptionsUnderWay
    is_enabled: bool

    def preview(self, gang: Gang, instance: FrameworkInstance) -> GangPreview:
        """Dry-run preemption for an unschedulable gang; changes nothing."""
        try:
            return self._preview_of(gang, instance)
        except SchedulerCoreError as error:
            return GangPreview(None, str(error))

    def _preview_of(self, gang: Gang, instance: FrameworkInstance) -> GangPreview:
        if gang.group is None or not gang.needed or not gang.has_quorum:
            return GangPreview(None, "the gang has no quorum that waits")
        try:
            with self.search.assumed.undone():
                return self._preview(gang.group, PlacementRequest.of(gang, instance))
        except AttemptLimitError as limit:
            return GangPreview(None, str(limit), is_given_up=True)

    def plan(
        self, gang: Gang, instance: FrameworkInstance, failure: GangFailure
    ) -> tuple[GangFailure, GangEviction | None]:
        """Plan the preemption for a rejected gang.

        Returns:
            The failure to report, with the members' nominated nodes; and the argument of :func:`evict`, which is called
            after the report, None for no eviction.
        """
        if failure.is_error:
            return failure, None
        try:
            preview = self._preview_of(gang, instance)
        except SchedulerCoreError as error:
            log.exception("preemption for gang %s failed", gang.key, extra={"podgroup": str(gang.key)})
            words = f"preemption failed: {error}"
            return failure.also(words, reason=SCHEDULER_ERROR, rejected_by=frozenset()), None
        if preview.waits_for_victims:
            nominator = self.nominator
            nominations = {uid: nominator.node_of(uid) for uid in gang.waiting if nominator.node_of(uid)}
            message = f"{preview.reason}; {failure.message}"
            failure = structs.replace(failure, reason=PREEMPTING, message=message, preemption=_ONGOING)
            return structs.replace(failure, nominations=nominations, victims=gang.victims), None
        plan = preview.plan
        if preview.is_given_up:
            return failure.also(f"preemption was {preview.reason}", is_given_up=True), None
        if plan is None or gang.group is None:
            return structs.replace(failure, preemption=preview.quorum or _REFERENCE_WORDS.get(preview.reason, "")), None
        names = tuple((info.pod.metadata.namespace, info.pod.metadata.name) for info in plan.victims)
        message = f"{_sentence(plan)}; {failure.message}"
        rejected_by = failure.rejected_by | plan.rejected_by
        failure = structs.replace(
            failure, reason=PREEMPTING, message=message, rejected_by=rejected_by, nominations=plan.nodes, victims=names
        )
        if not plan.victims:
            return failure, None
        words = f"found a placement for podgroup, preempting {len(plan.victims)} victims"
        failure = structs.replace(failure, preemption=words)
        node_names = tuple(dict.fromkeys(plan.nodes.values()))
        return failure, eviction_of(gang, instance, plan.victims, node_names)

    def _preview(self, group: PodGroup, placing: PlacementRequest) -> GangPreview:
        if not self.is_enabled:
            return GangPreview(None, _TURNED_OFF)
        gang, instance = placing.gang, placing.instance
        preemptor = preemptor_of(instance)
        if preemptor is None:
            return GangPreview(None, _NO_PLUGIN)
        if any(each.config.filter_verb or each.config.preempt_verb for each in instance.extenders):
            return GangPreview(None, _HAS_EXTENDERS)
        if not group.may_preempt:
            return GangPreview(None, _CONSTRAINED)
        of_members = (queued.info.pod.spec.preemption_policy for queued in placing.members)
        if _NEVER in ((group.preemption_policy,) if group.preemption_policy else of_members):
            return GangPreview(None, _BY_POLICY)
        if self.preemptions.get(holder_of(gang.key)) is not None:
            return GangPreview(None, _UNDER_WAY, waits_for_victims=True)
        if awaits_victims(self.search, placing, preemptor, self.nominator):
            return GangPreview(None, "waiting for pods that were preempted to end", waits_for_victims=True)
        nodes, priority = self.cache.columns, gang.priority
        rows = np.flatnonzero(nodes.alive)
        rows = rows[nodes.priorities.below(priority, rows)]
        if not len(rows):
            return GangPreview(None, _NO_VICTIMS)
        units = DisruptionUnits(self.groups)
        protected = units.protected_from(priority) | frozenset(gang.pods)
        terminating = terminating_pods(nodes, rows, priority)
        nodes.steps.pass_by(int(nodes.pod_count[rows].sum()) // _PODS_PER_STEP)
        placing = replace(placing, instance=without_extenders(instance))
        request = VictimRequest(placing, preemptor, priority, units, protected, terminating)
        if instance.config.preemption.devices:
            held = HeldClaims(nodes, request.may_end, claim_keys(queued.info.pod for queued in placing.members))
            request = replace(request, held=held or None)
        with self.nominator.without(gang.waiting):
            if group.key.source.is_native:
                # kube-scheduler tries all members of a group of its own API, and reports how many it placed.
                found = request.preemptible_units(nodes, rows)
                return self._as_reference(request, found) if found else GangPreview(None, _NO_VICTIMS)
            room = EvictableRoom(nodes, request)
            if not room.is_enough(np.flatnonzero(nodes.alive), for_each=True):
                return GangPreview(None, _IMPOSSIBLE)
            return self._least_harmful(request, room)

    def _why_not(self, request: VictimRequest, plan: GangPlan, limits: EvictionLimits) -> str:
        """Return why the victims of a plan may not be evicted, "" if they may."""
        refusal = limits.why_not(plan.victims)
        gone = (*plan.victims, *request.terminating)
        if refusal or are_min_resources_free(self.cache.columns, request.placing, gone):
            return refusal
        # The cycle after the evictions would reject the gang, which would evict what runs there by then, and so on.
        return _TOO_FEW_FREE

    def _limits(self, request: VictimRequest) -> EvictionLimits:
        return EvictionLimits(request.placing.instance.config.preemption, self.cache.columns, self.preemptions)

    def _least_harmful(self, request: VictimRequest, room: EvictableRoom) -> GangPreview:
        """Return the least harmful plan of all domains, the first of equal ones."""
        world, limits = VictimWorld(self.search, self.nominator, request), self._limits(request)
        plans, refusals = list[GangPlan](), list[str]()
        settings, now = request.placing.instance.config.preemption, self.search.clock.wall()

        def harm(plan: GangPlan) -> tuple[object, ...]:
            return (plan.harm, *(ties_by_cost(plan.victims, now) if settings.break_ties_by_deletion_cost else ()))

        def accept(_: Placement) -> Verdict:
            plan = world.plan()
            world.undo()
            if plan is None:
                return Verdict.REFUSED
            refusal = self._why_not(request, plan, limits)
            if refusal:
                refusals.append(refusal)
                return Verdict.REFUSED
            plans.append(plan)
            best = min(plans, key=harm)
            is_enough = not best.victims or (len(plans) >= _ENOUGH_PLANS and not best.pdb_violations)
            return Verdict.TAKEN if is_enough else Verdict.STORED

        def may_have_room(domain: Domain) -> bool:
            rows, priorities = domain.subset.rows, self.cache.columns.priorities
            return room.is_enough(rows, for_each=False) and bool(priorities.below(request.priority, rows).any())

        subsets = partial(all_subsets, admits=may_have_room)
        _, rejection = at_once(place(request.placing, world, Policy(accept, subsets)))
        if rejection.limit is not None:
            raise rejection.limit
        if not plans and refusals:
            return GangPreview(None, _refused(refusals[0]))
        return GangPreview(min(plans, key=harm)) if plans else GangPreview(None, _NO_HELP)

    def _as_reference(self, request: VictimRequest, units: Sequence[DisruptionUnit]) -> GangPreview:
        """Return the plan with the victims that kube-scheduler selects."""
        # Terminating pods are removed and reprieved as others are.
        world = VictimWorld(self.search, self.nominator, replace(request, terminating=()), keeps_nodes=True)
        plan, rejection = world.plan_as_reference(units, self.members)
        if rejection.limit is not None:
            raise rejection.limit
        if plan is not None:
            refusal = self._why_not(request, plan, self._limits(request))
            if refusal:
                return GangPreview(None, _refused(refusal))
            return GangPreview(plan)
        gang = request.placing.gang
        if not rejection.tries or gang.is_tree:
            return GangPreview(None, _NO_HELP)
        lack = of_rejection(request.placing.instance, request.placing.needed, rejection)
        return GangPreview(None, _NO_HELP, quorum=quorum_text(self.cache.columns, gang, lack))
