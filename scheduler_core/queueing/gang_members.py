"""One gang: its PodGroup, its members in every state, its runs, and the results of its attempts.

Members are counted by UID, in the state that the API server last reported. Succeeded members of the same run still
count for the quorum; otherwise a Job whose first pods have completed could never replace a failed one.

A PodGroup may be used again, and ended pods may be collected while their run goes on. Therefore a succeeded member
counts for the quorum as long as its run lasts, whether or not its pod still exists, and never counts for a later run.

::

    first member ─▶ open: every member joins ─one succeeds─▶ closed: only replacements join
                     ▲                                            │ a member appears that is no replacement
                     └────────────────────────────────────────────┘ a new run, in which nothing has succeeded

kube-scheduler v1.37.1 counts no ended pod, so that a replacement may wait forever there. The record in the status of
the PodGroup replaces what no pod shows any more.

A member whose index is known (a completion index, an ordinal, a worker index) is replaced only by a pod of the same
owner and index. Other members are replaced by a pod of their name, else by one of their controller with equal requests.
Labels: Job controller and StatefulSet controller of Kubernetes v1.37.1; JobSet v0.11.1, ``jobset_types.go``;
LeaderWorkerSet v0.8.0, ``leaderworkerset_types.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, MutableSet
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from scheduler_core.config.gang_owners import OwnerInstance
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupRun, GroupSource, GroupTopology, PodGroup

if TYPE_CHECKING:
    from scheduler_core.queueing.group_trees import GangTree


NO_CONTROLLER = "none"
"""Key of the pods without a controller."""

_JOB = "Job.batch/"
_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_SUCCEEDED = "Succeeded"
_SPARE_CONTROLLERS = 16


@dataclass(slots=True)
class _Members:
    """Existing members of one controller.

    Attributes:
        alive: Number of members that have not ended and are not being deleted.
        bound: Number of those that are bound.
        succeeded: Succeeded members: creation times by UID within each slot.
    """

    alive: int = 0
    bound: int = 0
    failed: int = 0
    succeeded: dict[str, dict[str, datetime | None]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none; a member that is being deleted and has not ended does not count."""
        return not (self.alive or self.failed or self.succeeded)

    @property
    def is_new(self) -> bool:
        return not (self.bound or self.failed or self.succeeded)

    def count_since(self, since: datetime | None) -> int:
        """Return how many members succeeded that were created after *since*."""
        if since is None:
            return len(self.succeeded)
        return sum(any(at is not None and at > since for at in pods.values()) for pods in self.succeeded.values())


@dataclass(slots=True)
class _State:
    """What is known about a run.

    Attributes:
        controllers: Keys of the controllers whose pods belong to it.
        slots: Slots of the members that have succeeded, as far as their pods were seen.
        succeeded: Number of members that have succeeded, seen or not.
        since: Creation time of the newest ended member of the runs before; None for none.
        is_later: Whether it is not the first run, as far as the members show.
    """

    controllers: set[str] = field(default_factory=set)
    slots: set[str] = field(default_factory=set)
    succeeded: int = 0
    since: datetime | None = None
    is_later: bool = False


