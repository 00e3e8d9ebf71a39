"""What a profile tells the queue: its gates, its hints, its backoffs.

Owns the decision whether an event is worth another attempt, and when. Follows kube-scheduler v1.36.3
(``backend/queue/scheduling_queue.go``, ``isPodWorthRequeuing`` and ``runPreEnqueuePlugins``; ``backoff_queue.go``). It
has one backoff for all profiles, here each profile may set its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import EVERY_EVENT, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, error
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

BACKOFF_WINDOW_SECONDS = 1
"""Backoffs end together at the end of a window, so that in it priority decides who is tried first (KEP-5142)."""

_MOST_DOUBLINGS = 62


class Requeue(Enum):
    """Where an event sends a pod."""

    STAY = auto()
    AFTER_BACKOFF = auto()
    AT_ONCE = auto()


class Interest:
    """What the plugins of a profile registered for one event.

    Attributes:
        registrations: Those that cover it, with their plugins.
        plugins: These plugins.
        is_wildcard: Whether the event is for everyone, whatever rejected them.
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
        """Whether anyone wants to know of the event."""
        return self.is_wildcard or bool(self.registrations)

    def judge(self, pod: QueuedPod, old: object | None, new: object | None) -> Requeue:
        """Whether the event may help a pod, by what the plugins that rejected it say.

        Args:
            pod: The pod that waits.
            old: The event's object before, None if it was added.
            new: The object after, None if it was deleted. A wildcard event with an object is for that pod only.
        """
        if not pod.rejected_by:
            return Requeue.AFTER_BACKOFF
        if self.is_wildcard:
            is_for_it = new is None or (isinstance(new, Pod) and new.metadata.uid == pod.uid)
            return Requeue.AFTER_BACKOFF if is_for_it else Requeue.STAY
        verdict = Requeue.STAY
        if self.plugins.isdisjoint(pod.rejected_by):
            return verdict
        for plugin, registration in self.registrations:
            if plugin not in pod.rejected_by:
                continue
            if registration.hint is not None and not any(
                _ask(plugin, registration, info, old, new) is Hint.QUEUE for info in pod.hint_pods
            ):
                continue
            if plugin in pod.pending_on:
                return Requeue.AT_ONCE
            verdict = Requeue.AFTER_BACKOFF
            if not pod.pending_on:
                break
        return verdict


def _is_wildcard(event: ClusterEvent) -> bool:
    """Whether it is for everyone, or asks for everything; every kind's additions, for one, are less than that."""
    return event.resource is Resource.WILDCARD and event.action == EVERY_EVENT.action


def _ask(plugin: str, registration: EventRegistration, info: PodInfo, old: object | None, new: object | None) -> Hint:
    assert registration.hint is not None
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
        pre_enqueue: Its gates, in order.
        registrations: Events and hints by plugin.
        sort_key: Its QueueSort plugin's key.
        initial_backoff: Seconds after the first failure.
        max_backoff: Seconds at most; 0 for no backoff at all.
        places_gangs: Whether the members of a gang are placed in one cycle; else each comes alone.
    """

    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    registrations: Mapping[str, tuple[EventRegistration, ...]]
    sort_key: Callable[[QueuedPod], Any]
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    places_gangs: bool = True
    _by_event: dict[ClusterEvent, Interest] = field(default_factory=dict)

    def gate(self, pod: QueuedPod) -> Status:
        """Success if every PreEnqueue plugin lets the pod in, else the first that does not.

        The one that holds the pod already is asked first: most often it still does.
        """
        if pod.gated_by:
            holding = [plugin for plugin in self.pre_enqueue if plugin.name == pod.gated_by]
            others = [plugin for plugin in self.pre_enqueue if plugin.name != pod.gated_by]
            return _first_closed((*holding, *others), pod)
        return _first_closed(self.pre_enqueue, pod)

    def interest(self, event: ClusterEvent) -> Interest:
        """What is registered for ``event``."""
        found = self._by_event.get(event)
        if found is None:
            found = self._by_event[event] = Interest(self.registrations, event)
        return found

    def interested(self, event: ClusterEvent) -> tuple[tuple[str, EventRegistration], ...]:
        """Registrations that cover ``event``, with their plugins."""
        return self.interest(event).registrations

    def judge(self, pod: QueuedPod, event: ClusterEvent, old: object | None, new: object | None) -> Requeue:
        """Whether ``event`` may help a pod; see :meth:`Interest.judge`."""
        return self.interest(event).judge(pod, old, new)

    def backoff(self, pod: QueuedPod) -> float:
        """Seconds that a pod waits after its last failure: doubling by failures, errors counted apart."""
        count = pod.error_count or pod.unschedulable_count
        if count == 0:
            return 0.0
        doublings = min(count - 1, _MOST_DOUBLINGS)
        return float(min(self.initial_backoff * 2**doublings, self.max_backoff))

    def backoff_end(self, pod: QueuedPod) -> float:
        """When a pod's backoff ends: with the window in which its seconds are over; 0 if it has none."""
        if self.max_backoff == 0 or not (pod.error_count or pod.unschedulable_count):
            return 0.0
        if not pod.backoff_until:
            # Rounded to nanoseconds, in which the reference counts: 1000.1 + 0.9 is in the window of 1001.
            over = round(pod.timestamp + max(self.backoff(pod), pod.minimum_backoff), 9)
            pod.backoff_until = float((math.floor(over / BACKOFF_WINDOW_SECONDS) + 1) * BACKOFF_WINDOW_SECONDS)
        return pod.backoff_until


def _first_closed(gates: tuple[PreEnqueuePlugin, ...], pod: QueuedPod) -> Status:
    for plugin in gates:
        try:
            status: object = plugin.pre_enqueue(pod.info)
        except Exception as fault:
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
            log.error(
                "pod %s is held back: %s", pod.info.key, problem, extra={"pod": pod.info.key, "plugin": plugin.name}
            )
            return error(str(problem)).of(plugin.name)
        if not status.is_success:
            return status.of(plugin.name)
    return SUCCESS
