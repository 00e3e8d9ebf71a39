"""What an explanation of a gang says.

Owns the document: its fields are those of the JSON and YAML that users read (``docs/explain.md``), in camel case. It
must not know how it came about.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from bayplan.explanation.parts import NodeLacks, Unblocking, Victim


class GangVerdict(Enum):
    """What becomes of the gang."""

    FITS = "Fits"
    """Its quorum waits, and there is room for all of it."""
    UNSCHEDULABLE = "Unschedulable"
    """Its quorum waits, and does not fit."""
    INCOMPLETE = "Incomplete"
    """Members are missing or held back, so that nothing is tried."""
    PLACED = "Placed"
    """All members that are needed have nodes."""
    FINISHED = "Finished"
    """All members that are needed have ended well."""
    NO_GROUP = "NoGroup"
    """Pods name it, and there is no such PodGroup."""
    NO_PROFILE = "NoProfile"
    """No profile serves its members' scheduler name."""
    ONE_BY_ONE = "OneByOne"
    """Its profile has members wait for each other at Permit."""
    ERROR = "Error"
    """A plugin failed."""


class MemberCounts(Struct, frozen=True, rename="camel"):
    """The members of a gang.

    Attributes:
        existing: That exist and are not being deleted.
        gated: Of them, held back by their own scheduling gates.
        waiting: That wait to be placed together.
        placed: That have a node, bound or only promised to be.
        succeeded: That ended well.
        failed: That failed.
        min_member: How many the PodGroup asks for; 0 where there is none.
        needed: How many of those that wait must be placed together now.
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
    """Where a member would go."""

    member: str
    node: str


class NextMember(Struct, frozen=True, rename="camel"):
    """The first member that finds no node while the others are in place.

    Attributes:
        name: ``namespace/name``.
        message: Why, as its condition words it.
        nearest: The nodes that lack the least, nearest first.
        unblocking: Events after which there is a node for it; only for the nearest place.
    """

    name: str
    message: str
    nearest: tuple[NodeLacks, ...] = ()
    unblocking: tuple[Unblocking, ...] = ()


class PlaceFit(Struct, frozen=True, rename="camel"):
    """What came of the gang in one place.

    Attributes:
        domain: The topology domain, such as ``zone=a``; None for anywhere.
        fitting: How many members find a node there.
        needed: How many must.
        is_tried: Whether a cycle would try it; if not, too few members have room there.
        next_member: Who comes next; None if nobody was turned away.
    """

    domain: str | None
    fitting: int
    needed: int
    is_tried: bool
    next_member: NextMember | None = None


class GangPreemption(Struct, frozen=True, rename="camel"):
    """What preemption would do for the whole quorum.

    Attributes:
        victims: Pods that it would evict, least important first.
        nodes: Nodes that they would leave.
        awaited: Pods that end already, for which the gang waits.
        pdb_violations: Victims that a PodDisruptionBudget protects.
        domain: Where the gang would go then; None for anywhere.
        message: Why it would not; None if it would.
    """

    victims: tuple[Victim, ...]
    nodes: tuple[str, ...]
    awaited: tuple[Victim, ...]
    pdb_violations: int
    domain: str | None
    message: str | None


class GangReservation(Struct, frozen=True, rename="camel"):
    """Capacity that is kept for the gang.

    Attributes:
        where: The domain or nodes, in words.
        nodes: The nodes.
        waits_for: Pods that still run there and are waited for, ``namespace/name``.
    """

    where: str
    nodes: tuple[str, ...]
    waits_for: tuple[str, ...]


class KeptOff(Struct, frozen=True, rename="camel"):
    """Nodes that are kept for another gang."""

    gang: str
    nodes: tuple[str, ...]


class LastAttempt(Struct, frozen=True, rename="camel"):
    """How the last attempt ended.

    Attributes:
        reason: One word, as the condition of the PodGroup has it.
        message: Why, in words.
        time: When, RFC 3339; None where that is not known.
    """

    reason: str
    message: str
    time: str | None


class GangExplanation(Struct, frozen=True, rename="camel", kw_only=True):
    """Everything about one gang.

    Attributes:
        api: The API group of its PodGroup.
        scheduler_name: Whom its members ask for; None as long as there is none that waits.
        headline: The verdict in a sentence.
        phase: How far it has come, as the status of a Bayplan PodGroup tells it; None without a PodGroup.
        message: Why no place is tried; None where places are, or nothing is to be tried.
        domain: Where it would go; None for anywhere or nowhere.
        placement: The node of each member that would get one; empty where the quorum does not fit.
        places: Where it does not fit, nearest first.
        preemption: None where it is not reached.
        reservation: None for none.
        last_attempt: None if it was not tried.
        notices: What one should know about this answer.
    """

    namespace: str
    name: str
    api: str
    scheduler_name: str | None = None
    verdict: GangVerdict
    headline: str
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
