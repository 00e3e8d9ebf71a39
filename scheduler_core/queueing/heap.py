"""A heap from which entries can be removed by UID.

The key of an entry is fixed when it is added. A removed entry stays in the heap until it reaches the top, or until
removed entries outnumber the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from scheduler_core.framework.queued_pod import QueuedPod

_Entry = tuple[Any, int, QueuedPod]


class PodHeap:
    """Heap of pods by key, lowest first; equal keys in order of arrival."""

    __slots__ = ("_count", "_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[QueuedPod]:
        return (entry[2] for entry in self._entries.values())

    def all(self) -> Iterator[QueuedPod]:
        """Return all pods, in order of arrival."""
        return iter(self)

    def push(self, key: Any, pod: QueuedPod) -> None:
        """Add a pod; one of the same UID is replaced."""
        self._count += 1
        entry = (key, self._count, pod)
        heapq.heappush(self._heap, entry)
        self._entries[pod.uid] = entry
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove and return a pod by its UID; None if it is not in the heap."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        if not self._entries:
            # Only removed entries are left; their keys may not be comparable with later ones.
            self._heap.clear()
        return entry[2]

    def lowest_key(self) -> Any:
        """Return the lowest key; None if the heap is empty."""
        heap = self._heap
        while heap and self._entries.get(heap[0][2].uid) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> QueuedPod | None:
        """Remove and return the pod with the lowest key; None if the heap is empty."""
        heap = self._heap
        while heap:
            entry = heapq.heappop(heap)
            pod = entry[2]
            if self._entries.get(pod.uid) is entry:
                del self._entries[pod.uid]
                return pod
        return None
