"""Which feature gates are on, as a metric.

Owns its name and labels, those of component-base v0.36.3 (metrics/prometheus/feature/metrics.go). It must not know what
a gate turns off.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.feature_gates import FeatureGates


class FeatureCollector(Collector):
    """Tells each gate, on or off.

    Args:
        gates: Those of the process.
    """

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates

    def collect(self) -> Iterator[Metric]:
        """Read the gates."""
        family = GaugeMetricFamily(
            "kubernetes_feature_enabled", "Whether a feature gate is on, with its stage.", labels=["name", "stage"]
        )
        for name, stage, is_on in self._gates.states():
            family.add_metric([name, stage.value], float(is_on))
        yield family
