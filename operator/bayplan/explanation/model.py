"""What an explanation of a pod says.

Owns the document: its fields are those of the JSON and YAML that users read (``docs/explain.md``), in camel case. It
must not know how it came about. Why structs and not mappings: the command decodes what the operator's endpoint encoded,
and a field that one of them does not know should be an error at that place and not later.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.parts import NodeLacks, Unblocking, Victim


class Verdict(Enum):
    """What becomes of the pod."""

    FITS = "Fits"
    """It waits, and there is a node for it."""
    UNSCHEDULABLE = "Unschedulable"
    """It waits, and no node fits."""
    GATED = "Gated"
    """Something holds it back before any node is looked at."""
    PLACED = "Placed"
    """It has its node."""
    ENDED = "Ended"
    """It has ended or is being deleted."""
    NO_PROFILE = "NoProfile"
    """No profile serves its scheduler name."""
    ERROR = "Error"
    """A plugin failed."""


class ReasonCount(Struct, frozen=True, rename="camel"):
    """A reason and on how many nodes it stands."""

    reason: str
    nodes: int


class PluginRejections(Struct, frozen=True, rename="camel"):
    """On how many nodes a plugin was the first to say no, and why.

    Attributes:
        nodes: Nodes; 0 where the pod was turned away as a whole.
    """

    plugin: str
    nodes: int
    reasons: tuple[ReasonCount, ...]


class ScorePart(Struct, frozen=True, rename="camel"):
    """One plugin's score for one node: as answered, scaled to 0..100, times the weight."""

    raw: int
    normalized: int
    weighted: int


class NodeScore(Struct, frozen=True, rename="camel"):
    """A node's scores by plugin, and their sum."""

    node: str
    total: int
    plugins: dict[str, ScorePart]


class Preemption(Struct, frozen=True, rename="camel"):
    """What preemption would do.

    Attributes:
        node: The node that it would make room on; None if it would not.
        pdb_violations: Victims that a PodDisruptionBudget protects.
        candidates: Nodes that it could choose among.
        message: Why it would not; None if it would.
    """

    node: str | None
    victims: tuple[Victim, ...]
    pdb_violations: int
    candidates: int
    message: str | None


class NodeCounts(Struct, frozen=True, rename="camel"):
    """How many nodes there are, and on how many the pod fits."""

    total: int
    feasible: int


class Explanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Everything about one pod.

    Attributes:
        headline: The verdict in a sentence.
        node: Where the pod is or would go; None for nowhere.
        tied: All nodes of the highest score.
        message: What the FailedScheduling event would say; None if it fits.
        rejections: By plugin, those of most nodes first.
        nearest: The nodes that lack the least, nearest first.
        scores: The best nodes, best first.
        preemption: None where it is not reached.
        unblocking: Events upon which the pod is tried again.
        notices: What one should know about this answer.
        gang: The gang to which the pod belongs; None for none.
    """

    namespace: str
    name: str
    scheduler_name: str
    verdict: Verdict
    headline: str
    node: str | None = None
    tied: tuple[str, ...] = ()
    message: str | None = None
    nodes: NodeCounts = NodeCounts(0, 0)
    rejections: tuple[PluginRejections, ...] = ()
    nearest: tuple[NodeLacks, ...] = ()
    scores: tuple[NodeScore, ...] = ()
    preemption: Preemption | None = None
    unblocking: tuple[Unblocking, ...] = ()
    notices: tuple[str, ...] = ()
    gang: GangExplanation | None = None
