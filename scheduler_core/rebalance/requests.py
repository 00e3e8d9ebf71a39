"""What a plan is to reach, which pods it may move, and the plan itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.selectors import LabelMatcher
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Empty nodes, so that an autoscaler can remove them; pods of DaemonSets and static pods do not count."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Move the pods off some nodes, which get no replacements.

    Attributes:
        nodes: Names of the nodes.
        selector: Labels of further nodes; None for none.
    """

    nodes: frozenset[str] = frozenset()
    selector: LabelMatcher | None = None


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Make room for the quorum of one gang that waits."""

    gang: GroupKey


@dataclass(frozen=True, slots=True)
class Defragment:
    """Free amounts of one resource in pieces on single nodes.

    Attributes:
        resource: Name of the resource.
        amount: Size of a piece, in the unit of the columns: millicores of CPU, else whole units.
    """

    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Repair topology spread constraints of running pods."""


Objective = Consolidate | Drain | MakeRoom | Defragment | Spread


@dataclass(frozen=True, slots=True)
class Scope:
    """Pods that may be moved, and nodes that they may leave; None and empty for all.

    Attributes:
        profiles: Names of profiles.
        pods: Labels of the pods.
        nodes: Labels of the nodes from which pods are moved.
    """

    profiles: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    pods: LabelMatcher | None = None
    nodes: LabelMatcher | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may cost at most; None for no limit.

    Attributes:
        moves: Number of moves.
        cost: Sum of the costs of the moves: 1 each, and the deletion cost in the annotation of the pod.
    """

    moves: int | None = None
    cost: int | None = None


@dataclass(frozen=True, slots=True)
class RebalanceRequest:
    """A request for a plan."""

    objective: Objective
    scope: Scope = Scope()
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Move:
    """One pod that is evicted, and the node that its replacement gets.

    Attributes:
        replacement: The pod that is expected in its place, as it was placed in the search.
    """

    info: PodInfo
    replacement: PodInfo
    source: str
    target: str
    cost: int


@dataclass(frozen=True, slots=True)
class Room:
    """A member of a gang, and its node after all moves."""

    info: PodInfo
    node_name: str


@dataclass(slots=True)
class Gain:
    """What the moves of a plan reach.

    Attributes:
        emptied: Nodes that have no pods any more, other than those of DaemonSets and static pods.
        fits: Whether the gang has room after the moves; None if no gang is meant.
        excess: By how much pods exceed maxSkew of their spread constraints, before and after; None if not meant.
        pieces: Number of free pieces of a resource before and after the moves; None if no resource is meant.
    """

    emptied: tuple[str, ...] = ()
    fits: bool | None = None
    pieces: tuple[int, int] | None = None
    excess: tuple[int, int] | None = None


class PlanState(Enum):
    """Result of a search for moves."""

    COMPLETE = "Complete"
    """No further moves reach more, within the limits of the request."""
    GAVE_UP = "GaveUp"
    """The search took more steps than it may; the moves that it found are valid."""


@dataclass(slots=True)
class RebalancePlan:
    """Moves in the order in which they are made.

    Attributes:
        room: Members of the gang for which room is made, with their nodes; empty if it does not fit.
        left: Why pods were left alone that had to move for more gain, by ``namespace/name``.
        missing: Names of nodes to drain that do not exist.
        reason: Why there are no moves; "" if there are some.
        steps: Steps that the search took.
    """

    moves: tuple[Move, ...] = ()
    gain: Gain = field(default_factory=Gain)
    room: tuple[Room, ...] = ()
    state: PlanState = PlanState.COMPLETE
    left: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reason: str = ""
    steps: int = 0

    @property
    def cost(self) -> int:
        return sum(move.cost for move in self.moves)
