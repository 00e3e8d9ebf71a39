"""Parts that the explanations of pods and of gangs share."""

from __future__ import annotations

from msgspec import Struct


class Amount(Struct, frozen=True, rename="camel"):
    """Resource of which a node has too little; cpu in millicores, all other resources in whole units."""

    resource: str
    needed: int
    free: int


class Lack(Struct, frozen=True, rename="camel"):
    """Reasons why one plugin rejects one node.

    Attributes:
        preemption_may_help: Whether the rejection may be resolved by removing pods from the node.
        amounts: Resources of which the node has too little; empty if the reasons are not about resources.
        details: What exactly is missing, if the reasons do not contain it: the problems of the nearest device of each
            request, for example.
    """

    plugin: str
    reasons: tuple[str, ...]
    preemption_may_help: bool
    amounts: tuple[Amount, ...] = ()
    details: tuple[str, ...] = ()


class NodeLacks(Struct, frozen=True, rename="camel"):
    """Everything that one node lacks, from all Filter plugins."""

    node: str
    lacks: tuple[Lack, ...]


class Victim(Struct, frozen=True, rename="camel"):
    """Pod that preemption would evict."""

    namespace: str
    name: str
    priority: int


class Unblocking(Struct, frozen=True, rename="camel"):
    """Event that would requeue the pod.

    Attributes:
        what: Description of the event.
        event: Name of the event, as in metrics.
        plugins: Plugins that rejected the pod and whose queueing hints answer Queue to the event.
        fits_on: Node that would then be feasible; None if that is not certain.
    """

    what: str
    event: str
    plugins: tuple[str, ...]
    fits_on: str | None
