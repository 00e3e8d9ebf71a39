"""Search over the nodes and devices of a gang's members, for gangs that the group cycle does not place.

The group cycle takes the best node and the first devices for each member. An earlier member can so take what only a
later one can use (kubernetes/kubernetes #138765, #140097). This search goes back to earlier members, and tries their
other nodes and devices, until the quorum is feasible, every choice was tried, or the limit of steps is reached::

    member with fewest nodes ─▶ node, best score first ─▶ devices, first of the allocator first ─▶ next member
             ▲                                                                                       │
             └───────────────────── released, if the next member is infeasible ◀────────────────────┘

Members are assumed on the live columns, as in a group cycle, and are released before the search returns. A step is a
member that is filtered or assumed, or a step of the search for devices on a node. Time does not affect the result.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.filter_and_score import NodeSelection, score_feasible
from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.errors import SchedulerCoreError, StepLimitError
from scheduler_core.framework.device_choices import CHOSEN, DeviceChoice, DeviceChooser, StepBudget
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.ports import Clock
from scheduler_core.runtime.equivalence.reuse import class_key
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_NOT_CHOSEN = "node(s) were not chosen by the search over devices"
_DO_NOT_SCHEDULE = "DoNotSchedule"


class MemberChoice(Struct, frozen=True):
    """Node and devices of one member; ``devices`` is None for a member without claims."""

    queued: QueuedPod
    node_name: str
    devices: DeviceChoice | None

    def begin(self, attempt: Attempt, nodes: NodeColumns) -> None:
        """Restrict an attempt of the member to this choice."""
        attempt.among, attempt.among_reason = only(nodes, self.node_name), _NOT_CHOSEN
        if self.devices is not None:
            attempt.state.write(CHOSEN, self.devices)


@dataclass(slots=True)
class BacktrackingResult:
    """Result of a search.

    Attributes:
        where: The domain in which the quorum is feasible.
        placement: Choices of the quorum's members, in the order in which they are assumed; empty if it is infeasible.
        message: Why the quorum is infeasible; "" if it is feasible.
    """

    where: Where
    placement: tuple[MemberChoice, ...] = ()
    message: str = ""


class _MemberError(SchedulerCoreError):
    """A member met an error rather than a rejection."""


class DeviceBacktracking:
    """Searches nodes and devices for gangs; nothing is changed when a search returns.

    Args:
        selection: Filters and scores nodes.
        assumed: Assumes and releases members.
        clock: Time, for attempts.
        is_enabled: Whether the feature gate is on.
    """

    def __init__(self, selection: NodeSelection, assumed: AssumedPods, clock: Clock, *, is_enabled: bool) -> None:
        self._selection = selection
        self._assumed = assumed
        self._clock = clock
        self._is_enabled = is_enabled

    def search(
        self,
        instance: FrameworkInstance,
        members: Sequence[QueuedPod],
        needed: int,
        places: Callable[[], Sequence[Where]],
    ) -> BacktrackingResult | None:
        """Search a placement for a quorum.

        Args:
            instance: The profile's revision that decides.
            members: The waiting members.
            needed: How many of them must be feasible.
            places: Returns the domains, the best first.

        Returns:
            The result; None if the gate is off, no member needs devices, or the profile has extenders, which cannot
            take part.
        """
        nodes = self._selection.nodes
        chooser = next((plugin for plugin in instance.reserve if isinstance(plugin, DeviceChooser)), None)
        if not self._is_enabled or chooser is None or instance.extenders:
            return None
        if not any(chooser.needs_devices(queued.info, nodes) for queued in members):
            return None
        budget, wheres = StepBudget(chooser.gang_search_steps()), places()
        if not wheres:
            return None
        where = wheres[0]
        try:
            for where in wheres:
                attempts = _Members(self._selection, self._assumed, self._clock, instance, where, chooser, budget)
                placement = _Search(attempts, members, needed).run()
                if placement:
                    return BacktrackingResult(where, placement)
        except StepLimitError as end:
            return BacktrackingResult(where, message=f"the search over members and devices {end}")
        except SchedulerCoreError as problem:
            return BacktrackingResult(where, message=f"the search over members and devices failed: {problem}")
        if any(_depends_on_order(queued.info) for queued in members):
            text = f"found no placement in {budget.spent} steps, with the members in this order"
            return BacktrackingResult(where, message=f"the search over members and devices {text}")
        text = f"impossible: no choice of nodes and devices serves all of them (searched in {budget.spent} steps)"
        return BacktrackingResult(where, message=text)


def _depends_on_order(info: PodInfo) -> bool:
    """Return whether a pod can become feasible because of other members."""
    spec = info.pod.spec
    affinity = None if spec.affinity is None else spec.affinity.pod_affinity
    return (affinity is not None and bool(affinity.required)) or any(
        each.when_unsatisfiable == _DO_NOT_SCHEDULE for each in spec.topology_spread_constraints
    )


@dataclass(frozen=True, slots=True)
class _Members:
    """Attempts of the members in one domain."""

    selection: NodeSelection
    assumed: AssumedPods
    clock: Clock
    instance: FrameworkInstance
    where: Where
    chooser: DeviceChooser
    budget: StepBudget

    def feasible(self, queued: QueuedPod) -> tuple[Attempt, list[str]]:
        """Filter and score all nodes of the domain; return the feasible ones, the best first."""
        self.budget.spend()
        nodes = self.selection.nodes
        attempt = self._attempt(queued)
        attempt.among, attempt.among_reason = self.where.among, self.where.reason
        search = self.selection.search(attempt)
        if search.is_rejected:
            return attempt, []
        # Not only the nominated node, and not only a percentage.
        rows = search.rows(everywhere=True)
        if len(rows) < 2:
            return attempt, [nodes.node_name(row) for row in rows.tolist()]
        totals = score_feasible(nodes, attempt, rows).totals
        ranked = sorted((-int(total), nodes.node_name(row)) for row, total in zip(rows.tolist(), totals, strict=True))
        return attempt, [name for _, name in ranked]

    def choices(self, queued: QueuedPod) -> Iterator[MemberChoice]:
        """Yield the choices of a member; between two of them, the columns must be as at the call."""
        attempt, names = self.feasible(queued)
        has_devices = self.chooser.needs_devices(queued.info, self.selection.nodes)
        for name in names:
            if not has_devices:
                yield MemberChoice(queued, name, None)
                continue
            for devices in self.chooser.device_choices(attempt.state, name, self.budget):
                yield MemberChoice(queued, name, devices)

    def assume(self, choice: MemberChoice) -> Attempt | None:
        """Assume a member; return None if it is rejected on its node, or Reserve rejects it.

        Raises:
            SchedulerCoreError: A plugin failed.
        """
        self.budget.spend()
        attempt = self._attempt(choice.queued)
        choice.begin(attempt, self.selection.nodes)
        if not len(self.selection.find_feasible(attempt, everywhere=True).rows):
            return None
        failure: Failure | None = self.assumed.reserve_or_release(attempt, choice.node_name)
        if failure is not None and failure.is_error:
            raise _MemberError(f"{choice.queued.info.key}: {failure.message}")
        return attempt if failure is None else None

    def _attempt(self, queued: QueuedPod) -> Attempt:
        return Attempt(queued, queued.info, self.instance, self.clock.now())


@dataclass(slots=True)
class _Level:
    """One member of the search: its remaining choices, and the choice in use.

    Attributes:
        choices: The remaining choices.
        state: Key of the placement of the members before it.
        may_skip: Whether the quorum can do without the member.
        choice: The choice in use; None before the first one, and for a member that is skipped.
        attempt: The attempt of that choice.
    """

    choices: Iterator[MemberChoice]
    state: Hashable
    may_skip: bool
    choice: MemberChoice | None = None
    attempt: Attempt | None = None


@dataclass(slots=True)
class _Search:
    """Search in one domain: depth first, with its own stack."""

    attempts: _Members
    members: Sequence[QueuedPod]
    needed: int
    levels: list[_Level] = field(default_factory=list)
    failed: set[Hashable] = field(default_factory=set)
    shapes: dict[str, Hashable] = field(default_factory=dict)

    def run(self) -> tuple[MemberChoice, ...]:
        """Return the choices of a quorum, none if there are none; all members are released."""
        order = self._ordered()
        if len(order) < self.needed:
            return ()
        try:
            self._enter(order)
            while self.levels:
                if not self._advance(self.levels[-1]):
                    self.failed.add(self.levels.pop().state)
                    continue
                placement = tuple(level.choice for level in self.levels if level.choice is not None)
                if len(placement) >= self.needed:
                    return placement
                self._enter(order)
            return ()
        finally:
            for level in reversed(self.levels):
                self._release(level)

    def _ordered(self) -> list[QueuedPod]:
        """Return the members, those with the fewest feasible nodes first, without those that have none."""
        found = []
        for queued in self.members:
            count = len(self.attempts.feasible(queued)[1])
            if count or _depends_on_order(queued.info):
                found.append((count or np.inf, queued))
        return [queued for _, queued in sorted(found, key=lambda each: each[0])]

    def _enter(self, order: Sequence[QueuedPod]) -> None:
        """Add the level of the next member; it has no choices if an equal placement failed."""
        position = len(self.levels)
        placed = [level.choice for level in self.levels if level.choice is not None]
        state = (position, frozenset(Counter(map(self._use, placed)).items()))
        is_over = state in self.failed or position >= len(order)
        choices = iter(()) if is_over else self.attempts.choices(order[position])
        may_skip = not is_over and len(placed) + len(order) - position - 1 >= self.needed
        self.levels.append(_Level(choices, state, may_skip))

    def _advance(self, level: _Level) -> bool:
        """Use the next choice of the last level; return False if there is none."""
        self._release(level)
        for choice in level.choices:
            level.attempt = self.attempts.assume(choice)
            if level.attempt is not None:
                level.choice = choice
                return True
        level.choice = None
        if level.may_skip:
            level.may_skip = False
            return True
        return False

    def _release(self, level: _Level) -> None:
        if level.attempt is not None:
            self.attempts.assumed.release(level.attempt)
            level.attempt = level.choice = None

    def _use(self, choice: MemberChoice) -> Hashable:
        """Return a key of what a member uses, equal for members of equal pods."""
        info = choice.queued.info
        shape = self.shapes.get(info.uid)
        if shape is None:
            shape = self.shapes[info.uid] = _shape(info)
        return (shape, choice.node_name, None if choice.devices is None else choice.devices.key)


def _shape(info: PodInfo) -> Hashable:
    """Return the key of a pod's class without the names of its claims, whose devices count on their own."""
    bare = copy.copy(info)
    status = replace(info.pod.status, resource_claim_statuses=())
    bare.pod, bare.class_key = replace(info.pod, status=status), None
    return class_key(bare)
