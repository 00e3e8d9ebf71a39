"""Says of a scheduling cycle that took too long where the time went.

Owns the words and how often they are said. It must not measure: it is handed the readings of a cycle that is over.

Why at most once a second: when every cycle is slow the log would be the next thing to be slow. What was not said is
counted and told with the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from math import inf

from msgspec import Struct

from scheduler_core.framework.cycle_times import ENDED, LABELS, CycleTimes, PluginOrder, durations
from scheduler_core.framework.status import Code

log = logging.getLogger(__name__)

SLOW_CYCLE_SECONDS = 0.1
"""From here on a cycle is slow; kube-scheduler v1.36.3 traces cycles from the same time on (``schedule_one.go``)."""

_PAUSE_SECONDS = 1.0


class CycleSubject(Struct, frozen=True):
    """What a cycle was about.

    Attributes:
        pod: The pod's namespace and name.
        profile: The profile that decided.
        nodes: Nodes that there were.
        candidates: Nodes on which the pod fits.
    """

    pod: str
    profile: str
    nodes: int
    candidates: int


class SlowCycles:
    """Tells of slow cycles.

    Args:
        seconds: From what time on a cycle is slow.

    Attributes:
        seconds: As given.
        suppressed: Slow cycles that were not told of since the last that was.
    """

    def __init__(self, seconds: float = SLOW_CYCLE_SECONDS) -> None:
        self.seconds = seconds
        self.suppressed = 0
        self._silent_until = -inf

    def tell(self, subject: CycleSubject, times: CycleTimes, order: PluginOrder) -> None:
        """Tell of a cycle that was slow, unless one was told of within the last second."""
        ended = times.point_times[-1]
        if ended < self._silent_until:
            self.suppressed += 1
            return
        self._silent_until = ended + _PAUSE_SECONDS
        stages = stages_of(times)
        slowest = max(stages, key=lambda stage: stage.ended - stage.started, default=None)
        log.warning(
            "slow scheduling cycle: pod %s took %.1f ms (limit %.1f ms) with profile %s, %d nodes, %d candidates; "
            "slowest stage %s; %s%s",
            subject.pod,
            1000 * (ended - times.started),
            1000 * self.seconds,
            subject.profile,
            subject.nodes,
            subject.candidates,
            "none" if slowest is None else slowest.name,
            _described(times, order, stages),
            f"; {self.suppressed} more slow cycles were not logged" if self.suppressed else "",
            extra={"pod": subject.pod, "profile": subject.profile},
        )
        self.suppressed = 0


class TimedStage(Struct, frozen=True):
    """One extension point of a cycle, with the clock's seconds."""

    name: str
    started: float
    ended: float
    code: Code


def stages_of(times: CycleTimes) -> tuple[TimedStage, ...]:
    """The points of a cycle, in order."""
    found: list[TimedStage] = []
    begun = times.started
    for end, at in zip(times.ends, times.point_times[1:], strict=True):
        point, code = ENDED[end]
        found.append(TimedStage(LABELS[point], begun, at, code))
        begun = at
    return tuple(found)


def _described(times: CycleTimes, order: PluginOrder, stages: tuple[TimedStage, ...]) -> str:
    """Each stage with its time, and each of its plugins with its own."""
    plugins: dict[str, dict[str, float]] = {}
    for point, plugin, _, seconds in durations(times, order):
        of_point = plugins.setdefault(LABELS[point], {})
        of_point[plugin] = of_point.get(plugin, 0.0) + seconds
    whole: dict[str, float] = {}
    for stage in stages:
        whole[stage.name] = whole.get(stage.name, 0.0) + stage.ended - stage.started
    return ", ".join(_stage_text(name, seconds, plugins.get(name, {}).items()) for name, seconds in whole.items())


def _stage_text(name: str, seconds: float, plugins: Iterable[tuple[str, float]]) -> str:
    parts = ", ".join(f"{plugin} {_ms(spent)}" for plugin, spent in sorted(plugins, key=lambda entry: -entry[1]))
    return f"{name} {_ms(seconds)}" + (f" ({parts})" if parts else "")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
