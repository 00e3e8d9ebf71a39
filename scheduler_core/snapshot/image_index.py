"""Which nodes hold which container images.

Owns, per image name, its size and the rows that report it. The size that the first node reported holds for all until
no node has the image, as in kube-scheduler v1.36.3 (``backend/cache/cache.go``, ``addNodeImageStates``).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.node import ContainerImage


class ImageState:
    """One image name: ``size_bytes`` and the rows of the nodes that hold it."""

    __slots__ = ("_array", "rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rows: set[int] = set()
        self._array: NDArray[np.intp] | None = None

    def row_array(self) -> NDArray[np.intp]:
        """The rows in ascending order, intp[k]."""
        if self._array is None:
            self._array = np.array(sorted(self.rows), dtype=np.intp)
            self._array.flags.writeable = False
        return self._array

    def add(self, row: int) -> None:
        """Note that the node of ``row`` holds the image."""
        self.rows.add(row)
        self._array = None

    def discard(self, row: int) -> None:
        """Note that the node of ``row`` does not hold it any more."""
        self.rows.discard(row)
        self._array = None


class ImageIndex:
    """All images by name; ``version`` is raised by every change."""

    __slots__ = ("_states", "version")

    def __init__(self) -> None:
        self._states: dict[str, ImageState] = {}
        self.version = 0

    def get(self, name: str) -> ImageState | None:
        """The image called ``name``, None if no node reports it."""
        return self._states.get(name)

    def add_node(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Take up what a node reports."""
        for image in images:
            self.version += 1
            for name in image.names:
                state = self._states.get(name)
                if state is None:
                    state = self._states[name] = ImageState(image.size_bytes)
                state.add(row)

    def remove_node(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Take back what a node reported."""
        for image in images:
            self.version += 1
            for name in image.names:
                state = self._states.get(name)
                if state is not None:
                    state.discard(row)
                    if not state.rows:
                        del self._states[name]