class GangRun:
    """The run of one gang.

    Attributes:
        is_followed: Whether the run is followed member by member; if not, it is inferred when it is read.
    """

    __slots__ = ("_alive", "_inferred", "_inferred_for", "_of", "_state", "is_followed")

    def __init__(self) -> None:
        self.is_followed = False
        self._of: dict[str, _Members] = {}
        self._alive = 0
        self._state = _State()
        self._inferred = self._state
        self._inferred_for: tuple[int, GroupRun | None, bool] | None = None

    # -- members ------------------------------------------------------------------------------------------------

    def saw(self, before: Pod | None, pod: Pod, members: Collection[Pod], min_member: int) -> None:
        """Count a created or updated member.

        Args:
            before: Its previous version; None for a new member.
            members: All members; read only if a new run begins.
        """
        if before is not None:
            self._count(before, -1)
        self._count(pod, 1)
        self._inferred_for = None
        if not self.is_followed:
            return
        if before is None and _is_alive(pod):
            self._join(pod, members, min_member)
        elif pod.status.phase == _SUCCEEDED and not (before is not None and before.is_terminal):
            if before is None and not self._is_open_to(pod, min_member):
                return
            self._succeed(pod)

    def lost(self, pod: Pod, *, is_last: bool) -> None:
        """Remove a deleted member; one that has succeeded keeps counting while its run lasts."""
        self._count(pod, -1)
        self._inferred_for = None
        # Without a Job nothing shows whether a later pod belongs to the run of members that are all gone.
        if is_last and not all(map(_is_job, self._state.controllers)):
            self._state = _State(since=self._state.since)

    def _count(self, pod: Pod, change: int) -> None:
        key = controller_of(pod)
        of_key = self._of.setdefault(key, _Members())
        if _is_alive(pod):
            self._alive += change
            of_key.alive += change
            of_key.bound += change * bool(pod.spec.node_name)
        elif pod.status.phase == _SUCCEEDED:
            slot, uid = _slot(key, pod), pod.metadata.uid
            if change > 0:
                of_key.succeeded.setdefault(slot, {})[uid] = pod.metadata.creation_timestamp
            elif (pods := of_key.succeeded.get(slot)) is not None:
                pods.pop(uid, None)
                if not pods:
                    del of_key.succeeded[slot]
        elif pod.is_terminal:
            of_key.failed += change
        if of_key.is_empty:
            del self._of[key]

    def _join(self, pod: Pod, members: Collection[Pod], min_member: int) -> None:
        state, key = self._state, controller_of(pod)
        if not state.succeeded or self._is_replacement(key, pod, min_member):
            state.controllers.add(key)
            if not state.succeeded and len(state.controllers) > _SPARE_CONTROLLERS + len(self._of):
                # Controllers without members matter only while succeeded members of theirs count.
                state.controllers = set(self._of)
            return
        alive = {key for key, each in self._of.items() if each.alive}
        self._state = _State(alive, since=self._newest_ended(members, state.since), is_later=True)

    @staticmethod
    def _newest_ended(members: Iterable[Pod], since: datetime | None) -> datetime | None:
        ended = (pod.metadata.creation_timestamp for pod in members if pod.is_terminal)
        return max(filter(None, (*ended, since)), default=None)

    def _is_open_to(self, pod: Pod, min_member: int) -> bool:
        """Return whether a member belongs to the run that is seen for the first time when it has succeeded."""
        state, key = self._state, controller_of(pod)
        if not state.succeeded:
            state.controllers.add(key)
        return key in state.controllers and (_is_job(key) or state.succeeded + self._alive < min_member)

    def _is_replacement(self, key: str, pod: Pod, min_member: int) -> bool:
        state = self._state
        # A pod of a Job with members in the run is a replacement. Other controllers, and users who create pods
        # themselves, may run a succeeded member again: their pods are replacements only if no succeeded member has the
        # same name and a place of the quorum is free.
        if key not in state.controllers or _is_job(key):
            return key in state.controllers
        return _slot(key, pod) not in state.slots and state.succeeded + self._alive <= min_member

    def _succeed(self, pod: Pod) -> None:
        state, key = self._state, controller_of(pod)
        slot = _slot(key, pod)
        if key in state.controllers and slot not in state.slots:
            state.succeeded += 1
            state.slots.add(slot)

    # -- the run ------------------------------------------------------------------------------------------------

    def follow(
        self, members: Collection[Pod], min_member: int, recorded: GroupRun | None, *, is_complete: bool
    ) -> None:
        if self.is_followed:
            return
        state = self._state = self._infer(min_member, recorded, is_complete=is_complete)
        self.is_followed = True
        if state.is_later:
            state.since = self._newest_ended(members, state.since)
        elif state.succeeded:
            state.slots.update(
                _slot(controller_of(pod), pod)
                for pod in members
                if pod.status.phase == _SUCCEEDED and self.includes(pod)
            )

    def begin(self) -> None:
        """Infer the run again, because the PodGroup is another one or is not known any more."""
        self.is_followed = False
        self._inferred_for = None

    def succeeded(self, min_member: int, recorded: GroupRun | None, *, is_complete: bool) -> int:
        """Return how many members of the run have succeeded.

        Args:
            is_complete: Whether a member of the quorum of which no pod exists counts as succeeded.
        """
        return self._current(min_member, recorded, is_complete=is_complete).succeeded

    def record(self, min_member: int, recorded: GroupRun | None, *, is_complete: bool) -> GroupRun:
        """Return the record of the run; the arguments are those of :meth:`succeeded`."""
        state = self._current(min_member, recorded, is_complete=is_complete)
        return GroupRun(tuple(sorted(state.controllers)), state.succeeded, state.since)

    def includes(self, pod: Pod) -> bool:
        """Return whether an ended member belongs to the run, as far as its controller and age show."""
        state = self._state if self.is_followed else self._inferred
        key, at = controller_of(pod), pod.metadata.creation_timestamp
        if state.controllers and key not in state.controllers:
            return False
        return state.since is None or (at is not None and at > state.since)

    def _current(self, min_member: int, recorded: GroupRun | None, *, is_complete: bool) -> _State:
        if self.is_followed:
            return self._state
        # Before the first cycle objects arrive in any order, so the run is inferred from all of them.
        inferred_for = (min_member, recorded, is_complete)
        if self._inferred_for != inferred_for:
            self._inferred = self._infer(min_member, recorded, is_complete=is_complete)
            self._inferred_for = inferred_for
        return self._inferred

    def _infer(self, min_member: int, recorded: GroupRun | None, *, is_complete: bool) -> _State:
        """Return the run that the members and the record show, in whatever order they arrived; without its slots."""
        alive = {key: each for key, each in self._of.items() if each.alive}
        waiting = {key: each for key, each in alive.items() if each.bound < each.alive}
        if recorded is None:
            state = _State(set(alive or self._of))
            strangers: Iterable[str] = waiting
        else:
            state = _State(set(recorded.controllers), since=recorded.since)
            strangers = [key for key in waiting if not (_is_job(key) and key in state.controllers)]
        state.succeeded = sum(map(self._count_succeeded, state.controllers, repeat(state.since)))
        if recorded is not None:
            state.succeeded = max(recorded.succeeded, state.succeeded)
        has_newcomers = any(alive[key].is_new for key in strangers)
        is_full = not all(map(_is_job, waiting)) and state.succeeded + self._alive > min_member
        if state.succeeded and (has_newcomers or is_full):
            return _State(set(alive), since=state.since, is_later=True)
        state.controllers |= alive.keys()
        if recorded is None and is_complete and not has_newcomers:
            state.succeeded += self._unaccounted(state, min_member)
        return state

    def _count_succeeded(self, key: str, since: datetime | None) -> int:
        of_key = self._of.get(key)
        return 0 if of_key is None else of_key.count_since(since)

    def _unaccounted(self, state: _State, min_member: int) -> int:
        """Return how many members must have succeeded of which no pod is left."""
        # Members are bound only with the whole quorum, so a member that runs or has succeeded shows that there was one.
        # A place without a pod is that of a succeeded member, because another one would have been replaced.
        bound = sum(each.bound for each in self._of.values())
        if not bound and not state.succeeded:
            return 0
        waiting = self._alive - bound
        replaceable = waiting or sum(each.failed for each in self._of.values())
        return max(0, min_member - bound - state.succeeded - replaceable)


