"""DefaultPreemption: a pod that fits nowhere takes the place of pods of lower priority.

Owns the plugin; its steps stand in modules: ``eligibility`` (who may), ``dry_run`` and ``victims`` (where, and who
would have to leave), ``candidate_choice`` (which node) and ``eviction`` (making them leave). Must not know why a node
rejects the pod: it asks the profile's own filters.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/defaultpreemption`` and
``pkg/scheduler/framework/preemption``; pod groups aside, which are behind gates that are off there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.errors import ExtenderError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionCandidate,
    PreemptionExtenders,
    PreEnqueuePlugin,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SUCCESS, Status, error, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.default_preemption.candidate_choice import best_candidate
from scheduler_core.plugins.default_preemption.dry_run import Walk, dry_run
from scheduler_core.plugins.default_preemption.eligibility import rows_to_try, why_not_eligible
from scheduler_core.plugins.default_preemption.eviction import Evictions, to_be_evicted
from scheduler_core.plugins.default_preemption.victims import Trial, importance_at
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

__all__ = ["DefaultPreemption"]

_NONE_LEFT = unschedulable("no candidate node for preemption")
_STILL_EVICTING = unresolvable("waiting for the preemption for this pod to be finished")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done: nothing, unless ``chosen`` is given."""

    result: PostFilterResult
    candidates: tuple[PreemptionCandidate, ...] = ()
    chosen: PreemptionCandidate | None = None


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin):
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
        return _STILL_EVICTING if self._evictions.is_preempting(pod.uid) else SUCCESS

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
        if plan.candidates:
            try:
                plan = self._chosen(await extenders.leave(pod, plan.candidates))
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
        reason = why_not_eligible(pod, nodes, diagnosis)
        if reason:
            return _Plan(PostFilterResult(_said(unschedulable(reason))))
        trial = Trial(pod, nodes, importance_at(self.handle.clock.wall()))
        found = dry_run(self.handle, state, trial, self._walk(pod, nodes, diagnosis), diagnosis)
        if not found.candidates:
            fault = found.error()
            if fault is not None:
                return _Plan(PostFilterResult(_said(fault)))
            text = found.why_no_candidate(diagnosis.node_count)
            return _Plan(PostFilterResult(_said(unschedulable(text)), ""))
        return self._chosen(found.candidates)

    def _chosen(self, candidates: Sequence[PreemptionCandidate]) -> _Plan:
        if not candidates:
            return _Plan(PostFilterResult(_said(_NONE_LEFT)))
        chosen = best_candidate(candidates, self.handle.clock.wall())
        return _Plan(PostFilterResult(SUCCESS, chosen.node_name), tuple(candidates), chosen)

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
