"""Metrics that kube-scheduler does not have, and the registry; kube-scheduler's are in ``scheduler_metrics``.

``leader_election_master_status`` and ``kubernetes_feature_enabled`` are component-base's (v0.37.1), so that alerts on
any component of a cluster cover this one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from bayplan import REFERENCE_VERSION, __version__
from bayplan.extenders.extender_clients import ExtenderClients
from bayplan.kube.leader_election import LeaderElection
from bayplan.kube.watches.cluster_informers import PodArrivals
from bayplan.kube.watches.informer import Informer
from bayplan.resources.conditions import ConditionState
from bayplan.serving.kube_scheduler_metrics import collector, counters, gauge, gauges, histograms, scheduler_metrics
from bayplan.settings.feature_gates import FeatureGates
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.metrics.histogram import Histogram
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

if TYPE_CHECKING:
    # Its modules are imported only if the page is served.
    from bayplan.page.page_documents import DocumentStream

_PLUGIN_HELP = "Metric of installed plugins."
_INFORMER_COUNTERS = (
    ("events", "Changes received from the API server, including those of lists."),
    ("restarts", "Watches that ended and were restarted."),
    ("relists", "Lists after the first one."),
    ("decode_errors", "Versions of objects that could not be decoded."),
    ("sink_errors", "Changes that the scheduler failed to process; each is delivered again."),
)
_MOST_NAMED = 20
"""Objects of a resource that a metric names, so that its series are bounded."""
_DIFFERENCES = {"OtherNode": "other_node", "WouldReject": "would_reject", "WouldPlace": "would_place"}
_STATUSES = ("True", "False", "Unknown")
_CONDITIONS = (
    ("schedulerprofiles", "bayplan_profile_condition", "profile", "SchedulerProfile"),
    ("pluginconfigs", "bayplan_plugin_config_condition", "plugin_config", "PluginConfig"),
)


@collector
def profile_metrics(context: CycleContext) -> Iterator[Metric]:
    yield gauges(
        "bayplan_profile_revision_info",
        "Live revision of the profile.",
        ["profile", "revision"],
        (((instance.name, instance.revision), 1) for instance in context.profiles),
    )
    lost = {instance.name: 0 for instance in context.profiles}
    lost |= {name: record.lost_binds for name, record in context.metrics.records.items()}
    yield counters(
        "bayplan_binds_lost",
        "Pods that another scheduler bound while the profile was binding them.",
        ["profile"],
        (((name,), lost[name]) for name in sorted(lost)),
    )
    contested = context.contested
    yield gauges(
        "bayplan_contested_nodes",
        "Nodes that a bind of another scheduler has overcommitted in the last 10 minutes, by its schedulerName.",
        ["rival"],
        (((rival,), count) for rival, count in sorted(contested.by_rival().items())),
    )
    yield counters(
        "bayplan_rival_overcommits",
        "Pods that another scheduler bound to nodes whose allocatable amounts they exceed, by its schedulerName.",
        ["rival"],
        (((rival,), count) for rival, count in sorted(contested.counts.items())),
    )
    yield from _plugin_metrics(context)
    queue = context.queue
    yield gauges(
        "bayplan_waiting_pods",
        "Pods that are not scheduled, by what they wait for; plugin is the one that gates them.",
        ["cause", "plugin"],
        (
            ((cause.value, plugin), count)
            for (cause, plugin), count in queue.readings.causes(queue.nominator.node_by_uid).items()
        ),
    )
    yield gauge(
        "bayplan_parked_pods",
        "Pods whose schedulerName no live profile serves, without those of other schedulers.",
        context.profiles.count_meant(queue.readings.parked_counts()),
    )


@collector
def shadow_metrics(scheduler: Scheduler) -> Iterator[Metric]:
    """Yield the metrics of shadow profiles; none while no shadow runs."""
    if not scheduler.cycles.decided.profiles:
        return
    shadows = sorted(scheduler.shadows, key=lambda shadow: shadow.name)
    labels = ["profile", "shadow_of"]
    compared, skipped = [], []
    for shadow in shadows:
        names, record = (shadow.name, shadow.settings.shadow_of), shadow.record
        kinds = {kind.value: count for kind, count in record.kinds.items()}
        results = {"agreed": record.agreed, "error": record.errors}
        results |= {result: kinds.get(kind, 0) for kind, result in _DIFFERENCES.items()}
        compared += [((*names, result), count) for result, count in results.items()]
        skipped += [((*names, reason), count) for reason, count in record.skipped.items()]
    yield counters(
        "bayplan_shadow_decisions",
        "Decisions of a shadow profile; they start at 0 when the shadow or its live profile changes.",
        [*labels, "result"],
        compared,
    )
    yield counters(
        "bayplan_shadow_not_compared",
        "Decisions of the live profile that the shadow did not make, by reason.",
        [*labels, "reason"],
        skipped,
    )
    yield counters(
        "bayplan_shadow_seconds",
        "Time of the scheduler that a shadow profile used.",
        labels,
        (((shadow.name, shadow.settings.shadow_of), shadow.budget.spent) for shadow in shadows),
    )


def _plugin_metrics(context: CycleContext) -> Iterator[Metric]:
    """Yield the metrics of plugins; a name may be a counter in one profile and a histogram in another."""
    counted: dict[str, list[tuple[tuple[str], float]]] = {}
    observed: dict[str, list[tuple[tuple[str], Histogram]]] = {}
    for profile, recorded in context.services.metrics.items():
        for name, value in recorded.counters.items():
            counted.setdefault(name, []).append(((profile,), value))
        for name, histogram in recorded.histograms.items():
            observed.setdefault(name, []).append(((profile,), histogram))
    for name, samples in counted.items():
        yield counters(f"bayplan_plugin_{name}", _PLUGIN_HELP, ["profile"], samples)
    for name, observations in observed.items():
        if name not in counted:
            yield histograms(f"bayplan_plugin_{name}", _PLUGIN_HELP, ["profile"], observations)


@collector
def informer_metrics(informers: Mapping[str, Informer[Any]], clock: Clock) -> Iterator[Metric]:
    labels = ["resource"]
    for name, help_text in _INFORMER_COUNTERS:
        values = (((resource,), getattr(informer, name)) for resource, informer in informers.items())
        yield counters(f"bayplan_informer_{name}", help_text, labels, values)
    yield gauges(
        "bayplan_informer_silence_seconds",
        "Time since the last message from the API server, which sends at least one bookmark a minute.",
        labels,
        (
            ((resource,), max(0.0, clock.now() - informer.last_event_time))
            for resource, informer in informers.items()
            if informer.last_event_time
        ),
    )
    sizes = (((resource,), len(informer.known)) for resource, informer in informers.items())
    yield gauges("bayplan_informer_objects", "Objects in the cache.", labels, sizes)
    undecodable = (((resource,), len(informer.unreadable)) for resource, informer in informers.items())
    help_text = "Objects of which the newest version cannot be decoded; what depends on them fails closed."
    yield gauges("bayplan_informer_undecodable_objects", help_text, labels, undecodable)
    names = (
        ((resource, *key.split("/", 1)), 1.0)
        for resource, informer in informers.items()
        for key in sorted(informer.unreadable)[:_MOST_NAMED]
    )
    help_text = f"1 for each of the first {_MOST_NAMED} objects of a resource that cannot be decoded."
    yield gauges("bayplan_informer_undecodable_object", help_text, ["resource", "namespace", "object"], names)
    unprocessed = (((resource,), len(informer.undelivered)) for resource, informer in informers.items())
    help_text = "Objects with a change that the scheduler failed to process and that is delivered again."
    yield gauges("bayplan_informer_unprocessed_objects", help_text, labels, unprocessed)
    synced = (((resource,), float(informer.synced)) for resource, informer in informers.items())
    yield gauges("bayplan_informer_synced", "Whether the first list is complete.", labels, synced)


@collector
def extender_metrics(clients: ExtenderClients) -> Iterator[Metric]:
    """Yield the metrics of extender clients; none if no profile ever had an extender."""
    tallies, labels = clients.tallies.items(), ["extender", "verb"]
    if not tallies:
        return
    yield histograms(
        "bayplan_extender_request_duration_seconds",
        "Duration of calls to extenders.",
        labels,
        (((url, verb), observed) for url, tally in tallies for verb, observed in tally.durations.items()),
    )
    yield counters(
        "bayplan_extender_errors",
        "Calls to extenders that failed.",
        labels,
        (((url, verb), count) for url, tally in tallies for verb, count in tally.errors.items()),
    )
    yield gauges(
        "bayplan_extender_circuit_open",
        "Whether the circuit breaker of an extender is open.",
        ["extender"],
        (((url,), float(is_open)) for url, is_open in clients.circuits_open.items()),
    )
    yield gauges(
        "bayplan_extender_object_bytes",
        "Size of the JSON of objects cached for extenders.",
        ["resource"],
        (((resource,), size) for resource, size in clients.stored_bytes.items()),
    )


@collector
def page_metrics(stream: DocumentStream) -> Iterator[Metric]:
    yield gauge("bayplan_page_viewers", "Browsers that read the page now.", stream.viewers)
    yield counters(
        "bayplan_page_viewers_refused",
        "Browsers that were rejected because pageViewers of them read the page already.",
        [],
        [((), stream.refused)],
    )
    yield counters(
        "bayplan_page_sent_bytes",
        "Bytes of documents and events sent to readers of the page.",
        [],
        [((), stream.sent_bytes)],
    )
    yield counters(
        "bayplan_page_documents",
        "Documents of the page that were built, once for all viewers.",
        ["panel"],
        (((panel,), count) for panel, count in stream.builds.items()),
    )
    yield counters(
        "bayplan_page_seconds",
        "Time of the scheduler's thread that the documents of the page used.",
        [],
        [((), stream.turns.spent)],
    )


@collector
def feature_metrics(gates: FeatureGates) -> Iterator[Metric]:
    yield gauges(
        "kubernetes_feature_enabled",
        "Whether a feature gate is enabled, with its stage.",
        ["name", "stage"],
        (((name, stage.value), float(is_on)) for name, stage, is_on in gates.states()),
    )


@dataclass(frozen=True, slots=True)
class OperatorSources:
    """Sources of the metrics of the operator; reconciles are counted by resource and result."""

    election: LeaderElection | None
    clock: Clock
    reconciles: Callable[[], Mapping[tuple[str, str], int]]
    conditions: Callable[[], Iterable[ConditionState]]
    arrivals: PodArrivals


@collector
def operator_metrics(sources: OperatorSources) -> Iterator[Metric]:
    """Yield the metrics of the operator: build, leadership, reconciles, conditions."""
    yield gauges(
        "bayplan_build_info",
        "Always 1: versions of Bayplan, of the kube-scheduler that it follows, and of Python.",
        ["version", "reference", "python"],
        [((__version__, REFERENCE_VERSION, platform.python_version()), 1)],
    )
    yield from _leadership(sources)
    yield counters(
        "bayplan_reconciles",
        "Number of reconciles of objects (schedulerprofiles) and of writes of statuses (statuses), by result.",
        ["resource", "result"],
        sources.reconciles().items(),
    )
    yield from _conditions(sources)
    yield histograms(
        "bayplan_pod_arrival_seconds",
        "Time from the creation of a pod, in whole seconds, until the scheduler received it.",
        [],
        [((), sources.arrivals.seconds)],
    )


def _leadership(sources: OperatorSources) -> Iterator[Metric]:
    election = sources.election
    is_leading = float(election is None or sources.clock.now() < election.is_leading_until)
    yield gauges(
        "bayplan_leader",
        "Whether this process may schedule; always 1 without leader election.",
        ["lease"],
        [(("" if election is None else election.lease,), is_leading)],
    )
    if election is None:
        return
    yield gauges(
        "leader_election_master_status",
        "Whether this process holds the Lease with this name.",
        ["name"],
        [((election.lease.rpartition("/")[2],), is_leading)],
    )
    yield counters(
        "bayplan_leader_transitions",
        "Number of leader transitions according to the Lease.",
        ["lease"],
        [((election.lease,), election.transitions)],
    )


def _conditions(sources: OperatorSources) -> Iterator[Metric]:
    found = list(sources.conditions())
    for plural, metric, label, kind in _CONDITIONS:
        yield gauges(
            metric,
            f"Status of a condition of a {kind}, as last written: 1 for one of True, False and Unknown.",
            [label, "type", "status"],
            [
                ((condition.name, condition.type, status), float(condition.status == status))
                for condition in found
                if condition.plural == plural
                for status in _STATUSES
            ],
        )


def metrics_registry(scheduler: Scheduler, informers: Mapping[str, Informer[Any]]) -> CollectorRegistry:
    """Return a registry of all metrics of the scheduler and its informers."""
    registry = CollectorRegistry()
    registry.register(scheduler_metrics(scheduler.context, lambda: scheduler.binding_count))
    registry.register(profile_metrics(scheduler.context))
    registry.register(shadow_metrics(scheduler))
    registry.register(informer_metrics(informers, scheduler.context.clock))
    ProcessCollector(registry=registry)
    return registry