def controller_of(pod: Pod) -> str:
    """Return the key of a pod's controller: kind, API group and UID."""
    owner = pod.metadata.controller
    if owner is None:
        return NO_CONTROLLER
    return f"{owner.kind}.{owner.api_version.rpartition('/')[0]}/{owner.uid or owner.name}"


def _is_job(key: str) -> bool:
    return key.startswith(_JOB)


def _slot(key: str, pod: Pod) -> str:
    """Return what a replacement of a pod has in common with it, if it is known: a Job's index, or the name."""
    meta = pod.metadata
    if _is_job(key):
        index = meta.labels.get(_JOB_INDEX)
        return f"{key}#{meta.uid if index is None else index}"
    return f"{key}#{meta.name}"


def _is_alive(pod: Pod) -> bool:
    return not pod.is_terminal and pod.metadata.deletion_timestamp is None


@dataclass(slots=True)
class LostMember:
    """A member of a running gang that was deleted or failed, until its replacement is bound or its time is over.

    Attributes:
        pod: The pod as last reported before it was lost.
        node_name: The node that it was on.
        index: Owner and index, see :func:`owner_and_index`; "" if unknown.
        until: Time at which the hold ends; None while the pod still uses its room.
        replacement: UID of the waiting pod that replaces it; "" for none yet.
        has_room: Whether room is held for the replacement on the node.
    """

    pod: Pod
    node_name: str
    index: str
    until: datetime | None = None
    replacement: str = ""
    has_room: bool = False


