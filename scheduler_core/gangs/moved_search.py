"""Searches of gangs that continue in another process: what it sends, and how the result is checked.

A placement is checked by a full Filter of each member on its node, a preemption by a dry run on the nodes that changed
since the search began. A rejection is reported as it is, because events since then requeue the gang: they are recorded
while it is in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec import Struct

from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.framework.device_choices import DeviceChooser
from scheduler_core.framework.gang_preemptor import GangEviction, GangPostFilter
from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.preemption import eviction_of
from scheduler_core.gangs.reservation_cycle import ReservationSearch
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, PodGroup
from scheduler_core.placement.engine import at_once
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.worlds import CycleWorld, SearchWorld
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_REASON = "node(s) were not planned for this member"


class SeatedGang(Struct, frozen=True, tag="seated"):
    """A placement.

    Attributes:
        seats: UID and node of each member, in the order in which they are assumed.
        domain: The subset, such as ``zone=a``; "" for all nodes.
        message: The message of the outcome.
        next_start: Where the next search of a percentage of the nodes starts.
    """

    seats: tuple[tuple[str, str], ...]
    domain: str
    message: str
    next_start: int


class Evicted(Struct, frozen=True):
    """A preemption that was planned: UIDs of the victims, and the nodes of the members."""

    victims: tuple[str, ...]
    node_names: tuple[str, ...]


class RejectedGang(Struct, frozen=True, tag="rejected"):
    """A rejection: the fields of :class:`GangFailure`, with UIDs in place of pods, and what is done about it.

    Attributes:
        eviction: The preemption; None for none.
        reservation: The search for capacity to reserve.
    """

    message: str
    reason: str
    rejected_by: tuple[str, ...]
    pending_on: tuple[str, ...]
    rejected_members: tuple[str, ...]
    fitting: int
    needed: int
    hint: str
    nominations: dict[str, str]
    victims: tuple[tuple[str, str], ...]
    untried: int
    preemption: str
    lacks: tuple[tuple[GroupKey, str], ...]
    is_given_up: bool
    eviction: Evicted | None
    reservation: ReservationSearch
    next_start: int

    @classmethod
    def of(
        cls, failure: GangFailure, eviction: GangEviction | None, reservation: ReservationSearch, next_start: int
    ) -> RejectedGang:
        """Return the rejection with a failure that is not reported yet."""
        return cls(
            message=failure.message,
            reason=failure.reason,
            rejected_by=tuple(sorted(failure.rejected_by)),
            pending_on=tuple(sorted(failure.pending_on)),
            rejected_members=tuple(info.uid for info in failure.rejected_members),
            fitting=failure.fitting,
            needed=failure.needed,
            hint=failure.hint,
            nominations=dict(failure.nominations),
            victims=failure.victims,
            untried=failure.untried,
            preemption=failure.preemption,
            lacks=tuple(failure.lacks.items()),
            is_given_up=failure.is_given_up,
            eviction=None
            if eviction is None
            else Evicted(tuple(info.uid for info in eviction.victims), eviction.node_names),
            reservation=reservation,
            next_start=next_start,
        )

    def failure(self, members: Mapping[str, PodInfo]) -> GangFailure:
        """Return the failure for the members, by UID."""
        return GangFailure(
            self.message,
            self.reason,
            frozenset(self.rejected_by),
            frozenset(self.pending_on),
            tuple(members[uid] for uid in self.rejected_members if uid in members),
            self.fitting,
            self.needed,
            self.hint,
            self.nominations,
            self.victims,
            self.untried,
            self.preemption,
            dict(self.lacks),
            self.is_given_up,
        )


GangResult: TypeAlias = SeatedGang | RejectedGang
_decode = msgspec.msgpack.Decoder(GangResult).decode
encode = msgspec.msgpack.Encoder().encode


def decode(result: bytes | None) -> GangResult | None:
    """Return a result; None for none."""
    return None if result is None else _decode(result)


@dataclass(frozen=True, slots=True)
class GangBasis:
    """What a search of a gang reads that must be the same when its result is used, or is compared then.

    Attributes:
        instance: The profile's revision, which counts the cycle as in flight.
        groups: The PodGroups of the gang and of its parts.
        members: The waiting members by UID.
        placed: UIDs of the members that had a node.
        nodes: The Node objects by row.
        position: Position in the log of changed rows.
        next_start: Where the next search of a percentage of the nodes started.
    """

    instance: FrameworkInstance
    groups: tuple[PodGroup | CompositePodGroup | None, ...]
    members: Mapping[str, PodInfo]
    placed: frozenset[str]
    nodes: Sequence[Node | None]
    position: int
    next_start: int

    @classmethod
    def of(cls, gang: Gang, instance: FrameworkInstance, nodes: NodeColumns, next_start: int) -> GangBasis:
        """Return the basis of a search that begins now."""
        members = {uid: queued.info for uid, queued in gang.waiting.items()}
        groups = tuple(part.group for part in gang.parts)
        placed = frozenset(gang.placed)
        return cls(instance, groups, members, placed, list(nodes.nodes), nodes.changes.position, next_start)

    def still_holds(self, gang: Gang, instance: FrameworkInstance | None) -> bool:
        """Return whether the gang consists of the same members and groups, and has the same profile."""
        if instance is not self.instance or len(gang.waiting) != len(self.members):
            return False
        same = all(self.members.get(uid) is queued.info for uid, queued in gang.waiting.items())
        groups = tuple(part.group for part in gang.parts)
        is_same_group = len(groups) == len(self.groups) and all(
            now is before for now, before in zip(groups, self.groups, strict=True)
        )
        return same and is_same_group and self.placed == frozenset(gang.placed)

    def changed_rows(self, nodes: NodeColumns) -> set[int] | None:
        """Return the rows that changed since the search began; None if that may be any."""
        changed = nodes.changes.since(self.position)
        return None if changed is None else set(changed)

    def has_same_labels(self, nodes: NodeColumns, row: int) -> bool:
        """Return whether the node of a row had the same labels when the search began."""
        before, now = self.nodes[row] if row < len(self.nodes) else None, nodes.nodes[row]
        if before is now:
            return True
        is_same = before is not None and now is not None and before.metadata.name == now.metadata.name
        return is_same and before is not None and now is not None and before.metadata.labels == now.metadata.labels


def may_move(instance: FrameworkInstance, members: Sequence[PodInfo], nodes: NodeColumns) -> bool:
    """Return whether the search of a gang may continue in another process.

    Not with extenders, which have connections, and not within a plugin that is not built in, because it could catch the
    exception that ends the attempt. Plugins that help rejected gangs write to the cluster, unless no member needs
    devices: another process must not write.
    """
    if instance.extenders or not instance.may_fork or instance.is_in_plugin:
        return False
    for plugin in instance.post_filter:
        is_harmless = isinstance(plugin, DeviceChooser) and not any(
            plugin.needs_devices(info, nodes) for info in members
        )
        if isinstance(plugin, GangPostFilter) and not is_harmless:
            return False
    return True


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """Checks results on the live state."""

    cache: ClusterCache
    world: CycleWorld
    search: SearchWorld

    def seat(self, request: PlacementRequest, result: SeatedGang, basis: GangBasis) -> Placement | None:
        """Assume all members on their nodes; return None, with none of them assumed, if one is infeasible there."""
        nodes, by_uid = self.cache.columns, {queued.uid: queued for queued in request.members}
        found = Placement(Where(name=result.domain))
        has_topology = any(True for _ in request.gang.topologies)
        begun = self.world.assumed.mark()
        try:
            for position, (uid, node_name) in enumerate(result.seats):
                row, queued = nodes.row_of(node_name), by_uid.get(uid)
                if row == NO_ROW or queued is None or (has_topology and not basis.has_same_labels(nodes, row)):
                    self.world.assumed.undo(*begun)
                    return None
                where = Where(only(nodes, node_name), _REASON)
                attempt = self.world.begin(request.instance, queued, where, position)
                if at_once(self.world.seat(attempt)) is not None:
                    self.world.assumed.undo(*begun)
                    return None
                found.placed.append(attempt)
        except BaseException:
            self.world.assumed.undo(*begun)
            raise
        return found

    def eviction(
        self, request: PlacementRequest, result: RejectedGang, basis: GangBasis
    ) -> tuple[bool, GangEviction | None]:
        """Return whether the preemption still helps, and the eviction of the victims that still run.

        Members are tried again on the nodes that changed, without the victims and the pods that terminate there.
        """
        planned = result.eviction
        if planned is None:
            return True, None
        nodes, gang = self.cache.columns, request.gang
        rows = {nodes.row_of(name) for name in planned.node_names}
        changed = basis.changed_rows(nodes)
        stale = rows if changed is None else rows & changed
        if NO_ROW in rows:
            return False, None
        running = [each.info for uid in planned.victims if (each := self.cache.get(uid)) is not None]
        victims = [info for info in running if not info.is_leaving]
        if stale and not self._fit_without(request, result.nominations, victims, stale):
            return False, None
        if not victims:
            return True, None
        return True, eviction_of(gang, request.instance, victims, planned.node_names)

    def _fit_without(
        self, request: PlacementRequest, nominations: Mapping[str, str], victims: Sequence[PodInfo], rows: set[int]
    ) -> bool:
        """Return whether the members that are nominated to some rows fit there when the victims are gone."""
        nodes, priority = self.cache.columns, request.gang.priority
        gone = {info.uid: info for info in victims if info.row in rows}
        for row in rows:
            leaving = (info for info in nodes.pods[row].values() if info.is_leaving and info.priority < priority)
            gone.update((info.uid, info) for info in leaving)
        by_uid = {queued.uid: queued for queued in request.members}
        with ColumnsOverlay(nodes) as overlay, self.search.assumed.undone():
            overlay.remove(tuple(gone.values()))
            for uid, node_name in nominations.items():
                if nodes.row_of(node_name) not in rows:
                    continue
                queued = by_uid.get(uid)
                if queued is None:
                    return False
                attempt = self.search.begin(request.instance, queued, Where(only(nodes, node_name), _REASON))
                if self.search.seat_at_once(attempt) is not None:
                    return False
        return True
