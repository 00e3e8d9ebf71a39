"""The search for nodes and devices of all members of a quorum, for gangs that a group cycle does not place.

The group cycle takes the best node and the first devices for each member. An earlier member can so take what only a
later one can use (kubernetes/kubernetes #138765, #140097). This search goes back to earlier members, and tries their
other nodes and devices, until the quorum is feasible, every choice was tried, or the limit of steps is reached::

    member with fewest nodes ─▶ node, best score first ─▶ devices, first of the allocator first ─▶ next member
             ▲                                                                                       │
             └───────────────────── released, if the next member is infeasible ◀────────────────────┘

A step is a member that is filtered or assumed, or a step of the search for devices on a node.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import FilterRun, score_feasible
from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.errors import SchedulerCoreError, StepLimitError
from scheduler_core.framework.device_choices import CHOSEN, DeviceChoice, DeviceChooser, StepBudget
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.placement.engine import Steps, World
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.worlds import SearchWorld, SeatedWorld, steps_of_search
from scheduler_core.runtime.equivalence import class_key
from scheduler_core.runtime.framework_instance import FrameworkInstance, device_chooser
from scheduler_core.snapshot.pod_info import PodInfo

_DO_NOT_SCHEDULE = "DoNotSchedule"
_IN = "the search over members and devices"


class _Choice(Struct, frozen=True):
    """Node and devices of one member; ``devices`` is None for a member without claims."""

    queued: QueuedPod
    node_name: str
    devices: DeviceChoice | None


@dataclass(slots=True)
class _Level:
    """One member of the search.

    Attributes:
        state: Key of the placement of the members before it.
        may_skip: Whether the quorum can do without the member.
        choice: The choice in use; None before the first one, and for a member that is skipped.
    """

    choices: Iterator[_Choice]
    state: Hashable
    may_skip: bool
    choice: _Choice | None = None
    attempt: Attempt | None = None


class DeviceWorld(SeatedWorld):
    """Another world in which the members of a quorum get nodes and devices that are searched together.

    Attributes:
        message: Why the quorum is infeasible; "" if it is feasible or was not searched.
    """

    reason = "node(s) were not chosen by the search over devices"

    def __init__(self, world: World, search: SearchWorld, chooser: DeviceChooser) -> None:
        super().__init__(world, ())
        self._search = search
        self._chooser = chooser
        self._budget = StepBudget(chooser.gang_search_steps())
        self._devices: dict[str, DeviceChoice | None] = {}
        self._shapes: dict[str, Hashable] = {}
        self._is_over = False
        self.message = ""

    @classmethod
    def of(cls, world: World, search: SearchWorld, request: PlacementRequest) -> DeviceWorld | None:
        """Return the world for a gang; None if no member needs devices, or if the profile has extenders."""
        instance = request.instance
        chooser = device_chooser(instance)
        if chooser is None or instance.extenders:
            return None
        if not any(chooser.needs_devices(queued.info, search.nodes) for queued in request.members):
            return None
        return cls(world, search, chooser)

    def begin(self, instance: FrameworkInstance, queued: QueuedPod, where: Where, position: int = 0) -> Attempt:
        """Return an attempt in the other world, with the devices that were found."""
        attempt = super().begin(instance, queued, where, position)
        devices = self._devices.get(queued.uid)
        if devices is not None:
            attempt.state.write(CHOSEN, devices)
        return attempt

    def fill(
        self, instance: FrameworkInstance, found: Placement, members: Sequence[QueuedPod], needed: int
    ) -> Steps[None]:
        """Search the nodes and devices of a quorum, and assume it there, then further members on any node."""
        choices = self._choose(instance, found.where, members, needed)
        if choices:
            self._seats = [(each.queued, each.node_name) for each in choices]
            self._devices = {each.queued.uid: each.devices for each in choices}
            self._beyond = found.where
            yield from super().fill(instance, found, members, needed)

    def _choose(
        self, instance: FrameworkInstance, where: Where, members: Sequence[QueuedPod], needed: int
    ) -> list[_Choice]:
        """Return the choices of a quorum in one subset; none if there are none, or if an earlier search ended all."""
        if self._is_over:
            return []
        # Whatever ends this search early, its limit or an error, would end the search in the next subset as well.
        self._is_over, steps = True, self._budget
        try:
            found = self._go_through(instance, where, members, needed)
        except StepLimitError as end:
            self.message = f"{_IN} {end}"
            return []
        except SchedulerCoreError as problem:
            self.message = f"{_IN} failed: {problem}"
            return []
        self._is_over = False
        if found:
            self.message = ""
        elif any(_depends_on_order(queued.info) for queued in members):
            self.message = f"{_IN} found no placement in {steps.spent} steps, with the members in this order"
        else:
            text = f"no choice of nodes and devices serves all of them (searched in {steps.spent} steps)"
            self.message = f"impossible: {text}"
        return found

    def _go_through(
        self, instance: FrameworkInstance, where: Where, members: Sequence[QueuedPod], needed: int
    ) -> list[_Choice]:
        order = self._ordered(instance, where, members)
        levels: list[_Level] = []
        failed: set[Hashable] = set()
        if len(order) < needed:
            return []
        try:
            while True:
                placed = [level.choice for level in levels if level.choice is not None]
                if len(placed) >= needed:
                    return placed
                position = len(levels)
                state = (position, frozenset(Counter(map(self._use, placed)).items()))
                # An equal placement of the members before it may have failed.
                is_over = state in failed or position >= len(order)
                choices = iter(()) if is_over else self._choices(instance, where, order[position])
                may_skip = not is_over and len(placed) + len(order) - position - 1 >= needed
                levels.append(_Level(choices, state, may_skip))
                while not self._advance(instance, levels[-1]):
                    failed.add(levels.pop().state)
                    if not levels:
                        return []
        finally:
            for level in reversed(levels):
                self._release(level)

    def _ordered(self, instance: FrameworkInstance, where: Where, members: Sequence[QueuedPod]) -> list[QueuedPod]:
        """Return the members, those with the fewest feasible nodes first, without those that have none."""
        found = []
        for queued in members:
            count = len(self._feasible_nodes(instance, where, queued)[1])
            if count or _depends_on_order(queued.info):
                found.append((count or np.inf, queued))
        # A member with few nodes leaves few placements to try before the search goes back. The sort is stable, so that
        # equal members stay in their order.
        return [queued for _, queued in sorted(found, key=lambda each: each[0])]

    def _feasible_nodes(
        self, instance: FrameworkInstance, where: Where, queued: QueuedPod
    ) -> tuple[Attempt, list[str]]:
        """Return the feasible nodes of the subset, the best first, and the attempt that filtered them."""
        self._budget.spend()
        # The search has a limit of its own, so the attempt is not charged.
        self._search.steps.pass_by(steps_of_search(self.nodes))
        nodes, attempt = self.nodes, self._search.begin(instance, queued, where)
        search = FilterRun(attempt, self._search.selection)
        if search.is_rejected:
            return attempt, []
        # Not only the nominated node, and not only a percentage.
        rows = search.rows(everywhere=True)
        if len(rows) < 2:
            return attempt, [nodes.node_name(row) for row in rows.tolist()]
        totals = score_feasible(nodes, attempt, rows).totals
        ranked = sorted((-int(total), nodes.node_name(row)) for row, total in zip(rows.tolist(), totals, strict=True))
        return attempt, [name for _, name in ranked]

    def _choices(self, instance: FrameworkInstance, where: Where, queued: QueuedPod) -> Iterator[_Choice]:
        """Yield the choices of a member; between two of them, the columns must be as at the call."""
        attempt, names = self._feasible_nodes(instance, where, queued)
        has_devices = self._chooser.needs_devices(queued.info, self.nodes)
        for name in names:
            if not has_devices:
                yield _Choice(queued, name, None)
                continue
            for devices in self._chooser.device_choices(attempt.state, name, self._budget):
                yield _Choice(queued, name, devices)

    def _advance(self, instance: FrameworkInstance, level: _Level) -> bool:
        """Use the next choice of the last level; return False if there is none."""
        self._release(level)
        for choice in level.choices:
            level.attempt = self._assume(instance, choice)
            if level.attempt is not None:
                level.choice = choice
                return True
        # A member is skipped only after all of its choices.
        may_skip, level.may_skip = level.may_skip, False
        return may_skip

    def _assume(self, instance: FrameworkInstance, choice: _Choice) -> Attempt | None:
        """Assume a member; return None if it is rejected on its node, or Reserve rejects it."""
        self._budget.spend()
        self._search.steps.pass_by(steps_of_search(self.nodes))
        attempt = self._search.begin(instance, choice.queued, Where(only(self.nodes, choice.node_name)))
        if choice.devices is not None:
            attempt.state.write(CHOSEN, choice.devices)
        if not len(self._search.selection.find_feasible(attempt, everywhere=True).rows):
            return None
        failure = self.assumed.reserve_or_release(attempt, choice.node_name)
        if failure is not None and failure.is_error:
            # The other choices would meet the same error.
            raise SchedulerCoreError(f"{choice.queued.info.key}: {failure.message}")
        return attempt if failure is None else None

    def _release(self, level: _Level) -> None:
        if level.attempt is not None:
            self.assumed.release(level.attempt)
            level.attempt = level.choice = None

    def _use(self, choice: _Choice) -> Hashable:
        """Return a key of what a member uses, equal for members of equal pods."""
        info = choice.queued.info
        shape = self._shapes.get(info.uid)
        if shape is None:
            # The class of the pod without the names of its claims, whose devices count on their own.
            bare = copy.copy(info)
            status = replace(info.pod.status, resource_claim_statuses=())
            bare.pod, bare.class_key = replace(info.pod, status=status), None
            shape = self._shapes[info.uid] = class_key(bare)
        return (shape, choice.node_name, None if choice.devices is None else choice.devices.key)


def _depends_on_order(info: PodInfo) -> bool:
    """Return whether a pod can become feasible because of other members."""
    spec = info.pod.spec
    affinity = None if spec.affinity is None else spec.affinity.pod_affinity
    return (affinity is not None and bool(affinity.required)) or any(
        each.when_unsatisfiable == _DO_NOT_SCHEDULE for each in spec.topology_spread_constraints
    )
