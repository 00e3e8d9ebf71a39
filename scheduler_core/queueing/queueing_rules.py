"""Queueing rules of a profile: gates, queueing hints and backoffs.

They decide whether and when an event requeues a pod. Follows kube-scheduler v1.37.1
(``backend/queue/scheduling_queue.go``, ``isPodWorthRequeuing`` and ``runPreEnqueuePlugins``; ``backoff_queue.go``),
which has one backoff for all profiles, while here each profile may set its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import EVERY_EVENT, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, error
from scheduler_core.metrics.scheduler_metrics import QueueMetrics
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

BACKOFF_WINDOW_SECONDS = 1
"""Window at whose end backoffs end together, so that priority decides which pod is tried first (KEP-5142)."""

_MOST_DOUBLINGS = 62


class Requeue(Enum):
    """Verdict on a pod after an event: whether and when it is tried again."""

    STAY = auto()
    AFTER_BACKOFF = auto()
    AT_ONCE = auto()


class Interest:
    """Registrations of a profile's plugins for one event.

    Attributes:
        registrations: Registrations that cover the event, with their plugins.
        is_wildcard: Whether the event concerns all pods, whichever plugin rejected them.
    """

    __slots__ = ("is_wildcard", "plugins", "registrations")

    def __init__(self, registrations: Mapping[str, tuple[EventRegistration, ...]], event: ClusterEvent) -> None:
        self.is_wildcard = _is_wildcard(event)
        self.registrations = tuple(
            (plugin, registration)
            for plugin, entries in registrations.items()
            for registration in entries
            if (_is_wildcard(registration.event) if self.is_wildcard else registration.event.covers(event))
        )
        self.plugins = frozenset(plugin for plugin, _ in self.registrations)

    def __bool__(self) -> bool:
        return self.is_wildcard or bool(self.registrations)

    def evaluate(
        self, pod: QueuedPod, old: object | None, new: object | None, infos: Iterable[PodInfo] | None = None
    ) -> Requeue:
        """Return the verdict on a pod, by the hints of the plugins that rejected it.

        Args:
            old: The object before the event, None if it was added.
            new: The object after the event, None if it was deleted. A wildcard event with a pod concerns only that pod,
                or the gang whose entry has it.
            infos: Those of its members for which hints are called, if it is a gang; None for all. The verdict on a gang
                is the furthest of those on its members.
        """
        if not pod.rejected_by:
            return Requeue.AFTER_BACKOFF
        if self.is_wildcard:
            # The entry of a gang has a UID of its own, and the pod of a member.
            is_for_it = new is None or (isinstance(new, Pod) and new.metadata.uid == pod.info.uid)
            return Requeue.AFTER_BACKOFF if is_for_it else Requeue.STAY
        verdict = Requeue.STAY
        if self.plugins.isdisjoint(pod.rejected_by):
            return verdict
        for plugin, registration in self.registrations:
            if plugin not in pod.rejected_by:
                continue
            if registration.hint is not None and not any(
                _call_hint(plugin, registration, info, old, new) is Hint.QUEUE
                for info in (pod.hint_pods if infos is None else infos)
            ):
                continue
            if plugin in pod.pending_on:
                # It returned Pending: what it waited for has happened, so that a backoff has no purpose.
                return Requeue.AT_ONCE
            verdict = Requeue.AFTER_BACKOFF
            if not pod.pending_on:
                break
        return verdict


def _is_wildcard(event: ClusterEvent) -> bool:
    return event.resource is Resource.WILDCARD and event.action == EVERY_EVENT.action


def _call_hint(
    plugin: str, registration: EventRegistration, info: PodInfo, old: object | None, new: object | None
) -> Hint:
    assert registration.hint is not None
    info.make_findable()
    try:
        return registration.hint(info.pod, old, new)
    except Exception:
        log.exception(
            "queueing hint of plugin %s raised for pod %s; the pod is retried",
            plugin,
            info.key,
            extra={"pod": info.key, "plugin": plugin},
        )
        return Hint.QUEUE


@dataclass(frozen=True, slots=True)
class QueueingRules:
    """The rules of one live profile.

    Attributes:
        initial_backoff: Backoff after the first failure, in seconds.
        max_backoff: Maximum backoff, in seconds; 0 for no backoff.
        places_gangs: Whether a gang is scheduled in one group cycle; otherwise its members are scheduled one by one.
        are_keys_plain: Whether all keys of the QueueSort plugin compare, as those of built-in plugins do.
        metrics: Times the gates and hints; None for no metrics.
    """

    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    registrations: Mapping[str, tuple[EventRegistration, ...]]
    sort_key: Callable[[QueuedPod], Any]
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    places_gangs: bool = True
    are_keys_plain: bool = False
    metrics: QueueMetrics | None = None
    _by_event: dict[ClusterEvent, Interest] = field(default_factory=dict)

    def gate(self, pod: QueuedPod) -> Status:
        """Return Success if every PreEnqueue plugin accepts the pod, else the first rejection."""
        gates = self.pre_enqueue
        if pod.gated_by:
            # The plugin that gates the pod already is called first, because it most often still does.
            closed = [plugin for plugin in gates if plugin.name == pod.gated_by]
            gates = (*closed, *[plugin for plugin in gates if plugin.name != pod.gated_by])
        if self.metrics is None:
            return _first_closed(gates, pod)
        started = self.metrics.now()
        status = _first_closed(gates, pod)
        self.metrics.gates[status.code].observe(self.metrics.now() - started)
        return status

    def preview_gate(self, pod: QueuedPod) -> Status:
        """Return what :meth:`gate` would return, without any effect."""
        return _first_closed(self.pre_enqueue, pod, is_preview=True)

    def interest(self, event: ClusterEvent) -> Interest:
        found = self._by_event.get(event)
        if found is None:
            registrations = self.registrations
            if self.metrics is not None:
                registrations = self.metrics.timed(registrations, event.name)
            found = self._by_event[event] = Interest(registrations, event)
        return found

    def interested(self, event: ClusterEvent) -> tuple[tuple[str, EventRegistration], ...]:
        return self.interest(event).registrations

    def evaluate(self, pod: QueuedPod, event: ClusterEvent, old: object | None, new: object | None) -> Requeue:
        """Return the verdict on a pod after an event; see :meth:`Interest.evaluate`."""
        return self.interest(event).evaluate(pod, old, new)

    def backoff(self, pod: QueuedPod) -> float:
        """Return the backoff of a pod in seconds; it doubles with failures, and errors count separately."""
        count = pod.error_count or pod.unschedulable_count
        if count == 0:
            return 0.0
        doublings = min(count - 1, _MOST_DOUBLINGS)
        return float(min(self.initial_backoff * 2**doublings, self.max_backoff))

    def backoff_end(self, pod: QueuedPod) -> float:
        """Return the end of a pod's backoff, rounded up to the end of a window; 0 without backoff."""
        if self.max_backoff == 0 or not (pod.error_count or pod.unschedulable_count):
            return 0.0
        if not pod.backoff_until:
            # Rounded to nanoseconds, as in kube-scheduler: 1000.1 + 0.9 is in the window of 1001.
            over = round(pod.timestamp + max(self.backoff(pod), pod.minimum_backoff), 9)
            pod.backoff_until = float((math.floor(over / BACKOFF_WINDOW_SECONDS) + 1) * BACKOFF_WINDOW_SECONDS)
        return pod.backoff_until


def _first_closed(gates: tuple[PreEnqueuePlugin, ...], pod: QueuedPod, *, is_preview: bool = False) -> Status:
    for plugin in gates:
        try:
            status: object = plugin.preview_gate(pod.info) if is_preview else plugin.pre_enqueue(pod.info)
        except Exception as fault:
            pod.is_faulty = True
            log.exception(
                "plugin %s raised at preEnqueue for pod %s",
                plugin.name,
                pod.info.key,
                extra={"pod": pod.info.key, "plugin": plugin.name},
            )
            problem = fault if isinstance(fault, PluginError) else PluginError(plugin.name, "preEnqueue", str(fault))
            return error(str(problem)).of(plugin.name)
        if not isinstance(status, Status):
            problem = PluginError(plugin.name, "preEnqueue", f"answered {status!r}; return a Status")
            log.error("pod %s is gated: %s", pod.info.key, problem, extra={"pod": pod.info.key, "plugin": plugin.name})
            return error(str(problem)).of(plugin.name)
        if not status.is_success:
            return status.of(plugin.name)
    return SUCCESS
