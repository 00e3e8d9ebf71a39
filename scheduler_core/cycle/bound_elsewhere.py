"""Pods that another scheduler bound while they were being bound here.

kube-scheduler v1.37.1 requeues such a pod until a watch shows it bound (``handleSchedulingFailure``). Here it is not
requeued: it is bound, so another bind would be rejected too, and PodScheduled=False or FailedScheduling would be false.
The pod is counted on the other scheduler's node at once, even if the watch is late.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.freed_capacity_event import FreedCapacity, on_node
from scheduler_core.metrics.profile_metrics import ERROR
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.cluster_cache import ClusterCache, Placement

log = logging.getLogger(__name__)


def node_of_rival(cache: ClusterCache, attempt: Attempt) -> str:
    """Return the other node on which a watch has shown the attempt's pod; "" for none."""
    placed = cache.get(attempt.info.uid)
    if placed is None or placed.placement is not Placement.ADDED or placed.info.node_name == attempt.node_name:
        return ""
    return placed.info.node_name


class PodsBoundElsewhere:
    """Records pods that another scheduler bound.

    Args:
        cache: Counts the pods on the nodes to which they are bound.
        queue: The queue.
        assumed: Releases the pods.
        report: Report of cycles.
        room: Reports freed room.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        queue: SchedulingQueue,
        assumed: AssumedPods,
        report: CycleReport,
        room: FreedCapacity,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._assumed = assumed
        self._report = report
        self._room = room

    def record(self, attempt: Attempt, rival_node_name: str) -> None:
        """Count a pod on the node to which another scheduler bound it, release it here and end its attempt.

        Args:
            attempt: The attempt whose bind was lost.
            rival_node_name: The node to which the pod is bound.
        """
        info, node_name, profile = attempt.info, attempt.node_name, attempt.instance.name
        self._count_there(attempt, rival_node_name)
        self._assumed.release_unbound(attempt)
        self._report.binding_ended(attempt, ERROR)
        self._report.bind_lost(attempt, node_name, rival_node_name)
        log.warning(
            "another scheduler has bound pod %s of profile %s to node %s, while node %s was chosen here; make sure "
            "that only one scheduler serves each schedulerName",
            info.key,
            profile,
            rival_node_name,
            node_name,
        )
        attempt.end()
        nominator = self._queue.nominator
        nominated_node, nominated = nominator.node_of(info.uid), nominator.nomination_of(info.uid)
        held = self._queue.find(info.uid)
        if held is attempt.queued:
            self._queue.remove(info.uid)
        if held is None or held is attempt.queued:
            # Otherwise it was removed and added again, and that entry does not belong to this attempt.
            self._queue.done(info.uid)
        self._room.report(info.pod, node_name)
        if nominated is not None:
            self._room.nomination_unused(nominated, nominated_node, rival_node_name)

    def _count_there(self, attempt: Attempt, rival_node_name: str) -> None:
        placed = self._cache.get(attempt.info.uid)
        if placed is not None and placed.placement is not Placement.ADDED:
            # An unknown pod was deleted meanwhile; no later event would remove it from the cache.
            self._cache.add_pod(on_node(rival_node_name, placed.info.pod))
