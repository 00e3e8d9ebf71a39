"""Metrics, read off the running parts at each scrape.

Owns the registry, and the names and labels of what kube-scheduler does not have (``bayplan_``); what it has is named in
``scheduler_metrics``. It must not count anything itself: whoever does the work counts, and a scrape costs the hot path
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.kube.informer import Informer
from bayplan.serving.scheduler_metrics import SchedulerCollector, histograms
from scheduler_core.cycle.context import CycleContext
from scheduler_core.framework.histogram import Histogram
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

_TOLD = "Told by installed plugins."
_INFORMER_COUNTERS = (
    ("events", "Changes that the API server told, those of lists included."),
    ("restarts", "Watches that ended and were opened again."),
    ("relists", "Lists after the first one."),
    ("decode_errors", "Objects that could not be read and were skipped."),
    ("sink_errors", "Changes that the scheduler failed to take in."),
)


class ProfileCollector(Collector):
    """What the scheduler core tells of its profiles, which kube-scheduler has no name for."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are known when they are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read the scheduler."""
        context = self._context
        revision = GaugeMetricFamily(
            "bayplan_profile_revision_info", "The revision that is live.", labels=["profile", "revision"]
        )
        for instance in context.profiles:
            revision.add_metric([instance.name, instance.revision], 1)
        yield revision
        lost = CounterMetricFamily(
            "bayplan_binds_lost",
            "Pods that someone else bound while the profile was binding them; they are let go.",
            labels=["profile"],
        )
        for name in sorted({*context.records, *(instance.name for instance in context.profiles)}):
            record = context.records.get(name)
            lost.add_metric([name], 0 if record is None else record.lost_binds)
        yield lost
        yield from _plugin_metrics(context)
        yield GaugeMetricFamily(
            "bayplan_parked_pods", "Pods whose schedulerName no live profile serves.", value=context.queue.parked_count
        )


def _plugin_metrics(context: CycleContext) -> Iterator[Metric]:
    """What plugins tell of themselves; a name may be a counter in one profile and a histogram in another."""
    counters: dict[str, CounterMetricFamily] = {}
    observations: dict[str, list[tuple[tuple[str], Histogram]]] = {}
    for profile, told in context.metrics.items():
        for name, value in told.counters.items():
            counter = counters.setdefault(
                name, CounterMetricFamily(f"bayplan_plugin_{name}", _TOLD, labels=["profile"])
            )
            counter.add_metric([profile], value)
        for name, observed in told.histograms.items():
            observations.setdefault(name, []).append(((profile,), observed))
    yield from counters.values()
    for name, children in observations.items():
        if name not in counters:
            yield histograms(f"bayplan_plugin_{name}", _TOLD, ["profile"], children)


class InformerCollector(Collector):
    """What the informers tell of themselves.

    Args:
        informers: By the plural of the resource.
        clock: By which they note when they heard something.
    """

    def __init__(self, informers: Mapping[str, Informer[Any]], clock: Clock) -> None:
        self._informers = informers
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are known when they are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read the informers."""
        for name, help_text in _INFORMER_COUNTERS:
            family = CounterMetricFamily(f"bayplan_informer_{name}", help_text, labels=["resource"])
            for resource, informer in self._informers.items():
                family.add_metric([resource], getattr(informer, name))
            yield family
        silence = GaugeMetricFamily(
            "bayplan_informer_silence_seconds",
            "Time since the API server last told anything, be it a bookmark, of which it sends one a minute.",
            labels=["resource"],
        )
        for resource, informer in self._informers.items():
            if informer.last_event_time:
                silence.add_metric([resource], max(0.0, self._clock.now() - informer.last_event_time))
        yield silence
        objects = GaugeMetricFamily("bayplan_informer_objects", "Objects that are known.", labels=["resource"])
        synced = GaugeMetricFamily(
            "bayplan_informer_synced", "Whether the first list is complete.", labels=["resource"]
        )
        for resource, informer in self._informers.items():
            objects.add_metric([resource], len(informer.known))
            synced.add_metric([resource], float(informer.synced))
        yield objects
        yield synced


def metrics_registry(scheduler: Scheduler, informers: Mapping[str, Informer[Any]]) -> CollectorRegistry:
    """All metrics of the process but those of its writer.

    Args:
        scheduler: What schedules.
        informers: By the plural of the resource.

    Returns:
        A registry of its own, beside the library's global one.
    """
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(scheduler.context, lambda: scheduler.binding_count))
    registry.register(ProfileCollector(scheduler.context))
    registry.register(InformerCollector(informers, scheduler.context.clock))
    ProcessCollector(registry=registry)
    return registry
