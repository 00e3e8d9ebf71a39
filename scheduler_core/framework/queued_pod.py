"""A pod in the scheduling queue, as QueueSort and diagnosis see it.

Owns a pod's history; the queue writes it. Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/types.go``
(``QueuedPodInfo``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.snapshot.pod_info import PodInfo


class Place(IntEnum):
    """Where in the queue a pod is; see :mod:`scheduler_core.queueing.scheduling_queue`."""

    ACTIVE = 0
    BACKOFF = 1
    ERROR_BACKOFF = 2
    UNSCHEDULABLE = 3
    GATED = 4
    PARKED = 5
    IN_FLIGHT = 6
    GROUPED = 7
    """With its gang, whose entry is in one of the places before, or nowhere while a quorum is missing."""
    NOWHERE = 8
    """Not in the queue: it is between two places, or was removed."""

    @property
    def label(self) -> str:
        """Its name for people, such as ``errorBackoff``."""
        first, *others = self.name.lower().split("_")
        return first + "".join(map(str.capitalize, others))


class QueuedPod:
    """A pod and its history in the queue.

    Attributes:
        info: The compiled pod; replaced when the pod is updated.
        uid: The pod's UID.
        profile: The scheduler name that it asks for.
        place: Where in the queue it is.
        timestamp: When it was added, or last came back from an attempt, in the clock's seconds; waking, backing off
            and gates leave it, so that a pod keeps its turn among equals.
        first_added: When it first came.
        attempts: Scheduling attempts so far.
        unschedulable_count: Attempts that ended in a rejection; backoff grows by it.
        error_count: Errors in a row; their backoff is counted apart.
        backoff_until: When its backoff ends; 0 for none, or not computed yet.
        rejected_by: Plugins that rejected it in its last attempt, and gates that have held it since.
        pending_on: Of those, the ones that answered Pending.
        gated_by: The PreEnqueue plugin that holds it back, "" for none.
        gate_reasons: What that plugin said.
        was_flushed: Whether it is tried again only because it was parked too long.
        sequence: A number by arrival that settles what time and priority leave open.
        sort_key: The QueueSort plugin's key, computed when it enters the active or the backoff queue.
        first_attempt: When it first entered the active queue; 0 before it.
        group: The gang to which it belongs; None for none.
    """

    __slots__ = (
        "attempts",
        "backoff_until",
        "error_count",
        "first_added",
        "first_attempt",
        "gate_reasons",
        "gated_by",
        "group",
        "info",
        "pending_on",
        "place",
        "profile",
        "rejected_by",
        "sequence",
        "sort_key",
        "timestamp",
        "uid",
        "unschedulable_count",
        "was_flushed",
    )

    def __init__(self, info: PodInfo, now: float, sequence: int) -> None:
        self.info = info
        self.uid = info.uid
        self.profile = info.pod.spec.scheduler_name
        self.timestamp = now
        self.first_added = now
        self.sequence = sequence
        self.attempts = 0
        self.unschedulable_count = 0
        self.error_count = 0
        self.backoff_until = 0.0
        self.first_attempt = 0.0
        self.rejected_by: frozenset[str] = frozenset()
        self.pending_on: frozenset[str] = frozenset()
        self.gated_by = ""
        self.gate_reasons: tuple[str, ...] = ()
        self.sort_key: object = None
        self.place = Place.NOWHERE
        self.was_flushed = False
        self.group: GroupKey | None = None

    @property
    def askers(self) -> Iterable[PodInfo]:
        """The pods whose wishes count when an event may help."""
        return (self.info,)

    @property
    def least_backoff(self) -> float:
        """Seconds that it backs off at the least after a failure, however few there were."""
        return 0.0

    @property
    def standing(self) -> QueuedPod:
        """What the QueueSort plugin orders it by."""
        return self

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.key}, attempts={self.attempts}, rejected_by={sorted(self.rejected_by)})"


class QueuedGang(QueuedPod):
    """What stands for a gang in the queue: one entry for all its members, which stay :attr:`Place.GROUPED`.

    It waits, backs off and is woken as a pod does. Its ``info`` is a member's, with the gang's priority.

    Attributes:
        gang_key: Which gang.
        asking: Members that were turned away, each kind once; hints are asked for them.
        tried_at: When its last attempt began, in the clock's seconds.
    """

    __slots__ = ("_least_backoff", "_standing", "asking", "gang_key", "tried_at")

    def __init__(self, key: GroupKey, info: PodInfo, now: float, sequence: int) -> None:
        super().__init__(info, now, sequence)
        self.uid = f"gang {key.source}/{key}"
        self.gang_key = key
        self.asking: tuple[PodInfo, ...] = ()
        self.tried_at = now
        self._least_backoff = 0.0
        self._standing = QueuedPod(info, now, sequence)

    @property
    def askers(self) -> Iterable[PodInfo]:
        """Members that were turned away, or one that stands for all."""
        return self.asking or (self.info,)

    @property
    def least_backoff(self) -> float:
        """What :meth:`keep_away` said last."""
        return self._least_backoff

    def keep_away(self, seconds: float) -> None:
        """Let it back off for so many seconds at the least."""
        self._least_backoff = seconds

    @property
    def standing(self) -> QueuedPod:
        """A pod of the gang's priority that has waited as long as the gang: failures do not cost it its turn."""
        return self._standing

    def stand(self, priority: int, since: float) -> None:
        """Set what it is ordered by.

        Args:
            priority: The gang's.
            since: Since when it waits, in the clock's seconds.
        """
        self.info.priority = self._standing.info.priority = priority
        self._standing.timestamp = since
