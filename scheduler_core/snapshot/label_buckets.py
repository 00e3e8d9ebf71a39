"""Selectors filed by a label that they insist on, so that a pod finds those that may select it without asking all.

Owns the filing only. A selector that insists on no single value of any label is asked about every pod; most insist on
one (``app=web``), and then a pod's own labels lead to it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from scheduler_core.model.selectors import IN, LabelMatcher

T = TypeVar("T", bound=Hashable)

_FEW_NAMESPACES = 4


class LabelBuckets(Generic[T]):
    """Things that have a selector, by the label pair that the selector insists on."""

    __slots__ = ("_any", "_by_pair")

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[T, None]] = {}
        self._any: dict[T, None] = {}

    def __bool__(self) -> bool:
        """Whether anything is filed."""
        return bool(self._any or self._by_pair)

    def add(self, selector: LabelMatcher, thing: T) -> None:
        """File a thing."""
        if selector.nothing:
            return
        pair = insisted_pair(selector)
        (self._any if pair is None else self._by_pair.setdefault(pair, {}))[thing] = None

    def remove(self, selector: LabelMatcher, thing: T) -> None:
        """Take a thing out."""
        if selector.nothing:
            return
        pair = insisted_pair(selector)
        if pair is None:
            self._any.pop(thing, None)
            return
        bucket = self._by_pair.get(pair, {})
        bucket.pop(thing, None)
        if not bucket:
            self._by_pair.pop(pair, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Things whose selector may match ``labels``; the selector itself is still to be asked."""
        yield from self._any
        if self._by_pair:
            for pair in labels.items():
                bucket = self._by_pair.get(pair)
                if bucket:
                    yield from bucket


class NamespaceBuckets(Generic[T]):
    """Things that have a selector, by the few namespaces that they concern and then by label pair.

    A pod costs what its own namespace holds: a thing of a few other namespaces is not looked at.
    """

    __slots__ = ("_by_namespace", "_wide")

    def __init__(self) -> None:
        self._by_namespace: dict[str, LabelBuckets[T]] = {}
        self._wide: LabelBuckets[T] = LabelBuckets()

    def __len__(self) -> int:
        """Number of namespaces that have things of their own."""
        return len(self._by_namespace)

    def add(self, namespaces: Collection[str] | None, selector: LabelMatcher, thing: T) -> None:
        """File a thing.

        Args:
            namespaces: The namespaces that it concerns; None for any.
            selector: Its selector.
            thing: The thing.
        """
        if namespaces is None or len(namespaces) > _FEW_NAMESPACES:
            self._wide.add(selector, thing)
            return
        for namespace in () if selector.nothing else namespaces:
            self._by_namespace.setdefault(namespace, LabelBuckets()).add(selector, thing)

    def remove(self, namespaces: Collection[str] | None, selector: LabelMatcher, thing: T) -> None:
        """Remove a thing that was filed by the same namespaces and selector."""
        if namespaces is None or len(namespaces) > _FEW_NAMESPACES:
            self._wide.remove(selector, thing)
            return
        for namespace in () if selector.nothing else namespaces:
            buckets = self._by_namespace[namespace]
            buckets.remove(selector, thing)
            if not buckets:
                del self._by_namespace[namespace]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """Return things of a namespace whose selector may match ``labels``."""
        if self._wide:
            yield from self._wide.candidates(labels)
        buckets = self._by_namespace.get(namespace)
        if buckets is not None:
            yield from buckets.candidates(labels)


def insisted_pair(selector: LabelMatcher) -> tuple[str, str] | None:
    """A label and the one value of it that a selector admits; None if it insists on none."""
    for requirement in selector.requirements:
        if requirement.operator == IN and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None
