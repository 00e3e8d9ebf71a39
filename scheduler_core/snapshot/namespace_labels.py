"""Labels of namespaces, which namespace selectors of affinity terms ask for."""

from __future__ import annotations

from collections.abc import Mapping


class NamespaceLabels:
    """Labels by namespace; ``version`` is raised by every change."""

    __slots__ = ("_labels", "version")

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self.version = 0

    def get(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace, None if it is not known."""
        return self._labels.get(namespace)

    def assign(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Take over a namespace's labels."""
        if self._labels.get(namespace) != labels:
            self._labels[namespace] = labels
            self.version += 1

    def remove(self, namespace: str) -> None:
        """Forget a namespace."""
        if self._labels.pop(namespace, None) is not None:
            self.version += 1
