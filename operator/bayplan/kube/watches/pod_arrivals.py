"""Histogram of the delay with which new pods reach the scheduler.

A watch event carries no time, so the lag of an informer is measured by new pods, from their creation timestamp. It is
in whole seconds: up to one second of the measured delay is not lag. The clocks of the API server and the operator may
differ; a negative delay counts as zero.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.metrics.histogram import Histogram, exponential_bounds
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock

ARRIVAL_BOUNDS = exponential_bounds(0.25, 2, 12)
"""Buckets in seconds from a pod's creation: 0.25 s to 8 min."""


class PodArrivals:
    """Measurement of new pods on their way to the scheduler.

    Args:
        clock: Its wall time is compared with the API server's.
        is_listed: Returns whether the first list is complete; pods of the first list may be old and do not count.

    Attributes:
        seconds: Delays between the creation and the arrival of pods that had no node and came after the first list.
    """

    def __init__(self, clock: Clock, is_listed: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_listed = is_listed
        self.seconds = Histogram(ARRIVAL_BOUNDS)

    def counting(self, add: Callable[[Pod], None]) -> Callable[[Pod], None]:
        """Wrap ``add`` so that each pod is counted first."""

        def counted(pod: Pod) -> None:
            created = pod.metadata.creation_timestamp
            if created is not None and not pod.spec.node_name and self._is_listed():
                self.seconds.observe(max(0.0, (self._clock.wall() - created).total_seconds()))
            add(pod)

        return counted
