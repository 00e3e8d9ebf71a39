"""Searches of gangs that continue in another process: what it sends, and how the result is checked.

A placement is checked by a full Filter of each member on its node. A preemption is used only if no event since the
search began would requeue the gang, because it may fit without evictions then, and if the nodes of its members have the
same pods. A rejection is reported as it is, because events since then requeue the gang: they are recorded while it is
in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import is_
from typing import TypeAlias

import msgspec
from msgspec import Struct

from scheduler_core.cycle.gang_constraints import Where, only
from scheduler_core.framework.device_choices import DeviceChooser
from scheduler_core.framework.gang_preemptor import GangEviction, GangPostFilter
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.preemption import eviction_of
from scheduler_core.gangs.reservation_cycle import ReservationSearch
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, PodGroup
from scheduler_core.placement.engine import at_once
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.worlds import CycleWorld
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.selector_index import DisruptionBudget
from scheduler_core.snapshot.node_columns import NodeColumns
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
    """A preemption that was planned.

    Attributes:
        victims: UIDs of the victims.
        node_names: Nodes of the members.
        digests: Of each node of a member or victim, what preemption reads of its pods.
    """

    victims: tuple[str, ...]
    node_names: tuple[str, ...]
    digests: dict[str, bytes]

    @classmethod
    def of(cls, eviction: GangEviction, nodes: NodeColumns) -> Evicted:
        """Return a preemption that is not made yet."""
        rows = {nodes.row_of(name) for name in eviction.node_names}.union(info.row for info in eviction.victims)
        digests = {nodes.node_name(row): _digest_of_pods(nodes, row) for row in rows}
        return cls(tuple(info.uid for info in eviction.victims), eviction.node_names, digests)


def _digest_of_pods(nodes: NodeColumns, row: int) -> bytes:
    pods = [
        (uid, info.priority, info.is_leaving, info.pod.metadata.labels, info.pod.spec)
        for uid, info in sorted(nodes.pods[row].items())
    ]
    return blake2b(_encode_in_order(pods), digest_size=16).digest()


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
        cls, failure: GangFailure, eviction: Evicted | None, reservation: ReservationSearch, next_start: int
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
            eviction=eviction,
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
_encode_in_order = msgspec.msgpack.Encoder(order="deterministic").encode


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
        budgets: The PodDisruptionBudgets by namespace and name.
        position: Number of the next event of those that are recorded for the gang.
        rows_position: Position in the log of changed rows.
        next_start: Where the next search of a percentage of the nodes started.
    """

    instance: FrameworkInstance
    groups: tuple[PodGroup | CompositePodGroup | None, ...]
    members: Mapping[str, PodInfo]
    placed: frozenset[str]
    nodes: Sequence[Node | None]
    budgets: Mapping[str, Mapping[str, DisruptionBudget]]
    position: int
    rows_position: int
    next_start: int

    @classmethod
    def of(
        cls, gang: Gang, instance: FrameworkInstance, nodes: NodeColumns, position: int, next_start: int
    ) -> GangBasis:
        """Return the basis of a search that begins now."""
        members = {uid: queued.info for uid, queued in gang.waiting.items()}
        groups = tuple(part.group for part in gang.parts)
        placed = frozenset(gang.placed)
        budgets, rows_position = nodes.disruption_budgets.by_namespace(), nodes.changes.position
        return cls(instance, groups, members, placed, list(nodes.nodes), budgets, position, rows_position, next_start)

    def still_holds(self, gang: Gang, instance: FrameworkInstance | None) -> bool:
        """Return whether the gang consists of the same members and groups, and has the same profile."""
        if instance is not self.instance or len(gang.waiting) != len(self.members):
            return False
        same = all(self.members.get(uid) is queued.info for uid, queued in gang.waiting.items())
        groups = tuple(part.group for part in gang.parts)
        is_same_group = len(groups) == len(self.groups) and all(map(is_, groups, self.groups))
        return same and is_same_group and self.placed == frozenset(gang.placed)

    def has_same_labels(self, nodes: NodeColumns, row: int) -> bool:
        """Return whether the node of a row had the same labels when the search began."""
        before, now = self.nodes[row] if row < len(self.nodes) else None, nodes.nodes[row]
        if before is now:
            return True
        is_same = before is not None and now is not None and before.metadata.name == now.metadata.name
        return is_same and before is not None and now is not None and before.metadata.labels == now.metadata.labels

    def has_same_pods(self, nodes: NodeColumns, digests: Mapping[str, bytes]) -> bool:
        """Return whether some nodes are the same, with the same pods; the digests are those of the search."""
        changed = nodes.changes.since(self.rows_position)
        may_differ = None if changed is None else set(changed)
        for name, digest in digests.items():
            row = nodes.row_of(name)
            if row == NO_ROW or row >= len(self.nodes) or self.nodes[row] is not nodes.nodes[row]:
                return False
            # Dry runs are in the log, too; they leave a row as it was.
            if (may_differ is None or row in may_differ) and _digest_of_pods(nodes, row) != digest:
                return False
        return True


def may_move(instance: FrameworkInstance, gang: Gang, nodes: NodeColumns) -> bool:
    """Return whether the search of a gang may continue in another process.

    Not with extenders, which have connections, and not within a plugin that is not built in, because it could catch the
    exception that ends the attempt. Plugins that help rejected gangs write to the cluster, unless no member needs
    devices: another process must not write.
    """
    if instance.extenders or not instance.may_fork or instance.is_in_plugin:
        return False
    for plugin in instance.post_filter:
        is_harmless = isinstance(plugin, DeviceChooser) and not any(
            plugin.needs_devices(queued.info, nodes) for queued in gang.waiting.values()
        )
        if isinstance(plugin, GangPostFilter) and not is_harmless:
            return False
    return True


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """Checks results on the live state."""

    cache: ClusterCache
    queue: SchedulingQueue
    world: CycleWorld

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
        self, entry: QueuedGang, request: PlacementRequest, result: RejectedGang, basis: GangBasis
    ) -> tuple[bool, GangEviction | None]:
        """Return whether the preemption is still the one to make, and the eviction of its victims."""
        planned = result.eviction
        if planned is None:
            return True, None
        nodes, victims = self.cache.columns, list[PodInfo]()
        for uid in planned.victims:
            placed = self.cache.get(uid)
            if placed is None or placed.info.is_leaving:
                return False, None
            victims.append(placed.info)
        if not basis.has_same_pods(nodes, planned.digests):
            return False, None
        namespaces = {info.pod.metadata.namespace for info in victims}
        if not all(nodes.disruption_budgets.is_same(namespace, basis.budgets) for namespace in namespaces):
            return False, None
        if self._is_woken(entry, result, basis):
            return False, None
        return True, eviction_of(request.gang, request.instance, victims, planned.node_names)

    def _is_woken(self, entry: QueuedGang, result: RejectedGang, basis: GangBasis) -> bool:
        """Return whether an event since the search began would requeue the gang after its rejection."""
        before = entry.rejected_by, entry.pending_on, entry.rejected_members
        entry.rejected_by, entry.pending_on = frozenset(result.rejected_by), frozenset(result.pending_on)
        entry.rejected_members = tuple(basis.members[uid] for uid in result.rejected_members if uid in basis.members)
        try:
            return self.queue.would_retry(entry, basis.position)
        finally:
            entry.rejected_by, entry.pending_on, entry.rejected_members = before
