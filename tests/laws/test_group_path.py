"""Law: every step of a single pod's path has its counterpart in the path of a gang, or a reason why not.

The steps are read from the code: the extension points, and the public methods of the parts of a pod's cycle. A new step
fails this test until it has a row with what a gang does in its place.
"""

from __future__ import annotations

import inspect
from enum import Enum
from importlib import import_module

import pytest

from scheduler_core.cycle import assume_and_reserve, binding_cycle, cycle_report, failure_handler, scheduling_cycle
from scheduler_core.framework import extension_points
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.plugin import Plugin
from scheduler_core.runtime import post_filtering

SAME = "the same code runs for each member"

PARTS = (
    scheduling_cycle.SchedulingCycle,
    assume_and_reserve.AssumedPods,
    failure_handler.FailedAttempts,
    binding_cycle.BindingOutcomes,
    cycle_report.CycleReport,
)
"""Parts of a pod's path whose public methods are steps."""

TRIALS = "scheduler_core.placement.engine:World.fill"
COMMIT = "scheduler_core.gangs.group_cycle:QuorumCommit.commit"
REJECT = "scheduler_core.gangs.group_cycle:GangRejection.reject"
FAILED = "scheduler_core.gangs.failure_handler:FailedGangs.handle"

COUNTERPARTS: dict[str, str] = {
    "PRE_ENQUEUE": "scheduler_core.queueing.queue_moves:Moves.enter",
    "PRE_FILTER": TRIALS,
    "FILTER": TRIALS,
    "POST_FILTER": "scheduler_core.runtime.post_filtering:plan_gang_post_filters",
    "PRE_SCORE": TRIALS,
    "SCORE": TRIALS,
    "EXTENDERS": TRIALS,
    "RESERVE": TRIALS,
    "PERMIT": "scheduler_core.gangs.group_cycle:GangScheduler.schedule",
    "UNRESERVE": "scheduler_core.placement.engine:World.undo",
    "REUSE": TRIALS,
    "PRE_BIND_PRE_FLIGHT": SAME,
    "WAIT_ON_PERMIT": SAME,
    "PRE_BIND": SAME,
    "BIND": "scheduler_core.cycle.gang_bind_barrier:GangBindBarrier.ready",
    "POST_BIND": SAME,
    "PreEnqueuePlugin.pre_enqueue": SAME,
    "PreEnqueuePlugin.preview_gate": SAME,
    "QueueSortPlugin.sort_key": "scheduler_core.framework.queued_pod:QueuedGang",
    "PreFilterPlugin.pre_filter": TRIALS,
    "PreFilterExtensions.add_pod": TRIALS,
    "PreFilterExtensions.remove_pod": TRIALS,
    "FilterPlugin.filter": TRIALS,
    "FilterPlugin.filter_row": TRIALS,
    "FilterPlugin.decode": TRIALS,
    "FilterPlugin.details": TRIALS,
    "FilterPlugin.shortages": "scheduler_core.explain.nearest_nodes:NearestNodesOfGangs.describe",
    "SumsFilter.filter_sums": "scheduler_core.framework.gang_preemptor:GangPreemptor.candidates_for_member",
    "SumsFilter.exempts": "scheduler_core.placement.subsets:exempted_resources",
    "NodeFilterPlugin.filter_node": TRIALS,
    "PostFilterPlugin.post_filter": "scheduler_core.framework.gang_preemptor:GangPostFilter.post_filter_for_gang",
    "PlannedPostFilter.plan": "scheduler_core.framework.gang_preemptor:PlannedGangPostFilter.plan_for_gang",
    "PlannedPostFilter.carry_out": "scheduler_core.framework.gang_preemptor:PlannedGangPostFilter.carry_out_for_gang",
    "PlannedPostFilter.post_filter": "scheduler_core.framework.gang_preemptor:GangPostFilter.post_filter_for_gang",
    "PostFilterPlugin.post_filter_with": (
        "- a gang of a profile whose extenders preempt evicts no pods, because extenders cannot take part in the choice"
    ),
    "PostFilterPlugin.preview": "scheduler_core.gangs.preemption:GangPreemption.preview",
    "PostFilterPlugin.previewed_after": "scheduler_core.gangs.preemption:GangPreemption.preview",
    "PreScorePlugin.pre_score": TRIALS,
    "ScorePlugin.score": TRIALS,
    "ScorePlugin.score_row": TRIALS,
    "ScorePlugin.normalize": TRIALS,
    "NodeScorePlugin.score_node": TRIALS,
    "NodeScorePlugin.normalize": TRIALS,
    "ReservePlugin.reserve": TRIALS,
    "ReservePlugin.unreserve": "scheduler_core.placement.engine:World.undo",
    "PermitPlugin.permit": "scheduler_core.gangs.group_cycle:GangScheduler.schedule",
    "PreBindPlugin.pre_bind_pre_flight": SAME,
    "PreBindPlugin.pre_bind": SAME,
    "BindPlugin.bind": SAME,
    "PostBindPlugin.post_bind": SAME,
    "SchedulingCycle.begin": "scheduler_core.gangs.group_cycle:GangScheduler.schedule",
    "SchedulingCycle.schedule": "scheduler_core.gangs.group_cycle:GangScheduler.schedule",
    "SchedulingCycle.conclude": COMMIT,
    "SchedulingCycle.cancel": "scheduler_core.gangs.group_cycle:GangScheduler.schedule",
    "AssumedPods.reserve_and_permit": TRIALS,
    "AssumedPods.reserve": TRIALS,
    "AssumedPods.reserve_or_release": "scheduler_core.placement.worlds:SearchWorld.assume",
    "AssumedPods.end_nomination": COMMIT,
    "AssumedPods.permit": "scheduler_core.gangs.group_cycle:GangScheduler.schedule",
    "AssumedPods.move": "- only a replay moves pods, each by itself",
    "AssumedPods.release_unbound": SAME,
    "AssumedPods.release": "scheduler_core.placement.engine:World.undo",
    "AssumedPods.hand_over": COMMIT,
    "AssumedPods.undo": "scheduler_core.cycle.internal_errors:InternalErrors.undo",
    "AssumedPods.mark": "scheduler_core.placement.engine:place",
    "AssumedPods.undone": "scheduler_core.explain.gang_dry_run:GroupDryRuns.examine",
    "FailedAttempts.handle": FAILED,
    "FailedAttempts.drop": SAME,
    "BindingOutcomes.bound": SAME,
    "BindingOutcomes.cancelled": SAME,
    "BindingOutcomes.failed": SAME,
    "BindingOutcomes.interrupted": SAME,
    "CycleReport.cut": "scheduler_core.cycle.background_search:BackgroundSearches",
    "CycleReport.begin_attempt": TRIALS,
    "CycleReport.scheduling_ended": REJECT,
    "CycleReport.release_recorder": REJECT,
    "CycleReport.permit_waited": SAME,
    "CycleReport.binding_ended": SAME,
    "CycleReport.pod_bound": SAME,
    "CycleReport.attempt_failed": FAILED,
    "CycleReport.profile_failed": SAME,
    "CycleReport.bind_lost": SAME,
    "run_post_filters_with": (
        "- a gang of a profile whose extenders preempt evicts no pods, because extenders cannot take part in the choice"
    ),
    "preview_post_filters": "scheduler_core.gangs.preemption:GangPreemption.preview",
    "plan_post_filters": "scheduler_core.runtime.post_filtering:plan_gang_post_filters",
    "plan_gang_post_filters": "- it is the counterpart of plan_post_filters",
    "plans": "scheduler_core.runtime.post_filtering:plans_for_gang",
    "plans_for_gang": "- it is the counterpart of plans",
    "carry_out": "scheduler_core.runtime.post_filtering:carry_out_for_gang",
    "carry_out_for_gang": "- it is the counterpart of carry_out",
}
"""For each step: the counterpart as ``module:name``, :data:`SAME`, or ``-`` and the reason why there is none."""


