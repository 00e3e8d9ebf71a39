"""Nodes that accept no pods because an object that decides about them cannot be read: they fail closed.

The filters of every profile start from these rows, so that neither a toleration nor a profile without a certain plugin
lets a pod pass. The last readable version of such an object stays in the columns: its pods occupy their room, and its
labels count as a topology domain.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scheduler_core.snapshot.pod_info import NO_ROW

_MOST_TEXTS = 1000
_OTHER = "node(s) depend on an object that could not be decoded"


class HeldNodes:
    """Nodes that accept no pods, with the reasons.

    Each reason has a source, such as the node itself or a pod on it. A node is held until all its sources are released.
    It need not exist.

    Attributes:
        is_empty: Whether there are none; an attribute, because it is read for every event and every filter run.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self._by_node: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, str] = {}
        self._codes: dict[str, int] = {}
        self._verdicts: NDArray[np.int32] | None = None
        self._version = -1

    def __len__(self) -> int:
        return len(self._by_node)

    def hold(self, node_name: str, source: str, reason: str) -> None:
        """Hold a node for a source, which holds at most one."""
        self.release(source)
        self._nodes[source] = node_name
        self._by_node.setdefault(node_name, {})[source] = reason
        self.is_empty = False
        self._verdicts = None

    def release(self, source: str) -> str:
        """Release what a source holds, and return the node's name; "" if it holds none."""
        node_name = self._nodes.pop(source, "")
        if node_name:
            sources = self._by_node[node_name]
            del sources[source]
            if not sources:
                del self._by_node[node_name]
                self.is_empty = not self._by_node
            self._verdicts = None
        return node_name

    def held_only_by(self, source: str) -> str:
        """Return the node that a source holds alone; "" if it holds none, or others hold it too."""
        node_name = self._nodes.get(source, "")
        return node_name if len(self._by_node.get(node_name, ())) == 1 else ""

    def reason(self, node_name: str) -> str:
        """Return why a node is held; "" if it is not."""
        return next(iter(self._by_node.get(node_name, {}).values()), "")

    def verdicts(self, size: int, version: int, row_of: Callable[[str], int]) -> NDArray[np.int32]:
        """Return int32 per row, 0 for rows that are not held, else a code for :meth:`text`."""
        if self._verdicts is None or self._version != version or len(self._verdicts) != size:
            self._verdicts, self._version = np.zeros(size, dtype=np.int32), version
            for name in self._by_node:
                row = row_of(name)
                if row != NO_ROW:
                    self._verdicts[row] = self._code(self.reason(name))
        return self._verdicts

    def _code(self, text: str) -> int:
        if text not in self._codes and len(self._codes) >= _MOST_TEXTS:
            text = _OTHER
        return self._codes.setdefault(text, len(self._codes) + 1)

    def text(self, code: int) -> str:
        """Return the reason for a code."""
        return next((text for text, known in self._codes.items() if known == code), _OTHER)
