"""Counters and histograms of plugins, and their text at /metrics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bayplan.serving.bayplan_metrics import metrics_registry
from prometheus_client import generate_latest

from scheduler_core.errors import PluginError
from scheduler_core.metrics.profile_metrics import RecordedPluginMetrics
from tests.support.scheduling import rig
from tests.support.tables import table


async def test_plugin_metrics_are_exported_with_their_profile() -> None:
    """A plugin's metrics are exported as bayplan_plugin_, with one sample for each profile."""
    made = rig()
    (instance,) = made.context.profiles
    metrics = instance.bind[0].handle.metrics
    assert isinstance(metrics, RecordedPluginMetrics)
    metrics.count("seats_taken")
    metrics.count("seats_taken", 2)
    metrics.observe("lookup_seconds", 0.004)
    metrics.observe("lookup_seconds", 1000)
    shown = generate_latest(metrics_registry(made.scheduler, {})).decode()
    label = '{profile="default-scheduler"}'
    assert f"bayplan_plugin_seats_taken_total{label} 3.0\n" in shown
    assert 'bayplan_plugin_lookup_seconds_bucket{le="0.001",profile="default-scheduler"} 0.0\n' in shown
    assert 'bayplan_plugin_lookup_seconds_bucket{le="0.005",profile="default-scheduler"} 1.0\n' in shown
    assert f"bayplan_plugin_lookup_seconds_count{label} 2.0\n" in shown
    assert f"bayplan_plugin_lookup_seconds_sum{label} 1000.004\n" in shown


@table(
    "call, message",
    ("invalid name", lambda metrics: metrics.count("seats-taken"), "use letters, digits and _"),
    ("histogram with the name of a counter", lambda metrics: metrics.observe("a", 1), "use two"),
    ("counter that decreases", lambda metrics: metrics.count("a", -1), "only increases"),
)
def test_invalid_calls(call: Callable[[RecordedPluginMetrics], None], message: str) -> None:
    """An invalid name or amount raises PluginError in the plugin's call, not at the scrape."""
    metrics = RecordedPluginMetrics()
    metrics.count("a")
    with pytest.raises(PluginError, match=message):
        call(metrics)
