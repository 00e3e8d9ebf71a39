"""One gang: its group, its members wherever they are, and how its attempts went.

Owns the counting: a member is counted by its UID, in its own namespace, and by what the API server last said of it.
Must not know how members are placed, nor how the queue moves them. Why members are kept when they have ended: those
that succeeded still count for the quorum, or a Job whose first pods are done could never replace one that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup

_SUCCEEDED, _FAILED, _RUNNING = "Succeeded", "Failed", "Running"


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """How the last attempt of a gang ended.

    Attributes:
        reason: One CamelCase word for the condition: ``Scheduled``, ``Unschedulable``, ``SchedulerError``,
            ``TimedOut`` or ``Preempting``.
        message: Why, in words; the same words as long as it is the same.
        fitting: Members for which there was a node.
        tried: Members that the attempt was about.
        domain: The topology domain in which members were placed, such as ``zone=a``; "" where none was asked for.
    """

    reason: str
    message: str
    fitting: int = 0
    tried: int = 0
    domain: str = ""

    @property
    def is_scheduled(self) -> bool:
        """Whether the quorum was placed."""
        return self.reason == "Scheduled"


class Gang:
    """A gang.

    Attributes:
        key: Which group.
        group: What the PodGroup object asks for; None while there is none.
        group_uid: UID of the last PodGroup object, to which the record of attempts belongs; "" before the first.
        pods: Every member that exists, ended ones included, by UID, as last reported.
        placed: UIDs of members that have a node, bound or only assumed, and have neither ended nor are being deleted.
        succeeded: UIDs of members that ended well.
        waiting: Members whose gates are open and that wait for their gang, by UID.
        binding: Members whose binding has begun together and is not over.
        member_left: To be called when a member goes while they are bound; None while none is.
        entry: What stands for the gang in the queue; None while there is no quorum.
        since: When its first member, or its PodGroup, was seen, in the clock's seconds; its place among equals.
        first_attempt: When it was first tried since a quorum was last missing, UTC; None if it was not.
        last_attempt: When it was last tried, UTC; None if it was not.
        first_failure: When the first of its failures in a row was, in the clock's seconds; None if it did not fail.
        nearest: For which failure it was found out what the gang lacks least, that, and when; None if it was not.
        outcome: How its last attempt ended; None if it was not tried.
        reservation: Nodes that are kept for it, in words; "" for none.
        was_known: Whether its PodGroup was known when the queue last reviewed the gang.
        was_whole: Whether its quorum was placed when it was last looked at.
        is_reported: Whether it was logged that its PodGroup is missing.
        victims: Pods that are being evicted for it, (namespace, name).
    """

    __slots__ = (
        "binding",
        "entry",
        "first_attempt",
        "first_failure",
        "group",
        "group_uid",
        "is_reported",
        "key",
        "last_attempt",
        "member_left",
        "nearest",
        "outcome",
        "placed",
        "pods",
        "reservation",
        "since",
        "succeeded",
        "victims",
        "waiting",
        "was_known",
        "was_whole",
    )

    def __init__(self, key: GroupKey, now: float) -> None:
        self.key = key
        self.group: PodGroup | None = None
        self.group_uid = ""
        self.pods: dict[str, Pod] = {}
        self.placed: set[str] = set()
        self.succeeded: set[str] = set()
        self.waiting: dict[str, QueuedPod] = {}
        self.binding = 0
        self.member_left: Callable[[], None] | None = None
        self.was_known = False
        self.was_whole = False
        self.is_reported = False
        self.begin(now)

    def begin(self, now: float) -> None:
        """Start the record of attempts, which no PodGroup object inherits from an earlier one of its name."""
        self.entry: QueuedGang | None = None
        self.since = now
        self.first_attempt: datetime | None = None
        self.last_attempt: datetime | None = None
        self.first_failure: float | None = None
        self.nearest: tuple[str, str, float] | None = None
        self.outcome: GangOutcome | None = None
        self.reservation = ""
        self.victims: tuple[tuple[str, str], ...] = ()

    @property
    def needed(self) -> int:
        """How many waiting members must be placed together; 0 if further ones may come one by one."""
        if self.group is None:
            return 1
        return max(0, self.group.min_member - len(self.placed) - len(self.succeeded))

    @property
    def has_quorum(self) -> bool:
        """Whether enough members wait."""
        return self.group is not None and len(self.waiting) >= self.needed

    @property
    def priority(self) -> int:
        """The group's own, or the highest of its waiting members; 0 without any."""
        if self.group is not None and self.group.priority is not None:
            return self.group.priority
        return max((pod.info.priority for pod in self.waiting.values()), default=0)

    # -- what status shows --------------------------------------------------------------------------------------

    @property
    def members(self) -> int:
        """Members that exist and are not being deleted."""
        return sum(pod.metadata.deletion_timestamp is None for pod in self.pods.values())

    @property
    def gated(self) -> int:
        """Members that their own scheduling gates hold back."""
        return sum(bool(pod.spec.scheduling_gates) and not pod.spec.node_name for pod in self.pods.values())

    @property
    def bound(self) -> int:
        """Members that are bound to a node and have not ended."""
        return sum(bool(pod.spec.node_name) and not pod.is_terminal for pod in self.pods.values())

    @property
    def running(self) -> int:
        """Members that run."""
        return self._in_phase(_RUNNING)

    @property
    def failed(self) -> int:
        """Members that failed."""
        return self._in_phase(_FAILED)

    def _in_phase(self, phase: str) -> int:
        return sum(pod.status.phase == phase for pod in self.pods.values())

    # -- counting -----------------------------------------------------------------------------------------------

    def saw(self, pod: Pod) -> None:
        """A member has come or has changed."""
        uid = pod.metadata.uid
        self.pods[uid] = pod
        if pod.is_terminal:
            self.placed.discard(uid)
            if pod.status.phase == _SUCCEEDED:
                self.succeeded.add(uid)
        elif pod.metadata.deletion_timestamp is not None:
            self.placed.discard(uid)
        elif pod.spec.node_name:
            self.placed.add(uid)

    def lost(self, uid: str) -> None:
        """A member is gone."""
        self.pods.pop(uid, None)
        self.placed.discard(uid)
        self.succeeded.discard(uid)
        self.waiting.pop(uid, None)
