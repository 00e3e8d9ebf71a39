"""Metrics with kube-scheduler's names.

Names, labels and bucket bounds are those of kube-scheduler v1.37.1 (``pkg/scheduler/metrics/metrics.go``), so that its
dashboards and alerts work unchanged; ``docs/operate/metrics.md`` lists the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from itertools import accumulate
from typing import ParamSpec

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from bayplan.kube.writes.api_dispatcher import CALL_TYPES, POD_BINDING, POD_STATUS_PATCH, Rank
from bayplan.kube.writes.cluster_writer import KubeWriter
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.devices.allocator import SearchTally
from scheduler_core.framework.cycle_state import EXTENSION_POINTS, STAGE_NAMES
from scheduler_core.framework.status import Code, Status
from scheduler_core.metrics.histogram import Histogram
from scheduler_core.metrics.scheduler_metrics import DeviceMetrics, SchedulerMetrics

_P = ParamSpec("_P")
Samples = Iterable[tuple[Sequence[str], float]]
"""Label values with the value of the sample."""
Observations = Iterable[tuple[Sequence[str], Histogram]]
"""Label values with their histogram."""


class _FunctionCollector(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the names of the metrics are known only when they are collected."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def collector(metrics_of: Callable[_P, Iterator[Metric]]) -> Callable[_P, Collector]:
    """Make of a function that yields metrics one that returns a collector with its arguments."""

    @wraps(metrics_of)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> Collector:
        return _FunctionCollector(partial(metrics_of, *args, **kwargs))

    return made


def as_label(bound: float) -> str:
    """Return the bound of a bucket as Go's client writes it: an integer without a fraction."""
    return repr(float(bound)).removesuffix(".0")


def gauges(name: str, help_text: str, labels: Sequence[str], samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """Return a gauge without labels."""
    return gauges(name, help_text, (), [((), value)])


def counters(name: str, help_text: str, labels: Sequence[str], samples: Samples) -> CounterMetricFamily:
    """Return a family of counters; exporters append ``_total`` to its name."""
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, help_text: str, value: float) -> CounterMetricFamily:
    return counters(name, help_text, (), [((), value)])


def histograms(name: str, help_text: str, labels: Sequence[str], observations: Observations) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, observed in observations:
        bounds = [*(as_label(bound) for bound in observed.bounds), "+Inf"]
        family.add_metric(values, list(zip(bounds, accumulate(observed.counts), strict=True)), observed.total)
    return family


_QUEUES = ("active", "backoff", "unschedulable", "gated")
_POPPED = "PodPopped"
"""Event of attempts in progress; shown even if it is 0, as in kube-scheduler."""
_CODES = {code: Status(code).code_name for code in Code}


@collector
def scheduler_metrics(context: CycleContext, binding_cycles: Callable[[], int]) -> Iterator[Metric]:
    """Yield the metrics of the scheduler core."""
    metrics = context.metrics
    metrics.settle()
    yield counters(
        "scheduler_schedule_attempts",
        "Number of attempts to schedule pods, by result: unschedulable means that the pod was rejected, error that "
        "the scheduler, a plugin or a write failed.",
        ["result", "profile"],
        (
            ((result, profile), getattr(record, attribute))
            for profile, record in context.metrics.records.items()
            for result, attribute in (
                ("scheduled", "scheduled"),
                ("unschedulable", "unschedulable"),
                ("error", "errors"),
            )
        ),
    )
    yield from _queue(context)
    yield from _cache(context, binding_cycles)
    yield from _cycles(metrics)
    yield from _background_searches(context)
    yield from _groups(metrics)
    yield from _pods(metrics)
    yield from _preemption(metrics)
    yield from _devices(metrics.devices, context.cache.columns.devices.hardware.tally)


def _background_searches(context: CycleContext) -> Iterator[Metric]:
    searches = context.background.counts
    yield counters(
        "bayplan_background_searches",
        "Number of searches that continued in a copy of the process, by what became of the result.",
        ["result"],
        (
            (("used",), searches.used),
            (("outdated",), searches.outdated),
            (("lost",), searches.lost),
            (("refused",), searches.refused),
        ),
    )


