"""Labels of namespaces, for the namespace selectors of affinity terms."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_core.model.selectors import LabelMatcher


class NamespaceLabels:
    """Labels by namespace; every change increments ``version``."""

    __slots__ = ("_labels", "version")

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self.version = 0

    def get(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, None if it is not known."""
        return self._labels.get(namespace)

    def selected(self, selector: LabelMatcher) -> frozenset[str]:
        """Return the known namespaces whose labels ``selector`` matches."""
        if selector.nothing:
            return frozenset()
        return frozenset(name for name, labels in self._labels.items() if selector.matches(labels))

    def assign(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Set the labels of a namespace."""
        if self._labels.get(namespace) != labels:
            self._labels[namespace] = labels
            self.version += 1

    def remove(self, namespace: str) -> None:
        """Remove a namespace."""
        if self._labels.pop(namespace, None) is not None:
            self.version += 1
