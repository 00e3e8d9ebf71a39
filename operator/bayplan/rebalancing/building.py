"""Builds the document of a plan on the state of a scheduler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from bayplan.rebalancing.documents import LeftAlone, MemberRoom, NodePodCounts, PlanDocument, PlanGain, PlannedMove
from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.model.pod_requests import amount_text
from scheduler_core.rebalance.movable_pods import counts_for_node
from scheduler_core.rebalance.requests import (
    Consolidate,
    Defragment,
    Drain,
    MakeRoom,
    Objective,
    RebalancePlan,
    RebalanceRequest,
    Spread,
)
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns

_NAMED = 5
"""Pods that are named for each reason."""


def plan_document(
    scheduler: Scheduler, request: RebalanceRequest, steps: int | None = None, notices: tuple[str, ...] = ()
) -> PlanDocument:
    """Plan moves between two cycles; nothing is changed.

    Args:
        steps: Maximum number of steps; None for that of dry runs.
    """
    plan = plan_search(scheduler.context, scheduler.reservations).plan(request, steps)
    moves = tuple(PlannedMove(move.info.key, move.info.uid, move.source, move.target, move.cost) for move in plan.moves)
    return PlanDocument(
        headline=_headline(request.objective, plan),
        objective=objective_text(request.objective),
        state=plan.state,
        moves=moves,
        gain=PlanGain(
            plan.gain.emptied, plan.gain.fits, *(plan.gain.pieces or (None, None)), *(plan.gain.excess or (None, None))
        ),
        cost=plan.cost,
        room=tuple(MemberRoom(each.info.key, each.info.uid, each.node_name) for each in plan.room),
        nodes=_node_changes(scheduler.context.cache.columns, moves),
        left_alone=_left_alone(plan.left),
        missing_nodes=plan.missing,
        reason=plan.reason or None,
        steps=plan.steps,
        notices=notices,
    )


def objective_text(objective: Objective) -> str:
    """Return what a plan is to reach, for people."""
    match objective:
        case Consolidate():
            return "Consolidate: empty nodes"
        case Drain():
            return "Drain: move the pods off the given nodes"
        case Defragment():
            return (
                f"Defragment: free pieces of {amount_text(objective.resource, objective.amount)} {objective.resource}"
            )
        case Spread():
            return "Spread: repair topology spread constraints"
        case MakeRoom():
            return f"MakeRoom: room for gang {objective.gang}"


def _headline(objective: Objective, plan: RebalancePlan) -> str:
    if not plan.moves:
        return f"no moves: {plan.reason}"
    moves = _counted(len(plan.moves), "move")
    emptied = f"{_counted(len(plan.gain.emptied), 'node')} would be empty"
    match objective:
        case Consolidate():
            return f"{emptied} after {moves}"
        case Drain():
            return f"{_counted(len(plan.moves), 'pod')} would be moved, and {emptied}"
        case Defragment():
            before, after = plan.gain.pieces or (0, 0)
            size = f"{amount_text(objective.resource, objective.amount)} {objective.resource}"
            return f"{_counted(after, 'piece')} of {size} would be free instead of {before} after {moves}"
        case Spread():
            before, after = plan.gain.excess or (0, 0)
            return f"pods would exceed maxSkew by {after} instead of {before} after {moves}"
        case MakeRoom():
            return f"gang {objective.gang} would fit after {moves}"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def _node_changes(nodes: NodeColumns, moves: tuple[PlannedMove, ...]) -> tuple[NodePodCounts, ...]:
    change: Counter[str] = Counter()
    for move in moves:
        change[move.target] += 1
        change[move.source] -= 1
    before = {name: sum(map(counts_for_node, nodes.pods[nodes.row_of(name)].values())) for name in change}
    return tuple(NodePodCounts(name, before[name], before[name] + change[name]) for name in sorted(change))


def _left_alone(left: Mapping[str, str]) -> tuple[LeftAlone, ...]:
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in left.items():
        by_reason[reason].append(name)
    found = sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return tuple(LeftAlone(reason, len(names), tuple(sorted(names)[:_NAMED])) for reason, names in found)
