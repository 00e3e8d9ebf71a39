"""Metrics of the operator around the scheduler: build, leadership, reconciling, conditions.

Owns their names and labels. It must not count anything itself, nor know how profiles are reconciled: what it reads is
handed in. ``leader_election_master_status`` is component-base's name (v0.36.3, ``metrics/prometheus/leaderelection``),
so that alerts on any leader of a cluster see this one.
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
    """What is read.

    Attributes:
        election: Of which this process is a candidate; None where there is none and it leads.
        clock: By which the election counts.
        reconciles: How often what was made so, by resource and result.
        conditions: As they were last written.
        arrivals: How late pods come.
    """

    election: LeaderElection | None
    clock: Clock
    reconciles: Callable[[], Mapping[tuple[str, str], int]]
    conditions: Callable[[], Iterable[ConditionState]]
    arrivals: PodArrivals


class OperatorCollector(Collector):
    """What the operator tells of itself.

    Args:
        sources: What is read at each scrape.
    """

    def __init__(self, sources: OperatorSources) -> None:
        self._sources = sources

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are known when they are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read all of it."""
        build = GaugeMetricFamily(
            "bayplan_build_info",
            "Always 1: Bayplan's version, the kube-scheduler that it follows, and Python's.",
            labels=["version", "reference", "python"],
        )
        build.add_metric([__version__, REFERENCE_VERSION, platform.python_version()], 1)
        yield build
        yield from self._leadership()
        reconciles = CounterMetricFamily(
            "bayplan_reconciles",
            "How often objects were made so (schedulerprofiles) and what was found written (statuses), by result.",
            labels=["resource", "result"],
        )
        for labels, count in self._sources.reconciles().items():
            reconciles.add_metric(labels, count)
        yield reconciles
        yield from self._conditions()
        yield histograms(
            "bayplan_pod_arrival_seconds",
            "Time from a pod's creation, which the API server tells in whole seconds, until the scheduler knew it.",
            [],
            [((), self._sources.arrivals.seconds)],
        )

    def _leadership(self) -> Iterator[Metric]:
        election = self._sources.election
        is_leading = election is None or self._sources.clock.now() < election.is_leading_until
        leader = GaugeMetricFamily(
            "bayplan_leader", "Whether this process may schedule; always, where there is no election.", labels=["lease"]
        )
        leader.add_metric(["" if election is None else election.lease], float(is_leading))
        yield leader
        if election is None:
            return
        name = election.lease.rpartition("/")[2]
        status = GaugeMetricFamily(
            "leader_election_master_status", "Whether this process holds the Lease of that name.", labels=["name"]
        )
        status.add_metric([name], float(is_leading))
        yield status
        transitions = CounterMetricFamily(
            "bayplan_leader_transitions", "How often the Lease has changed hands, as it says itself.", labels=["lease"]
        )
        transitions.add_metric([election.lease], election.transitions)
        yield transitions

    def _conditions(self) -> Iterator[Metric]:
        found = list(self._sources.conditions())
        for plural, metric, label, kind in _CONDITIONS:
            family = GaugeMetricFamily(
                metric,
                f"Which status a condition of a {kind} has, as last written: 1 for one of True, False and Unknown.",
                labels=[label, "type", "status"],
            )
            for condition in found:
                if condition.plural == plural:
                    for status in _STATUSES:
                        family.add_metric([condition.name, condition.type, status], float(condition.status == status))
            yield family
