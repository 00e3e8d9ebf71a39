"""PrioritySort: orders the queue by priority, then by waiting time.

The arrival number breaks ties, so that the order never depends on the layout of the heap.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/queuesort/priority_sort.go``.
"""

from __future__ import annotations

from scheduler_core.framework.extension_points import QueueSortPlugin
from scheduler_core.framework.queued_pod import QueuedPod


class PrioritySort(QueueSortPlugin):
    """Orders pods by priority, then by time in the queue."""

    name = "PrioritySort"
    events = ()

    def sort_key(self, pod: QueuedPod) -> tuple[int, float, int]:
        """Return the priority, descending; the time of queueing, ascending; the arrival number."""
        return -pod.info.priority, pod.timestamp, pod.sequence
