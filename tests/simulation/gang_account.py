"""Checks that the members of a gang that were placed together are bound together.

The checks run when a placement is passed to binding, when a bind is sent, and when a member releases its reservation.
They compare with what the scheduler has received and with the ledger, not with the core's gangs. From the core they
take only which members a placement names as its quorum, which they count themselves, and why a gang is rejected.

A quorum, as the core writes its rule (``scheduler_core/cycle/gang_bind_barrier.py``)::

    placed ──▶ each passes Permit and PreBind ──all have──▶ begun: binds are sent, each may fail alone
                     │ one fails, or is deleted
                     └──▶ all release their reservations
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.cycle.gang_bind_barrier import GangBinding
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, group_key_of
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from tests.simulation.ledger import ReservationLedger
from tests.simulation.pod_groups import ReceivedGroups
from tests.simulation.received import ReceivedFeed
from tests.simulation.tree_quorum import TreeState


@dataclass(slots=True)
class Quorum:
    """Members that were placed together.

    Attributes:
        key: Its group.
        uids: UIDs of the members that are all bound or none.
        has_begun: Whether a bind was sent.
    """

    key: GroupKey
    uids: tuple[str, ...]
    has_begun: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """State of a gang that a cycle decided by.

    Attributes:
        least: minMember of its group; 0 if there was no group.
        counted: UIDs of the members that it could count; true if the member was placed before the cycle, which may have
            waited for an extender while the member ended.
        is_listed: Whether the first list of the group's API was complete.
    """

    least: int
    counted: dict[str, bool]
    is_listed: bool


@dataclass(slots=True)
class GangAccount:
    """The checks of one life of the operator.

    Attributes:
        ledger: Current reservations.
        received: Pods that the scheduler has received.
        groups: PodGroups that it has received.
        context: Its parts; pods that wait at Permit or are in PreBind are read there.
        on_placed: Called with each member that was placed with its gang.
    """

    ledger: ReservationLedger
    received: ReceivedFeed
    groups: ReceivedGroups
    context: CycleContext
    on_placed: Callable[[str], None]
    _quorums: dict[str, Quorum] = field(default_factory=dict)
    _of_binding: dict[int, tuple[GangBinding, Quorum]] = field(default_factory=dict)
    _decided: dict[GroupKey, Decision] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)
    _trees: dict[str, tuple[TreeState, dict[GroupKey, dict[str, bool]]]] = field(default_factory=dict)
    _failed: dict[str, None] = field(default_factory=dict)
    _placed: dict[str, None] = field(default_factory=dict)
    _judged: dict[GroupKey, GangOutcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every gang at the moment when it is rejected."""
        self.context.queue.gangs.on_change.append(self._changed)

    def _changed(self, gang: Gang) -> None:
        """Check by plain sums over the nodes that a gang rejected for its ``minResources`` lacks them."""
        outcome = gang.outcome
        if outcome is None or gang.group is None or self._judged.get(gang.key) is outcome:
            return
        self._judged[gang.key] = outcome
        wanted = gang.group.min_resources.get("cpu", 0)
        if "minResources are not free" in outcome.message and not self.ledger.is_closed:
            free = self.ledger.free_cpu()
            if free >= wanted:
                self.ledger.complain(f"gang {gang.key} is rejected for {wanted} milli-CPU although {free} are free")

    # -- placing ------------------------------------------------------------------------------------------------

    def reserved(self, pod: Pod, problem: str) -> bool:
        """Record the state that a cycle decides by when a node is reserved for a pod.

        A cycle that waits for an extender receives nothing; the events queued meanwhile are delivered before its pods
        are passed to binding.

        Args:
            pod: The pod.
            problem: Why the reservation is wrong, "" if it is right; a gang's cycle may only simulate what would fit
                without the victims, so this counts when the pod is placed.

        Returns:
            Whether the pod is checked here because it is a member.
        """
        key = group_key_of(pod)
        if key is None:
            return False
        group = self.groups.groups.get(key)
        self._decided[key] = Decision(
            0 if group is None else group.min_member, dict(self._counted(key)), key.source in self.groups.listed
        )
        self._problems[pod.metadata.uid] = problem
        if group is not None and group.parent:
            leaves = {each.key: each for each in self.groups.groups.values() if each.parent}
            counted = {each: dict(self._counted(each)) for each in leaves}
            self._trees[key.namespace] = TreeState(leaves, dict(self.groups.composites)), counted
        return True

    def placed(self, attempt: Attempt) -> None:
        """Check a pod that is passed to binding; everything placed in the same cycle is reserved now."""
        pod, uid = attempt.info.pod, attempt.info.uid
        key = group_key_of(pod)
        if key is None:
            return
        if self._problems[uid]:
            self.ledger.complain(self._problems[uid])
        least, known = self._decided[key].least, self._decided[key].counted
        if not self._decided[key].is_listed:
            self.ledger.complain(f"{uid} is placed before the first list of PodGroups of {key.source.value}")
        if not least:
            self.ledger.complain(f"{uid} is placed, whose PodGroup the scheduler does not know")
            return
        # The member that was tried last may have been rejected.
        counted = [each for each, was_placed in known.items() if was_placed or each in self.ledger.holds]
        if len(counted) < least:
            self.ledger.complain(
                f"{uid} is placed for a gang that stays incomplete: {len(counted)} of {least} of {key}"
            )
        if key.namespace in self._trees:
            self._placed_in_tree(key, uid)
        if attempt.gang is not None:
            self._placed_together(attempt.gang, key, uid, counted, least)
            self.on_placed(uid)
        self._placed[uid] = None

    def _placed_in_tree(self, key: GroupKey, uid: str) -> None:
        """Check the groups above the gang of a member, if there are any."""
        state, counted = self._trees[key.namespace]
        counts = {
            leaf: sum(was_placed or each in self.ledger.holds for each, was_placed in known.items())
            for leaf, known in counted.items()
        }
        problem = state.problem(key, counts)
        if problem:
            self.ledger.complain(f"{uid} is placed, and {problem}")

    def _placed_together(self, binding: GangBinding, key: GroupKey, uid: str, counted: list[str], least: int) -> None:
        known = self._of_binding.get(id(binding))
        if known is None or known[0] is not binding:
            quorum = Quorum(key, tuple(sorted(binding._quorum)))
            self._of_binding[id(binding)] = known = binding, quorum
            before = [each for each in counted if each not in self.ledger.holds or each in self._placed]
            together = [each for each in counted if each in quorum.uids]
            if len({*before, *together}) < least:
                self.ledger.complain(f"the quorum of {key} is too small: {len(together)} beside {len(before)}")
        self._quorums[uid] = known[1]

    def _counted(self, key: GroupKey) -> Iterator[tuple[str, bool]]:
        """Yield the UIDs of members that have succeeded or have a node, and whether that was so before this cycle."""
        for pod in self.received.pods.values():
            uid = pod.metadata.uid
            if group_key_of(pod) != key:
                continue
            if pod.is_terminal:
                if pod.status.phase == "Succeeded":
                    yield uid, True
            elif pod.metadata.deletion_timestamp is None and (pod.spec.node_name or uid in self.ledger.holds):
                yield uid, bool(pod.spec.node_name) or uid in self._placed

    # -- binding ------------------------------------------------------------------------------------------------

    def prepares(self, uid: str) -> None:
        """Check a pod whose PreBind begins."""
        quorum = self._quorums.get(uid)
        if quorum is not None and quorum.has_begun and uid in quorum.uids:
            self.ledger.complain(f"{uid} begins its PreBind, and others of its gang's quorum are being bound")

    def sends(self, uid: str) -> None:
        """Check a pod whose bind is being sent."""
        quorum = self._quorums.get(uid)
        self._failed.pop(uid, None)
        if quorum is None or quorum.has_begun:
            return
        quorum.has_begun = True
        for member in quorum.uids:
            problem = self._hindrance(member)
            if problem:
                self.ledger.complain(f"{uid} is bound, and {member} of its gang's quorum {problem}")

    def _hindrance(self, uid: str) -> str:
        hold = self.ledger.holds.get(uid)
        if hold is None:
            # A member that a rival has bound releases its reservation and runs on the rival's node.
            runs = any(pod.metadata.uid == uid and pod.spec.node_name for pod in self.received.pods.values())
            return "" if runs else "has no place"
        known = self._known(hold.pod)
        if known is not None and known.spec.node_name:
            # A rival has bound it; from then on it may end at any time.
            return ""
        if known is None or known.metadata.deletion_timestamp is not None:
            return "is gone"
        if self.context.waiting.get(uid) is not None:
            return "waits at Permit"
        return "is in PreBind" if self.context.services.in_pre_bind.get(uid) is not None else ""

    def bind_failed(self, uid: str) -> None:
        """Note that the bind of a pod failed, or that its outcome is unknown."""
        self._failed[uid] = None

    def ended(self, pod: Pod, *, is_bound: bool) -> None:
        """Note that a pod was bound, or has released its reservation."""
        uid = pod.metadata.uid
        quorum = self._quorums.pop(uid, None)
        if is_bound:
            return
        self._placed.pop(uid, None)
        if quorum is None or self.ledger.is_stopping:
            return
        if not quorum.has_begun:
            self.ledger.count("gang gave back")
            return
        known = self._known(pod)
        if uid in self._failed or (known is not None and known.spec.node_name):
            self.ledger.count("gang bind failed")
        elif uid in quorum.uids and known is not None and not known.metadata.deletion_timestamp:
            self.ledger.complain(f"{uid} releases its node after its gang's binds were sent, and its own did not fail")

    def returned(self, uid: str) -> None:
        """Note that a read has shown that the bind of a pod never took effect."""
        self._placed.pop(uid, None)

    def _known(self, pod: Pod) -> Pod | None:
        known = self.received.pods.get(pod.key)
        return known if known is not None and known.metadata.uid == pod.metadata.uid else None
