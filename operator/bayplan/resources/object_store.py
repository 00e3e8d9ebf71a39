"""Store of the custom resources of one kind, filled by a watch and by lists that may arrive late.

Lists are needed beside the watch: an interrupted watch does not report what was deleted in the meantime, and a deleted
profile must not stay live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from bayplan.resources.resource_model import CustomResource, change_cause

_MAX_GONE = 4096

Body = Mapping[str, Any]
_Name = tuple[str, str]


class ListReceiver(Protocol):
    """Receiver of lists of custom resources."""

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """Replace all objects of a kind by a list."""


class Watcher(Protocol):
    """Receiver of the events of a watch of custom resources."""

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        """Handle an object that was added, updated or listed again."""

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        """Handle a deleted object."""


class ObjectReceiver(ListReceiver, Watcher, Protocol):
    """Receiver of both: the controllers of profiles, PodGroups and NodeReservations."""


class ObjectStore:
    """The newest known version of each object of a kind."""

    def __init__(self) -> None:
        self._bodies: dict[_Name, Body] = {}
        self._gone: dict[str, None] = {}

    def bodies(self) -> list[Body]:
        """Return every object, sorted by namespace and name."""
        return [self._bodies[name] for name in sorted(self._bodies)]

    def body(self, namespace: str, name: str) -> Body | None:
        """Return an object by name; the namespace of a cluster-scoped object is empty."""
        return self._bodies.get((namespace, name))

    def seen(self, body: Body) -> bool:
        """Store an object from a watch or a list, unless a newer version is stored.

        Returns:
            Whether anything that validation reads has changed.
        """
        metadata, name = body["metadata"], _name(body)
        known = self._bodies.get(name)
        if metadata.get("uid") in self._gone:
            return False
        if known is not None and _version(body) <= _version(known):
            return False
        self._bodies[name] = body
        return known is None or _compared_fields(known) != _compared_fields(body)

    def gone(self, body: Body) -> bool:
        """Remove an object; another object of the same name but a different UID stays."""
        metadata, name = body["metadata"], _name(body)
        self._gone[metadata.get("uid", "")] = None
        while len(self._gone) > _MAX_GONE:
            del self._gone[next(iter(self._gone))]
        known = self._bodies.get(name)
        if known is None or known["metadata"].get("uid") != metadata.get("uid"):
            return False
        del self._bodies[name]
        return True

    def listed(self, bodies: Iterable[Body], resource_version: str) -> bool:
        """Replace the stored objects by a complete list; versions newer than the list stay."""
        listed = {_name(body): body for body in bodies}
        changed = False
        for name, known in list(self._bodies.items()):
            if name not in listed and _version(known) <= int(resource_version or 0):
                changed |= self.gone(known)
        for body in listed.values():
            changed |= self.seen(body)
        return changed


def _name(body: Body) -> _Name:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(body: Body) -> int:
    """Parse a resource version, 0 if opaque. Since Kubernetes v1.35 they are decimal and increase across all kinds."""
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _compared_fields(body: Body) -> tuple[object, ...]:
    """Return the parts of an object that matter to validation; the status does not.

    Labels matter because a process may select its profiles by them; the change cause is stored with the revision.
    """
    metadata = body["metadata"]
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        metadata.get("labels"),
        change_cause(metadata),
        body.get("spec"),
    )