@dataclass(frozen=True, slots=True)
class RecordedLoss:
    """A lost member as a status has it; attributes as those of :class:`LostMember`."""

    name: str
    node_name: str
    index: str
    until: datetime
    replacement: str = ""


def owner_and_index(pod: Pod) -> str:
    """Return the owner and the index of a pod, which its replacement has, too; "" if it has no index."""
    labels, controller = pod.metadata.labels, pod.metadata.controller
    job_index = labels.get(_JOB_INDEX, "")
    job_set = labels.get(f"{_JOBSET}jobset-uid") or labels.get(f"{_JOBSET}jobset-name")
    if job_set:
        # A JobSet that restarts replaces its Jobs, so that their UIDs differ.
        parts = (labels.get(f"{_JOBSET}replicatedjob-name"), labels.get(f"{_JOBSET}job-index"), job_index)
        return f"JobSet/{job_set}/{'/'.join(map(str, parts))}" if all(parts) else ""
    worker = labels.get(f"{_LWS}worker-index")
    if worker:
        return f"LeaderWorkerSet/{labels.get(f'{_LWS}name')}/{labels.get(f'{_LWS}group-index')}/{worker}"
    if controller is None:
        return ""
    if controller.kind == "StatefulSet":
        return f"StatefulSet/{controller.uid}/{pod.metadata.name}"
    return f"{controller.kind}/{controller.uid}/{job_index}" if job_index else ""


def is_preempted(pod: Pod) -> bool:
    """Return whether a preemption evicts a pod, so that its room belongs to the preemptor."""
    conditions = pod.status.conditions
    return any(each.type == "DisruptionTarget" and each.reason == "PreemptionByScheduler" for each in conditions)


QUORUM_BEGINNINGS = ("minCount (", "0/")
"""Beginnings of :attr:`GangOutcome.quorum`."""

_NAMED = 5
"""Maximum number of gated members named in a message."""

_FAILED = "Failed"
_AHEAD_SECONDS = 1e9
"""What the age of a gang gains while it waits for replacements, so that it comes before others of its priority."""


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """Result of a gang's last attempt.

    Attributes:
        reason: Reason of the condition: ``Scheduled``, ``Unschedulable``, ``SchedulerError``, ``TimedOut`` or
            ``Preempting``.
        message: Message of the condition; does not change while the result is the same.
        domain: The topology domain of the members, such as ``zone=a``; "" without a topology constraint.
        quorum: What the quorum lacks in the words of kube-scheduler v1.37.1; "" if it is scheduled, or for an error.
        is_helped_by_nodes: Whether new nodes may help, if it is not scheduled.
    """

    reason: str
    message: str
    fitting: int = 0
    domain: str = ""
    quorum: str = ""
    is_helped_by_nodes: bool = True

    @property
    def is_scheduled(self) -> bool:
        return self.reason == "Scheduled"


@dataclass(frozen=True, slots=True)
class HealingOutcome:
    """How a hold of room for the replacement of a member began or ended, as reason and message of a condition."""

    reason: str
    message: str


class BindBarrier(Protocol):
    """Where the members of a gang wait before their binds."""

    def member_left(self) -> None:
        """Note that a member was deleted or has ended."""


