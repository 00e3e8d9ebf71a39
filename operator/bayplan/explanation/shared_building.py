"""Converts results of the scheduler core to the parts of explanations of pods and gangs."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bayplan.explanation.shared_model import Amount, Lack, NodeLacks, Unblocking, Victim
from scheduler_core.explain import nearest_nodes as near_misses
from scheduler_core.explain import unblocking_events
from scheduler_core.snapshot.pod_info import PodInfo


class ExplanationOptions(Struct, frozen=True):
    """Limits on the lists in an explanation.

    Attributes:
        nearest: Maximum number of nearest misses; for a gang also the maximum number of domains.
        scored: Maximum number of nodes with scores.
        devices: Maximum number of groups of devices for each request.
    """

    nearest: int = 5
    scored: int = 5
    devices: int = 6


def convert_misses(misses: Iterable[near_misses.NearMiss]) -> tuple[NodeLacks, ...]:
    """Convert near misses."""
    return tuple(NodeLacks(miss.node_name, tuple(map(_convert_lack, miss.lacks))) for miss in misses)


def _convert_lack(lack: near_misses.Lack) -> Lack:
    amounts = tuple(Amount(each.resource, each.needed, each.free) for each in lack.shortages)
    return Lack(lack.plugin, lack.reasons, lack.is_resolvable, amounts, lack.details)


def convert_events(events: Iterable[unblocking_events.Unblocking]) -> tuple[Unblocking, ...]:
    """Convert events that would requeue a pod."""
    return tuple(Unblocking(one.what, one.event.name, one.plugins, one.fits_on or None) for one in events)


def convert_victims(pods: Iterable[PodInfo]) -> tuple[Victim, ...]:
    """Convert preemption victims, sorted by priority, lowest first."""
    return tuple(
        Victim(info.pod.metadata.namespace, info.pod.metadata.name, info.priority)
        for info in sorted(pods, key=lambda info: (info.priority, info.key))
    )