def _methods(owner: type) -> set[str]:
    return {
        f"{owner.__name__}.{name}"
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


def _is_point(found: object) -> bool:
    if not inspect.isclass(found) or found.__module__ != extension_points.__name__ or issubclass(found, Enum):
        return False
    return (issubclass(found, Plugin) and found is not Plugin) or inspect.isabstract(found)


def steps() -> set[str]:
    """Return the steps of a single pod's path, from the code."""
    found = {stage.name for stage in CycleStage}
    for point in filter(_is_point, vars(extension_points).values()):
        assert isinstance(point, type)
        found |= _methods(point)
    for part in PARTS:
        found |= _methods(part)
    return found | {
        name
        for name, member in vars(post_filtering).items()
        if inspect.isfunction(member) and member.__module__ == post_filtering.__name__ and not name.startswith("_")
    }


def test_every_step_has_a_row() -> None:
    """The table has each step of a pod's path, and no others."""
    assert sorted(steps() ^ COUNTERPARTS.keys()) == []


@pytest.mark.parametrize("step", COUNTERPARTS)
def test_the_counterpart_exists(step: str) -> None:
    """A counterpart can be imported; a row without one has a reason."""
    counterpart = COUNTERPARTS[step]
    if counterpart == SAME:
        return
    if counterpart.startswith("-"):
        assert len(counterpart) > len("- a reason")
        return
    module, _, path = counterpart.partition(":")
    found: object = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)
