"""Metrics with kube-scheduler's names, read from the running parts at each scrape.

Names, labels and bucket bounds are those of kube-scheduler v1.36.3 (``pkg/scheduler/metrics/metrics.go``), so that its
dashboards and alerts work unchanged; ``docs/metrics.md`` lists the differences. The parts count by themselves, so a
scrape does not slow down scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.kube.api_calls import CALL_TYPES, POD_BINDING, POD_STATUS_PATCH
from bayplan.kube.queued_write import Rank
from bayplan.kube.writer import KubeWriter
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.measures import Measures
from scheduler_core.framework.cycle_times import LABELS, NO_EXTENSION_POINTS, Point
from scheduler_core.framework.histogram import Histogram
from scheduler_core.framework.status import Code, Status

_QUEUES = ("active", "backoff", "unschedulable", "gated")
_POPPED = "PodPopped"
"""Event of attempts in progress; shown even if it is 0, as in kube-scheduler."""
_CODES = {code: Status(code).code_name for code in Code}

Labelled = Iterable[tuple[Sequence[str], Histogram]]


def as_label(bound: float) -> str:
    """Return the bound of a bucket as Go's client writes it: an integer without a fraction."""
    return repr(float(bound)).removesuffix(".0")


def histograms(name: str, help_text: str, labels: Sequence[str], children: Labelled) -> HistogramMetricFamily:
    """Return a family of histograms.

    Args:
        name: Name of the family.
        help_text: Help of the family.
        labels: Names of its labels.
        children: Label values with their observations.
    """
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, observed in children:
        bounds = [*(as_label(bound) for bound in observed.bounds), "+Inf"]
        family.add_metric(values, list(zip(bounds, accumulate(observed.counts), strict=True)), observed.total)
    return family


