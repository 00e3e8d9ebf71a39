"""A metric of the feature gates.

Its name and labels are those of component-base v0.36.3 (``metrics/prometheus/feature/metrics.go``).
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.feature_gates import FeatureGates


class FeatureCollector(Collector):
    """Collector of the state of each feature gate.

    Args:
        gates: Feature gates of the process.
    """

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = GaugeMetricFamily(
            "kubernetes_feature_enabled", "Whether a feature gate is enabled, with its stage.", labels=["name", "stage"]
        )
        for name, stage, is_on in self._gates.states():
            family.add_metric([name, stage.value], float(is_on))
        yield family
