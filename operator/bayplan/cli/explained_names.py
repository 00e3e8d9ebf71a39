"""Names of the pod or PodGroup for ``bayplan explain``.

The syntax is kubectl's: ``NAME``, ``pod/NAME``, ``podgroup/NAME``, ``podgroup.scheduling.x-k8s.io/NAME``.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource

_PODS = frozenset({"pod", "pods", "po"})
_GROUPS = frozenset({"podgroup", "podgroups", "bpg", "pg"})
_SHORT = "bpg"


@dataclass(frozen=True, slots=True)
class PodName:
    """Name of a pod."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupName:
    """Name of a PodGroup.

    Attributes:
        source: API of the PodGroup; None for the first API that has one with this name.
    """

    namespace: str
    name: str
    source: GroupSource | None = None

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def explained_name(namespace: str, text: str) -> PodName | GroupName:
    """Parse the argument of the command.

    Args:
        text: Argument, such as ``web-0`` or ``podgroup/train``.

    Raises:
        UsageError: The argument names neither a pod nor a PodGroup of a supported API.
    """
    resource, slash, name = text.rpartition("/")
    kind, dot, api = resource.partition(".")
    if (not slash or resource in _PODS) and name:
        return PodName(namespace, name)
    if kind not in _GROUPS or not name:
        raise click.UsageError(f'"{text}" does not name a pod or PodGroup; specify POD, pod/POD or podgroup/NAME')
    if not dot:
        return GroupName(namespace, name, GroupSource.BAYPLAN if kind == _SHORT else None)
    known = {source.value: source for source in POD_GROUP_SOURCES}
    if api not in known:
        raise click.UsageError(f'unsupported API of PodGroups "{api}": supported values: {", ".join(known)}')
    return GroupName(namespace, name, known[api])