@dataclass(slots=True, eq=False, repr=False)
class Gang:
    """A PodGroup with its members.

    Attributes:
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
        barrier: Where members that are being bound wait for each other; None if no binding is active.
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
        lost_members: Members of the running gang whose replacements are not bound yet, by UID, see
            :mod:`scheduler_core.gangs.healing`.
        healing: How the last hold of room for a replacement began or ended; None for none.
        has_lost_member: Whether a waiting member has left since the queue last reviewed the gang or tree.
        is_incomplete: Whether its members wait without a quorum, and that is to be reported.
        was_rejected: Whether waiting members may have the condition of an attempt; reported when the quorum is lost.
        victims: Pods that are being evicted for it, (namespace, name).
        tree: The tree of groups that it is a part of; None if its PodGroup is no child of a CompositePodGroup.
    """

    key: GroupKey
    since: float
    group: PodGroup | None = None
    group_uid: str = ""
    pods: MutableMapping[str, Pod] = field(default_factory=dict)
    placed: MutableSet[str] = field(default_factory=set)
    run: GangRun = field(default_factory=GangRun)
    is_first: bool = True
    waiting: MutableMapping[str, QueuedPod] = field(default_factory=dict)
    gates: MutableSet[str] = field(default_factory=set)
    aside: dict[str, QueuedPod] = field(default_factory=dict)
    binding_steps: dict[str, str] = field(default_factory=dict)
    lost_members: dict[str, LostMember] = field(default_factory=dict)
    healing: HealingOutcome | None = None
    tree: GangTree | None = None
    binding: int = 0
    barrier: BindBarrier | None = None
    was_known: bool = False
    was_whole: bool = False
    was_rejected: bool = False
    has_lost_member: bool = False
    is_incomplete: bool = False
    is_reported: bool = False
    refusal: str = ""
    owner: OwnerInstance | None = None
    entry: QueuedGang | None = None
    first_attempt: datetime | None = None
    last_attempt: datetime | None = None
    first_failure: float | None = None
    nearest: tuple[str, str, float] | None = None
    outcome: GangOutcome | None = None
    reservation: str = ""
    victims: tuple[tuple[str, str], ...] = ()

    def begin(self, now: float) -> None:
        """Reset the record of attempts; a new PodGroup object does not inherit that of an earlier one."""
        self.since = now
        self.entry = self.nearest = self.outcome = None
        self.first_attempt = self.last_attempt = self.first_failure = None
        self.reservation, self.victims = "", ()

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
        """Whether only the members show its run, and a missing one counts as succeeded."""
        group = self.group
        # If other members may be missing, because the quorum was raised or a scheduler handled the group before, a
        # missing member counts as one that is to be created.
        return group is not None and group.is_fresh and self.is_first and group.generation <= 1

    @property
    def unit(self) -> Gang:
        """What has the entry in the queue: the tree that it is a part of, or itself."""
        return self.tree or self

    @property
    def parts(self) -> tuple[Gang, ...]:
        return (self,)

    @property
    def is_tree(self) -> bool:
        return False

    @property
    def waits_since(self) -> float:
        """When the first of its gangs with waiting members was seen; long ago for a gang that has lost members."""
        since = min((part.since for part in self.parts if part.waiting), default=self.since)
        return since - _AHEAD_SECONDS if self.lost_members else since

    def depends_on(self, source: GroupSource) -> bool:
        """Return whether its members are gated while the groups of a source are not known."""
        is_child = self.group is not None and bool(self.group.parent)
        return self.key.source is source or (is_child and source is GroupSource.COMPOSITE)

    @property
    def domain_labels(self) -> set[str]:
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
        return sum(pod.metadata.deletion_timestamp is None for pod in self.pods.values())

    @property
    def gated(self) -> int:
        return sum(bool(pod.spec.scheduling_gates) and not pod.spec.node_name for pod in self.pods.values())

    @property
    def failed(self) -> int:
        return sum(pod.status.phase == _FAILED and self.run.includes(pod) for pod in self.pods.values())

    # -- counting -----------------------------------------------------------------------------------------------

    def saw(self, pod: Pod) -> None:
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
