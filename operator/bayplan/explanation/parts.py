"""Parts that explanations of pods and of gangs have in common.

Owns their fields. It must not know what they are parts of.
"""

from __future__ import annotations

from msgspec import Struct


class Amount(Struct, frozen=True, rename="camel"):
    """A resource of which a node has too little; cpu in milli, the rest in whole units."""

    resource: str
    needed: int
    free: int


class Lack(Struct, frozen=True, rename="camel"):
    """Why one plugin rejects one node.

    Attributes:
        preemption_may_help: Whether removing pods from the node might mend it.
        amounts: Where it is a matter of amounts; otherwise empty.
    """

    plugin: str
    reasons: tuple[str, ...]
    preemption_may_help: bool
    amounts: tuple[Amount, ...] = ()


class NodeLacks(Struct, frozen=True, rename="camel"):
    """All that one node lacks, every plugin asked."""

    node: str
    lacks: tuple[Lack, ...]


class Victim(Struct, frozen=True, rename="camel"):
    """A pod that preemption would evict."""

    namespace: str
    name: str
    priority: int


class Unblocking(Struct, frozen=True, rename="camel"):
    """An event upon which the pod is tried again.

    Attributes:
        what: It in words.
        event: Its kind, as metrics name it.
        plugins: The plugins that rejected the pod and wait for such an event.
        fits_on: The node where the pod would then fit; None if that is not certain.
    """

    what: str
    event: str
    plugins: tuple[str, ...]
    fits_on: str | None
