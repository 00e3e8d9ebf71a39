"""The document that explains a pod.

The fields are those of the JSON and YAML that users read (``docs/why-pending.md``), in camel case. They are structs,
not mappings, so that the command fails where it decodes a response of the operator's endpoint that it does not support.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from bayplan.explanation.device_model import DeviceExplanation
from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.shared_model import NodeLacks, Unblocking, Victim


class Verdict(Enum):
    """Verdict on the pod."""

    FITS = "Fits"
    """The pod waits and has a feasible node."""
    UNSCHEDULABLE = "Unschedulable"
    """The pod waits and no node is feasible."""
    GATED = "Gated"
    """A plugin or its gang gates the pod before any node is evaluated."""
    PLACED = "Placed"
    """The pod is bound or assumed."""
    ENDED = "Ended"
    """The pod has terminated or is being deleted."""
    NO_PROFILE = "NoProfile"
    """No profile serves the pod's schedulerName."""
    ERROR = "Error"
    """A plugin failed."""


class ReasonCount(Struct, frozen=True, rename="camel"):
    """Reason, and the number of nodes it applies to."""

    reason: str
    nodes: int


class PluginRejections(Struct, frozen=True, rename="camel"):
    """Nodes of which a plugin was the first to reject the pod, with the reasons.

    Attributes:
        nodes: Number of nodes; 0 if the pod was rejected before any node was evaluated.
    """

    plugin: str
    nodes: int
    reasons: tuple[ReasonCount, ...]


class ScorePart(Struct, frozen=True, rename="camel"):
    """One plugin's score for one node: as returned, normalized to 0..100, and multiplied by the weight."""

    raw: int
    normalized: int
    weighted: int


class NodeScore(Struct, frozen=True, rename="camel"):
    """Scores of a node by plugin, and their sum."""

    node: str
    total: int
    plugins: dict[str, ScorePart]


class Preemption(Struct, frozen=True, rename="camel"):
    """Dry run of preemption.

    Attributes:
        node: Node that would be nominated; None if preemption does not help.
        pdb_violations: Number of victims whose eviction violates a PodDisruptionBudget.
        candidates: Number of candidate nodes.
        message: Why preemption does not help; None if it does.
    """

    node: str | None
    victims: tuple[Victim, ...]
    pdb_violations: int
    candidates: int
    message: str | None


class NodeCounts(Struct, frozen=True, rename="camel"):
    """Number of nodes in the cluster, and of feasible nodes."""

    total: int
    feasible: int


class Explanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Explanation of one pod.

    Attributes:
        headline: The verdict in a sentence.
        node: Node of the pod, or the node to which it would be scheduled; None if there is none.
        tied: All nodes with the highest score.
        message: Message of the FailedScheduling event; None if the pod fits.
        rejections: Rejections by plugin, the plugin with most nodes first.
        nearest: Nodes that lack the least, nearest first.
        scores: Nodes with the highest scores, best first.
        preemption: Dry run of preemption; None if preemption is not reached.
        unblocking: Events that would requeue the pod.
        devices: What nodes and devices lack for the claims of the pod; None if no node was rejected for devices.
        notices: Limitations of this explanation.
        gang: Explanation of the pod's gang, or None.
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
    devices: DeviceExplanation | None = None
    notices: tuple[str, ...] = ()
    gang: GangExplanation | None = None
