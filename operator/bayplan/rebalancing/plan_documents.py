"""The document of a plan of moves, and its building on the state of a scheduler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from bayplan.introspection.status_model import LeftAlone, PlannedMoveState
from bayplan.texts.document_formats import counted
from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import amount_text, in_units, nano
from scheduler_core.rebalance.movable_pods import counts_for_node
from scheduler_core.rebalance.requests import (
    Consolidate,
    Defragment,
    Drain,
    MakeRoom,
    Objective,
    PlanState,
    RebalancePlan,
    RebalanceRequest,
    Spread,
)
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW

_NAMED = 5
"""Pods that are named for each reason."""


class PlannedMove(Struct, frozen=True, rename="camel"):
    """A pod that would be evicted, and the node of its replacement.

    Attributes:
        pod: ``namespace/name``.
        uid: UID of the pod.
        cost: 1, and the deletion cost in the annotation of the pod.
    """

    pod: str
    uid: str
    source: str
    target: str
    cost: int


class PlanGain(Struct, frozen=True, rename="camel"):
    """What the moves reach.

    Attributes:
        nodes_emptied: Nodes that have no pods any more, other than those of DaemonSets and static pods.
        pieces_before, pieces_after: Number of free pieces of a resource; None if no resource is meant.
        excess_before, excess_after: By how much pods exceed maxSkew of their spread constraints; None if not meant.
        gang_fits: Whether the gang has room after the moves; None if no room for a gang is made.
    """

    nodes_emptied: tuple[str, ...] = ()
    gang_fits: bool | None = None
    pieces_before: int | None = None
    pieces_after: int | None = None
    excess_before: int | None = None
    excess_after: int | None = None


class MemberRoom(Struct, frozen=True, rename="camel"):
    """A member of a gang for which room is made, and its node.

    Attributes:
        pod: ``namespace/name``.
        uid: UID of the pod.
    """

    pod: str
    uid: str
    node: str


class NodePodCounts(Struct, frozen=True, rename="camel"):
    """Number of pods of a node before and after the moves."""

    node: str
    pods_before: int
    pods_after: int


class PlanDocument(Struct, frozen=True, rename="camel", kw_only=True):
    """A plan of moves.

    Attributes:
        headline: The result in a sentence.
        objective: What the moves are to reach.
        moves: The moves in their order.
        cost: Sum of the costs of the moves.
        room: Members of the gang for which room is made, with their nodes; empty for other objectives.
        nodes: Nodes whose pods change.
        left_alone: Pods that are left alone, by reason.
        missing_nodes: Names of nodes to drain that do not exist.
        reason: Why there are no moves, or why the search was given up; None otherwise.
        steps: Steps that the search took.
        notices: Limitations of the plan.
    """

    headline: str
    objective: str
    state: PlanState
    moves: tuple[PlannedMove, ...] = ()
    gain: PlanGain = PlanGain()
    cost: int = 0
    room: tuple[MemberRoom, ...] = ()
    nodes: tuple[NodePodCounts, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    missing_nodes: tuple[str, ...] = ()
    reason: str | None = None
    steps: int = 0
    notices: tuple[str, ...] = ()


def plan_document(
    scheduler: Scheduler, request: RebalanceRequest, steps: int | None = None, notices: tuple[str, ...] = ()
) -> PlanDocument:
    """Plan moves between two cycles, in the ``steps`` of dry runs by default; nothing is changed."""
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
        nodes=node_changes(scheduler.context.cache.columns, moves),
        left_alone=_left_alone(plan.left),
        missing_nodes=plan.missing,
        reason=plan.reason or None,
        steps=plan.steps,
        notices=notices,
    )


def piece_of(resource: str, amount: str | int) -> Defragment | None:
    """Return the objective; None if the amount is no positive quantity, or the resource is not counted."""
    try:
        units = in_units({resource: nano(amount)})
    except QuantityError:
        return None
    return Defragment(resource, units[resource]) if units.get(resource, 0) > 0 else None


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
    moves = counted(len(plan.moves), "move")
    emptied = f"{counted(len(plan.gain.emptied), 'node')} would be empty"
    match objective:
        case Consolidate():
            return f"{emptied} after {moves}"
        case Drain():
            return f"{counted(len(plan.moves), 'pod')} would be moved, and {emptied}"
        case Defragment():
            before, after = plan.gain.pieces or (0, 0)
            size = f"{amount_text(objective.resource, objective.amount)} {objective.resource}"
            return f"{counted(after, 'piece')} of {size} would be free instead of {before} after {moves}"
        case Spread():
            before, after = plan.gain.excess or (0, 0)
            return f"pods would exceed maxSkew by {after} instead of {before} after {moves}"
        case MakeRoom():
            return f"gang {objective.gang} would fit after {moves}"


def node_changes(
    nodes: NodeColumns, moves: Iterable[PlannedMove | PlannedMoveState], limit: int | None = None
) -> tuple[NodePodCounts, ...]:
    """Return the first nodes by name whose pods the moves change; one that does not exist any more has no pods."""
    change = Counter[str]()
    for move in moves:
        change[move.source] -= 1
        change[move.target] += 1
    found = []
    for name in sorted(change)[:limit]:
        row = nodes.row_of(name)
        before = 0 if row == NO_ROW else sum(map(counts_for_node, nodes.pods[row].values()))
        found.append(NodePodCounts(name, before, max(before + change[name], 0)))
    return tuple(found)


def _left_alone(left: Mapping[str, str]) -> tuple[LeftAlone, ...]:
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in left.items():
        by_reason[reason].append(name)
    found = sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return tuple(LeftAlone(reason, len(names), tuple(sorted(names)[:_NAMED])) for reason, names in found)
