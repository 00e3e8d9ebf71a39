"""Counters and histograms that plugins record through their handle, exported as ``bayplan_plugin_<name>``."""

from __future__ import annotations

import re

from scheduler_core.errors import PluginError
from scheduler_core.metrics.histogram import Histogram

BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)
"""Upper bounds of the buckets of a histogram; one more bucket counts larger values."""

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


class RecordedPluginMetrics:
    """Metrics of the plugins of one profile; implements :class:`scheduler_core.ports.PluginMetrics`.

    Attributes:
        counters: Values by name.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.histograms: dict[str, Histogram] = {}

    def count(self, name: str, amount: float = 1.0) -> None:
        """Increment a counter.

        Raises:
            PluginError: The name is invalid, or belongs to a histogram.
        """
        known = self.counters.get(name)
        if known is None:
            _check(name, self.histograms)
            known = 0.0
        if not amount >= 0:
            raise PluginError(name, "metrics", f"amount {amount} is negative: a counter only increases")
        self.counters[name] = known + amount

    def observe(self, name: str, value: float) -> None:
        """Add one observation to a histogram.

        Raises:
            PluginError: The name is invalid, or belongs to a counter.
        """
        histogram = self.histograms.get(name)
        if histogram is None:
            _check(name, self.counters)
            histogram = self.histograms[name] = Histogram(BUCKETS)
        histogram.observe(value)


def _check(name: str, others: object) -> None:
    if not _NAME.fullmatch(name):
        raise PluginError(name, "metrics", "invalid metric name: use letters, digits and _")
    if isinstance(others, dict) and name in others:
        raise PluginError(name, "metrics", "name is used for a counter and a histogram: use two names")
