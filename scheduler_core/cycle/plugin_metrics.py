"""Numbers that plugins tell of themselves.

Owns the counts; the operator shows them as ``bayplan_plugin_<name>``. It must not know who asks for them.
"""

from __future__ import annotations

import re

from scheduler_core.errors import PluginError
from scheduler_core.framework.histogram import Histogram

BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0)
"""Upper bounds of a histogram's buckets; whatever is above falls into one more."""

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


class ProfileMetrics:
    """What the plugins of one profile tell; implements :class:`scheduler_core.ports.PluginMetrics`.

    Attributes:
        counters: By name.
        histograms: By name.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.histograms: dict[str, Histogram] = {}

    def count(self, name: str, amount: float = 1.0) -> None:
        """Raise a counter.

        Raises:
            PluginError: The name cannot be used, or is that of a histogram.
        """
        known = self.counters.get(name)
        if known is None:
            _check(name, self.histograms)
            known = 0.0
        if not amount >= 0:
            raise PluginError(name, "metrics", f"counted {amount}; a counter only rises")
        self.counters[name] = known + amount

    def observe(self, name: str, value: float) -> None:
        """Add one observation to a histogram.

        Raises:
            PluginError: The name cannot be used, or is that of a counter.
        """
        histogram = self.histograms.get(name)
        if histogram is None:
            _check(name, self.counters)
            histogram = self.histograms[name] = Histogram(BUCKETS)
        histogram.observe(value)


def _check(name: str, others: object) -> None:
    if not _NAME.fullmatch(name):
        raise PluginError(name, "metrics", "is no name of a metric; use letters, digits and _")
    if isinstance(others, dict) and name in others:
        raise PluginError(name, "metrics", "counts and observes under one name; use two")