class SchedulerCollector(Collector):
    """Collector of the metrics of the scheduler core.

    Args:
        context: The scheduler's context.
        binding_cycles: Returns the number of binding cycles in progress.
    """

    def __init__(self, context: CycleContext, binding_cycles: Callable[[], int]) -> None:
        self._context = context
        self._binding_cycles = binding_cycles

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are known only when metrics are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the scheduler."""
        self._context.measures.settle()
        yield from self._attempts()
        yield from self._queue()
        yield from self._cache()
        yield from _cycles(self._context.measures)
        yield from _groups(self._context.measures)
        yield from _gang_waits(self._context.measures)
        yield from _pods(self._context.measures)
        yield from _preemption(self._context.measures)

    def _attempts(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "scheduler_schedule_attempts",
            "Number of attempts to schedule pods, by result: unschedulable means that the pod was rejected, error that "
            "the scheduler, a plugin or a write failed.",
            labels=["result", "profile"],
        )
        for profile, record in self._context.records.items():
            attempts.add_metric(["scheduled", profile], record.scheduled)
            attempts.add_metric(["unschedulable", profile], record.unschedulable)
            attempts.add_metric(["error", profile], record.errors)
        yield attempts

    def _queue(self) -> Iterator[Metric]:
        queue = self._context.queue
        pending = GaugeMetricFamily(
            "scheduler_pending_pods",
            "Number of pending pods, by queue: active pods are attempted next, backoff pods after their backoff, "
            "unschedulable pods after an event that may make them schedulable; gated pods are not attempted.",
            labels=["queue"],
        )
        counts = list(queue.counts().values())
        for name in _QUEUES:
            pending.add_metric([name], sum(getattr(count, name) for count in counts))
        yield pending
        incoming = CounterMetricFamily(
            "scheduler_queue_incoming_pods", "Number of pods added to queues, by event.", labels=["queue", "event"]
        )
        for (event, name), count in queue.incoming.items():
            incoming.add_metric([name, event], count)
        yield incoming
        events = GaugeMetricFamily(
            "scheduler_inflight_events",
            "Number of events stored for pods whose attempt is in progress.",
            labels=["event"],
        )
        for event, count in ({_POPPED: 0} | queue.in_flight_events()).items():
            events.add_metric([event], count)
        yield events
        rejected = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Number of pending pods, by each plugin that rejected them.",
            labels=["plugin", "profile"],
        )
        for (plugin, profile), count in queue.unschedulable_by.items():
            rejected.add_metric([plugin, profile], count)
        yield rejected
        yield CounterMetricFamily(
            "scheduler_pod_scheduled_after_flush",
            "Number of pods scheduled in an attempt after a periodic flush: a queueing hint may be wrong.",
            value=queue.scheduled_after_flush,
        )

    def _cache(self) -> Iterator[Metric]:
        cache = self._context.cache
        size = GaugeMetricFamily(
            "scheduler_cache_size", "Number of nodes, pods and assumed pods in the cache.", labels=["type"]
        )
        size.add_metric(["nodes"], cache.columns.count)
        size.add_metric(["pods"], len(cache))
        size.add_metric(["assumed_pods"], cache.assumed_count)
        yield size
        running = GaugeMetricFamily(
            "scheduler_goroutines", "Number of running tasks, by operation.", labels=["operation"]
        )
        running.add_metric(["binding"], self._binding_cycles())
        yield running


def _cycles(measures: Measures) -> Iterator[Metric]:
    profiles = measures.profiles.items()
    yield histograms(
        "scheduler_framework_extension_point_duration_seconds",
        "Latency of all plugins of an extension point.",
        ["extension_point", "status", "profile"],
        (
            ((LABELS[point], _CODES[code], name), observed)
            for name, profile in profiles
            for point in Point
            if point not in NO_EXTENSION_POINTS
            for code in Code
            if (observed := profile.points[point][code]).count
        ),
    )
    yield histograms(
        "scheduler_plugin_execution_duration_seconds",
        "Duration of one plugin at an extension point, in one cycle of ten.",
        ["plugin", "extension_point", "status"],
        (
            ((plugin, LABELS[point], _CODES[code]), observed)
            for (point, plugin, code), observed in measures.plugins.items()
        ),
    )
    evaluations = CounterMetricFamily(
        "scheduler_plugin_evaluation",
        "Number of pods (PreFilter, PreScore) or nodes (Filter, Score) that a plugin has evaluated.",
        labels=["plugin", "extension_point", "profile"],
    )
    for name, profile in profiles:
        counted = profile.evaluations
        for point, counts in (
            ("PreFilter", counted.pre_filter),
            ("Filter", counted.filter),
            ("PreScore", counted.pre_score),
            ("Score", counted.score),
        ):
            for plugin, count in counts.items():
                evaluations.add_metric([plugin, point, name], count)
    yield evaluations
    reused = CounterMetricFamily(
        "bayplan_reused_results",
        "Number of scheduling cycles that chose a node from the results of earlier pods of the same class.",
        labels=["profile"],
    )
    for name, profile in profiles:
        reused.add_metric([name], profile.reused)
    yield reused
    reuse = CounterMetricFamily(
        "bayplan_reuse_errors",
        "Number of errors in results reused from earlier pods, after which the full scheduling cycle decided.",
        labels=["profile", "plugin"],
    )
    for name, profile in profiles:
        for plugin, count in profile.reuse_errors.items():
            reuse.add_metric([name, plugin], count)
    yield reuse
    yield histograms(
        "scheduler_scheduling_attempt_duration_seconds",
        "Latency of scheduling attempts, including binding.",
        ["result", "profile"],
        (
            ((result, name), observed)
            for name, profile in profiles
            for result, observed in profile.attempts.items()
            if observed.count
        ),
    )
    yield histograms(
        "scheduler_scheduling_algorithm_duration_seconds",
        "Latency of the search for a node.",
        [],
        [((), measures.algorithm)],
    )


def _groups(measures: Measures) -> Iterator[Metric]:
    found = [
        ((result, name), observed)
        for name, profile in measures.profiles.items()
        for result, observed in profile.groups.items()
        if observed.count
    ]
    attempts = CounterMetricFamily(
        "scheduler_podgroup_schedule_attempts",
        "Number of attempts to schedule pod groups, by result.",
        labels=["result", "profile"],
    )
    for labels, observed in found:
        attempts.add_metric(labels, observed.count)
    yield attempts
    yield histograms(
        "scheduler_podgroup_scheduling_attempt_duration_seconds",
        "Latency of attempts to schedule a pod group, until the binding of its pods begins.",
        ["result", "profile"],
        found,
    )
    yield histograms(
        "scheduler_podgroup_scheduling_algorithm_duration_seconds",
        "Latency of the search for nodes for a pod group.",
        [],
        [((), measures.group_algorithm)],
    )


def _gang_waits(measures: Measures) -> Iterator[Metric]:
    yield histograms(
        "bayplan_gang_wait_seconds",
        "Time from when a gang had its quorum and could be attempted until all of its members were scheduled.",
        ["profile"],
        (((name,), profile.gang_waits) for name, profile in measures.profiles.items() if profile.gang_waits.count),
    )


def _pods(measures: Measures) -> Iterator[Metric]:
    yield histograms(
        "scheduler_pod_scheduling_attempts",
        "Number of attempts until a pod was scheduled.",
        [],
        [((), measures.attempts_to_schedule)],
    )
    yield histograms(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "Latency from when a pod entered the scheduling queue until it was scheduled, over all of its attempts.",
        ["attempts"],
        (((attempts,), observed) for attempts, observed in measures.sli.items()),
    )
    yield histograms(
        "scheduler_permit_wait_duration_seconds",
        "Duration of waits at Permit.",
        ["result"],
        (((_CODES[code],), observed) for code, observed in measures.permit_waits.items()),
    )
    yield histograms(
        "scheduler_event_handling_duration_seconds",
        "Latency of processing an event in the cache and the queue.",
        ["event"],
        (((event,), observed) for event, observed in measures.events.items()),
    )
    yield histograms(
        "scheduler_queueing_hint_execution_duration_seconds",
        "Duration of a plugin's queueing hint.",
        ["plugin", "event", "hint"],
        measures.hints.items(),
    )


def _preemption(measures: Measures) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "scheduler_preemption_attempts",
        "Number of attempts to preempt in the cluster so far.",
        value=measures.preemption_attempts,
    )
    yield histograms(
        "scheduler_preemption_victims", "Number of selected preemption victims.", [], [((), measures.victims)]
    )
    yield histograms(
        "scheduler_preemption_goroutines_duration_seconds",
        "Duration of preemptions, until the victims are evicted.",
        ["result"],
        (((result,), observed) for result, observed in measures.preemptions.items()),
    )
    executed = CounterMetricFamily(
        "scheduler_preemption_goroutines_execution", "Number of preemptions carried out.", labels=["result"]
    )
    for result, observed in measures.preemptions.items():
        executed.add_metric([result], observed.count)
    yield executed


class ApiCallCollector(Collector):
    """Collector of the metrics of API calls.

    Args:
        writer: The writer.
    """

    def __init__(self, writer: KubeWriter) -> None:
        self._writer = writer

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are known only when metrics are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the writer."""
        executed = self._writer.calls.executed
        total = CounterMetricFamily(
            "scheduler_async_api_call_execution",
            "Number of API calls that were executed.",
            labels=["call_type", "result"],
        )
        for labels, observed in executed.items():
            total.add_metric(labels, observed.count)
        yield total
        yield histograms(
            "scheduler_async_api_call_execution_duration_seconds",
            "Duration of API calls.",
            ["call_type", "result"],
            executed.items(),
        )
        pending = GaugeMetricFamily(
            "scheduler_pending_async_api_calls", "Number of API calls that wait to be sent.", labels=["call_type"]
        )
        waiting = {
            POD_BINDING: self._writer.binder.waiting,
            POD_STATUS_PATCH: self._writer.dispatcher.queued_of(Rank.PATCH),
        }
        for call_type in CALL_TYPES:
            pending.add_metric([call_type], waiting[call_type])
        yield pending
