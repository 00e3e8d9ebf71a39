"""Metrics, read off the running parts at each scrape.

Owns their names and labels: ``scheduler_`` ones as kube-scheduler v1.36.3 names them, so that its dashboards work, and
``bayplan_`` ones for what it does not have. It must not count anything itself: whoever does the work counts, and a
scrape costs the hot path nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.kube.informer import Informer
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.plugin_metrics import BUCKETS

_QUEUES = ("active", "backoff", "unschedulable", "gated")
_TOLD = "Told by installed plugins."
_INFORMER_COUNTERS = (
    ("events", "Changes that the API server told, those of lists included."),
    ("restarts", "Watches that ended and were opened again."),
    ("relists", "Lists after the first one."),
    ("decode_errors", "Objects that could not be read and were skipped."),
    ("sink_errors", "Changes that the scheduler failed to take in."),
)


class SchedulerCollector(Collector):
    """What the scheduler core tells of itself."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are known when they are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read the scheduler."""
        context = self._context
        pending = GaugeMetricFamily("scheduler_pending_pods", "Pods that wait, by queue.", labels=["queue"])
        counts = list(context.queue.counts().values())
        for queue in _QUEUES:
            pending.add_metric([queue], sum(getattr(count, queue) for count in counts))
        yield pending
        attempts = CounterMetricFamily(
            "scheduler_schedule_attempts", "Attempts to schedule pods, by their result.", labels=["profile", "result"]
        )
        for profile, record in context.records.items():
            attempts.add_metric([profile, "scheduled"], record.scheduled)
            attempts.add_metric([profile, "unschedulable"], record.unschedulable)
            attempts.add_metric([profile, "error"], record.errors)
        yield attempts
        size = GaugeMetricFamily("scheduler_cache_size", "Objects in the scheduler's cache.", labels=["type"])
        size.add_metric(["nodes"], context.cache.columns.count)
        size.add_metric(["pods"], len(context.cache))
        size.add_metric(["assumed_pods"], context.cache.assumed_count)
        yield size
        revision = GaugeMetricFamily(
            "bayplan_profile_revision_info", "The revision that is live.", labels=["profile", "revision"]
        )
        for instance in context.profiles:
            revision.add_metric([instance.name, instance.revision], 1)
        yield revision
        yield from _plugin_metrics(context)
        yield GaugeMetricFamily(
            "bayplan_parked_pods", "Pods whose schedulerName no live profile serves.", value=context.queue.parked_count
        )


def _plugin_metrics(context: CycleContext) -> Iterator[Metric]:
    """What plugins tell of themselves; a name may be a counter in one profile and a histogram in another."""
    counters: dict[str, CounterMetricFamily] = {}
    histograms: dict[str, HistogramMetricFamily] = {}
    for profile, told in context.metrics.items():
        for name, value in told.counters.items():
            counter = counters.setdefault(
                name, CounterMetricFamily(f"bayplan_plugin_{name}", _TOLD, labels=["profile"])
            )
            counter.add_metric([profile], value)
        for name, observed in told.histograms.items():
            family = HistogramMetricFamily(f"bayplan_plugin_{name}", _TOLD, labels=["profile"])
            bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
            buckets = list(zip(bounds, accumulate(observed.counts), strict=True))
            histograms.setdefault(name, family).add_metric([profile], buckets, observed.total)
    yield from counters.values()
    yield from (family for name, family in histograms.items() if name not in counters)


class InformerCollector(Collector):
    """What the informers tell of themselves.

    Args:
        informers: By the plural of the resource.
    """

    def __init__(self, informers: Mapping[str, Informer[Any]]) -> None:
        self._informers = informers

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
        objects = GaugeMetricFamily("bayplan_informer_objects", "Objects that are known.", labels=["resource"])
        synced = GaugeMetricFamily(
            "bayplan_informer_synced", "Whether the first list is complete.", labels=["resource"]
        )
        for resource, informer in self._informers.items():
            objects.add_metric([resource], len(informer.known))
            synced.add_metric([resource], float(informer.synced))
        yield objects
        yield synced


def metrics_registry(context: CycleContext, informers: Mapping[str, Informer[Any]]) -> CollectorRegistry:
    """All metrics of the process.

    Args:
        context: The scheduler's.
        informers: By the plural of the resource.

    Returns:
        A registry of its own, beside the library's global one.
    """
    registry = CollectorRegistry()
    registry.register(SchedulerCollector(context))
    registry.register(InformerCollector(informers))
    ProcessCollector(registry=registry)
    return registry
