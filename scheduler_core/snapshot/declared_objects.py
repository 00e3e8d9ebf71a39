"""Objects of kinds that plugins declare, as the cluster has them now.

Owns one store per collection. It must not know what the objects mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KindStore(Generic[T]):
    """The objects of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], T] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, name: str, namespace: str = "") -> T | None:
        """An object; None if there is none. Kinds without namespaces leave ``namespace`` out."""
        return self._objects.get((namespace, name))

    def assign(self, namespace: str, name: str, shown: T) -> None:
        """Take over an object's newest form."""
        self._objects[namespace, name] = shown

    def remove(self, namespace: str, name: str) -> None:
        """Drop an object; harmless for one that is not known."""
        self._objects.pop((namespace, name), None)


class DeclaredObjects:
    """Stores by the collection's path."""

    def __init__(self) -> None:
        self._stores: dict[str, KindStore[Any]] = {}

    def declare(self, path: str) -> KindStore[Any]:
        """The store of a collection; made on first use."""
        return self._stores.setdefault(path, KindStore())

    def find(self, path: str) -> KindStore[Any] | None:
        """The store of a collection, None if no plugin declared it."""
        return self._stores.get(path)
