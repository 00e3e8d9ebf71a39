"""Objects of the kinds that plugins declare, one store per collection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class KindStore(Generic[T]):
    """Objects of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], T] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object; None if there is none. Omit ``namespace`` for kinds without namespaces."""
        return self._objects.get((namespace, name))

    def assign(self, namespace: str, name: str, shown: T) -> None:
        """Add an object or replace it by its newest version."""
        self._objects[namespace, name] = shown

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object; no effect if it is not known."""
        self._objects.pop((namespace, name), None)


class DeclaredObjects:
    """Stores by the path of the collection."""

    def __init__(self) -> None:
        self._stores: dict[str, KindStore[Any]] = {}

    def declare(self, path: str) -> KindStore[Any]:
        """Return the store of a collection; create it on first use."""
        return self._stores.setdefault(path, KindStore())

    def find(self, path: str) -> KindStore[Any] | None:
        """Return the store of a collection, None if no plugin declared it."""
        return self._stores.get(path)
