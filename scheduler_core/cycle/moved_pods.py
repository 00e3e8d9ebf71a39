"""Searches of single pods that continue in another process: what it sends, and how the result is checked.

A node is checked by a full Filter of the pod on it; devices are searched again there only if devices changed, within
one slice. What PostFilter planned is done only if the nodes concerned have the same pods, no event since the search
began would requeue the pod, and a full Filter on the node rejects the pod with the victims and accepts it without. Any
other rejection is reported as it is: events are recorded for a pod in flight.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.background_search import BackgroundSearches, MovedSearch
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.filter_and_score import NodeOrder, NodeSelection
from scheduler_core.cycle.gang_constraints import only
from scheduler_core.cycle.search_basis import (
    PlannedEviction,
    SearchBasis,
    SentDevices,
    UnchangedDevices,
    may_fork_now,
    needs_eviction,
)
from scheduler_core.errors import AttemptLimitError
from scheduler_core.framework.device_choices import FOUND
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PostFilterAction, PreemptionCandidate, ReleasedClaim
from scheduler_core.framework.status import SUCCESS
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.equivalence import class_key
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import PlannedOutcome, PostFilterOutcome, plans
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.step_counter import SLICE_STEPS, StepCounter

_REASON = "node(s) were not chosen for this pod"


class SeatedPod(Struct, frozen=True, tag="seated"):
    """A node for the pod.

    Attributes:
        devices: Devices of the pod there; None if it needs none.
        next_start: Where the next search of a percentage of the nodes starts.
    """

    node_name: str
    feasible_count: int
    devices: SentDevices | None
    next_start: int


class PlannedAction(Struct, frozen=True):
    """What one PostFilter plugin is going to do: a :class:`PostFilterAction` with UIDs in place of pods."""

    plugin: str
    eviction: PlannedEviction | None = None
    violations: int = 0
    released: ReleasedClaim | None = None

    @classmethod
    def of(cls, plugin: str, action: PostFilterAction, nodes: NodeColumns) -> PlannedAction:
        chosen = action.preemption
        if chosen is None:
            return cls(plugin, released=action.released)
        eviction = PlannedEviction.of(chosen.victims, (chosen.node_name,), nodes)
        return cls(plugin, eviction, chosen.pdb_violations, action.released)


class RejectedPod(Struct, frozen=True, tag="rejected"):
    """A rejection, and what PostFilter is going to do.

    Attributes:
        reserved_for: Gangs whose reservations reject the pod.
    """

    failure: Failure
    reserved_for: tuple[GroupKey, ...]
    actions: tuple[PlannedAction, ...]
    feasible_count: int
    next_start: int


@dataclass(frozen=True, slots=True)
class PlannedRejection:
    """A rejection that still holds, and what PostFilter is to do."""

    result: RejectedPod
    planned: PlannedOutcome


PodResult: TypeAlias = SeatedPod | RejectedPod
_decode = msgspec.msgpack.Decoder(PodResult).decode
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBasis(SearchBasis):
    """What a search of a pod reads that must be the same when its result is used.

    Attributes:
        started: Start of the attempt, in the clock's seconds.
    """

    info: PodInfo
    started: float


@dataclass(slots=True, eq=False)
class MovedPods:
    """The attempt of a pod whose search may move, in either process, and the check of results on the live state."""

    queue: SchedulingQueue
    selection: NodeSelection
    assumed: AssumedPods
    background: BackgroundSearches
    steps: StepCounter
    attempt: Attempt | None = field(default=None, init=False)
    order: NodeOrder = field(init=False)

    def __post_init__(self) -> None:
        self.order = self.selection.partial.order

    # -- the attempt in progress ----------------------------------------------------------------------------------

    @property
    def instance(self) -> FrameworkInstance:
        assert self.attempt is not None, "a search belongs to an attempt"
        return self.attempt.instance

    def may_move(self) -> bool:
        """Return whether the search may continue in another process."""
        # A PostFilter plugin that does not plan before it acts would write, which a copy must not.
        return may_fork_now(self.instance) and all(map(plans, self.instance.post_filter))

    def kind(self) -> Hashable:
        """Return the key of the pod's class; pods that differ in the names of generated claims alone share it."""
        assert self.attempt is not None, "a search belongs to an attempt"
        info = self.attempt.info
        if info.pod.status.resource_claim_statuses:
            bare = copy.copy(info)
            bare.pod = replace(info.pod, status=replace(info.pod.status, resource_claim_statuses=()))
            bare.class_key, info = None, bare
        return self.attempt.instance.name, class_key(info)

    def basis(self, attempt: Attempt, next_start: int) -> PodBasis:
        nodes, position = self.selection.nodes, self.queue.event_position
        return PodBasis.now(
            attempt.instance,
            nodes,
            position,
            next_start,
            info=attempt.info,
            started=attempt.started,
            reservations=dict(self.selection.reservations.by_gang),
        )

    # -- in the copy ------------------------------------------------------------------------------------------------

    def send_node(self, attempt: Attempt, node_name: str) -> None:
        """End the copy with a node, and the devices that Reserve takes there."""
        info, instance, devices = attempt.info, attempt.instance, None
        count, start = attempt.feasible_count, self.order.next_start
        # If Reserve fails, the other process calls it, too, and reports that.
        if not info.pod.spec.node_name and self.assumed.reserve(attempt, node_name) is None:
            devices = SentDevices.taken(instance, info, attempt.state, self.selection.nodes)
        self.background.send(_encode(SeatedPod(node_name, count, devices, start)))

    def send_rejection(
        self,
        attempt: Attempt,
        failure: Failure,
        diagnosis: Diagnosis | None = None,
        planned: PlannedOutcome | None = None,
    ) -> None:
        """End the copy with a rejection; without a result for an error, which the other process then reports itself."""
        if failure.is_error:
            self.background.send(None)
        nodes, reserved_for = self.selection.nodes, () if diagnosis is None else tuple(diagnosis.reserved_for)
        actions = () if planned is None else tuple(PlannedAction.of(*each, nodes) for each in planned.actions)
        found = RejectedPod(failure, reserved_for, actions, attempt.feasible_count, self.order.next_start)
        self.background.send(_encode(found))

    # -- results ------------------------------------------------------------------------------------------------------

    def _result(self, attempt: Attempt, ended: MovedSearch) -> PodResult | None:
        """Return the result of a search; None if there is none, or if the pod or its profile changed meanwhile."""
        basis = ended.basis
        if ended.result is None or not isinstance(basis, PodBasis):
            return None
        self.background.note_unstored(ended)
        is_same = basis.instance is attempt.instance and basis.info is attempt.info
        return _decode(ended.result) if is_same else None

    def check(self, attempt: Attempt, ended: MovedSearch) -> SeatedPod | PlannedRejection | None:
        """Return the result of a search if it still holds, with the state of Filter in the attempt; else None."""
        result, basis = self._result(attempt, ended), ended.basis
        if result is None or not isinstance(basis, PodBasis):
            return None
        found: SeatedPod | PlannedRejection | None
        try:
            if isinstance(result, RejectedPod):
                planned = self._actions(attempt, result, basis)
                found = None if planned is None else PlannedRejection(result, planned)
            else:
                found = result if self._is_feasible(attempt, result, basis) else None
        except AttemptLimitError:
            # The check takes more than a slice.
            found = None
        if found is None:
            return None
        attempt.feasible_count, attempt.started = result.feasible_count, basis.started
        if self.order.next_start == basis.next_start:
            self.order.next_start = result.next_start
        return found

    def _is_feasible(self, attempt: Attempt, result: SeatedPod, basis: PodBasis) -> bool:
        """Return whether the pod is feasible on the node that was found; the attempt has its state of Filter then.

        Raises:
            AttemptLimitError: Devices changed, and another search on the node takes too long.
        """
        nodes, start = self.selection.nodes, self.order.next_start
        row = nodes.row_of(result.node_name)
        if row == NO_ROW:
            return False
        mask = only(nodes, result.node_name)
        attempt.among = mask if attempt.among is None else mask & attempt.among
        attempt.among_reason = attempt.among_reason or _REASON
        # Devices are searched again only if they changed: a search is what takes long.
        unchanged = UnchangedDevices.since(basis.devices, nodes.devices)
        if result.devices is not None and basis.has_same_devices(nodes, row, unchanged):
            attempt.state.write(FOUND, result.devices.found)
        try:
            with self._one_slice():
                feasible = self.selection.find_feasible(attempt)
        finally:
            # The check is no search of a percentage of the nodes, so the next one starts where it would have.
            self.order.next_start = start
        return len(feasible.rows) == 1

    @contextmanager
    def _one_slice(self) -> Iterator[None]:
        limit = self.steps.limit
        self.steps.limit = min(limit, self.steps.spent + SLICE_STEPS)
        try:
            yield
        finally:
            self.steps.limit = limit

    def _actions(self, attempt: Attempt, result: RejectedPod, basis: PodBasis) -> PlannedOutcome | None:
        """Return what PostFilter is to do for a rejected pod; None if the rejection does not hold any more.

        Raises:
            AttemptLimitError: A filter on the node of a preemption takes long.
        """
        if not basis.has_same_reservations(result.reserved_for, self.selection.reservations.by_gang):
            return None
        queued, failure, actions = attempt.queued, result.failure, []
        for each in result.actions:
            preemption = None
            if each.eviction is not None:
                victims = basis.victims(self.selection.cache, each.eviction)
                if victims is None:
                    return None
                (node_name,) = each.eviction.node_names
                preemption = PreemptionCandidate(node_name, tuple(victims), each.violations)
                with self._one_slice():
                    if not needs_eviction(attempt, preemption, self.selection.nodes, self.queue.nominator, self.steps):
                        return None
            actions.append((each.plugin, PostFilterAction(preemption, each.released)))
        changes = any(action.preemption is not None or action.released is not None for _, action in actions)
        # An event may have made the pod feasible without victims. A rejection that changes nothing needs no such check:
        # the events that were recorded meanwhile requeue the pod.
        if changes and basis.is_woken(self.queue, queued, failure.rejected_by, failure.pending_on):
            return None
        if result.reserved_for:
            self.selection.reservations.note_rejected(queued.uid, result.reserved_for)
        return PlannedOutcome(PostFilterOutcome(SUCCESS), tuple(actions))
