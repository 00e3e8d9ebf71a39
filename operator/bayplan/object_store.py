"""Custom resources of one kind as they are known, from a watch and from lists that may come late.

Owns which of two accounts of an object is newer. It must not know what the objects mean. Why lists besides the watch:
a watch that was away does not tell of what was deleted meanwhile, and a profile that is gone must not stay live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.stored_revision import change_cause

_MAX_GONE = 4096

Body = Mapping[str, Any]
_Name = tuple[str, str]


class ObjectStore:
    """The newest known body of each object of a kind."""

    def __init__(self) -> None:
        self._bodies: dict[_Name, Body] = {}
        self._gone: dict[str, None] = {}

    def bodies(self) -> list[Body]:
        """Every object, by namespace and name."""
        return [self._bodies[name] for name in sorted(self._bodies)]

    def body(self, namespace: str, name: str) -> Body | None:
        """The object of a name; the namespace of a cluster-scoped one is empty."""
        return self._bodies.get((namespace, name))

    def seen(self, body: Body) -> bool:
        """Take up an object that a watch or a list shows.

        Returns:
            Whether anything about it is new.
        """
        metadata, name = body["metadata"], _name(body)
        known = self._bodies.get(name)
        if metadata.get("uid") in self._gone:
            return False
        if known is not None and _version(body) <= _version(known):
            return False
        self._bodies[name] = body
        return known is None or _judged(known) != _judged(body)

    def gone(self, body: Body) -> bool:
        """Forget an object; one of its name but another UID stays.

        Returns:
            Whether it was known.
        """
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
        """Take over a complete list; what the watch has told of later versions stands.

        Args:
            bodies: The objects.
            resource_version: Of the list.

        Returns:
            Whether anything changed.
        """
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
    """Resource versions are decimal and rise, for all kinds of a server, since Kubernetes v1.35; else all are alike."""
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _judged(body: Body) -> tuple[object, ...]:
    """What of an object is judged: not its status.

    Its labels are, by which a process may choose its profiles, and why it was changed, which its revision tells.
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
