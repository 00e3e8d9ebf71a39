"""Checks that members of a gang that were scheduled together are bound together.

The checks compare with what the scheduler has received and with the ledger. From the core they read only which members
a decision lists as the gang's quorum, why a gang is rejected, and how many members of its run have succeeded, which
``tests/laws/test_gang_runs.py`` checks.

A quorum, as in ``scheduler_core/cycle/gang_bind_barrier.py``::

    scheduled ──▶ each passes Permit and PreBind ──all have passed──▶ begun: binds are sent, each may fail alone
                     │ one fails, or is deleted
                     └──▶ all release their reservations
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_bind_barrier import GangBindBarrier
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from tests.simulation.healing_checks import HealingChecks
from tests.simulation.ledger import ReservationLedger
from tests.simulation.pod_groups import ReceivedGroups, TreeState
from tests.simulation.profiles import gang_key
from tests.simulation.received import ReceivedFeed


@dataclass(slots=True)
class Quorum:
    """Members that were scheduled together.

    Attributes:
        uids: UIDs of the members of which all or none are bound.
        has_begun: Whether a bind was sent.
    """

    key: GroupKey
    uids: tuple[str, ...]
    has_begun: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """State of a gang on which a cycle decided.

    Attributes:
        min_member: minMember of the group; 0 without a group.
        counted: UIDs of the members that count. The value is true if the member counted before the cycle: it may have
            terminated while the cycle waited for an extender.
        is_listed: Whether the first list of the group's API was complete.
        is_judged: Whether the scheduler had handled all changes of members; one that raised is repeated.
    """

    min_member: int
    counted: dict[str, bool]
    is_listed: bool
    is_judged: bool


@dataclass(slots=True)
class GangChecks:
    """Checks of one operator process.

    Attributes:
        context: The scheduler's context, which has the pods that wait at Permit or are in PreBind.
        on_placed: Called with the UID of each member that was scheduled with its gang.
    """

    ledger: ReservationLedger
    received: ReceivedFeed
    groups: ReceivedGroups
    context: CycleContext
    on_placed: Callable[[str], None]
    healing: HealingChecks
    _quorums: dict[str, Quorum] = field(default_factory=dict)
    _of_binding: dict[int, tuple[GangBindBarrier, Quorum]] = field(default_factory=dict)
    _decided: dict[GroupKey, Decision] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)
    _trees: dict[str, tuple[TreeState, dict[GroupKey, dict[str, bool]]]] = field(default_factory=dict)
    _failed: dict[str, None] = field(default_factory=dict)
    _placed: dict[str, None] = field(default_factory=dict)
    _checked_outcomes: dict[GroupKey, GangOutcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Register the check of rejected gangs."""
        self.context.queue.gangs.on_change.append(self._changed)

    def _changed(self, gang: Gang) -> None:
        """Check that a gang that is rejected for its ``minResources`` lacks them, by a plain sum over nodes."""
        outcome = gang.outcome
        if outcome is None or gang.group is None or self._checked_outcomes.get(gang.key) is outcome:
            return
        self._checked_outcomes[gang.key] = outcome
        wanted, entry = gang.group.min_resources.get("cpu", 0), gang.unit.entry
        if entry is not None and entry.busy_since > entry.tried_at:
            # A copy of the process searched; events since then requeue the gang.
            return
        columns, received = self.context.cache.columns, self.received
        is_known = all(name in columns.row_by_name for name in received.nodes) and columns.held.is_empty
        if not is_known or any(pod.metadata.uid in received.leaving for pod in received.pods.values()):
            # A change of a node or a deletion has raised and is delivered again.
            return
        if "minResources are not free" in outcome.message and not self.ledger.is_closed:
            free = self.ledger.free_cpu()
            if free >= wanted:
                self.ledger.report_problem(
                    f"gang {gang.key} is rejected for {wanted} milli-CPU although {free} are free"
                )

    # -- scheduling ------------------------------------------------------------------------------------------------

    def reserved(self, pod: Pod, node_name: str, problem: str) -> bool:
        """Record the state on which a cycle decides, when a node is reserved for a pod.

        A cycle that waits for an extender receives nothing; events queued meanwhile are delivered before its pods are
        bound.

        Args:
            problem: Why the reservation is wrong, or "". A gang's cycle may only dry-run the preemption of victims, so
                the problem counts only if the pod is bound afterwards.

        Returns:
            Whether the pod is a member and is checked here.
        """
        self.healing.reserved(pod, node_name)
        key = gang_key(pod)
        if key is None:
            return False
        group = self.groups.groups.get(key)
        self._decided[key] = Decision(
            0 if group is None else group.min_member,
            dict(self._counted(key)),
            key.source in self.groups.listed,
            not self.received.unhandled,
        )
        self._problems[pod.metadata.uid] = problem
        if group is not None and group.parent:
            leaves = {each.key: each for each in self.groups.groups.values() if each.parent}
            counted = {each: dict(self._counted(each)) for each in leaves}
            self._trees[key.namespace] = TreeState(leaves, dict(self.groups.composites)), counted
        return True

    def placed(self, attempt: Attempt) -> None:
        """Check a pod whose binding starts; all pods of the same decision are reserved now."""
        self.healing.placed(attempt)
        pod, uid = attempt.info.pod, attempt.info.uid
        key = gang_key(pod)
        if key is None:
            return
        if self._problems[uid]:
            self.ledger.report_problem(self._problems[uid])
        min_member, known = self._decided[key].min_member, self._decided[key].counted
        is_judged = self._decided[key].is_judged
        if not self._decided[key].is_listed:
            self.ledger.report_problem(f"{uid} is scheduled before the first list of PodGroups of {key.source.value}")
        if not min_member and is_judged:
            self.ledger.report_problem(f"{uid} is scheduled, and the scheduler has not received its PodGroup")
            return
        # The last member of the decision may have been rejected.
        counted = [each for each, was_placed in known.items() if was_placed or each in self.ledger.reservations]
        if len(counted) < min_member and is_judged:
            self.ledger.report_problem(
                f"{uid} is scheduled, and its gang is incomplete: {len(counted)} of {min_member} of {key}"
            )
        if key.namespace in self._trees and is_judged:
            self._placed_in_tree(key, uid)
        if attempt.gang is not None:
            self._placed_together(attempt.gang, key, uid, counted, min_member)
            self.on_placed(uid)
        self._placed[uid] = None

    def _placed_in_tree(self, key: GroupKey, uid: str) -> None:
        """Check the groups above the gang of a member."""
        state, counted = self._trees[key.namespace]
        counts = {
            leaf: sum(was_placed or each in self.ledger.reservations for each, was_placed in known.items())
            for leaf, known in counted.items()
        }
        problem = state.problem(key, counts)
        if problem:
            self.ledger.report_problem(f"{uid} is scheduled, and {problem}")

    def _placed_together(
        self, binding: GangBindBarrier, key: GroupKey, uid: str, counted: list[str], min_member: int
    ) -> None:
        known = self._of_binding.get(id(binding))
        if known is None or known[0] is not binding:
            quorum = Quorum(key, tuple(sorted(binding._quorum)))
            self._of_binding[id(binding)] = known = binding, quorum
            before = [each for each in counted if each not in self.ledger.reservations or each in self._placed]
            together = [each for each in counted if each in quorum.uids]
            if len({*before, *together}) < min_member and self._decided[key].is_judged:
                self.ledger.report_problem(
                    f"the quorum of {key} is too small: {len(together)} new and {len(before)} earlier members"
                )
        self._quorums[uid] = known[1]

    def _counted(self, key: GroupKey) -> Iterator[tuple[str, bool]]:
        """Yield the UIDs of members that have a node or have succeeded, and whether that was so before this cycle.

        No pod may exist of those that have succeeded, so the core's number is taken, each under a name of its own.
        """
        for pod in self.received.pods.values():
            uid = pod.metadata.uid
            if gang_key(pod) != key or pod.is_terminal:
                continue
            if pod.metadata.deletion_timestamp is None and (pod.spec.node_name or uid in self.ledger.reservations):
                yield uid, bool(pod.spec.node_name) or uid in self._placed
        gang = self.context.queue.gangs.get(key)
        for number in range(0 if gang is None else gang.succeeded):
            yield f"succeeded {number}", True

    # -- binding ------------------------------------------------------------------------------------------------

    def pre_bind_started(self, uid: str) -> None:
        """Check a pod whose PreBind starts."""
        quorum = self._quorums.get(uid)
        if quorum is not None and quorum.has_begun and uid in quorum.uids:
            self.ledger.report_problem(f"{uid} starts PreBind after binds of its gang's quorum were sent")

    def bind_sent(self, uid: str) -> None:
        """Check a pod whose bind is sent."""
        quorum = self._quorums.get(uid)
        self._failed.pop(uid, None)
        if quorum is None or quorum.has_begun:
            return
        quorum.has_begun = True
        for member in quorum.uids:
            problem = self._not_ready_reason(member)
            if problem:
                self.ledger.report_problem(f"{uid} is bound, and {member} of its gang's quorum {problem}")

    def _not_ready_reason(self, uid: str) -> str:
        reservation = self.ledger.reservations.get(uid)
        if reservation is None:
            # A member that another scheduler has bound releases its reservation and runs on the other node.
            runs = any(pod.metadata.uid == uid and pod.spec.node_name for pod in self.received.pods.values())
            return "" if runs else "has no reservation"
        known = self._known(reservation.pod)
        if known is not None and known.spec.node_name:
            # Another scheduler has bound the member, which may terminate at any time.
            return ""
        if known is None or known.metadata.deletion_timestamp is not None:
            return "is deleted"
        if self.context.waiting.get(uid) is not None:
            return "waits at Permit"
        return "is in PreBind" if self.context.services.in_pre_bind.get(uid) is not None else ""

    def bind_failed(self, uid: str) -> None:
        """Record that a bind failed, or that its outcome is unknown."""
        self._failed[uid] = None

    def found_pending(self, uid: str) -> None:
        """Record that a read shows a pod as pending: if its binding cycle runs, its bind failed, whatever raised."""
        if uid in self._quorums:
            self._failed[uid] = None

    def ended(self, pod: Pod, *, is_bound: bool) -> None:
        """Record that a pod was bound, or has released its reservation."""
        uid = pod.metadata.uid
        quorum = self._quorums.pop(uid, None)
        if is_bound:
            return
        self._placed.pop(uid, None)
        if quorum is None or self.ledger.is_stopping:
            return
        if not quorum.has_begun:
            self.ledger.count("gang reservation released")
            return
        known = self._known(pod)
        if uid in self._failed or (known is not None and known.spec.node_name):
            self.ledger.count("gang bind failed")
        elif uid in quorum.uids and known is not None and not known.metadata.deletion_timestamp:
            self.ledger.report_problem(
                f"{uid} releases its node after the binds of its gang were sent, and its own bind did not fail"
            )

    def found_unbound(self, uid: str) -> None:
        """Record that the bind of a pod never took effect, as a read has shown."""
        self._placed.pop(uid, None)

    def _known(self, pod: Pod) -> Pod | None:
        known = self.received.pods.get(pod.key)
        return known if known is not None and known.metadata.uid == pod.metadata.uid else None
