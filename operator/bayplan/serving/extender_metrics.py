"""Metrics of extenders, read from their clients at each scrape.

kube-scheduler v1.36.3 has no metrics for calls to extenders, so the names are Bayplan's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.extending.clients import ExtenderClients
from bayplan.extending.tally import BUCKETS


class ExtenderCollector(Collector):
    """Collector of the metrics of extender clients.

    Args:
        clients: All clients.
    """

    def __init__(self, clients: ExtenderClients) -> None:
        self._clients = clients

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are known only when metrics are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; none if no profile ever had an extender."""
        if not self._clients.tallies:
            return
        labels = ["extender", "verb"]
        durations = HistogramMetricFamily(
            "bayplan_extender_request_duration_seconds", "Duration of calls to extenders.", labels=labels
        )
        errors = CounterMetricFamily("bayplan_extender_errors", "Calls to extenders that failed.", labels=labels)
        bounds = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]
        for url, tally in self._clients.tallies.items():
            for verb, counts in tally.counts.items():
                buckets = list(zip(bounds, accumulate(counts), strict=True))
                durations.add_metric([url, verb], buckets, tally.seconds[verb])
            for verb, count in tally.errors.items():
                errors.add_metric([url, verb], count)
        yield durations
        yield errors
        circuits = GaugeMetricFamily(
            "bayplan_extender_circuit_open", "Whether the circuit breaker of an extender is open.", labels=["extender"]
        )
        for url, is_open in self._clients.circuits_open.items():
            circuits.add_metric([url], float(is_open))
        yield circuits
        cached = GaugeMetricFamily(
            "bayplan_extender_object_bytes", "Size of the JSON of objects cached for extenders.", labels=["resource"]
        )
        for resource, size in self._clients.stored_bytes.items():
            cached.add_metric([resource], size)
        yield cached
