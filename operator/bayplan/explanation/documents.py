"""The documents that explain a pod and a gang.

The fields are those of the JSON and YAML that users read (``docs/why-pending.md``), in camel case; the parts that dry
runs fill are in :mod:`scheduler_core.explain.findings`. They are structs, not mappings, so that the command fails where
it decodes a response of the operator's endpoint that it does not support.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from msgspec import Struct

from bayplan.texts.document_formats import listed
from scheduler_core.errors import NotFoundError
from scheduler_core.explain.findings import (
    DeviceExplanation,
    KeptOff,
    NewNodes,
    NodeLacks,
    PlaceFit,
    Unblocking,
    Victim,
)


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
    """Nodes that a plugin was the first to reject, with reasons; none if it rejected the pod before any node."""

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
        waits_until: Time until which the profile waits for a new node before it preempts, RFC 3339; None if it does not
            wait.
    """

    node: str | None
    victims: tuple[Victim, ...]
    pdb_violations: int
    candidates: int
    message: str | None
    waits_until: str | None = None


class NodeCounts(Struct, frozen=True, rename="camel"):
    """Number of nodes in the cluster, and of feasible nodes."""

    total: int
    feasible: int


class GangVerdict(Enum):
    """Verdict on the gang."""

    FITS = "Fits"
    """The quorum waits and fits."""
    UNSCHEDULABLE = "Unschedulable"
    """The quorum waits and does not fit."""
    INCOMPLETE = "Incomplete"
    """Members are missing or gated, so the gang is not attempted."""
    PLACED = "Placed"
    """All required members are scheduled."""
    FINISHED = "Finished"
    """All required members have succeeded."""
    NO_GROUP = "NoGroup"
    """Pods name a PodGroup that does not exist or is invalid."""
    NO_PROFILE = "NoProfile"
    """No profile serves the schedulerName of the members."""
    ONE_BY_ONE = "OneByOne"
    """The profile's Coscheduling plugin schedules members one by one; they wait for each other at Permit."""
    ERROR = "Error"
    """A plugin failed."""


class MemberCounts(Struct, frozen=True, rename="camel"):
    """Numbers of members of a gang by state.

    Attributes:
        existing: Members that exist and are not being deleted.
        gated: Existing members with scheduling gates.
        waiting: Members that wait to be scheduled together.
        placed: Members that are bound or assumed.
        min_member: minMember of the PodGroup; 0 if there is no PodGroup.
        needed: Number of waiting members that must be scheduled together now.
    """

    existing: int
    gated: int
    waiting: int
    placed: int
    succeeded: int
    failed: int
    min_member: int
    needed: int


class MemberNode(Struct, frozen=True, rename="camel"):
    """Node to which a member would be scheduled."""

    member: str
    node: str


class GangPreemption(Struct, frozen=True, rename="camel"):
    """Dry run of preemption for the whole quorum.

    Attributes:
        victims: Preemption victims, lowest priority first.
        awaited: Terminating pods that the gang would wait for.
        pdb_violations: Number of victims whose eviction violates a PodDisruptionBudget.
        domain: Topology domain in which the gang would fit; None for the whole cluster.
        message: Why preemption does not help; None if it does.
        waits_until: Time until which the profile waits for a new node before it preempts, RFC 3339; None if it does not
            wait.
    """

    victims: tuple[Victim, ...]
    nodes: tuple[str, ...]
    awaited: tuple[Victim, ...]
    pdb_violations: int
    domain: str | None
    message: str | None
    waits_until: str | None = None


class GangReservation(Struct, frozen=True, rename="camel"):
    """Capacity reserved for the gang.

    Attributes:
        where: The domain or nodes, as text.
        waits_for: Pods that still run there and that the gang waits for, as ``namespace/name``.
    """

    where: str
    nodes: tuple[str, ...]
    waits_for: tuple[str, ...]


class LastAttempt(Struct, frozen=True, rename="camel"):
    """Result of the last attempt.

    Attributes:
        reason: Reason of the PodGroup's condition, one word in CamelCase.
        message: Message of the PodGroup's condition.
        time: Time of the attempt, RFC 3339; None if unknown.
    """

    reason: str
    message: str
    time: str | None


class GangExplanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Explanation of one gang.

    Attributes:
        api: API group of the PodGroup.
        api_version: API group and version of the PodGroup; None without one.
        scheduler_name: schedulerName of the members; None if no quorum waits.
        profile_revision: Live revision of the profile, "" if none serves the members.
        headline: The verdict in a sentence.
        phase: Phase, as in the status of a Bayplan PodGroup; None without a PodGroup.
        message: Why no domain is tried; None if domains are tried or the gang is not attempted.
        domain: Topology domain in which the gang fits; None if it fits in no particular domain or does not fit.
        placement: Node of each member that would be scheduled; empty if the quorum does not fit.
        places: Domains in which the gang does not fit, nearest first.
        preemption: Dry run of preemption; None if preemption is not reached.
        new_nodes: New nodes with which the quorum fits; None if it fits or is not attempted.
        reservation: Capacity reserved for the gang, or None.
        kept_off: Nodes reserved for other gangs.
        last_attempt: Result of the last attempt; None if there was none.
        notices: Limitations of this explanation.
    """

    namespace: str
    name: str
    api: str
    scheduler_name: str | None = None
    verdict: GangVerdict
    headline: str
    api_version: str | None = None
    phase: str | None = None
    members: MemberCounts
    message: str | None = None
    domain: str | None = None
    placement: tuple[MemberNode, ...] = ()
    places: tuple[PlaceFit, ...] = ()
    preemption: GangPreemption | None = None
    new_nodes: NewNodes | None = None
    reservation: GangReservation | None = None
    kept_off: tuple[KeptOff, ...] = ()
    last_attempt: LastAttempt | None = None
    notices: tuple[str, ...] = ()
    profile_revision: str = ""


class Explanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Explanation of one pod.

    Attributes:
        profile_revision: Live revision of the profile, "" if none serves the pod.
        headline: The verdict in a sentence.
        node: Node of the pod, or the node to which it would be scheduled; None if there is none.
        tied: All nodes with the highest score.
        message: Message of the FailedScheduling event; None if the pod fits.
        rejections: Rejections by plugin, the plugin with most nodes first.
        nearest: Nodes that lack the least, nearest first.
        scores: Nodes with the highest scores, best first.
        preemption: Dry run of preemption; None if preemption is not reached.
        unblocking: Events that would requeue the pod.
        new_nodes: New nodes with which the pod fits; None if it fits or has a gang, for which they are determined.
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
    new_nodes: NewNodes | None = None
    devices: DeviceExplanation | None = None
    notices: tuple[str, ...] = ()
    gang: GangExplanation | None = None
    profile_revision: str = ""


def only_namespace(kind: str, name: str, namespaces: Collection[str]) -> str:
    """Return the only namespace that has a name; raises NotFoundError if no namespace or several have it."""
    if not namespaces:
        raise NotFoundError(f"{kind} {name} not found in any namespace; check the name")
    if len(namespaces) > 1:
        found = listed([f"{each}/{name}" for each in sorted(namespaces)])
        raise NotFoundError(f"several namespaces have this name: {found}; specify one of them")
    return next(iter(namespaces))
