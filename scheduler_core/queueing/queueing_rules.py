"""What a profile tells the queue: its gates, its hints, its backoffs.

Owns the decision whether an event is worth another attempt. Follows kube-scheduler v1.36.3
(``backend/queue/scheduling_queue.go``, ``isPodWorthRequeuing``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, error
from scheduler_core.model.pod import Pod

log = logging.getLogger(__name__)


class Requeue(Enum):
    """Where an event sends a pod."""

    STAY = auto()
    AFTER_BACKOFF = auto()
    AT_ONCE = auto()


@dataclass(frozen=True, slots=True)
class QueueingRules:
    """The rules of one live profile.

    Attributes:
        pre_enqueue: Its gates, in order.
        registrations: Events and hints by plugin.
        sort_key: Its QueueSort plugin's key.
        initial_backoff: Seconds after the first failure.
        max_backoff: Seconds at most.
    """

    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    registrations: Mapping[str, tuple[EventRegistration, ...]]
    sort_key: Callable[[QueuedPod], Any]
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    _by_event: dict[ClusterEvent, tuple[tuple[str, EventRegistration], ...]] = field(default_factory=dict)

    def gate(self, pod: QueuedPod) -> Status:
        """Success if every PreEnqueue plugin lets the pod in, else the first that does not."""
        for plugin in self.pre_enqueue:
            try:
                status: object = plugin.pre_enqueue(pod.info)
            except Exception as fault:
                log.exception("plugin %s raised at preEnqueue for pod %s", plugin.name, pod.info.key)
                problem = (
                    fault if isinstance(fault, PluginError) else PluginError(plugin.name, "preEnqueue", str(fault))
                )
                return error(str(problem)).of(plugin.name)
            if not isinstance(status, Status):
                problem = PluginError(plugin.name, "preEnqueue", f"answered {status!r}; return a Status")
                log.error("pod %s is held back: %s", pod.info.key, problem)
                return error(str(problem)).of(plugin.name)
            if not status.is_success:
                return status.of(plugin.name)
        return SUCCESS

    def interested(self, event: ClusterEvent) -> tuple[tuple[str, EventRegistration], ...]:
        """Registrations that cover ``event``, with their plugins."""
        found = self._by_event.get(event)
        if found is None:
            found = tuple(
                (plugin, registration)
                for plugin, registrations in self.registrations.items()
                for registration in registrations
                if registration.event.covers(event)
            )
            self._by_event[event] = found
        return found

    def judge(self, pod: QueuedPod, event: ClusterEvent, old: object | None, new: object | None) -> Requeue:
        """Whether ``event`` may help a pod, by what the plugins that rejected it say."""
        if not pod.rejected_by:
            return Requeue.AFTER_BACKOFF
        if event.resource is Resource.WILDCARD:
            # A pod among the objects of such an event says that no other is meant.
            is_for_another = isinstance(new, Pod) and new.metadata.uid != pod.uid
            return Requeue.STAY if is_for_another else Requeue.AFTER_BACKOFF
        verdict = Requeue.STAY
        for plugin, registration in self.interested(event):
            if plugin not in pod.rejected_by:
                continue
            if registration.hint is not None and self._ask(plugin, registration, pod, old, new) is Hint.SKIP:
                continue
            if plugin in pod.pending_on:
                return Requeue.AT_ONCE
            verdict = Requeue.AFTER_BACKOFF
            if not pod.pending_on:
                break
        return verdict

    @staticmethod
    def _ask(
        plugin: str, registration: EventRegistration, pod: QueuedPod, old: object | None, new: object | None
    ) -> Hint:
        assert registration.hint is not None
        try:
            return registration.hint(pod.info.pod, old, new)
        except Exception:
            log.exception("queueing hint of plugin %s raised for pod %s; the pod is retried", plugin, pod.info.key)
            return Hint.QUEUE

    def backoff(self, pod: QueuedPod) -> float:
        """Seconds that a pod waits after its last failure: doubling by failures, errors counted apart."""
        count = pod.error_count or pod.unschedulable_count
        if count == 0:
            return 0.0
        doublings = min(count - 1, 32)
        return float(min(self.initial_backoff * 2**doublings, self.max_backoff))
