"""The feed, the books of preemptions and the rules of the queue, with a watch beside them.

Owns the taking of times. It must not do anything else: what is measured is done by the classes that it derives from.
Why derived classes rather than readings there: taking an event in is no business of numbers, and tests that want none
use the plain ones.

Labels follow kube-scheduler v1.36.3 (``eventhandlers.go``); an update counts once under its kind, while the reference
counts it once for each property that changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scheduler_core.cycle.cluster_feed import ClusterFeed
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.measures import Measures
from scheduler_core.framework.cluster_events import ClusterEvent, EventRegistration, Hint
from scheduler_core.framework.histogram import Backlog, Backlogs
from scheduler_core.framework.preemptions import Preemption, PreemptionsUnderWay
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Status
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock
from scheduler_core.queueing.queueing_rules import Interest, QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance

_EVENTS = (
    "AssignedPodAdd",
    "AssignedPodUpdate",
    "AssignedPodDelete",
    "UnschedulablePodAdd",
    "UnschedulablePodUpdate",
    "UnschedulablePodDelete",
    "NodeAdd",
    "NodeUpdate",
    "NodeDelete",
)

_ANSWERS = ("Queue", "QueueSkip", "Error")
_SKIP = Hint.SKIP


class MeasuredFeed(ClusterFeed):
    """Takes changes of pods and nodes, and counts how long that takes."""

    def __init__(self, context: CycleContext) -> None:
        super().__init__(context)
        self._now = context.clock.now
        self._told = {label: context.measures.events_told.of(label).observe for label in _EVENTS}

    def pod_added(self, pod: Pod) -> None:
        """A pod has come, or is first seen."""
        begun = self._now()
        super().pod_added(pod)
        self._told["AssignedPodAdd" if pod.spec.node_name else "UnschedulablePodAdd"](self._now() - begun)

    def pod_updated(self, old: Pod, pod: Pod) -> None:
        """A pod has changed; one that was bound has left the waiting and come to the placed ones."""
        begun = self._now()
        super().pod_updated(old, pod)
        if not pod.spec.node_name:
            label = "UnschedulablePodUpdate"
        else:
            label = "AssignedPodUpdate" if old.spec.node_name else "AssignedPodAdd"
        self._told[label](self._now() - begun)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone, or has ended."""
        begun = self._now()
        super().pod_deleted(pod)
        self._told["AssignedPodDelete" if pod.spec.node_name else "UnschedulablePodDelete"](self._now() - begun)

    def node_added(self, node: Node) -> None:
        """A node has come, or is first seen."""
        begun = self._now()
        super().node_added(node)
        self._told["NodeAdd"](self._now() - begun)

    def node_updated(self, old: Node, node: Node) -> None:
        """A node has changed."""
        begun = self._now()
        super().node_updated(old, node)
        self._told["NodeUpdate"](self._now() - begun)

    def node_deleted(self, node: Node) -> None:
        """A node is gone."""
        begun = self._now()
        super().node_deleted(node)
        self._told["NodeDelete"](self._now() - begun)


class MeasuredPreemptions(PreemptionsUnderWay):
    """Preemptions under way, counted with their victims and with the time until all of these are told to go.

    Args:
        measures: Where they are counted.
        clock: Time.
    """

    __slots__ = ("_begun", "_clock", "_measures")

    def __init__(self, measures: Measures, clock: Clock) -> None:
        super().__init__()
        self._begun: dict[Preemption, float] = {}
        self._measures = measures
        self._clock = clock

    def begin(self, preemption: Preemption) -> None:
        """Note one."""
        super().begin(preemption)
        self._begun[preemption] = self._clock.now()
        self._measures.preemption_started(preemption.victim_count)

    def end(self, preemption: Preemption) -> None:
        """Its evictions are issued, or given up."""
        super().end(preemption)
        begun = self._begun.pop(preemption, None)
        if begun is not None:
            self._measures.preemption_ended(self._clock.now() - begun, has_failed=preemption.has_failed)


class MeasuredRules(QueueingRules):
    """A profile's rules for the queue, whose gates and hints are timed.

    Args:
        instance: The profile.
        backoffs: Seconds of the first and of the longest backoff.
        measures: Where they are counted.
        clock: Time.
    """

    __slots__ = ("_asked", "_gates", "_now")

    def __init__(
        self, instance: FrameworkInstance, backoffs: tuple[float, float], measures: Measures, clock: Clock
    ) -> None:
        # What makes members wait for each other at Permit needs them tried one by one.
        is_by_permit = any(plugin.name == "Coscheduling" for plugin in instance.permit)
        super().__init__(
            instance.pre_enqueue,
            instance.registrations,
            instance.queue_sort.sort_key,
            *backoffs,
            places_gangs=not is_by_permit,
        )
        # The rules are frozen for whoever holds them.
        object.__setattr__(self, "_gates", measures.profile(instance.name).gates)
        object.__setattr__(self, "_asked", measures.hints_asked)
        object.__setattr__(self, "_now", clock.now)

    _gates: tuple[Backlog, ...]
    _asked: Backlogs[tuple[str, str, str]]
    _now: Callable[[], float]

    def gate(self, pod: QueuedPod) -> Status:
        """Success if every PreEnqueue plugin lets the pod in, else the first that does not."""
        begun = self._now()
        status = super().gate(pod)
        self._gates[status.code].observe(self._now() - begun)
        return status

    def interest(self, event: ClusterEvent) -> Interest:
        """What is registered for ``event``."""
        found = self._by_event.get(event)
        if found is None:
            timed = {
                plugin: tuple(self._timed(plugin, event.name, entry) for entry in entries)
                for plugin, entries in self.registrations.items()
            }
            found = self._by_event[event] = Interest(timed, event)
        return found

    def _timed(self, plugin: str, event: str, registration: EventRegistration) -> EventRegistration:
        hint, now = registration.hint, self._now
        if hint is None:
            return registration

        queue, skip, failed = (self._asked.of((plugin, event, answer)).observe for answer in _ANSWERS)

        def ask(pod: Pod, old: object | None, new: object | None) -> Hint:
            begun = now()
            try:
                answer = hint(pod, old, new)
            except Exception:
                failed(now() - begun)
                raise
            (skip if answer is _SKIP else queue)(now() - begun)
            return answer

        return replace(registration, hint=ask)