def _queue(context: CycleContext) -> Iterator[Metric]:
    queue = context.queue
    counts = list(queue.readings.counts().values())
    yield gauges(
        "scheduler_pending_pods",
        "Number of pending pods, by queue: active pods are attempted next, backoff pods after their backoff, "
        "unschedulable pods after an event that may make them schedulable; gated pods are not attempted.",
        ["queue"],
        (((name,), sum(getattr(count, name) for count in counts)) for name in _QUEUES),
    )
    yield counters(
        "scheduler_queue_incoming_pods",
        "Number of pods added to queues, by event.",
        ["queue", "event"],
        (((name, event), count) for (event, name), count in queue.readings.incoming.items()),
    )
    yield gauges(
        "scheduler_queued_entities",
        "Number of queued pods without a gang (type pod) and of queued gangs (type podgroup), by queue.",
        ["queue", "type"],
        queue.readings.entities().items(),
    )
    yield counters(
        "scheduler_queue_incoming_entities",
        "Number of pods without a gang (type pod) and of gangs (type podgroup) added to queues, by event.",
        ["queue", "event", "type"],
        (((name, event, kind), count) for (event, name, kind), count in queue.readings.incoming_entities.items()),
    )
    yield gauges(
        "scheduler_inflight_events",
        "Number of events stored for pods whose attempt is in progress.",
        ["event"],
        (((event,), count) for event, count in ({_POPPED: 0} | queue.readings.in_flight_events()).items()),
    )
    yield gauges(
        "scheduler_unschedulable_pods",
        "Number of pending pods, by each plugin that rejected them.",
        ["plugin", "profile"],
        queue.readings.unschedulable_by.items(),
    )
    yield counter(
        "scheduler_pod_scheduled_after_flush",
        "Number of pods scheduled in an attempt after a periodic flush: a queueing hint may be wrong.",
        queue.scheduled_after_flush,
    )


def _cache(context: CycleContext, binding_cycles: Callable[[], int]) -> Iterator[Metric]:
    cache = context.cache
    yield gauges(
        "scheduler_cache_size",
        "Number of nodes, pods and assumed pods in the cache.",
        ["type"],
        [(("nodes",), cache.columns.count), (("pods",), len(cache)), (("assumed_pods",), cache.assumed_count)],
    )
    yield gauges(
        "scheduler_goroutines",
        "Number of running tasks, by operation.",
        ["operation"],
        [(("binding",), binding_cycles())],
    )


def _cycles(metrics: SchedulerMetrics) -> Iterator[Metric]:
    profiles = metrics.profiles.items()
    yield histograms(
        "scheduler_framework_extension_point_duration_seconds",
        "Latency of all plugins of an extension point.",
        ["extension_point", "status", "profile"],
        (
            ((STAGE_NAMES[point], _CODES[code], name), observed)
            for name, profile in profiles
            for point in EXTENSION_POINTS
            for code in Code
            if (observed := profile.stages.histograms[point][code]).count
        ),
    )
    yield histograms(
        "scheduler_plugin_execution_duration_seconds",
        "Duration of one plugin at an extension point, in one cycle of ten.",
        ["plugin", "extension_point", "status"],
        (
            ((plugin, STAGE_NAMES[point], _CODES[code]), observed)
            for (point, plugin, code), observed in metrics.plugins.items()
        ),
    )
    yield counters(
        "scheduler_plugin_evaluation",
        "Number of pods (PreFilter, PreScore) or nodes (Filter, Score) that a plugin has evaluated.",
        ["plugin", "extension_point", "profile"],
        (
            ((plugin, point, name), count)
            for name, profile in profiles
            for point, counts in (
                ("PreFilter", profile.evaluations.pre_filter),
                ("Filter", profile.evaluations.filter),
                ("PreScore", profile.evaluations.pre_score),
                ("Score", profile.evaluations.score),
            )
            for plugin, count in counts.items()
        ),
    )
    yield counters(
        "bayplan_reused_results",
        "Number of scheduling cycles that chose a node from the results of earlier pods of the same class.",
        ["profile"],
        (((name,), profile.reused) for name, profile in profiles),
    )
    yield counters(
        "bayplan_reuse_errors",
        "Number of errors in results reused from earlier pods, after which the full scheduling cycle decided.",
        ["profile", "plugin"],
        (((name, plugin), count) for name, profile in profiles for plugin, count in profile.reuse_errors.items()),
    )
    yield counter(
        "bayplan_internal_errors",
        "Number of errors of the scheduler's own code, or of plugins outside of attempts, after which it went on.",
        metrics.internal_errors,
    )
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
        [((), metrics.algorithm)],
    )


def _groups(metrics: SchedulerMetrics) -> Iterator[Metric]:
    found = [
        ((result, name), observed)
        for name, profile in metrics.profiles.items()
        for result, observed in profile.groups.items()
        if observed.count
    ]
    yield counters(
        "scheduler_podgroup_schedule_attempts",
        "Number of attempts to schedule pod groups, by result.",
        ["result", "profile"],
        ((labels, observed.count) for labels, observed in found),
    )
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
        [((), metrics.group_algorithm)],
    )
    yield histograms(
        "bayplan_gang_wait_seconds",
        "Time from when a gang had its quorum and could be attempted until all of its members were scheduled.",
        ["profile"],
        (((name,), profile.gang_waits) for name, profile in metrics.profiles.items() if profile.gang_waits.count),
    )


