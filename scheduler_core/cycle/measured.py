"""The feed and the books of preemptions, with a watch beside them.

Owns the taking of times. It must not do anything else: what is measured is done by the classes that it derives from.
Why derived classes rather than readings there: taking an event in is no business of numbers, and tests that want none
use the plain ones.

Labels follow kube-scheduler v1.36.3 (``eventhandlers.go``); an update counts once under its kind, while the reference
counts it once for each property that changed.
"""

from __future__ import annotations

from scheduler_core.cycle.cluster_feed import ClusterFeed
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.measures import Measures
from scheduler_core.framework.preemptions import Preemption, PreemptionsUnderWay
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock


class MeasuredFeed(ClusterFeed):
    """Takes changes of pods and nodes, and counts how long that takes."""

    def __init__(self, context: CycleContext) -> None:
        super().__init__(context)
        self._now = context.clock.now
        self._handled = context.measures.event_handled

    def pod_added(self, pod: Pod) -> None:
        """A pod has come, or is first seen."""
        begun = self._now()
        super().pod_added(pod)
        self._handled("AssignedPodAdd" if pod.spec.node_name else "UnschedulablePodAdd", self._now() - begun)

    def pod_updated(self, old: Pod, pod: Pod) -> None:
        """A pod has changed; one that was bound has left the waiting and come to the placed ones."""
        begun = self._now()
        super().pod_updated(old, pod)
        if not pod.spec.node_name:
            label = "UnschedulablePodUpdate"
        else:
            label = "AssignedPodUpdate" if old.spec.node_name else "AssignedPodAdd"
        self._handled(label, self._now() - begun)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone, or has ended."""
        begun = self._now()
        super().pod_deleted(pod)
        self._handled("AssignedPodDelete" if pod.spec.node_name else "UnschedulablePodDelete", self._now() - begun)

    def node_added(self, node: Node) -> None:
        """A node has come, or is first seen."""
        begun = self._now()
        super().node_added(node)
        self._handled("NodeAdd", self._now() - begun)

    def node_updated(self, old: Node, node: Node) -> None:
        """A node has changed."""
        begun = self._now()
        super().node_updated(old, node)
        self._handled("NodeUpdate", self._now() - begun)

    def node_deleted(self, node: Node) -> None:
        """A node is gone."""
        begun = self._now()
        super().node_deleted(node)
        self._handled("NodeDelete", self._now() - begun)


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
        """Note one; its victims are the last and those before it."""
        super().begin(preemption)
        self._begun[preemption] = self._clock.now()
        self._measures.preemption_started(preemption.waiting_for + 1)

    def end(self, preemption: Preemption) -> None:
        """Its evictions are issued, or given up."""
        super().end(preemption)
        begun = self._begun.pop(preemption, None)
        if begun is not None:
            self._measures.preemption_ended(self._clock.now() - begun, has_failed=preemption.has_failed)
