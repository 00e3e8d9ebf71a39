"""PrioritySort: the most important pod first, among equals the one that has waited longest.

Owns the order of the active queue. Must not know the queue. The sequence settles what time leaves open, so that an
order never depends on how a heap was built.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/queuesort/priority_sort.go``.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.extension_points import QueueSortPlugin
from scheduler_core.framework.queued_pod import QueuedPod


class PrioritySort(QueueSortPlugin):
    """Orders by priority, then by time in the queue."""

    name = "PrioritySort"

    def events_to_register(self) -> tuple[EventRegistration, ...]:
        """None: it rejects no pod."""
        return ()

    def sort_key(self, pod: QueuedPod) -> tuple[int, float, int]:
        """Priority, descending; the time at which the pod came to its place, ascending; the order of arrival."""
        return -pod.info.priority, pod.timestamp, pod.sequence
