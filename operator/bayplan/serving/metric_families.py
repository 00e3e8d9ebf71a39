"""Metric families in one call each, read from the running parts at each scrape.

The parts count by themselves, so a scrape does not slow down scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler_core.metrics.histogram import Histogram

Samples = Iterable[tuple[Sequence[str], float]]
"""Label values with the value of the sample."""
Observations = Iterable[tuple[Sequence[str], Histogram]]
"""Label values with their histogram."""


class ScrapeCollector(Collector):
    """Base of collectors whose metric names are known only when they are collected."""

    def describe(self) -> Iterator[Metric]:
        """Yield nothing."""
        yield from ()


def as_label(bound: float) -> str:
    """Return the bound of a bucket as Go's client writes it: an integer without a fraction."""
    return repr(float(bound)).removesuffix(".0")


def gauges(name: str, help_text: str, labels: Sequence[str], samples: Samples) -> GaugeMetricFamily:
    """Return a family of gauges."""
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """Return a gauge without labels."""
    return gauges(name, help_text, (), [((), value)])


def counters(name: str, help_text: str, labels: Sequence[str], samples: Samples) -> CounterMetricFamily:
    """Return a family of counters; exporters append ``_total`` to its name."""
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, help_text: str, value: float) -> CounterMetricFamily:
    """Return a counter without labels."""
    return counters(name, help_text, (), [((), value)])


def histograms(name: str, help_text: str, labels: Sequence[str], observations: Observations) -> HistogramMetricFamily:
    """Return a family of histograms."""
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, observed in observations:
        bounds = [*(as_label(bound) for bound in observed.bounds), "+Inf"]
        family.add_metric(values, list(zip(bounds, accumulate(observed.counts), strict=True)), observed.total)
    return family
