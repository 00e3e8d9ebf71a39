"""Metrics that kube-scheduler does not have (``bayplan_``), read from the running parts at each scrape.

Metrics that kube-scheduler has are in ``scheduler_metrics``. The parts count by themselves, so a scrape does not slow
down scheduling.
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

_PLUGIN_HELP = "Metric of installed plugins."
_INFORMER_COUNTERS = (
    ("events", "Changes received from the API server, including those of lists."),
    ("restarts", "Watches that ended and were restarted."),
    ("relists", "Lists after the first one."),
    ("decode_errors", "Objects that could not be decoded and were skipped."),
    ("sink_errors", "Changes that the scheduler failed to process."),
)


class ProfileCollector(Collector):
    """Collector of the metrics of profiles that kube-scheduler does not have."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are known only when metrics are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the scheduler."""
        context = self._context
        revision = GaugeMetricFamily(
            "bayplan_profile_revision_info", "Live revision of the profile.", labels=["profile", "revision"]
        )
        for instance in context.profiles:
            revision.add_metric([instance.name, instance.revision], 1)
        yield revision
        lost = CounterMetricFamily(
            "bayplan_binds_lost",
            "Pods that another scheduler bound while the profile was binding them.",
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
    """Yield the metrics of plugins; a name may be a counter in one profile and a histogram in another."""
    counters: dict[str, CounterMetricFamily] = {}
    observations: dict[str, list[tuple[tuple[str], Histogram]]] = {}
    for profile, recorded in context.metrics.items():
        for name, value in recorded.counters.items():
            counter = counters.setdefault(
                name, CounterMetricFamily(f"bayplan_plugin_{name}", _PLUGIN_HELP, labels=["profile"])
            )
            counter.add_metric([profile], value)
        for name, observed in recorded.histograms.items():
            observations.setdefault(name, []).append(((profile,), observed))
    yield from counters.values()
    for name, children in observations.items():
        if name not in counters:
            yield histograms(f"bayplan_plugin_{name}", _PLUGIN_HELP, ["profile"], children)


class InformerCollector(Collector):
    """Collector of the metrics of informers.

    Args:
        informers: Informers by plural of the resource.
        clock: Clock of the informers.
    """

    def __init__(self, informers: Mapping[str, Informer[Any]], clock: Clock) -> None:
        self._informers = informers
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are known only when metrics are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of informers."""
        for name, help_text in _INFORMER_COUNTERS:
            family = CounterMetricFamily(f"bayplan_informer_{name}", help_text, labels=["resource"])
            for resource, informer in self._informers.items():
                family.add_metric([resource], getattr(informer, name))
            yield family
        silence = GaugeMetricFamily(
            "bayplan_informer_silence_seconds",
            "Time since the last message from the API server, which sends at least one bookmark a minute.",
            labels=["resource"],
        )
        for resource, informer in self._informers.items():
            if informer.last_event_time:
                silence.add_metric([resource], max(0.0, self._clock.now() - informer.last_event_time))
        yield silence
        objects = GaugeMetricFamily("bayplan_informer_objects", "Objects in the cache.", labels=["resource"])
        synced = GaugeMetricFamily(
            "bayplan_informer_synced", "Whether the first list is complete.", labels=["resource"]
        )
        for resource, informer in self._informers.items():
            objects.add_metric([resource], len(informer.known))
            synced.add_metric([resource], float(informer.synced))
        yield objects
        yield synced


def metrics_registry(scheduler: Scheduler, informers: Mapping[str, Informer[Any]]) -> CollectorRegistry:
    """Return a registry of all metrics of the process except those of its writer.

    Args:
        scheduler: The scheduler.
        informers: Informers by plural of the resource.

    Returns:
        A new registry, separate from the library's global one.
    """
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(scheduler.context, lambda: scheduler.binding_count))
    registry.register(ProfileCollector(scheduler.context))
    registry.register(InformerCollector(informers, scheduler.context.clock))
    ProcessCollector(registry=registry)
    return registry
