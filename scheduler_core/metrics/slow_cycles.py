"""Log of scheduling cycles that took too long, with the time of each stage and plugin.

At most one a second is logged, because when every cycle is slow the log would slow them down further; the next line
contains the number of cycles that were not logged.
"""

from __future__ import annotations

import logging
from math import inf

from msgspec import Struct

from scheduler_core.framework.cycle_stages import STAGE_NAMES
from scheduler_core.metrics.cycle_recorder import CycleRecorder

log = logging.getLogger(__name__)

SLOW_CYCLE_SECONDS = 0.1
"""Duration from which a cycle is slow; kube-scheduler v1.37.1 traces cycles from the same one (``schedule_one.go``)."""

_PAUSE_SECONDS = 1.0


class CycleSubject(Struct, frozen=True):
    """Subject of a cycle.

    Attributes:
        pod: ``namespace/name`` of the pod.
        profile: The scheduler name.
        nodes: Number of nodes.
        candidates: Number of feasible nodes.
    """

    pod: str
    profile: str
    nodes: int
    candidates: int


class SlowCycles:
    """Logger of slow cycles."""

    def __init__(self, seconds: float = SLOW_CYCLE_SECONDS) -> None:
        self.seconds = seconds
        self._suppressed = 0
        self._silent_until = -inf

    def report(self, subject: CycleSubject, recorder: CycleRecorder) -> None:
        """Log a slow cycle, unless another was logged within the last second."""
        started, ended = recorder.times[0], recorder.times[-1]
        if ended < self._silent_until:
            self._suppressed += 1
            return
        self._silent_until = ended + _PAUSE_SECONDS
        slowest = max(recorder.stages(), key=lambda stage: stage.ended - stage.started, default=None)
        log.warning(
            "slow scheduling cycle: pod %s took %.1f ms (limit %.1f ms) with profile %s, %d nodes, %d candidates; "
            "slowest stage %s; %s%s",
            subject.pod,
            1000 * (ended - started),
            1000 * self.seconds,
            subject.profile,
            subject.nodes,
            subject.candidates,
            "none" if slowest is None else slowest.name,
            _described(recorder),
            f"; {self._suppressed} more slow cycles were not logged" if self._suppressed else "",
            extra={"pod": subject.pod, "profile": subject.profile},
        )
        self._suppressed = 0


def _described(recorder: CycleRecorder) -> str:
    """Return the time of each stage, and of each of its plugins."""
    seconds_of: dict[str, float] = {}
    for stage in recorder.stages():
        seconds_of[stage.name] = seconds_of.get(stage.name, 0.0) + stage.ended - stage.started
    plugins: dict[str, dict[str, float]] = {}
    for stage_number, plugin, _, seconds in recorder.plugins():
        of_stage = plugins.setdefault(STAGE_NAMES[stage_number], {})
        of_stage[plugin] = of_stage.get(plugin, 0.0) + seconds
    return ", ".join(_stage_text(name, seconds, plugins.get(name, {})) for name, seconds in seconds_of.items())


def _stage_text(name: str, seconds: float, plugins: dict[str, float]) -> str:
    slowest_first = sorted(plugins.items(), key=lambda entry: -entry[1])
    parts = ", ".join(f"{plugin} {_ms(spent)}" for plugin, spent in slowest_first)
    return f"{name} {_ms(seconds)}" + (f" ({parts})" if parts else "")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
