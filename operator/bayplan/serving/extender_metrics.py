"""Metrics of extenders, read off their clients at each scrape.

Owns their names and labels. It must not count anything itself. kube-scheduler v1.36.3 has none of its own for calls to
extenders, so all of these are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.extending.clients import ExtenderClients
from bayplan.extending.tally import BUCKETS


class ExtenderCollector(Collector):
    """What the clients of extenders tell of themselves.

    Args:
        clients: All of them.
    """

    def __init__(self, clients: ExtenderClients) -> None:
        self._clients = clients

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are known when they are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read the clients; nothing is told where no profile ever had an extender."""
        if not self._clients.tallies:
            return
        labels = ["extender", "verb"]
        durations = HistogramMetricFamily(
            "bayplan_extender_request_duration_seconds", "How long calls to extenders took.", labels=labels
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
            "bayplan_extender_circuit_open", "Whether an extender is left alone, since it failed.", labels=["extender"]
        )
        for url, is_open in self._clients.circuits_open.items():
            circuits.add_metric([url], float(is_open))
        yield circuits
        kept = GaugeMetricFamily(
            "bayplan_extender_object_bytes", "JSON of objects that is kept for extenders.", labels=["resource"]
        )
        for resource, size in self._clients.stored_bytes.items():
            kept.add_metric([resource], size)
        yield kept
