"""What explanations find out, as documents: the fields are those of the JSON and YAML that users read, in camel case.

A dry run fills them once. ``docs/why-pending.md`` describes them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from scheduler_core.framework.extension_points import Shortage
from scheduler_core.snapshot.pod_info import PodInfo


class Lack(Struct, frozen=True, rename="camel"):
    """Reasons why one plugin rejects one node.

    Attributes:
        plugin: PreFilter plugins that excluded the node together are joined by commas.
        preemption_may_help: Whether the rejection may be resolved by removing pods from the node.
        amounts: Resources of which the node has too little; empty if the reasons are not about resources.
        details: What exactly is missing, if the reasons do not contain it: the problems of the nearest device of each
            request, for example.
    """

    plugin: str
    reasons: tuple[str, ...]
    preemption_may_help: bool
    amounts: tuple[Shortage, ...] = ()
    details: tuple[str, ...] = ()


class NodeLacks(Struct, frozen=True, rename="camel"):
    """A node and everything that it lacks, in the order of the plugins."""

    node: str
    lacks: tuple[Lack, ...]


class Victim(Struct, frozen=True, rename="camel"):
    """Pod that preemption would evict."""

    namespace: str
    name: str
    priority: int


def victims_of(pods: Iterable[PodInfo]) -> tuple[Victim, ...]:
    """Return preemption victims, lowest priority first."""
    return tuple(
        Victim(info.pod.metadata.namespace, info.pod.metadata.name, info.priority)
        for info in sorted(pods, key=lambda info: (info.priority, info.key))
    )


class Unblocking(Struct, frozen=True, rename="camel"):
    """Event that would requeue the pod.

    Attributes:
        event: Name of the event, as in metrics.
        plugins: Plugins that rejected the pod and whose queueing hints return Queue; empty if no plugin rejected it.
        fits_on: Node that would then be feasible; None if the event is not sufficient or cannot be dry-run.
    """

    what: str
    event: str
    plugins: tuple[str, ...]
    fits_on: str | None


class HelpfulNode(Struct, frozen=True, rename="camel"):
    """Copies of a node with which the pod, or the quorum of the gang, would be scheduled without evictions.

    Attributes:
        node: Present node of which they are copies; its DaemonSet pods run on each.
        count: The least number of them.
    """

    node: str
    count: int


class NewNodes(Struct, frozen=True, rename="camel"):
    """New nodes that would help.

    Attributes:
        helpful: Nodes of which copies help, those with the least number first; empty if none is known.
        tried: Number of shapes of nodes that were tried.
        is_complete: Whether the dry runs were not given up.
    """

    helpful: tuple[HelpfulNode, ...] = ()
    tried: int = 0
    is_complete: bool = True

    @property
    def text(self) -> str:
        """Which nodes help, such as ``1 node like large-1 would help, or 2 nodes like small-1``; "" for none."""
        if not self.helpful:
            return ""
        first, *others = (
            f"{each.count} node{'' if each.count == 1 else 's'} like {each.node}" for each in self.helpful
        )
        return ", or ".join((f"{first} would help", *others))


# -- resource claims and devices ------------------------------------------------------------------------------------


class ClaimRejection(Struct, frozen=True, rename="camel"):
    """Obstacle of a claim.

    Attributes:
        claim: ``namespace/name``; several claims are joined by commas.
        request: Request that has too few devices; None if the obstacle is of the whole claim.
        example: One of these nodes.
    """

    claim: str
    request: str | None
    reason: str
    nodes: int
    example: str


class UnmetCondition(Struct, frozen=True, rename="camel"):
    """Condition that devices do not meet.

    Attributes:
        what: Description, such as ``model is a100, must be h100``.
        required_by: Owner and expression of the selector; None if it is no selector.
        by_holders: Whether the claims of ``held_by`` cause it.
    """

    what: str
    required_by: str | None
    by_holders: bool = False


class DeviceGroup(Struct, frozen=True, rename="camel"):
    """Devices that do not serve a request for the same reasons.

    Attributes:
        claim: ``namespace/name``.
        request: The request, or ``request/alternative``.
        nodes: Number of nodes that reach them.
        example: One of the devices, ``driver/pool/device``.
        held_by: Claims that have the devices, or others that share their counters, with pods; the first few.
        more_holders: Number of further claims.
    """

    claim: str
    request: str
    devices: int
    nodes: int
    example: str
    unmet: tuple[UnmetCondition, ...]
    held_by: tuple[str, ...] = ()
    more_holders: int = 0


class DeviceExplanation(Struct, frozen=True, rename="camel"):
    """What nodes and devices lack for the claims of a pod.

    Attributes:
        claims: Obstacles of claims, most nodes first.
        rejected: Devices of requests that have too few, by request, those that lack the least first.
        omitted: Number of devices of requests that are in no group of ``rejected``, by ``claim, request``.
    """

    claims: tuple[ClaimRejection, ...]
    rejected: tuple[DeviceGroup, ...]
    omitted: dict[str, int] = {}


def request_key(claim: str, request: str) -> str:
    """Return the key of a request in ``omitted``."""
    return f"{claim}, {request}"


# -- gangs ----------------------------------------------------------------------------------------------------------


class NextMember(Struct, frozen=True, rename="camel"):
    """First member without a feasible node after the members before it are placed.

    Attributes:
        name: ``namespace/name`` of the member.
        message: Message of its condition.
        nearest: Nodes that lack the least, nearest first.
        unblocking: Events after which the member has a feasible node, only for the nearest place; the members after it
            may need more.
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


class KeptOff(Struct, frozen=True, rename="camel"):
    """Nodes reserved for another gang."""

    gang: str
    nodes: tuple[str, ...]
