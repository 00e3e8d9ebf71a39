"""A scheduling queue on virtual time, whose scheduling rules and attempts the test sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scheduler_core.framework.cluster_events import (
    NODE_ADD,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
)
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.scheduling import place_of
from tests.support.virtual_clock import VirtualClock

NAME = "default-scheduler"
LABELLED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
COLUMNS = NodeColumns()


def by_priority(queued: QueuedPod) -> Any:
    return -queued.info.priority, queued.timestamp, queued.sequence


class LabelGate(PreEnqueuePlugin):
    """PreEnqueue plugin that rejects pods with the label ``gated``."""

    name = "LabelGate"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unschedulable("labelled") if "gated" in pod.pod.metadata.labels else SUCCESS


class NameGate(PreEnqueuePlugin):
    """PreEnqueue plugin that rejects the pods named in ``closed``."""

    name = "NameGate"
    closed: ClassVar[set[str]] = set()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject a pod whose name is in ``closed``."""
        return unschedulable("closed") if pod.pod.metadata.name in self.closed else SUCCESS


@dataclass
class QueueWorld:
    """Queue and its rules; plugin A has the queueing hint :attr:`hint`, plugin B registers every event."""

    hint: Callable[[Pod, object | None, object | None], Hint] = lambda _pod, _old, _new: Hint.QUEUE
    sort_key: Callable[[QueuedPod], Any] = by_priority
    clock: VirtualClock = field(default_factory=VirtualClock)
    rules: dict[str, QueueingRules] = field(default_factory=dict)
    max_backoff: float = 10.0

    def __post_init__(self) -> None:
        self.queue = SchedulingQueue(self.rules.get, self.clock)
        self.serve(NAME)

    def serve(self, name: str) -> None:
        """Activate or replace a profile."""
        self.rules[name] = QueueingRules(
            (LabelGate(None, FakeHandle()),),
            {
                "A": (EventRegistration(NODE_ADD, self.current_hint),),
                "B": (EventRegistration(ClusterEvent(Resource.WILDCARD, Action.ALL)),),
                "LabelGate": (EventRegistration(LABELLED),),
            },
            self.current_sort_key,
            max_backoff=self.max_backoff,
        )
        self.queue.profile_changed(name)

    def current_hint(self, waiting: Pod, old: object | None, new: object | None) -> Hint:
        """Return the result of the current hint."""
        return self.hint(waiting, old, new)

    def current_sort_key(self, queued: QueuedPod) -> Any:
        """Return the current sort key."""
        return self.sort_key(queued)

    def remove_profile(self, name: str) -> None:
        """Remove a profile."""
        del self.rules[name]
        self.queue.profile_changed(name)

    def add(self, *pods: Pod) -> None:
        """Add pods."""
        for each in pods:
            self.queue.add(COLUMNS.compile_pod(each))

    def pop(self) -> QueuedPod:
        """Pop the next pod; there must be one."""
        return present(self.queue.pop())

    def fail(self, queued: QueuedPod, by: Sequence[str] = (), pending: Sequence[str] = ()) -> None:
        """Report a failed attempt."""
        queued.rejected_by, queued.pending_on = frozenset(by) | frozenset(pending), frozenset(pending)
        self.queue.failed(queued)

    def pop_and_fail(self, by: Sequence[str] = (), pending: Sequence[str] = ()) -> QueuedPod:
        """Pop the next pod and report a failed attempt."""
        queued = self.pop()
        self.fail(queued, by, pending)
        return queued

    def place_of(self, pod: Pod) -> str:
        """Return the place of a pod in the queue; see :func:`tests.support.scheduling.place_of`."""
        return place_of(self.queue, pod)


WEB, OTHER = pod("web"), pod("other")
GATED = pod("web", labels={"gated": ""})


def queue_with(*pods: Pod, **fields: Any) -> QueueWorld:
    """Return a world whose queue contains the pods."""
    world = QueueWorld(**fields)
    world.add(*pods)
    return world
