"""Rates and latencies of the last half hour against stated objectives.

A point is the difference of two samples of the scheduler's metrics, which are sampled while the page is served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from bayplan.kube.writes.api_dispatcher import POD_BINDING
from bayplan.page.page_sources import PageSources, Panel, Turns
from scheduler_core.metrics.histogram import Bounds, Histogram
from scheduler_core.metrics.scheduler_metrics import ATTEMPT_BOUNDS, SLI_BOUNDS

INTERVAL_SECONDS = 5
POINTS = 360
SLI_OBJECTIVE_SECONDS = 5.0
ATTEMPT_OBJECTIVE_SECONDS = 1.0
_SHARE = 0.99
_COMMANDS = ("bayplan status",)

Point = tuple[int, float, float, int, float | None, float | None]
"""Time in Unix seconds, binds and attempts per second, waiting pods, and the 99th percentiles of attempts and binds."""


class Objective(Struct, frozen=True, rename="camel"):
    """An objective and what was measured.

    Attributes:
        objective: The objective as a sentence.
        value: What was measured over all points, as text; "" without an observation.
        met: Whether the objective is met; None without an observation.
    """

    name: str
    objective: str
    value: str = ""
    met: bool | None = None


class Rates(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        interval_seconds: Time between two points.
        points: Points, oldest first.
        objectives: Objectives with what was measured over all points.
        lost_binds: Pods that another scheduler bound while they were being bound here, since the start.
        conflicts: Bind requests that failed, because of a conflict or an error, since the start.
        commands: Commands that show the same figures.
    """

    interval_seconds: int
    points: tuple[Point, ...]
    objectives: tuple[Objective, ...]
    lost_binds: int
    conflicts: int
    commands: tuple[str, ...] = _COMMANDS


@dataclass(frozen=True, slots=True)
class _Sample:
    """Counts since the start of the process, by bucket."""

    taken: float
    attempts: tuple[int, ...]
    binds: tuple[int, ...]


class RatesPanel(Panel):
    """Samples the metrics, and builds the document."""

    interval = 1.0

    def __init__(self, sources: PageSources, points: int = POINTS) -> None:
        super().__init__(sources)
        self._points: deque[Point] = deque(maxlen=points)
        self._samples: deque[_Sample] = deque([_at_start(sources.started)], maxlen=points + 1)

    def sample(self) -> None:
        """Add a point; called every :data:`INTERVAL_SECONDS`."""
        before, now = self._samples[-1], self._read()
        seconds = max(now.taken - before.taken, 1e-3)
        attempts, binds = _difference(now.attempts, before.attempts), _difference(now.binds, before.binds)
        context = self._sources.scheduler.context
        readings = context.queue.readings
        parked = context.profiles.count_meant(readings.parked_counts())
        point = (
            int(self._sources.clock.wall().timestamp()),
            round(sum(binds) / seconds, 2),
            round(sum(attempts) / seconds, 2),
            len(readings) + parked + readings.in_flight_count,
            percentile(ATTEMPT_BOUNDS, attempts, _SHARE),
            percentile(SLI_BOUNDS, binds, _SHARE),
        )
        self._points.append(point)
        self._samples.append(now)

    def objectives(self) -> tuple[Objective, ...]:
        first, last = self._samples[0], self._samples[-1]
        return (
            _objective(
                "Pods are bound",
                f"99 % of the pods are bound within {SLI_OBJECTIVE_SECONDS:g} s of their entry in the queue",
                percentile(SLI_BOUNDS, _difference(last.binds, first.binds), _SHARE),
                SLI_OBJECTIVE_SECONDS,
            ),
            _objective(
                "Decisions",
                f"99 % of the attempts end within {ATTEMPT_OBJECTIVE_SECONDS:g} s",
                percentile(ATTEMPT_BOUNDS, _difference(last.attempts, first.attempts), _SHARE),
                ATTEMPT_OBJECTIVE_SECONDS,
            ),
        )

    async def build(self, turns: Turns) -> Rates:
        del turns  # 360 points are far below the bound
        records = self._sources.scheduler.context.metrics.records.values()
        failed = self._sources.writes.executed.get((POD_BINDING, "error"))
        return Rates(
            interval_seconds=INTERVAL_SECONDS,
            points=tuple(self._points),
            objectives=self.objectives(),
            lost_binds=sum(record.lost_binds for record in records),
            conflicts=0 if failed is None else failed.count,
        )

    def without_ages(self, document: Rates) -> Rates:
        return replace(document, points=document.points[-1:])

    def _read(self) -> _Sample:
        metrics = self._sources.scheduler.context.metrics
        metrics.settle()
        attempts = [histogram for profile in metrics.profiles.values() for histogram in profile.attempts.values()]
        return _Sample(
            self._sources.clock.now(),
            _sum(ATTEMPT_BOUNDS, attempts),
            _sum(SLI_BOUNDS, list(metrics.sli.values())),
        )


def percentile(bounds: Bounds, counts: Sequence[int], share: float) -> float | None:
    """Return a percentile of a histogram, interpolated within its bucket as Prometheus does.

    Args:
        bounds: Upper bounds of the buckets in seconds.
        counts: Observations by bucket, one more than bounds.
        share: Share of the observations, 0 to 1.

    Returns:
        Seconds; the highest bound if the percentile is above it, None without observations.
    """
    wanted = sum(counts) * share
    if not wanted:
        return None
    below, lower = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= wanted:
            return round(lower + (bound - lower) * (wanted - below) / count, 4)
        below, lower = below + count, bound
    return round(bounds[-1], 4)


def _at_start(started: float) -> _Sample:
    return _Sample(started, (0,) * (len(ATTEMPT_BOUNDS) + 1), (0,) * (len(SLI_BOUNDS) + 1))


def _sum(bounds: Bounds, histograms: Sequence[Histogram]) -> tuple[int, ...]:
    totals = [0] * (len(bounds) + 1)
    for histogram in histograms:
        for bucket, count in enumerate(histogram.counts):
            totals[bucket] += count
    return tuple(totals)


def _difference(now: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    # The metrics of a withdrawn profile are dropped, so a total may fall.
    return tuple(max(0, new - old) for new, old in zip(now, before, strict=True))


def _objective(name: str, text: str, seconds: float | None, limit: float) -> Objective:
    if seconds is None:
        return Objective(name, text)
    return Objective(name, text, f"99 % within {seconds:.3g} s", seconds <= limit)
