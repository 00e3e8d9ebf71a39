"""Cache with a bound in bytes, which evicts what was used longest ago.

Sizes are estimates by the caller. The bound counts them, not entries, because one entry can be a hundred times as large
as another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Entries by key, the one used longest ago first.

    Attributes:
        stored_bytes: Sum of the sizes.
    """

    __slots__ = ("_entries", "_max_bytes", "stored_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.stored_bytes = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return an entry, which is then the one used last; None if there is none."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Store an entry that is new, or has another size now; it is evicted itself if it exceeds the bound alone."""
        previous = self._entries.pop(key, None)
        if previous is not None:
            self.stored_bytes -= previous[1]
        self._entries[key] = (value, size)
        self.stored_bytes += size
        while self.stored_bytes > self._max_bytes:
            _, (_, evicted) = self._entries.popitem(last=False)
            self.stored_bytes -= evicted
