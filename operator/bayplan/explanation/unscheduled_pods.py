"""Explains the pods that a simulation leaves unscheduled: one explanation for pods with equal specs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from bayplan.explanation.pod_building import explain_pod, failed_explanation
from bayplan.explanation.pod_model import Explanation
from bayplan.texts.document_formats import item_or_error
from scheduler_core.framework.device_choices import ClaimsFilter
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.scheduler import Scheduler

_Kind = tuple[str, GroupKey | None, bytes]
"""Namespace, gang and spec of equal pods."""


class EqualPods(Struct, frozen=True, rename="camel"):
    """Unscheduled pods of one namespace and gang with equal specs.

    Attributes:
        pods: Number of pods.
        explanation: Explanation of the first one.
    """

    pods: int
    explanation: Explanation


class ExplainedPods(Struct, frozen=True, rename="camel"):
    """Explanations of unscheduled pods.

    Attributes:
        groups: Groups of equal pods, largest first.
        omitted: Number of pods in further groups.
    """

    groups: tuple[EqualPods, ...] = ()
    omitted: int = 0


def explain_unscheduled(scheduler: Scheduler, pods: Iterable[Pod], limit: int) -> ExplainedPods:
    """Explain unscheduled pods.

    Args:
        scheduler: The scheduler, between two cycles.
        pods: The pods.
        limit: Maximum number of groups.

    Returns:
        One explanation for each group of equal pods; that of a pod that cannot be explained has the error.
    """
    groups: dict[_Kind, list[Pod]] = {}
    for pod in pods:
        queued = scheduler.context.queue.find(pod.metadata.uid)
        current = pod if queued is None else queued.info.pod
        groups.setdefault(_kind(scheduler, current), []).append(current)
    ordered = sorted(groups.values(), key=lambda each: (-len(each), each[0].key))
    explained = tuple(EqualPods(len(each), explain_or_fail(scheduler, each[0])) for each in ordered[:limit])
    return ExplainedPods(explained, sum(map(len, ordered[limit:])))


def explain_or_fail(scheduler: Scheduler, pod: Pod) -> Explanation:
    """Explain a pod of a list; if that fails, the explanation has the error."""
    return item_or_error(
        "the explanation of a pod",
        lambda: explain_pod(scheduler, pod),
        lambda problem: failed_explanation(pod, problem),
    )


def is_rejected_for_devices(scheduler: Scheduler, pod: Pod) -> bool:
    """Return whether a plugin that searches devices rejected the last attempt of a pod, or of its gang."""
    context = scheduler.context
    instance, queued = context.profiles.get(pod.spec.scheduler_name), context.queue.find(pod.metadata.uid)
    if instance is None or queued is None:
        return False
    gang = context.queue.gangs.of_uid(pod.metadata.uid)
    entry = None if gang is None else gang.entry
    rejected_by = queued.rejected_by if entry is None else queued.rejected_by | entry.rejected_by
    return any(isinstance(plugin, ClaimsFilter) and plugin.name in rejected_by for plugin in instance.filters)


def _kind(scheduler: Scheduler, pod: Pod) -> _Kind:
    gang = scheduler.context.queue.gangs.key_of(pod)
    return pod.metadata.namespace, gang, msgspec.json.encode(pod.spec)
