"""DefaultPreemption: a pod that fits nowhere takes the place of pods of lower priority.

Owns the plugin; its steps stand in modules: ``eligibility`` (who may), ``dry_run`` and ``victims`` (where, and who
would have to leave), ``candidate_choice`` (which node) and ``eviction`` (making them leave). Must not know why a node
rejects the pod: it asks the profile's own filters.

Where a group is disrupted as a whole, its other members leave with a victim, wherever they run: the node is chosen with
them counted, extenders are asked without them, and none of it is a victim if any of it may not be. What a victim's
group has elsewhere is not reprieved, so that a node may lose a pod more than it had to.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/defaultpreemption`` and
``pkg/scheduler/framework/preemption``; groups are victims there only behind a gate that is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.errors import ExtenderError, PluginError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.disruption_units import DisruptionUnits, split_by_budgets
from scheduler_core.framework.extension_points import (
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionCandidate,
    PreemptionExtenders,
    PreEnqueuePlugin,
)
from scheduler_core.framework.gang_preemptor import GangEviction, GangPreemptor, MemberCandidates, VictimTerms
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SUCCESS, Status, error, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.default_preemption.candidate_choice import best_candidate
from scheduler_core.plugins.default_preemption.dry_run import DryRun, Walk, dry_run
from scheduler_core.plugins.default_preemption.eligibility import awaits_victims, rows_to_try, why_not_eligible
from scheduler_core.plugins.default_preemption.eviction import Evictions, to_be_evicted
from scheduler_core.plugins.default_preemption.victims import Trial, importance_at
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

__all__ = ["DefaultPreemption"]

_NONE_LEFT = unschedulable("no candidate node for preemption")
_CONSTRAINED_GROUP = unschedulable("not eligible because the pod group has a topology constraint")
_STILL_EVICTING = unresolvable("waiting for the preemption for this pod to be finished")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done: nothing, unless ``chosen`` is given; ``found`` are the candidates by their own pods alone."""

    result: PostFilterResult
    found: tuple[PreemptionCandidate, ...] = ()
    candidates: tuple[PreemptionCandidate, ...] = ()
    chosen: PreemptionCandidate | None = None


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin, GangPreemptor):
    """Finds the node where the least important pods must leave for a pod, and makes them."""

    name = "DefaultPreemption"
    args_model = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        """Begin without preemptions under way.

        Args:
            args: How many nodes are looked at.
            handle: The rest of the scheduler.
        """
        super().__init__(args, handle)
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._evictions = Evictions(handle, self.name)
        self._draws = 0

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Hold a preemptor back until its evictions are issued: before that it would only fail again."""
        return _STILL_EVICTING if self._evictions.is_preempting(pod) else SUCCESS

    def events_to_register(self) -> Sequence[EventRegistration]:
        """A pod's going, which opens the gate; whether it helps is for those to say who rejected the pod."""
        return (EventRegistration(ClusterEvent(Resource.POD, Action.DELETE), after_pod_deletion),)

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Preempt, if it helps."""
        return self._carried_out(pod, self._plan(state, pod, nodes, diagnosis))

    async def post_filter_with(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, extenders: PreemptionExtenders
    ) -> PostFilterResult:
        """Preempt, if it helps, on a node that the extenders leave."""
        plan = self._plan(state, pod, self.handle.nodes, diagnosis)
        if plan.found:
            try:
                plan = self._chosen(
                    await extenders.process_preemption(pod, plan.found), DisruptionUnits(self.handle.groups)
                )
            except ExtenderError as fault:
                plan = _Plan(PostFilterResult(_said(error(str(fault)))))
        return self._carried_out(pod, plan)

    def _carried_out(self, pod: PodInfo, plan: _Plan) -> PostFilterResult:
        self._draws += 1
        if plan.chosen is not None:
            self._evictions.start(pod, plan.chosen)
        return plan.result

    def preview(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> PostFilterPreview:
        """The next preemption for this pod, as a plan."""
        plan = self._plan(state, pod, nodes, diagnosis)
        if plan.chosen is None:
            return PostFilterPreview(plan.result, plan.candidates)
        withdrawn = self._evictions.to_be_withdrawn(pod, plan.chosen)
        return PostFilterPreview(plan.result, plan.candidates, to_be_evicted(plan.chosen), withdrawn)

    def _plan(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> _Plan:
        view = self.handle.groups.group_of(pod.pod)
        group = None if view is None else view.group
        if group is not None and not group.may_preempt:
            return _Plan(PostFilterResult(_said(_CONSTRAINED_GROUP)))
        reason = why_not_eligible(pod, nodes, diagnosis)
        if reason:
            return _Plan(PostFilterResult(_said(unschedulable(reason))))
        units = DisruptionUnits(self.handle.groups)
        found = self._dry_run(state, pod, diagnosis, VictimTerms(units.spared_by(pod.priority)))
        if not found.candidates:
            fault = found.error()
            if fault is not None:
                return _Plan(PostFilterResult(_said(fault)))
            text = found.why_no_candidate(diagnosis.node_count)
            return _Plan(PostFilterResult(_said(unschedulable(text)), ""))
        return self._chosen(found.candidates, units)

    def _dry_run(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, terms: VictimTerms) -> DryRun:
        nodes = self.handle.nodes
        trial = Trial(pod, nodes, importance_at(self.handle.clock.wall()), terms)
        if terms.rows is None:
            walk = self._walk(pod, nodes, diagnosis)
        else:
            rows = np.intersect1d(rows_to_try(diagnosis, nodes), terms.rows)
            walk = Walk(rows[nodes.priorities.below(pod.priority, rows)].tolist(), len(rows))
        return dry_run(self.handle, state, trial, walk, diagnosis)

    def _chosen(self, found: Sequence[PreemptionCandidate], units: DisruptionUnits) -> _Plan:
        if not found:
            return _Plan(PostFilterResult(_said(_NONE_LEFT)))
        candidates = tuple(self._whole(candidate, units) for candidate in found)
        chosen = self.least_harmful(candidates)
        return _Plan(PostFilterResult(SUCCESS, chosen.node_name), tuple(found), candidates, chosen)

    def _whole(self, candidate: PreemptionCandidate, units: DisruptionUnits) -> PreemptionCandidate:
        """A candidate with all who leave together with its victims."""
        victims = units.whole(candidate.victims)
        if len(victims) == len(candidate.victims):
            return candidate
        ordered = tuple(sorted(victims, key=importance_at(self.handle.clock.wall())))
        violating, _ = split_by_budgets(ordered, self.handle.nodes.disruption_budgets)
        return replace(candidate, victims=ordered, pdb_violations=len(violating))

    # -- gangs --------------------------------------------------------------------------------------------------

    def candidates_for_member(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, terms: VictimTerms
    ) -> MemberCandidates:
        """Where a member of a gang would fit without pods of lower priority."""
        found = self._dry_run(state, pod, diagnosis, terms)
        fault = found.error()
        if fault is not None and not found.candidates:
            raise PluginError(self.name, "postFilter", fault.message)
        return MemberCandidates(found.candidates, found.is_row_local)

    def least_harmful(self, candidates: Sequence[PreemptionCandidate]) -> PreemptionCandidate:
        """Choose as for a pod."""
        return best_candidate(candidates, self.handle.clock.wall())

    def is_awaited(self, priority: int, row: int) -> bool:
        """Whether victims below a priority still end there."""
        return awaits_victims(priority, self.handle.nodes, row)

    def evict_for_gang(self, eviction: GangEviction) -> None:
        """Evict the victims of a gang."""
        self._draws += 1
        self._evictions.start_for_gang(eviction)

    # -- where to look ------------------------------------------------------------------------------------------

    def _walk(self, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> Walk:
        """Rows in an order that does not depend on the order in which nodes came, from a drawn one on."""
        hopeful = rows_to_try(diagnosis, nodes)
        rows = hopeful[nodes.priorities.below(pod.priority, hopeful)]
        without_victims = len(hopeful) - len(rows)
        if not len(rows):
            return Walk((), 0, without_victims)
        ordered = rows[nodes.name_hashes[rows].argsort(kind="stable")].tolist()
        text = f"{self.handle.seed}/{pod.key}/{self._draws}"
        offset = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % len(rows)
        wanted = min(len(hopeful), max(self._absolute, len(hopeful) * self._percentage // 100))
        return Walk(ordered[offset:] + ordered[:offset], wanted, without_victims)


def _said(status: Status) -> Status:
    return Status(status.code, (f"preemption: {status.message}",))


def after_pod_deletion(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Never by itself: the plugins for whose sake room is made know best when there is enough."""
    del pod, old, new
    return Hint.SKIP
