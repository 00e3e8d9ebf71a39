"""Index of container images on nodes.

Stores, per image name, its size and the rows that report it. The first reported size applies until no node has the
image, as in kube-scheduler v1.37.1 (``backend/cache/cache.go``, ``addNodeImageStates``).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.node import ContainerImage


class ImageState:
    """One image name: ``size_bytes`` and the rows of the nodes that have it."""

    __slots__ = ("_array", "rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rows: set[int] = set()
        self._array: NDArray[np.intp] | None = None

    def row_array(self) -> NDArray[np.intp]:
        """Return the rows in ascending order, intp[k]."""
        if self._array is None:
            self._array = np.array(sorted(self.rows), dtype=np.intp)
            self._array.flags.writeable = False
        return self._array

    def add(self, row: int) -> None:
        """Add the row of a node that has the image."""
        self.rows.add(row)
        self._array = None

    def discard(self, row: int) -> None:
        """Remove the row of a node that no longer has the image."""
        self.rows.discard(row)
        self._array = None


class ImageIndex:
    """All images by name; every change increments ``version``."""

    __slots__ = ("_states", "version")

    def __init__(self) -> None:
        self._states: dict[str, ImageState] = {}
        self.version = 0

    def get(self, name: str) -> ImageState | None:
        """Return the image called ``name``, None if no node reports it."""
        return self._states.get(name)

    def add_node(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Add the images of a node."""
        for image in images:
            self.version += 1
            for name in image.names:
                state = self._states.get(name)
                if state is None:
                    state = self._states[name] = ImageState(image.size_bytes)
                state.add(row)

    def clear(self) -> None:
        """Remove all nodes; the images keep their sizes until :meth:`drop_unused` is called."""
        for state in self._states.values():
            for row in list(state.rows):
                state.discard(row)

    def drop_unused(self) -> None:
        """Drop the images that no node has."""
        self._states = {name: state for name, state in self._states.items() if state.rows}
        self.version += 1

    def remove_node(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Remove the images of a node."""
        for image in images:
            self.version += 1
            for name in image.names:
                state = self._states.get(name)
                if state is not None:
                    state.discard(row)
                    if not state.rows:
                        del self._states[name]
