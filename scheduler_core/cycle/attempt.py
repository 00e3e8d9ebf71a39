"""One attempt to schedule one pod, from the pop to the end of its binding cycle."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.gang_bind_barrier import GangBindBarrier
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.cycle_recorder import CycleRecorder
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(slots=True)
class Attempt:
    """One attempt to schedule one pod.

    Attributes:
        info: The pod when the attempt began; later updates do not change it.
        instance: The revision of the profile, for the whole attempt.
        started: Start, in the clock's seconds.
        recorder: Records the current cycle; None in explanations, which are not recorded.
        search_ended: When the node was chosen, in the clock's seconds; None before that.
        node_name: The chosen node, "" until there is one.
        is_sampled: Whether its plugins are timed for the metrics.
        trace: Return value of the tracer for the scheduling cycle.
        among: bool per row, the only rows to evaluate; None for all.
        among_reason: Rejection reason of the other rows.
        number: Number of the attempt; None for the number that the queue counted.
        gang: The gang with whose members the pod is bound; None for a single pod.
        is_counted: Whether it counts as in flight for its instance.
        is_of_earlier_state: Whether its result was searched in another process, on the state when the search began.
    """

    queued: QueuedPod
    info: PodInfo
    instance: FrameworkInstance
    started: float
    recorder: CycleRecorder | None = None
    search_ended: float | None = None
    state: CycleState = field(default_factory=CycleState)
    node_name: str = ""
    feasible_count: int = 0
    is_sampled: bool = False
    trace: object = None
    among: NDArray[np.bool_] | None = None
    among_reason: str = ""
    number: int | None = None
    gang: GangBindBarrier | None = None
    is_counted: bool = False
    is_of_earlier_state: bool = False

    def begin(self) -> None:
        """Count the attempt as in flight for its instance, until :meth:`end`."""
        self.instance.in_flight += 1
        self.is_counted = True

    def end(self) -> None:
        """Count the attempt as ended; no effect if it was not counted, or was ended before."""
        if self.is_counted:
            # Only the last attempt of a retired instance has more to do than to be counted.
            if self.instance.is_retired:
                self.instance.end()
            else:
                self.instance.in_flight -= 1
            self.is_counted = False

    def log_fields(self) -> dict[str, str]:
        """Return the log fields that identify the attempt; ``node`` only if one was chosen."""
        fields = {"pod": self.info.key, "profile": self.instance.name, "revision": self.instance.revision}
        return fields | {"node": self.node_name} if self.node_name else fields
