"""The document of a plan of moves; its fields are those of the JSON and YAML, in camel case."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.rebalance.requests import PlanState


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


class LeftAlone(Struct, frozen=True, rename="camel"):
    """Pods that are left alone for one reason, of those that had to move for more gain.

    Attributes:
        count: Number of the pods.
        pods: The first of them, as ``namespace/name``.
    """

    reason: str
    count: int
    pods: tuple[str, ...]


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