def _pods(metrics: SchedulerMetrics) -> Iterator[Metric]:
    yield histograms(
        "scheduler_pod_scheduling_attempts",
        "Number of attempts until a pod was scheduled.",
        [],
        [((), metrics.attempts_to_schedule)],
    )
    yield histograms(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "Latency from when a pod entered the scheduling queue until it was scheduled, over all of its attempts.",
        ["attempts"],
        (((attempts,), observed) for attempts, observed in metrics.sli.items()),
    )
    yield histograms(
        "scheduler_permit_wait_duration_seconds",
        "Duration of waits at Permit.",
        ["result"],
        (((_CODES[code],), observed) for code, observed in metrics.permit_waits.items()),
    )
    yield histograms(
        "scheduler_event_handling_duration_seconds",
        "Latency of processing an event in the cache and the queue.",
        ["event"],
        (((event,), observed) for event, observed in metrics.events.items()),
    )
    yield histograms(
        "scheduler_queueing_hint_execution_duration_seconds",
        "Duration of a plugin's queueing hint.",
        ["plugin", "event", "hint"],
        metrics.hints.items(),
    )


def _preemption(metrics: SchedulerMetrics) -> Iterator[Metric]:
    yield counter(
        "scheduler_preemption_attempts",
        "Number of attempts to preempt in the cluster so far.",
        metrics.preemption_attempts,
    )
    yield histograms(
        "scheduler_preemption_victims", "Number of selected preemption victims.", [], [((), metrics.victims)]
    )
    yield histograms(
        "scheduler_preemption_goroutines_duration_seconds",
        "Duration of preemptions, until the victims are evicted.",
        ["result"],
        (((result,), observed) for result, observed in metrics.preemptions.items()),
    )
    yield counters(
        "scheduler_preemption_goroutines_execution",
        "Number of preemptions carried out.",
        ["result"],
        (((result,), observed.count) for result, observed in metrics.preemptions.items()),
    )


def _devices(metrics: DeviceMetrics, tally: SearchTally) -> Iterator[Metric]:
    yield counters(
        "dynamic_resource_allocation_resourceclaim_creates",
        "Number of requests to create a ResourceClaim for the extended resources of a pod, by status.",
        ["status", "admin_access", "owner_api_group", "owner_api_kind"],
        (((status, "false", "", "Pod"), count) for status, count in metrics.claim_creations.items()),
    )
    labels = ["profile", "driver", "status"]
    yield counters(
        "scheduler_dra_bindingconditions_allocations",
        "Number of allocated devices with binding conditions, by how the wait for the conditions ended.",
        labels,
        metrics.conditional_devices.items(),
    )
    yield histograms(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "Duration of the waits for binding conditions during PreBind, for each device of the pod.",
        labels,
        metrics.binding_waits.items(),
    )
    yield counters(
        "bayplan_device_allocations",
        "Number of new allocations of resource claims that PreBind wrote or failed to write, by result.",
        ["profile", "result"],
        metrics.allocations.items(),
    )
    yield counter("bayplan_device_searches", "Number of searches for devices, those of dry runs too.", tally.searches)
    yield counter("bayplan_device_search_steps", "Number of steps of searches for devices.", tally.steps)
    yield counter(
        "bayplan_device_searches_given_up",
        "Number of searches for devices that ended at the limit of time or steps.",
        tally.given_up,
    )


@collector
def api_call_metrics(writer: KubeWriter) -> Iterator[Metric]:
    executed = writer.calls.executed
    yield counters(
        "scheduler_async_api_call_execution",
        "Number of API calls that were executed.",
        ["call_type", "result"],
        ((labels, observed.count) for labels, observed in executed.items()),
    )
    yield histograms(
        "scheduler_async_api_call_execution_duration_seconds",
        "Duration of API calls.",
        ["call_type", "result"],
        executed.items(),
    )
    waiting = {POD_BINDING: writer.binder.waiting, POD_STATUS_PATCH: writer.dispatcher.queued_of(Rank.PATCH)}
    yield gauges(
        "scheduler_pending_async_api_calls",
        "Number of API calls that wait to be sent.",
        ["call_type"],
        (((call_type,), waiting[call_type]) for call_type in CALL_TYPES),
    )
