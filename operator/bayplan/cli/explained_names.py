"""What ``bayplan explain`` is asked about: a pod, or a PodGroup.

Owns the grammar, which is kubectl's: ``NAME``, ``pod/NAME``, ``podgroup/NAME``, ``podgroup.scheduling.x-k8s.io/NAME``.
It must not know where either is found.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from scheduler_core.model.pod_group import GroupSource

_PODS = frozenset({"pod", "pods", "po"})
_GROUPS = frozenset({"podgroup", "podgroups", "bpg", "pg"})
_SHORT = "bpg"


@dataclass(frozen=True, slots=True)
class PodName:
    """Which pod."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupName:
    """Which PodGroup.

    Attributes:
        source: Its API; None for the first that has one of that name.
    """

    namespace: str
    name: str
    source: GroupSource | None = None

    def __str__(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def explained_name(namespace: str, text: str) -> PodName | GroupName:
    """Read what stands on the command line.

    Args:
        namespace: The namespace.
        text: Such as ``web-0`` or ``podgroup/train``.

    Raises:
        UsageError: It is neither a pod nor a PodGroup of an API that is known.
    """
    resource, slash, name = text.rpartition("/")
    kind, dot, api = resource.partition(".")
    if (not slash or resource in _PODS) and name:
        return PodName(namespace, name)
    if kind not in _GROUPS or not name:
        raise click.UsageError(f'"{text}" is no pod or PodGroup; write POD, pod/POD or podgroup/NAME')
    if not dot:
        return GroupName(namespace, name, GroupSource.BAYPLAN if kind == _SHORT else None)
    known = {source.value: source for source in GroupSource}
    if api not in known:
        raise click.UsageError(f'"{api}" has no PodGroups that Bayplan reads; choose one of {", ".join(known)}')
    return GroupName(namespace, name, known[api])
