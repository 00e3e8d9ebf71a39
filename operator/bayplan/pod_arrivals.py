"""How late new pods reach the scheduler.

Owns the histogram. It must not know where pods come from. Informers cannot tell how far they lag behind the API server:
an event bears no time of its own. A pod that has just been created does, and it is what users wait for. Its time is in
whole seconds, so up to one second of what is counted is not lag; the clocks of API server and operator may differ, and
what would be negative counts as none.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.framework.histogram import Histogram, exponential_bounds
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock

ARRIVAL_BOUNDS = exponential_bounds(0.25, 2, 12)
"""Seconds from a pod's creation: 0.25 s to 8 min."""


class PodArrivals:
    """Looks at pods on their way to the scheduler.

    Args:
        clock: Its wall time is compared with the API server's.
        is_listed: Whether pods come one by one by now; those of the first list may be old.

    Attributes:
        seconds: From a pod's creation until it came here, of pods that had no node and were created since the start.
    """

    def __init__(self, clock: Clock, is_listed: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_listed = is_listed
        self.seconds = Histogram(ARRIVAL_BOUNDS)

    def told(self, add: Callable[[Pod], None]) -> Callable[[Pod], None]:
        """Count each pod before ``add`` takes it."""

        def counted(pod: Pod) -> None:
            created = pod.metadata.creation_timestamp
            if created is not None and not pod.spec.node_name and self._is_listed():
                self.seconds.observe(max(0.0, (self._clock.wall() - created).total_seconds()))
            add(pod)

        return counted
