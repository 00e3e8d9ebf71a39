"""The worlds in which members are placed: as scheduling cycles place pods, on chosen nodes, by full searches alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import Failure, no_fit
from scheduler_core.cycle.filter_and_score import Feasible, NodeOrder, NodeSelection
from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle import failure_of
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.cycle_state import NOT_COUNTED
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.scheduler_metrics import ERROR, UNSCHEDULABLE
from scheduler_core.placement.engine import Policy, Steps, World, as_given
from scheduler_core.placement.requests import Placement
from scheduler_core.ports import Clock
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.step_counter import StepCounter

_STEPS_OF_REUSE = 10
_STEPS_OF_SEARCH = 30
_NODES_PER_STEP = 100
Seat = tuple[QueuedPod, str]
"""A member and its node."""


def steps_of_search(nodes: NodeColumns) -> int:
    """Return the steps of a full search for the feasible nodes of one pod."""
    return _STEPS_OF_SEARCH + nodes.size // _NODES_PER_STEP


def without_extenders(instance: FrameworkInstance) -> FrameworkInstance:
    """Return a copy of the profile without extenders, which a dry run must not await."""
    if not instance.extenders:
        return instance
    alone = copy.copy(instance)
    alone.extenders = ()
    return alone


def for_dry_run(instance: FrameworkInstance) -> FrameworkInstance:
    """Return a copy of the profile for an explanation, with cached results of its own and without counts."""
    # What a dry run stores and counts must not change the live profile.
    apart = copy.copy(instance)
    apart.pod_classes, apart.evaluations = None, NOT_COUNTED
    return apart


class DryProfiles:
    """The live profiles for one dry run, without extenders; pods of a profile share its cached results."""

    def __init__(self, live: ProfileTable) -> None:
        self._live = live
        self._made: dict[str, FrameworkInstance] = {}

    def get(self, name: str) -> FrameworkInstance | None:
        found = self._made.get(name)
        if found is None and (live := self._live.get(name)) is not None:
            found = self._made[name] = without_extenders(for_dry_run(live))
        return found


@dataclass(eq=False)
class CycleWorld(World):
    """Places members as scheduling cycles place pods, up to Reserve."""

    choice: NodeChoice
    extended: ExtendedChoice
    order: NodeOrder
    report: CycleReport
    steps: StepCounter

    def begin(self, instance: FrameworkInstance, queued: QueuedPod, where: Where, position: int = 0) -> Attempt:
        """Return a recorded attempt."""
        attempt = self.report.begin_attempt(queued, instance)
        attempt.among, attempt.among_reason = where.mask, where.reason
        # The queue counts the members' attempts after the cycle.
        attempt.number = queued.attempts + 1
        # A gang counts as one cycle for sampling, because timing every plugin is expensive.
        attempt.is_sampled = attempt.is_sampled and not position
        return attempt

    def seat(self, attempt: Attempt) -> Steps[Failure | None]:
        """Choose a node, by the results of earlier pods of the class or by a full search, and assume the member."""
        try:
            diagnosis: Diagnosis | None = None
            if attempt.instance.extenders:
                node_name, diagnosis = yield self.extended.choose(attempt)
            else:
                node_name, diagnosis = self.choose(attempt)
            if not node_name:
                assert diagnosis is not None, "a search returns a diagnosis"
                return no_fit(diagnosis, None)
            failure = self.assumed.reserve(attempt, node_name)
        except AttemptLimitError:
            # The limit is that of the gang: it ends the search, and not only the attempt of the member.
            raise
        except Exception as error:
            failure = failure_of(attempt, error)
        if failure is not None:
            self.assumed.release(attempt)
        return failure

    def choose(self, attempt: Attempt) -> tuple[str, Diagnosis | None]:
        """Return the node that a cycle without extenders chooses; "" and the diagnosis if none is feasible."""
        # First, because a step may end a slice: nothing that another task could change is read before it.
        self.steps.spend(_STEPS_OF_REUSE)
        node_name = self.choice.reuse(attempt)
        if node_name:
            return node_name, None
        self.steps.spend(steps_of_search(self.nodes))
        return self.choice.search(attempt)

    def ended(self, found: Placement) -> None:
        """Report the attempts of the members that were infeasible in a placement."""
        for attempt, failure in found.failed:
            self.report.scheduling_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)

    def feasible(self, instance: FrameworkInstance, queued: QueuedPod) -> Feasible | None:
        """Return where a member is feasible now; None if a plugin failed or a search is partial."""
        self.steps.spend(steps_of_search(self.nodes))
        try:
            return self.choice.find_all(Attempt(queued, queued.info, instance, 0.0))
        except AttemptLimitError:
            raise
        except SchedulerCoreError:
            # No verdict on a domain: the same error, if it occurs again, is reported with the member that meets it.
            return None

    @contextmanager
    def dry_run(self) -> Iterator[None]:
        """Restore the position of the next partial search on exit."""
        start = self.order.next_start
        try:
            yield
        finally:
            self.order.next_start = start


def seated_in(name: str) -> Policy:
    """Return the policy with which a :class:`SeatedWorld` is tried, for a domain of this name."""
    return Policy(subsets=lambda *_: [(Where(name=name), 0)], orders=as_given)


class SeatedWorld(World):
    """Another world in which members get chosen nodes first, and further members then a node of the subset.

    Args:
        seats: The members with their nodes, in order.
        beyond: The nodes for further members; None for no further members.
    """

    reason = "node(s) were not planned for this member"

    def __init__(self, world: World, seats: Sequence[Seat], beyond: Where | None = None) -> None:
        super().__init__(world.cache, world.assumed)
        self._world = world
        self._seats = seats
        self._beyond = beyond

    def begin(self, instance: FrameworkInstance, queued: QueuedPod, where: Where, position: int = 0) -> Attempt:
        return self._world.begin(instance, queued, where, position)

    def seat(self, attempt: Attempt) -> Steps[Failure | None]:
        return self._world.seat(attempt)

    def fill(
        self, instance: FrameworkInstance, found: Placement, members: Sequence[QueuedPod], needed: int
    ) -> Steps[None]:
        """Assume the members on their nodes until one is infeasible, then the others if the quorum is assumed."""
        for queued, name in self._seats:
            attempt = self.begin(instance, queued, Where(only(self.nodes, name), self.reason))
            failure = yield from self.seat(attempt)
            if failure is not None:
                # The plan does not hold any more, and the caller searches again.
                found.failed.append((attempt, failure))
                return
            found.placed.append(attempt)
        if self._beyond is not None and len(found.placed) >= needed:
            seated, domain = {queued.uid for queued, _ in self._seats}, found.where
            # Set back below: the result names the domain of the plan.
            found.where = self._beyond
            yield from super().fill(instance, found, [each for each in members if each.uid not in seated], needed)
            found.where = domain


@dataclass(eq=False)
class SearchWorld(World):
    """Places members by full searches of all nodes: without recorders, cached results, percentages and extenders."""

    selection: NodeSelection
    clock: Clock
    steps: StepCounter

    def begin(self, instance: FrameworkInstance, queued: QueuedPod, where: Where, position: int = 0) -> Attempt:
        del position
        attempt = Attempt(queued, queued.info, instance, self.clock.now())
        attempt.among, attempt.among_reason = where.mask, where.reason
        return attempt

    def find(self, attempt: Attempt) -> Feasible:
        self.steps.spend(steps_of_search(self.nodes))
        return self.selection.find_feasible(attempt, everywhere=True)

    def seat(self, attempt: Attempt) -> Steps[Failure | None]:
        yield from ()
        return self.seat_at_once(attempt)

    def seat_at_once(self, attempt: Attempt) -> Failure | None:
        """Assume the member on the best of its feasible nodes; return why there is none, None if it is assumed."""
        feasible = self.find(attempt)
        return self.assume(attempt, feasible) if len(feasible.rows) else no_fit(feasible.diagnosis, None)

    def assume(self, attempt: Attempt, feasible: Feasible) -> Failure | None:
        """Assume the member on the best of some nodes."""
        return self.assumed.reserve_or_release(attempt, self.selection.select(attempt, feasible))
