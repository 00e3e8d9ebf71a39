"""One try to schedule a gang's members on the live columns, and its undo.

Each feasible member is assumed and reserved, so that the next one is filtered and scored with it;
:meth:`GangTrial.undo` releases them in reverse order. If a member has no feasible node, no other member of its pod
class is tried on the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import Failure, no_fit
from scheduler_core.cycle.filter_and_score import Feasible
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle import failure_of
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.device_backtracking import MemberChoice
from scheduler_core.gangs.domain_screen import DomainScreen
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.step_counter import StepCounter

_STEPS_OF_REUSE = 10
_STEPS_OF_SEARCH = 30
_NODES_PER_STEP = 100


def steps_of_search(nodes: NodeColumns) -> int:
    """Return the steps of a full search for the feasible nodes of one pod."""
    return _STEPS_OF_SEARCH + nodes.size // _NODES_PER_STEP


@dataclass(slots=True)
class GangTrial:
    """A try, running or finished.

    Attributes:
        where: The nodes on which members may be scheduled.
        placed: Attempts of assumed members, in the order in which they were assumed.
        failed: Attempts of infeasible members, with their failures.
        undone: Attempts of members that were assumed before an undo.
        reached: How many members were assumed before the undo.
        nearest: Text on the nearest nodes of the next member; "" if it was not computed.
        untried: Members that were not tried because the quorum was out of reach.
        has_untried_domains: Whether domains of a group of a tree were not tried because they have too little room.
        device_search: Result of the search over members and devices; "" if it did not run.
        ruled_out: Domains that were not tried because no member is feasible there.
        rejected_by: Plugins that reject members there.
        pending_on: Those of them that returned Pending.
        lack: What a tree of groups lacks; "" for a gang.
        lacks: What each group of a tree lacks in the words of kube-scheduler v1.37.1, for groups that failed.
    """

    where: Where
    placed: list[Attempt] = field(default_factory=list)
    failed: list[tuple[Attempt, Failure]] = field(default_factory=list)
    undone: list[Attempt] = field(default_factory=list)
    reached: int = 0
    nearest: str = ""
    untried: list[QueuedPod] = field(default_factory=list)
    has_untried_domains: bool = False
    device_search: str = ""
    ruled_out: set[str] = field(default_factory=set)
    rejected_by: set[str] = field(default_factory=set)
    pending_on: set[str] = field(default_factory=set)
    lack: str = ""
    lacks: dict[GroupKey, str] = field(default_factory=dict)

    @property
    def is_error(self) -> bool:
        """Whether a member met an error rather than a rejection."""
        return any(failure.is_error for _, failure in self.failed)

    def add(self, screen: DomainScreen) -> None:
        """Add the domains that were ruled out."""
        if screen.ruled_out:
            self.ruled_out.update(screen.ruled_out)
            self.rejected_by |= screen.rejected_by
            self.pending_on |= screen.pending_on

    def undo(self, assumed: AssumedPods) -> None:
        """Release all assumed members, the last one first."""
        for attempt in reversed(self.placed):
            assumed.release(attempt)
        self.undone += self.placed
        self.placed.clear()


@dataclass(slots=True)
class _Refused:
    """Infeasible members of one pass.

    Attributes:
        attempts: Their attempts, with the failures.
        are_final: Whether no member was assumed after any of them, so that another pass cannot help them.
    """

    attempts: list[tuple[Attempt, Failure]] = field(default_factory=list)
    are_final: bool = True


class MemberTrials:
    """Tries to schedule members of gangs.

    Args:
        choice: Chooses nodes.
        extended: Chooses nodes for profiles with extenders.
        assumed: Assumes the members.
        report: Report of cycles.
        nodes: The columns.
        steps: Counts the steps of the cycle.
    """

    def __init__(
        self,
        choice: NodeChoice,
        extended: ExtendedChoice,
        assumed: AssumedPods,
        report: CycleReport,
        nodes: NodeColumns,
        *,
        steps: StepCounter,
    ) -> None:
        self._steps = steps
        self._nodes = nodes
        self._choice = choice
        self._extended = extended
        self._assumed = assumed
        self._report = report

    def feasible_rows(self, instance: FrameworkInstance, queued: QueuedPod) -> Feasible | None:
        """Return where a member is feasible now, in any domain; None if a plugin failed or a search is partial."""
        self._steps.spend(steps_of_search(self._nodes))
        try:
            return self._choice.find_all(Attempt(queued, queued.info, instance, 0.0))
        except AttemptLimitError:
            raise
        except SchedulerCoreError:
            return None

    async def try_members(
        self, instance: FrameworkInstance, members: Sequence[QueuedPod], needed: int, trial: GangTrial
    ) -> None:
        """Run all extension points up to Reserve for one member after the other, until the quorum cannot be reached.

        Args:
            instance: The profile's revision that decides.
            members: The members, in the order in which they are tried.
            needed: How many must be feasible; further members are optional.
            trial: The try; feasible members stay assumed until :meth:`GangTrial.undo`.

        Awaits only if the profile has extenders. If it raises, ``trial`` still lists the assumed members.
        """
        left = list(members)
        while left:
            refused = await self._try_once(instance, left, needed, trial)
            is_over = len(trial.placed) >= needed or refused.are_final
            trial.failed += refused.attempts if is_over else ()
            left = [] if is_over else [attempt.queued for attempt, _ in refused.attempts]

    async def try_placement(
        self, instance: FrameworkInstance, placement: Sequence[MemberChoice], trial: GangTrial
    ) -> None:
        """Assume members on chosen nodes with chosen devices, until one is rejected.

        Args:
            instance: The profile's revision that decides.
            placement: The choices, in order.
            trial: The try; feasible members stay assumed until :meth:`GangTrial.undo`.
        """
        for choice in placement:
            attempt = self._report.begin_attempt(choice.queued, instance)
            attempt.number = choice.queued.attempts + 1
            choice.begin(attempt, self._nodes)
            failure = await self._place(attempt)
            if failure is not None:
                trial.failed.append((attempt, failure))
                break
            trial.placed.append(attempt)

    async def _try_once(
        self, instance: FrameworkInstance, members: Sequence[QueuedPod], needed: int, trial: GangTrial
    ) -> _Refused:
        """Try each member once; a member that needs another one beside it may be feasible in the next pass."""
        where, passed = trial.where, _Refused()
        refused: dict[object, Failure] = {}
        for position, queued in enumerate(members):
            if refused and passed.are_final and len(trial.placed) + len(members) - position < needed:
                trial.untried = list(members[position:])
                break
            attempt = self._report.begin_attempt(queued, instance)
            attempt.among, attempt.among_reason = where.among, where.reason
            # The queue counts the members' attempts after the cycle.
            attempt.number = queued.attempts + 1
            # A gang counts as one cycle for sampling, because timing every plugin is expensive.
            attempt.is_sampled = attempt.is_sampled and not position
            failure = refused.get(filter_class(instance, queued.info)) if refused else None
            if failure is None:
                failure = await self._place(attempt)
                if failure is not None and not failure.is_error:
                    refused[filter_class(instance, queued.info)] = failure
            if failure is not None:
                passed.attempts.append((attempt, failure))
                continue
            trial.placed.append(attempt)
            if refused:
                refused.clear()
                passed.are_final = False
        return passed

    async def _place(self, attempt: Attempt) -> Failure | None:
        try:
            diagnosis: Diagnosis | None = None
            if attempt.instance.extenders:
                node_name, diagnosis = await self._extended.choose(attempt)
            else:
                self._steps.spend(_STEPS_OF_REUSE)
                node_name = self._choice.reuse(attempt)
                if not node_name:
                    self._steps.spend(steps_of_search(self._nodes))
                    node_name, diagnosis = self._choice.search(attempt)
            if not node_name:
                assert diagnosis is not None, "a search returns a diagnosis"
                return no_fit(diagnosis, None)
            failure = self._assumed.reserve(attempt, node_name)
        except AttemptLimitError:
            # The limit is that of the gang: it ends the cycle, and not only the attempt of the member.
            self._assumed.release(attempt)
            raise
        except Exception as error:
            failure = failure_of(attempt, error)
        if failure is not None:
            self._assumed.release(attempt)
        return failure
