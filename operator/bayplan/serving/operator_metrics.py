"""Metrics of the operator: build, leadership, reconciles, conditions.

``leader_election_master_status`` is component-base's name (v0.36.3, ``metrics/prometheus/leaderelection``), so that
alerts on any leader of a cluster cover this one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan import __version__
from bayplan.cli.version import REFERENCE_VERSION
from bayplan.kube.leader_election import LeaderElection
from bayplan.pod_arrivals import PodArrivals
from bayplan.resources.conditions import ConditionState
from bayplan.serving.scheduler_metrics import histograms
from scheduler_core.ports import Clock

_STATUSES = ("True", "False", "Unknown")
_CONDITIONS = (
    ("schedulerprofiles", "bayplan_profile_condition", "profile", "SchedulerProfile"),
    ("pluginconfigs", "bayplan_plugin_config_condition", "plugin_config", "PluginConfig"),
)


class OperatorSources(Struct, frozen=True):
    """Sources of the metrics.

    Attributes:
        election: Leader election of this process; None if there is none and it always leads.
        clock: Clock of the election.
        reconciles: Returns the number of reconciles by resource and result.
        conditions: Returns the conditions as last written.
        arrivals: Delays of pods from creation to the scheduler.
    """

    election: LeaderElection | None
    clock: Clock
    reconciles: Callable[[], Mapping[tuple[str, str], int]]
    conditions: Callable[[], Iterable[ConditionState]]
    arrivals: PodArrivals


class OperatorCollector(Collector):
    """Collector of the metrics of the operator.

    Args:
        sources: Sources that are read at each scrape.
    """

    def __init__(self, sources: OperatorSources) -> None:
        self._sources = sources

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are known only when metrics are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the operator."""
        build = GaugeMetricFamily(
            "bayplan_build_info",
            "Always 1: versions of Bayplan, of the kube-scheduler that it follows, and of Python.",
            labels=["version", "reference", "python"],
        )
        build.add_metric([__version__, REFERENCE_VERSION, platform.python_version()], 1)
        yield build
        yield from self._leadership()
        reconciles = CounterMetricFamily(
            "bayplan_reconciles",
            "Number of reconciles of objects (schedulerprofiles) and of writes of statuses (statuses), by result.",
            labels=["resource", "result"],
        )
        for labels, count in self._sources.reconciles().items():
            reconciles.add_metric(labels, count)
        yield reconciles
        yield from self._conditions()
        yield histograms(
            "bayplan_pod_arrival_seconds",
            "Time from the creation of a pod, in whole seconds, until the scheduler received it.",
            [],
            [((), self._sources.arrivals.seconds)],
        )

    def _leadership(self) -> Iterator[Metric]:
        election = self._sources.election
        is_leading = election is None or self._sources.clock.now() < election.is_leading_until
        leader = GaugeMetricFamily(
            "bayplan_leader", "Whether this process may schedule; always 1 without leader election.", labels=["lease"]
        )
        leader.add_metric(["" if election is None else election.lease], float(is_leading))
        yield leader
        if election is None:
            return
        name = election.lease.rpartition("/")[2]
        status = GaugeMetricFamily(
            "leader_election_master_status", "Whether this process holds the Lease with this name.", labels=["name"]
        )
        status.add_metric([name], float(is_leading))
        yield status
        transitions = CounterMetricFamily(
            "bayplan_leader_transitions", "Number of leader transitions according to the Lease.", labels=["lease"]
        )
        transitions.add_metric([election.lease], election.transitions)
        yield transitions

    def _conditions(self) -> Iterator[Metric]:
        found = list(self._sources.conditions())
        for plural, metric, label, kind in _CONDITIONS:
            family = GaugeMetricFamily(
                metric,
                f"Status of a condition of a {kind}, as last written: 1 for one of True, False and Unknown.",
                labels=[label, "type", "status"],
            )
            for condition in found:
                if condition.plural == plural:
                    for status in _STATUSES:
                        family.add_metric([condition.name, condition.type, status], float(condition.status == status))
            yield family
