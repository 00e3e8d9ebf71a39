"""One gang: its PodGroup, its members in every state, and the results of its attempts.

Members are counted by UID, in the state that the API server last reported. Succeeded members of the same run still
count for the quorum; otherwise a Job whose first pods have completed could never replace a failed one.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, MutableSet
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupRun, GroupSource, GroupTopology, PodGroup
from scheduler_core.queueing.gang_run import GangRun

if TYPE_CHECKING:
    from scheduler_core.queueing.group_trees import GangTree

QUORUM_BEGINNINGS = ("minCount (", "0/")
"""Beginnings of :attr:`GangOutcome.quorum`."""

_NAMED = 5
"""Maximum number of gated members named in a message."""

_FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """Result of a gang's last attempt.

    Attributes:
        reason: Reason of the condition: ``Scheduled``, ``Unschedulable``, ``SchedulerError``, ``TimedOut`` or
            ``Preempting``.
        message: Message of the condition; does not change while the result is the same.
        fitting: Number of feasible members.
        domain: The topology domain of the members, such as ``zone=a``; "" without a topology constraint.
        quorum: What the quorum lacks in the words of kube-scheduler v1.37.1; "" if it is scheduled, or for an error.
    """

    reason: str
    message: str
    fitting: int = 0
    domain: str = ""
    quorum: str = ""

    @property
    def is_scheduled(self) -> bool:
        """Whether the quorum was scheduled."""
        return self.reason == "Scheduled"


class Gang:
    """A PodGroup with its members.

    Attributes:
        key: Key of the group.
        group: The PodGroup object; None if it does not exist.
        group_uid: UID of the last PodGroup object, to which the record of attempts belongs; "" before the first.
        pods: All existing members, ended ones included, by UID, as last reported.
        placed: UIDs of assumed or bound members that have not ended and are not being deleted.
        run: Which ended members count for the quorum.
        is_first: Whether the PodGroup is the first one that was reported for its members.
        waiting: Ungated members that wait for their gang, by UID.
        gates: UIDs of members that PreEnqueue plugins gate.
        aside: By UID, members that cannot be attempted: gated ones, and those whose schedulerName no profile serves.
        binding_steps: By UID, what members that are being bound wait for.
        binding: Number of binding cycles of members that were scheduled together.
        member_left: Called when a member is deleted during binding; None if no binding is active.
        entry: The gang's entry in the queue; None without a quorum.
        since: Time at which its first member or its PodGroup was seen, in the clock's seconds; orders equal priorities.
        first_attempt: Time of the first attempt since the quorum was last missing, UTC; None for none.
        last_attempt: Time of the last attempt, UTC; None for none.
        first_failure: Time of the first failure since the last success, in the clock's seconds; None for none.
        nearest: Failure key, text on the nearest nodes, and the time it was computed; None if it was not computed.
        outcome: Result of the last attempt; None for none.
        refusal: Why its PodGroup cannot be scheduled, with the remedy; "" if there is no such object.
        reservation: Description of the reserved nodes; "" for none.
        was_known: Whether its PodGroup was known when the queue last reviewed the gang.
        was_whole: Whether its members were scheduled one by one when the queue last reviewed the gang.
        is_reported: Whether its missing PodGroup was logged.
        has_lost_member: Whether a waiting member has left since the queue last reviewed the gang or tree.
        was_rejected: Whether waiting members may have the condition of an attempt; reported when the quorum is lost.
        victims: Pods that are being evicted for it, (namespace, name).
        tree: The tree of groups that it is a part of; None if its PodGroup is no child of a CompositePodGroup.
    """

    __slots__ = (
        "aside",
        "binding",
        "binding_steps",
        "entry",
        "first_attempt",
        "first_failure",
        "gates",
        "group",
        "group_uid",
        "has_lost_member",
        "is_first",
        "is_reported",
        "key",
        "last_attempt",
        "member_left",
        "nearest",
        "outcome",
        "placed",
        "pods",
        "refusal",
        "reservation",
        "run",
        "since",
        "tree",
        "victims",
        "waiting",
        "was_known",
        "was_rejected",
        "was_whole",
    )

    def __init__(self, key: GroupKey, now: float) -> None:
        self.key = key
        self.group: PodGroup | None = None
        self.group_uid = ""
        self.pods: MutableMapping[str, Pod] = {}
        self.placed: MutableSet[str] = set()
        self.run = GangRun()
        self.is_first = True
        self.waiting: MutableMapping[str, QueuedPod] = {}
        self.gates: MutableSet[str] = set()
        self.aside: dict[str, QueuedPod] = {}
        self.binding_steps: dict[str, str] = {}
        self.tree: GangTree | None = None
        self.binding = 0
        self.member_left: Callable[[], None] | None = None
        self.was_known = self.was_rejected = self.has_lost_member = False
        self.was_whole = False
        self.is_reported = False
        self.refusal = ""
        self.begin(now)

    def begin(self, now: float) -> None:
        """Reset the record of attempts; a new PodGroup object does not inherit that of an earlier one."""
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
        """Number of waiting members that must be scheduled together; 0 if further ones may be scheduled one by one."""
        if self.group is None:
            return 1
        return max(0, self.group.min_member - len(self.placed) - self.succeeded)

    @property
    def succeeded(self) -> int:
        """Number of members of its run that have succeeded, including those whose pods are gone."""
        group = self.group
        return 0 if group is None else self.run.succeeded(group.min_member, group.run, is_complete=self._is_complete)

    @property
    def run_record(self) -> GroupRun | None:
        """Record of its run; None if its PodGroup is not known, or if nothing shows that the quorum was complete."""
        group = self.group
        if group is None:
            return None
        record = self.run.record(group.min_member, group.run, is_complete=self._is_complete)
        is_bound = any(pod.spec.node_name for uid in self.placed if (pod := self.pods.get(uid)) is not None)
        return record if record.succeeded or record.since is not None or is_bound else None

    def follow_run(self) -> None:
        """Follow its run from now on, if its PodGroup is known."""
        group = self.group
        if group is not None:
            self.run.follow(self.pods.values(), group.min_member, group.run, is_complete=self._is_complete)

    @property
    def _is_complete(self) -> bool:
        """Whether only the members show its run, and a missing one counts as succeeded.

        If other members may be missing, because the quorum was raised or a scheduler handled the group before, a
        missing member counts as one that is to be created.
        """
        group = self.group
        return group is not None and group.is_fresh and self.is_first and group.generation <= 1

    @property
    def unit(self) -> Gang:
        """What has the entry in the queue: the tree that it is a part of, or itself."""
        return self.tree or self

    @property
    def parts(self) -> tuple[Gang, ...]:
        """The gangs with the members: itself, or the gangs of a tree."""
        return (self,)

    @property
    def is_tree(self) -> bool:
        """Whether it is a tree of gangs."""
        return False

    @property
    def waits_since(self) -> float:
        """When the first of its gangs with waiting members was seen."""
        return min((part.since for part in self.parts if part.waiting), default=self.since)

    def depends_on(self, source: GroupSource) -> bool:
        """Return whether its members are gated while the groups of a source are not known."""
        is_child = self.group is not None and bool(self.group.parent)
        return self.key.source is source or (is_child and source is GroupSource.COMPOSITE)

    @property
    def domain_labels(self) -> set[str]:
        """Node labels of its topology constraint."""
        topology = None if self.group is None else self.group.topology
        return set() if topology is None else {topology.key, *topology.levels}

    @property
    def topologies(self) -> list[tuple[GroupTopology, list[Gang]]]:
        """Topology constraints, each with the gangs that share its domain."""
        topology = None if self.group is None else self.group.topology
        return [] if topology is None else [(topology, [self])]

    @property
    def is_held(self) -> bool:
        """Whether a gated member holds all waiting members back."""
        if self.tree is not None:
            return self.tree.is_held
        return bool(self.gates) and self.group is not None and self.group.waits_for_gated

    @property
    def why_held(self) -> str:
        """Which members are gated; for :attr:`is_held`."""
        if self.tree is not None:
            return self.tree.why_held
        names = sorted(pod.metadata.name for uid in self.gates if (pod := self.pods.get(uid)) is not None)
        others = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"no member is scheduled while others are gated: {', '.join(names[:_NAMED])}{others}"

    @property
    def is_one_by_one(self) -> bool:
        """Whether waiting members are scheduled as single pods, because the quorum is scheduled."""
        return not self.needed and not self.is_held and (self.tree is None or self.tree.settles(self))

    @property
    def has_quorum(self) -> bool:
        """Whether enough members wait, and no gated member holds them back; False for a part of a tree."""
        if self.group is None or self.tree is not None:
            return False
        return len(self.waiting) >= self.needed and not self.is_held

    @property
    def priority(self) -> int:
        """Priority of the group, or the highest of its waiting members; 0 without any."""
        if self.group is not None and self.group.priority is not None:
            return self.group.priority
        return max((pod.info.priority for pod in self.waiting.values()), default=0)

    # -- what status shows --------------------------------------------------------------------------------------

    @property
    def members(self) -> int:
        """Number of members that are not being deleted."""
        return sum(pod.metadata.deletion_timestamp is None for pod in self.pods.values())

    @property
    def gated(self) -> int:
        """Number of members with scheduling gates."""
        return sum(bool(pod.spec.scheduling_gates) and not pod.spec.node_name for pod in self.pods.values())

    @property
    def failed(self) -> int:
        """Number of failed members of its run."""
        return sum(pod.status.phase == _FAILED and self.run.includes(pod) for pod in self.pods.values())

    # -- counting -----------------------------------------------------------------------------------------------

    def saw(self, pod: Pod) -> None:
        """Record a created or updated member."""
        uid = pod.metadata.uid
        before, self.pods[uid] = self.pods.get(uid), pod
        self.run.saw(before, pod, self.pods.values(), 1 if self.group is None else self.group.min_member)
        if self.tree is not None:
            self.tree.member_changed(self.key)
        if pod.is_terminal or pod.metadata.deletion_timestamp is not None:
            self.placed.discard(uid)
        elif pod.spec.node_name:
            self.placed.add(uid)

    def lost(self, uid: str) -> None:
        """Remove a deleted member."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.run.lost(pod, is_last=not self.pods)
        self.placed.discard(uid)
        self.gates.discard(uid)
        self.aside.pop(uid, None)
        self.binding_steps.pop(uid, None)
        self.drop_waiting(uid)

    def drop_waiting(self, uid: str) -> bool:
        """Remove a waiting member, without which the others may be feasible; return whether it waited."""
        if self.waiting.pop(uid, None) is None:
            return False
        self.unit.has_lost_member = True
        return True
