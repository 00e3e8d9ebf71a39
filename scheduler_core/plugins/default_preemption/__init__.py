"""DefaultPreemption: an infeasible pod preempts pods of lower priority.

The steps are in modules: ``candidate_nodes`` (which pods may preempt, the nodes where preemption helps, and their
victims) and ``eviction`` (deleting the victims). The node is chosen here. Whether the pod would fit is decided by the
filters of the profile.

If a group is disrupted as a whole, its other members are evicted with a victim, wherever they run: they count in the
choice of the node, extenders do not see them, and no member is a victim if one of them may not be. Members on other
nodes are not reprieved, so a node may lose one pod more than necessary.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/defaultpreemption`` and
``pkg/scheduler/framework/preemption``, where groups are victims only behind a feature gate that is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.errors import ExtenderError, PluginError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import EXTENDER, Diagnosis
from scheduler_core.framework.extension_points import (
    PlannedPostFilter,
    PostFilterAction,
    PostFilterPreview,
    PostFilterResult,
    PreemptionCandidate,
    PreemptionExtenders,
    PreEnqueuePlugin,
)
from scheduler_core.framework.gang_preemptor import (
    EvictionLimits,
    GangEviction,
    GangPreemptor,
    MemberCandidates,
    VictimTerms,
    why_too_many,
)
from scheduler_core.framework.group_view import DisruptionUnits, split_by_budgets
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.default_preemption.candidate_nodes import (
    DryRunResult,
    PreemptionTrial,
    Walk,
    WhyNot,
    awaits_devices,
    awaits_victims,
    harm_of,
    importance_at,
    least_harm,
    least_harmful,
    rows_to_try,
    why_not_eligible,
)
from scheduler_core.plugins.default_preemption.eviction import Evictions, to_be_evicted
from scheduler_core.snapshot.held_claims import HeldClaims, claim_keys
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

__all__ = ["DefaultPreemption"]

_NONE_LEFT = unschedulable("no candidate node for preemption")
_CONSTRAINED_GROUP = unschedulable("not eligible because the pod group has a topology constraint")
_NODES_PER_STEP = 50
"""Nodes among which the ones to try are selected in a step."""
_STILL_EVICTING = unresolvable("waiting for the preemption for this pod to be finished")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A planned preemption: none unless ``chosen`` is set; ``found`` are the candidates without whole groups."""

    result: PostFilterResult
    found: tuple[PreemptionCandidate, ...] = ()
    candidates: tuple[PreemptionCandidate, ...] = ()
    chosen: PreemptionCandidate | None = None


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Skip: the plugins that rejected the pod decide whether the deletion helps."""
    return Hint.SKIP


class DefaultPreemption(PreEnqueuePlugin, PlannedPostFilter, GangPreemptor):
    """Finds the node where preemption does the least harm, and evicts the victims."""

    name = "DefaultPreemption"
    args_model = DefaultPreemptionArgs
    events = (EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), after_pod_deletion),)

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._evictions = Evictions(handle, self.name)
        self._draws = 0
        self._order: tuple[int, NDArray[np.intp]] = -1, np.empty(0, dtype=np.intp)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gate a preemptor until its evictions are issued; before that it would only fail again."""
        return _STILL_EVICTING if self._evictions.is_preempting(pod) else SUCCESS

    def preview_gate(self, pod: PodInfo) -> Status:
        return _STILL_EVICTING if self._evictions.would_hold(pod) else SUCCESS

    def plan(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult, PostFilterAction]:
        """Return the preemption that helps, if any."""
        plan = self._plan(state, pod, nodes, diagnosis)
        return plan.result, PostFilterAction(plan.chosen)

    async def post_filter_with(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, extenders: PreemptionExtenders
    ) -> PostFilterResult:
        """Preempt if that helps, on a node that the extenders accept."""
        plan = self._plan(state, pod, self.handle.nodes, diagnosis)
        if plan.found:
            try:
                accepted = await extenders.process_preemption(pod, plan.found)
                units = DisruptionUnits(self.handle.groups)
                # An extender may return other victims.
                why_not = self._why_not(units)
                plan = self._chosen(
                    accepted if why_not is None else [each for each in accepted if not why_not(each.victims)], units
                )
            except ExtenderError as fault:
                plan = _Plan(PostFilterResult(_with_prefix(error(str(fault)))))
        self.carry_out(pod, PostFilterAction(plan.chosen))
        return plan.result

    def carry_out(self, pod: PodInfo, action: PostFilterAction) -> None:
        """Evict the victims; the next walk over the nodes starts elsewhere, whether there are any or not."""
        self._draws += 1
        self.handle.preemptions.attempted()
        if action.preemption is not None:
            self._evictions.start(pod, action.preemption)

    def preview(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> PostFilterPreview:
        plan = self._plan(state, pod, nodes, diagnosis)
        if plan.chosen is None:
            return PostFilterPreview(plan.result, plan.candidates)
        withdrawn = self._evictions.to_be_withdrawn(pod, plan.chosen)
        return PostFilterPreview(plan.result, plan.candidates, to_be_evicted(plan.chosen), withdrawn)

    @contextmanager
    def previewed_after(self, count: int) -> Iterator[None]:
        """Count more draws in a block: the walk over the nodes starts where it would after that many pods."""
        self._draws += count
        try:
            yield
        finally:
            self._draws -= count

    def _plan(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> _Plan:
        view = self.handle.groups.group_of(pod.pod)
        group = None if view is None else view.group
        if group is not None and not group.may_preempt:
            return _Plan(PostFilterResult(_with_prefix(_CONSTRAINED_GROUP)))
        nominated = self.handle.nominator.node_of(pod.uid)
        reason = why_not_eligible(pod, nodes, diagnosis, nominated, frees_devices=self._frees_devices(pod))
        if reason:
            return _Plan(PostFilterResult(_with_prefix(unschedulable(reason))))
        units = DisruptionUnits(self.handle.groups)
        found = self._dry_run(state, pod, diagnosis, self._terms(pod, units), self._why_not(units))
        if not found.candidates:
            fault = found.error()
            if fault is not None:
                return _Plan(PostFilterResult(_with_prefix(fault)))
            text = found.why_no_candidate(diagnosis.node_count)
            return _Plan(PostFilterResult(_with_prefix(unschedulable(text)), ""))
        return self._chosen(found.candidates, units)

    def _why_not(self, units: DisruptionUnits) -> WhyNot | None:
        """Return the check of the profile's limits; None for none."""
        settings = self.handle.preemption_settings
        if not settings.limits_victims:
            return None
        limits = EvictionLimits(settings, self.handle.nodes, self.handle.preemptions)
        return lambda victims: limits.why_not(units.whole(victims))

    def _frees_devices(self, pod: PodInfo) -> bool:
        needs_devices = bool(pod.pod.spec.resource_claims or pod.scalars)
        return needs_devices and self.handle.preemption_settings.devices

    def _terms(self, pod: PodInfo, units: DisruptionUnits) -> VictimTerms:
        protected = units.protected_from(pod.priority)
        if not self._frees_devices(pod):
            return VictimTerms(protected)
        held = HeldClaims(
            self.handle.nodes,
            lambda info: info.priority < pod.priority and info.uid not in protected,
            claim_keys((pod.pod,)),
        )
        return VictimTerms(protected, held=held or None)

    def _dry_run(
        self,
        state: CycleState,
        pod: PodInfo,
        diagnosis: Diagnosis,
        terms: VictimTerms,
        why_not: WhyNot | None,
    ) -> DryRunResult:
        nodes = self.handle.nodes
        nodes.steps.pass_by(nodes.size // _NODES_PER_STEP)
        by_cost = self.handle.preemption_settings.break_ties_by_deletion_cost
        importance = importance_at(self.handle.clock.wall(), by_cost=by_cost)
        # An extender may have rejected a node where all filters accept the pod.
        is_filtered = diagnosis.pre_filter.is_success and EXTENDER not in diagnosis.rejected_by
        trial = PreemptionTrial(
            self.handle, state, pod, nodes, diagnosis, importance, terms, why_not, is_filtered, self.name
        )
        if terms.rows is None:
            walk = self._walk(pod, nodes, diagnosis, terms)
        else:
            rows = np.intersect1d(rows_to_try(diagnosis, nodes), terms.rows)
            walk = Walk(self._with_victims(pod, nodes, rows, terms), len(rows))
        return trial.run(walk)

    def _chosen(self, found: Sequence[PreemptionCandidate], units: DisruptionUnits) -> _Plan:
        if not found:
            return _Plan(PostFilterResult(_with_prefix(_NONE_LEFT)))
        candidates = tuple(self._whole(candidate, units) for candidate in found) if len(units) else tuple(found)
        chosen = self.least_harmful(candidates)
        victims = f"preempting {len(chosen.victims)} victims"
        text = f"found a potential placement for pod on node {chosen.node_name}, {victims}"
        result = PostFilterResult(_with_prefix(Status(Code.SUCCESS, (text,))), chosen.node_name)
        return _Plan(result, tuple(found), candidates, chosen)

    def _whole(self, candidate: PreemptionCandidate, units: DisruptionUnits) -> PreemptionCandidate:
        victims = units.whole(candidate.victims)
        if len(victims) == len(candidate.victims):
            return candidate
        by_cost = self.handle.preemption_settings.break_ties_by_deletion_cost
        ordered = tuple(sorted(victims, key=importance_at(self.handle.clock.wall(), by_cost=by_cost)))
        violating, _ = split_by_budgets(ordered, self.handle.nodes.disruption_budgets)
        return replace(candidate, victims=ordered, pdb_violations=len(violating))

    # -- gangs --------------------------------------------------------------------------------------------------

    def candidates_for_member(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, terms: VictimTerms
    ) -> MemberCandidates:
        """Return where a member of a gang would fit without pods of lower priority."""
        settings = self.handle.preemption_settings
        # Budgets are checked once the victims of all members are known, because some are reprieved then.
        why_not = None if settings.max_victims is None else partial(why_too_many, settings)
        found = self._dry_run(state, pod, diagnosis, terms, why_not)
        fault = found.error()
        if fault is not None and not found.candidates:
            raise PluginError(self.name, "postFilter", fault.message)
        return MemberCandidates(found.candidates, found.is_row_local)

    def least_harmful(self, candidates: Sequence[PreemptionCandidate]) -> PreemptionCandidate:
        by_cost = self.handle.preemption_settings.break_ties_by_deletion_cost
        return least_harmful(candidates, self.handle.clock.wall(), by_cost=by_cost)

    def may_be_better(self, pods: Sequence[PodInfo], best: PreemptionCandidate) -> bool:
        """Return whether the eviction of some of these pods can be less harmful than a candidate."""
        now = self.handle.clock.wall()
        if not pods:
            return False
        least, harm = least_harm(pods, now), harm_of(best, now)
        return least < harm or (least == harm and self.handle.preemption_settings.break_ties_by_deletion_cost)

    def is_awaited(self, priority: int, row: int) -> bool:
        """Return whether victims with a lower priority still terminate on the row."""
        nodes = self.handle.nodes
        if awaits_victims(priority, nodes, row):
            return True
        return self.handle.preemption_settings.devices and awaits_devices(nodes, row)

    def evict_for_gang(self, eviction: GangEviction) -> None:
        self._draws += 1
        self._evictions.start_for_gang(eviction)

    # -- where to look ------------------------------------------------------------------------------------------

    @staticmethod
    def _with_victims(pod: PodInfo, nodes: NodeColumns, rows: NDArray[np.intp], terms: VictimTerms) -> NDArray[np.intp]:
        """Return the rows with pods of lower priority, or whose devices such pods on other rows may hold."""
        if terms.held is not None and not terms.held.is_local:
            return rows
        return rows[nodes.priorities.below(pod.priority, rows)]

    def _walk(self, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis, terms: VictimTerms) -> Walk:
        """Return the rows in an order independent of the nodes' creation, starting at a random row."""
        hopeful = rows_to_try(diagnosis, nodes)
        rows = self._with_victims(pod, nodes, hopeful, terms)
        without_victims = len(hopeful) - len(rows)
        if not len(rows):
            return Walk(rows, 0, without_victims)
        if self._order[0] != nodes.version:
            self._order = nodes.version, nodes.name_hashes.argsort(kind="stable")
        is_walked = np.zeros(nodes.size, dtype=np.bool_)
        is_walked[rows] = True
        order = self._order[1]
        ordered = order[is_walked[order]]
        text = f"{self.handle.seed}/{pod.key}/{self._draws}"
        offset = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % len(rows)
        wanted = min(len(hopeful), max(self._absolute, len(hopeful) * self._percentage // 100))
        return Walk(np.concatenate((ordered[offset:], ordered[:offset])), wanted, without_victims)


def _with_prefix(status: Status) -> Status:
    return Status(status.code, (f"preemption: {status.message}",))
