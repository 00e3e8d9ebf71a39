"""How much is told, and what the core found as the parts that are told.

Owns the translation, which explanations of pods and of gangs share. It must not decide what is told where.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bayplan.explanation.parts import Amount, Lack, NodeLacks, Unblocking, Victim
from scheduler_core.cycle import near_misses, unblocking
from scheduler_core.snapshot.pod_info import PodInfo


class ExplanationOptions(Struct, frozen=True):
    """How much is told.

    Attributes:
        nearest: Nodes of which it is told what they lack; of a gang, also in how many places.
        scored: Nodes of which scores are told.
    """

    nearest: int = 5
    scored: int = 5


def told_misses(misses: Iterable[near_misses.NearMiss]) -> tuple[NodeLacks, ...]:
    """What nodes lack."""
    return tuple(NodeLacks(miss.node_name, tuple(map(_told_lack, miss.lacks))) for miss in misses)


def _told_lack(lack: near_misses.Lack) -> Lack:
    amounts = tuple(Amount(each.resource, each.needed, each.free) for each in lack.shortages)
    return Lack(lack.plugin, lack.reasons, lack.is_resolvable, amounts)


def told_events(events: Iterable[unblocking.Unblocking]) -> tuple[Unblocking, ...]:
    """Events that would help."""
    return tuple(Unblocking(one.what, one.event.name, one.plugins, one.fits_on or None) for one in events)


def told_victims(pods: Iterable[PodInfo]) -> tuple[Victim, ...]:
    """Pods that leave, the least important first."""
    return tuple(
        Victim(info.pod.metadata.namespace, info.pod.metadata.name, info.priority)
        for info in sorted(pods, key=lambda info: (info.priority, info.key))
    )
