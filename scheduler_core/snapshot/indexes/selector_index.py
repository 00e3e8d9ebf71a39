"""Selectors indexed by a label that they require, to find the selectors that may match a pod.

Most selectors require one value of a label (``app=web``), so a pod's labels lead to them. A selector without such a
label is a candidate for every pod.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from scheduler_core.model.selectors import IN, LabelMatcher

T = TypeVar("T", bound=Hashable)

_FEW_NAMESPACES = 4


class LabelBuckets(Generic[T]):
    """Objects with a selector, by a label pair that the selector requires."""

    __slots__ = ("_any", "_by_pair")

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[T, None]] = {}
        self._any: dict[T, None] = {}

    def __bool__(self) -> bool:
        """Return whether there are objects."""
        return bool(self._any or self._by_pair)

    def add(self, selector: LabelMatcher, thing: T) -> None:
        """Add an object."""
        if selector.nothing:
            return
        pair = required_pair(selector)
        (self._any if pair is None else self._by_pair.setdefault(pair, {}))[thing] = None

    def remove(self, selector: LabelMatcher, thing: T) -> None:
        """Remove an object."""
        if selector.nothing:
            return
        pair = required_pair(selector)
        if pair is None:
            self._any.pop(thing, None)
            return
        bucket = self._by_pair.get(pair, {})
        bucket.pop(thing, None)
        if not bucket:
            self._by_pair.pop(pair, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the objects whose selector may match ``labels``; the caller must evaluate the selector."""
        yield from self._any
        if self._by_pair:
            for pair in labels.items():
                bucket = self._by_pair.get(pair)
                if bucket:
                    yield from bucket


class NamespaceBuckets(Generic[T]):
    """Objects with a selector, by the namespaces that they apply to and then by label pair.

    A lookup costs as much as the pod's namespace has objects; objects of other namespaces are not visited.
    """

    __slots__ = ("_by_namespace", "_wide")

    def __init__(self) -> None:
        self._by_namespace: dict[str, LabelBuckets[T]] = {}
        self._wide: LabelBuckets[T] = LabelBuckets()

    def __len__(self) -> int:
        """Return the number of namespaces that have objects of their own."""
        return len(self._by_namespace)

    def add(self, namespaces: Collection[str] | None, selector: LabelMatcher, thing: T) -> None:
        """Add an object.

        Args:
            namespaces: The namespaces that it applies to; None for any.
        """
        if namespaces is None or len(namespaces) > _FEW_NAMESPACES:
            self._wide.add(selector, thing)
            return
        for namespace in () if selector.nothing else namespaces:
            self._by_namespace.setdefault(namespace, LabelBuckets()).add(selector, thing)

    def remove(self, namespaces: Collection[str] | None, selector: LabelMatcher, thing: T) -> None:
        """Remove an object that was added with the same namespaces and selector."""
        if namespaces is None or len(namespaces) > _FEW_NAMESPACES:
            self._wide.remove(selector, thing)
            return
        for namespace in () if selector.nothing else namespaces:
            buckets = self._by_namespace.get(namespace)
            if buckets is not None:
                buckets.remove(selector, thing)
                if not buckets:
                    del self._by_namespace[namespace]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the objects for a namespace whose selector may match ``labels``."""
        if self._wide:
            yield from self._wide.candidates(labels)
        buckets = self._by_namespace.get(namespace)
        if buckets is not None:
            yield from buckets.candidates(labels)


def required_pair(selector: LabelMatcher) -> tuple[str, str] | None:
    """Return a label and the only value that a selector allows for it; None if there is no such label."""
    for requirement in selector.requirements:
        if requirement.operator == IN and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None
