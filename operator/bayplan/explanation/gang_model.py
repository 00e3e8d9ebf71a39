"""The document that explains a gang.

The fields are those of the JSON and YAML that users read (``docs/why-pending.md``), in camel case.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from bayplan.explanation.shared_model import NodeLacks, Unblocking, Victim


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
        succeeded: Members that succeeded.
        failed: Members that failed.
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


class NextMember(Struct, frozen=True, rename="camel"):
    """First member without a feasible node after the members before it are placed.

    Attributes:
        name: ``namespace/name`` of the member.
        message: Message of its condition.
        nearest: Nodes that lack the least, nearest first.
        unblocking: Events after which the member has a feasible node; only for the nearest place.
    """

    name: str
    message: str
    nearest: tuple[NodeLacks, ...] = ()
    unblocking: tuple[Unblocking, ...] = ()


class PlaceFit(Struct, frozen=True, rename="camel"):
    """Result of the dry run in one topology domain, or in the whole cluster.

    Attributes:
        domain: Topology domain, such as ``zone=a``; None for the whole cluster.
        fitting: Number of members that have a node there.
        needed: Number of members that need a node there.
        is_tried: Whether a group cycle would try the domain; False if too few members have room there.
        next_member: First member without a node; None if no member was rejected.
    """

    domain: str | None
    fitting: int
    needed: int
    is_tried: bool
    next_member: NextMember | None = None


class GangPreemption(Struct, frozen=True, rename="camel"):
    """Dry run of preemption for the whole quorum.

    Attributes:
        victims: Preemption victims, lowest priority first.
        nodes: Nodes of the victims.
        awaited: Terminating pods that the gang would wait for.
        pdb_violations: Number of victims whose eviction violates a PodDisruptionBudget.
        domain: Topology domain in which the gang would fit; None for the whole cluster.
        message: Why preemption does not help; None if it does.
    """

    victims: tuple[Victim, ...]
    nodes: tuple[str, ...]
    awaited: tuple[Victim, ...]
    pdb_violations: int
    domain: str | None
    message: str | None


class GangReservation(Struct, frozen=True, rename="camel"):
    """Capacity reserved for the gang.

    Attributes:
        where: The domain or nodes, as text.
        nodes: Reserved nodes.
        waits_for: Pods that still run there and that the gang waits for, as ``namespace/name``.
    """

    where: str
    nodes: tuple[str, ...]
    waits_for: tuple[str, ...]


class KeptOff(Struct, frozen=True, rename="camel"):
    """Nodes reserved for another gang."""

    gang: str
    nodes: tuple[str, ...]


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
        headline: The verdict in a sentence.
        phase: Phase, as in the status of a Bayplan PodGroup; None without a PodGroup.
        message: Why no domain is tried; None if domains are tried or the gang is not attempted.
        domain: Topology domain in which the gang fits; None if it fits in no particular domain or does not fit.
        placement: Node of each member that would be scheduled; empty if the quorum does not fit.
        places: Domains in which the gang does not fit, nearest first.
        preemption: Dry run of preemption; None if preemption is not reached.
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
    reservation: GangReservation | None = None
    kept_off: tuple[KeptOff, ...] = ()
    last_attempt: LastAttempt | None = None
    notices: tuple[str, ...] = ()
