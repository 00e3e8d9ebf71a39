"""Searches of gangs that continue in another process: what it sends, and how the result is checked.

A placement is checked by a full Filter of each member on its node; devices that it needs are searched again only where
devices changed. A preemption is used only if no event since the search began would requeue the gang, because it may fit
without evictions then, and if no pod on the nodes concerned left or changed. Pods that were added there, and all other
changes, are checked by filters: the members must be feasible without the victims, and beside an added pod each victim
must still be needed. Members whose filters read nothing but nodes that did not change need no filters again. A
rejection is reported as it is, because events since then requeue the gang: they are recorded while it is in flight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import NodeReservations, Where, only
from scheduler_core.cycle.search_basis import (
    PlannedEviction,
    PresentPlan,
    SearchBasis,
    SentDevices,
    UnchangedDevices,
    may_fork_now,
)
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun
from scheduler_core.errors import AttemptLimitError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.device_choices import FOUND
from scheduler_core.framework.extension_points import FilterPlugin, ReleasedClaim
from scheduler_core.framework.gang_preemptor import GangEviction, GangPostFilter, GangRelease
from scheduler_core.framework.group_view import DisruptionUnits, GroupViews
from scheduler_core.framework.plugin import Reads
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.preemption import are_min_resources_free, eviction_of, terminating_pods
from scheduler_core.gangs.reservation_cycle import ReservationSearch
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, PodGroup
from scheduler_core.placement.engine import at_once
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.victims import with_priority
from scheduler_core.placement.worlds import CycleWorld, SearchWorld
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.equivalence import filter_class
from scheduler_core.runtime.filtering import run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance, device_chooser
from scheduler_core.runtime.post_filtering import plans_for_gang
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_REASON = "node(s) were not planned for this member"
_STEPS_OF_CLASS = 10
_STEPS_OF_MEMBER = 3


class SeatedGang(Struct, frozen=True, tag="seated"):
    """A placement.

    Attributes:
        seats: UID and node of each member, in the order in which they are assumed, and the devices of those that need
            some.
        domain: The subset, such as ``zone=a``; "" for all nodes.
        next_start: Where the next search of a percentage of the nodes starts.
    """

    seats: tuple[tuple[str, str, SentDevices | None], ...]
    domain: str
    message: str
    next_start: int


class RejectedGang(Struct, frozen=True, tag="rejected"):
    """A rejection, and what is done about it.

    Attributes:
        failure: The failure before what :class:`Reserving` adds.
        released: By plugin, claims to deallocate or delete, each with the UID of the member for which that is done.
        reservation: The search for capacity to reserve.
        reserved_for: Other gangs whose reservations rejected members, each with the UIDs of these members.
    """

    failure: GangFailure
    eviction: PlannedEviction | None
    released: dict[str, tuple[tuple[str, ReleasedClaim], ...]]
    reservation: ReservationSearch
    reserved_for: tuple[tuple[GroupKey, tuple[str, ...]], ...]
    next_start: int

    def releases(self, members: Mapping[str, PodInfo]) -> dict[str, Sequence[GangRelease]]:
        """Return what to release, for the members by UID."""
        return {name: [(members[uid], claim) for uid, claim in each] for name, each in self.released.items()}


GangResult: TypeAlias = SeatedGang | RejectedGang
_decode = msgspec.msgpack.Decoder(GangResult).decode
encode = msgspec.msgpack.Encoder().encode


def decode(result: bytes | None) -> GangResult | None:
    return None if result is None else _decode(result)


def _groups_of(gang: Gang) -> tuple[PodGroup | CompositePodGroup | None, ...]:
    """Return the groups whose quorums and topologies a search reads."""
    composites: tuple[CompositePodGroup | None, ...] = ()
    if isinstance(gang, GangTree):
        composites = tuple(gang.forest.get(key) for key in gang.from_above() if key not in gang.leaves)
    return *(part.group for part in gang.parts), *composites


@dataclass(frozen=True, slots=True, kw_only=True)
class GangBasis(SearchBasis):
    """What a search of a gang reads that must be the same when its result is used.

    Attributes:
        groups: The PodGroup of the gang; of a tree, all groups in it.
        members: The waiting members by UID.
        placed: UIDs of the members that had a node.
    """

    groups: tuple[PodGroup | CompositePodGroup | None, ...]
    members: Mapping[str, PodInfo]
    placed: frozenset[str]

    def still_holds(self, gang: Gang, instance: FrameworkInstance | None) -> bool:
        """Return whether the gang consists of the same members and groups, and has the same profile."""
        if instance is not self.instance or len(gang.waiting) != len(self.members):
            return False
        same = all(self.members.get(uid) is queued.info for uid, queued in gang.waiting.items())
        groups = _groups_of(gang)
        is_same_group = len(groups) == len(self.groups) and all(map(is_, groups, self.groups))
        return same and is_same_group and self.placed == frozenset(gang.placed)


@dataclass(frozen=True, slots=True)
class MovableGang:
    """The attempt of a gang, whose search may continue in another process."""

    instance: FrameworkInstance
    gang: Gang

    def may_move(self) -> bool:
        """Return whether the search may continue in another process.

        Not with a plugin that helps rejected gangs without planning first: another process must not write.
        """
        return may_fork_now(self.instance) and all(
            plans_for_gang(plugin) for plugin in self.instance.post_filter if isinstance(plugin, GangPostFilter)
        )

    def kind(self) -> Hashable:
        return self.gang.key


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """Checks results on the live state."""

    cache: ClusterCache
    queue: SchedulingQueue
    world: CycleWorld
    search: SearchWorld
    rejections: NodeReservations
    groups: GroupViews

    def basis(self, gang: Gang, instance: FrameworkInstance, next_start: int) -> GangBasis:
        return GangBasis.now(
            instance,
            self.cache.columns,
            self.queue.event_position,
            next_start,
            groups=_groups_of(gang),
            members={uid: queued.info for uid, queued in gang.waiting.items()},
            placed=frozenset(gang.placed),
            reservations=dict(self.rejections.by_gang),
        )

    def has_same_reservations(self, result: RejectedGang, basis: GangBasis) -> bool:
        """Return whether no reservation that rejected members has ended."""
        return basis.has_same_reservations((key for key, _ in result.reserved_for), self.rejections.by_gang)

    def note_rejected(self, result: RejectedGang) -> None:
        """Let the gang be activated when a reservation that rejected members ends."""
        for key, uids in result.reserved_for:
            for uid in uids:
                self.rejections.note_rejected(uid, (key,))

    def seat(self, request: PlacementRequest, result: SeatedGang, basis: GangBasis) -> Placement | None:
        """Assume all members on their nodes; return None, with none of them assumed, if one is infeasible there."""
        begun, found = self.world.assumed.mark(), None
        try:
            found = self._seated(request, result, basis)
        except AttemptLimitError:
            # Devices changed, and another search on the nodes takes too long.
            return None
        finally:
            if found is None:
                self.world.assumed.undo(*begun)
        return found

    def _seated(self, request: PlacementRequest, result: SeatedGang, basis: GangBasis) -> Placement | None:
        nodes, by_uid = self.cache.columns, {queued.uid: queued for queued in request.members}
        # What the members take on their way is no change: the other process has counted it, too. That ends with the
        # first member for which devices are searched again, because it may take those that were found for a later one.
        unchanged, are_as_found = UnchangedDevices.since(basis.devices, nodes.devices), True
        found = Placement(Where(name=result.domain))
        has_topology = any(True for _ in request.gang.topologies)
        for position, (uid, node_name, devices) in enumerate(result.seats):
            row, queued = nodes.row_of(node_name), by_uid.get(uid)
            if row == NO_ROW or queued is None or (has_topology and not basis.has_same_labels(nodes, row)):
                return None
            where = Where(only(nodes, node_name), _REASON)
            attempt = self.world.begin(request.instance, queued, where, position)
            if devices is not None:
                are_as_found = are_as_found and basis.has_same_devices(nodes, row, unchanged)
                if are_as_found:
                    attempt.state.write(FOUND, devices.found)
            if at_once(self.world.seat(attempt)) is not None:
                return None
            found.placed.append(attempt)
        return found

    def eviction(
        self, entry: QueuedGang, request: PlacementRequest, result: RejectedGang, basis: GangBasis
    ) -> tuple[bool, GangEviction | None]:
        """Return whether what is planned for the rejected gang is still to be done, and the eviction of its victims."""
        planned, plan = result.eviction, None
        if planned is not None:
            plan = basis.present(self.cache, planned)
            if plan is None or any(info.is_leaving for info in plan.victims):
                return False, None
        if (planned is not None or result.released) and self._is_woken(entry, result, basis):
            return False, None
        if planned is None or plan is None:
            return True, None
        check = _PlanCheck(self, request, result.failure.nominations, plan, DisruptionUnits(self.groups))
        if not check.holds(basis):
            return False, None
        return True, eviction_of(request.gang, request.instance, plan.victims, planned.node_names)

    def _is_woken(self, entry: QueuedGang, result: RejectedGang, basis: GangBasis) -> bool:
        before, failure = entry.rejected_members, result.failure
        entry.rejected_members = tuple(basis.members[uid] for uid in failure.rejected_members if uid in basis.members)
        try:
            return basis.is_woken(self.queue, entry, failure.rejected_by, failure.pending_on)
        finally:
            entry.rejected_members = before


class _PlanCheck:
    """Check of a gang's plan to evict pods by filters; what it assumes and removes is undone when it ends."""

    def __init__(
        self,
        check: ResultCheck,
        request: PlacementRequest,
        nominations: Mapping[str, str],
        plan: PresentPlan,
        units: DisruptionUnits,
    ) -> None:
        self._nodes = check.cache.columns
        self._search = check.search
        self._nominator = check.queue.nominator
        self._reservations = check.rejections.by_gang
        self._request = request
        self._nominations = nominations
        self._plan = plan
        self._units = units
        self._overlay = ColumnsOverlay(self._nodes)
        self._by_uid = {queued.uid: queued for queued in request.members}
        self._seated: defaultdict[int, list[Attempt]] = defaultdict(list)

    def holds(self, basis: GangBasis) -> bool:
        """Return whether the members are feasible without the victims, and the victims are whole units and needed.

        What takes room away since the search began requeues no gang, so that only the filters show it.
        """
        gang, search = self._request.gang, self._search
        rows = {self._nodes.row_of(name) for name in self._nominations.values()}
        if NO_ROW in rows or not self._are_whole_units():
            return False
        begun = search.assumed.mark()
        with self._nominator.without(gang.waiting):
            try:
                if not self._are_min_resources_free():
                    return False
                if self._is_row_local(basis):
                    rows &= self._plan.touched | {self._nodes.row_of(name) for name in self._nominator.nodes()}
                    victims = [info for info in self._plan.victims if info.row in rows]
                else:
                    victims = self._plan.victims
                leaving = [info for row in rows for info in self._nodes.pods[row].values() if info.is_leaving]
                with self._overlay:
                    self._overlay.remove([*leaving, *victims])
                    try:
                        return self._are_feasible(rows) and self._are_needed()
                    finally:
                        search.assumed.undo(*begun)
            except AttemptLimitError:
                return False

    def _are_whole_units(self) -> bool:
        """Return whether the victims are whole units that the gang may preempt: pods may have joined their groups."""
        uids = {info.uid for info in self._plan.victims}
        whole = {info.uid for info in self._units.whole(self._plan.victims) if not info.is_leaving}
        return whole == uids and uids.isdisjoint(self._units.protected_from(self._request.gang.priority))

    def _are_min_resources_free(self) -> bool:
        group, nodes = self._request.gang.group, self._nodes
        if group is None or not group.min_resources:
            return True
        rows = np.flatnonzero(nodes.alive)
        rows = rows[nodes.priorities.below(self._request.gang.priority, rows)]
        terminating = terminating_pods(nodes, rows, self._request.gang.priority)
        return are_min_resources_free(nodes, self._request, (*self._plan.victims, *terminating))

    def _is_row_local(self, basis: GangBasis) -> bool:
        """Return whether filters read nothing but the nodes, so that members are feasible where nothing changed."""
        request, nodes, steps = self._request, self._nodes, self._search.steps
        now, instance, chooser = self._reservations, request.instance, device_chooser(request.instance)
        if len(now) != len(basis.reservations) or not basis.has_same_reservations(now, now):
            return False
        classes: dict[Hashable, PodInfo] = {}
        for uid in self._nominations:
            steps.upkeep(_STEPS_OF_MEMBER)
            info = self._by_uid[uid].info
            classes[filter_class(instance, info)] = info
        for info in classes.values():
            steps.spend(_STEPS_OF_CLASS)
            if chooser is not None and chooser.needs_devices(info, nodes):
                return False
            pod, state = with_priority(info, request.gang.priority), CycleState()
            outcome = run_pre_filters(instance, state, pod, nodes)
            if not outcome.status.is_success or outcome.node_names is not None:
                return False
            if not NodeDryRun(instance, state, pod, nodes, self._nominator, steps=steps).is_row_local:
                return False
            filters = (each for each in instance.filters if each.name not in state.skip_filter)
            if any(Reads.NODES in each.reuse.filter for each in filters if isinstance(each, FilterPlugin)):
                return False
        return True

    def _are_feasible(self, rows: Container[int]) -> bool:
        """Assume the members on some rows; return whether all of them are feasible there."""
        for uid, node_name in self._nominations.items():
            row = self._nodes.row_of(node_name)
            if row not in rows:
                continue
            attempt = self._seat(self._by_uid[uid], node_name)
            if attempt is None:
                return False
            self._seated[row].append(attempt)
        return True

    def _seat(self, queued: QueuedPod, node_name: str) -> Attempt | None:
        attempt = self._search.begin(self._request.instance, queued, Where(only(self._nodes, node_name), _REASON))
        attempt.info = with_priority(attempt.info, self._request.gang.priority)
        return attempt if self._search.seat_at_once(attempt) is None else None

    def _are_needed(self) -> bool:
        """Return whether beside each unit with pods on grown rows a member is infeasible on one of the unit's rows."""
        by_node: defaultdict[str, list[PodInfo]] = defaultdict(list)
        for info in self._plan.victims:
            by_node[info.node_name].append(info)
        victims = [info for row in self._plan.grown for info in by_node[self._nodes.node_name(row)]]
        units = {id(unit): unit for unit in map(self._units.of, victims)}
        return all(self._is_needed([info for info in unit.pods if not info.is_leaving]) for unit in units.values())

    def _is_needed(self, pods: Sequence[PodInfo]) -> bool:
        restored = self._overlay.restore(reversed(pods))
        for row in dict.fromkeys(restored):
            for position, attempt in enumerate(self._seated[row]):
                node_name = attempt.node_name
                self._search.assumed.release(attempt)
                again = self._seat(attempt.queued, node_name)
                is_needed = again is None
                if again is None:
                    self._overlay.remove(pods)
                    again = self._seat(attempt.queued, node_name)
                    if again is None:
                        return False
                self._seated[row][position] = again
                if is_needed:
                    return True
        return False
