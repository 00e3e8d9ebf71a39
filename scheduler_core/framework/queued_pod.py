"""A pod in the scheduling queue with its history, as QueueSort plugins see it.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/types.go`` (``QueuedPodInfo``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from scheduler_core.model.pod import PodCondition
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.snapshot.pod_info import PodInfo


class Place(IntEnum):
    """Part of the queue that contains a pod; see :mod:`scheduler_core.queueing.scheduling_queue`."""

    ACTIVE = 0
    BACKOFF = 1
    ERROR_BACKOFF = 2
    UNSCHEDULABLE = 3
    GATED = 4
    PARKED = 5
    IN_FLIGHT = 6
    GROUPED = 7
    """With its gang, whose entry is in one of the places above, or nowhere while members of the quorum are missing."""
    NOWHERE = 8
    """Not in the queue: the pod is moving between two places, or was removed."""

    @property
    def label(self) -> str:
        """Name for logs and metrics, such as ``errorBackoff``."""
        first, *others = self.name.lower().split("_")
        return first + "".join(map(str.capitalize, others))


class QueuedPod:
    """A pod and its history in the queue.

    Attributes:
        timestamp: When it was added, or last returned from an attempt, in the clock's seconds; activation, backoff and
            gates do not change it, so a pod keeps its position among equals.
        unschedulable_count: Number of attempts that ended in a rejection; backoff grows with it.
        error_count: Number of consecutive errors; they have a backoff of their own.
        backoff_until: When its backoff ends; 0 for none, or not computed yet.
        rejected_by: Plugins that rejected it in its last attempt, and gates that have held it since.
        counted_rejections: Those of them that the queue counts for its metrics; only the queue changes it.
        gated_by: The PreEnqueue plugin that gates it, "" for none.
        is_faulty: Whether an error in the queue or of its gate delays it, so that its gates are checked again later.
        is_nomination_withheld: Whether its nomination does not count until its gate opens.
        was_flushed: Whether it is retried only because it was unschedulable for too long.
        flushed_at: When it was last retried for that reason since its last attempt; 0 for never.
        sequence: Arrival number; breaks ties of time and priority.
        sort_key: The key of the QueueSort plugin, computed when the pod enters the active or the backoff queue.
        minimum_backoff: Minimum backoff after a failure in seconds, regardless of the number of failures.
        was_given_up: Whether its last attempt took all steps that it may.
        unschedulable_since: Start of its first rejected attempt, in the clock's seconds; None for none.
        first_attempt: When it first entered the active queue; 0 before that.
        reported_condition: The PodScheduled condition that was last written, which the pod may not show yet; None for
            none.
    """

    __slots__ = (
        "attempts", "backoff_until", "counted_rejections", "error_count", "first_attempt", "flushed_at",
        "gate_reasons", "gated_by", "group", "info", "is_faulty", "is_nomination_withheld", "minimum_backoff",
        "pending_on", "place", "profile", "rejected_by", "reported_condition", "sequence", "sort_key", "timestamp",
        "uid", "unschedulable_count", "unschedulable_since", "was_flushed", "was_given_up",
    )  # fmt: skip

    def __init__(self, info: PodInfo, now: float, sequence: int) -> None:
        self.info = info
        self.uid = info.uid
        self.profile = info.pod.spec.scheduler_name
        self.timestamp = now
        self.sequence = sequence
        self.attempts = 0
        self.unschedulable_count = 0
        self.error_count = 0
        self.backoff_until = 0.0
        self.first_attempt = 0.0
        self.unschedulable_since: float | None = None
        self.rejected_by: frozenset[str] = frozenset()
        self.counted_rejections: frozenset[str] = frozenset()
        self.pending_on: frozenset[str] = frozenset()
        self.gated_by = ""
        self.gate_reasons: tuple[str, ...] = ()
        self.is_nomination_withheld = False
        self.minimum_backoff = 0.0
        self.is_faulty = False
        self.sort_key: object = None
        self.place = Place.NOWHERE
        self.was_flushed = False
        self.was_given_up = False
        self.flushed_at = 0.0
        self.group: GroupKey | None = None
        self.reported_condition: PodCondition | None = None

    @property
    def is_reported(self) -> bool:
        """Whether its condition PodScheduled is False, or was written so and the pod does not show it yet."""
        return self.reported_condition is not None or self.info.pod.unscheduled_reason != ""

    entity = "pod"
    """Value of the label ``type`` of kube-scheduler's metrics of queued entities."""

    @property
    def size(self) -> int:
        """Number of pods that are queued with this entry."""
        return 1

    @property
    def hint_pods(self) -> Iterable[PodInfo]:
        """Pods for which queueing hints are called on an event."""
        return (self.info,)

    @property
    def sort_entry(self) -> QueuedPod:
        """Entry that is passed to the QueueSort plugin."""
        return self

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.key}, attempts={self.attempts}, rejected_by={sorted(self.rejected_by)})"


class QueuedGang(QueuedPod):
    """Queue entry of a gang: one entry for all its members, whose own place is :attr:`Place.GROUPED`.

    It is queued, backed off and requeued like a pod. ``info`` is that of a member, with the priority of the gang.

    Attributes:
        members: Members that wait, by UID; the gang adds and removes them.
        rejected_members: Rejected members, one per pod class; queueing hints are called for them.
        busy_since: When this process began or continued its last attempt, whose search was in another process before.
    """

    __slots__ = ("_sort_entry", "busy_since", "gang_key", "members", "rejected_members", "tried_at")

    entity = "podgroup"

    def __init__(
        self, key: GroupKey, members: Mapping[str, QueuedPod], info: PodInfo, now: float, sequence: int
    ) -> None:
        super().__init__(info, now, sequence)
        self.members = members
        self.uid = f"gang {key.source}/{key}"
        self.gang_key = key
        self.rejected_members: tuple[PodInfo, ...] = ()
        self.tried_at = self.busy_since = now
        self._sort_entry = QueuedPod(info, now, sequence)

    @property
    def size(self) -> int:
        """Number of members that wait."""
        return len(self.members)

    @property
    def hint_pods(self) -> Iterable[PodInfo]:
        """Rejected members, or one member that represents all."""
        return self.rejected_members or (self.info,)

    @property
    def sort_entry(self) -> QueuedPod:
        """A pod with the gang's priority and waiting time: failures do not cost the gang its position."""
        return self._sort_entry

    def set_sort_position(self, priority: int, since: float) -> None:
        """Set the priority and the time by which QueueSort orders the gang.

        Args:
            since: When the gang started to wait, in the clock's seconds.
        """
        self.info.priority = self._sort_entry.info.priority = priority
        self._sort_entry.timestamp = since
