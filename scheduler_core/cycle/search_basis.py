"""What a search in another process has read, and whether it still holds when the result is there.

A plan to evict pods holds if the nodes concerned are the same, with the same pods; the plan of a gang also holds beside
pods that were added since, if filters confirm it. Devices that were found on a node need not be searched again if
nothing that the search reads has changed since: then the search would find them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import msgspec
import numpy as np
from msgspec import Struct

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun
from scheduler_core.errors import AllocationError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.device_choices import FoundDevices
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.filtering import run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance, device_chooser
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.indexes.selector_index import DisruptionBudget
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.step_counter import StepCounter

_encode_in_order = msgspec.msgpack.Encoder(order="deterministic").encode
# Parameters of drivers are raw JSON, which MessagePack cannot contain.
_encode_allocations = msgspec.json.Encoder().encode
_decode_allocations = msgspec.json.Decoder(tuple[AllocationResult, ...]).decode
_DIGEST_BYTES = 16
_STEPS_OF_DIGESTS = 2


class PlannedEviction(Struct, frozen=True):
    """A preemption that was planned and is not made yet.

    Attributes:
        victims: UIDs of the victims.
        node_names: Nodes for which the victims leave.
        digests: Of each of these nodes, and of each node of a victim, the digests of what preemption reads of its pods,
            one after the other.
    """

    victims: tuple[str, ...]
    node_names: tuple[str, ...]
    digests: dict[str, bytes]

    @classmethod
    def of(cls, victims: Sequence[PodInfo], node_names: Iterable[str], nodes: NodeColumns) -> PlannedEviction:
        """Return the plan to evict some pods."""
        names = tuple(node_names)
        rows = {nodes.row_of(name) for name in names}.union(info.row for info in victims)
        digests = {nodes.node_name(row): b"".join(_digests_of_pods(nodes, row)) for row in rows}
        return cls(tuple(info.uid for info in victims), names, digests)


def _digests_of_pods(nodes: NodeColumns, row: int) -> list[bytes]:
    pods = [
        (uid, info.priority, info.is_leaving, info.pod.metadata.labels, info.pod.spec)
        for uid, info in sorted(nodes.pods[row].items())
    ]
    # Digests, because the pods are objects of another process when they are compared.
    return [blake2b(_encode_in_order(each), digest_size=_DIGEST_BYTES).digest() for each in pods]


@dataclass(frozen=True, slots=True)
class PresentPlan:
    """A plan to evict pods on the present state.

    Attributes:
        touched: Rows of the plan that are in the change log since the search began; all rows if the log was cut off.
        grown: Those of them on which pods were added; all other pods there are the same.
    """

    victims: list[PodInfo]
    touched: frozenset[int]
    grown: frozenset[int]


class SentDevices(Struct, frozen=True):
    """Devices that were found for a pod, as another process sends them.

    Attributes:
        claims: As in :class:`FoundDevices`.
    """

    claims: tuple[str, ...]
    allocations: bytes

    @classmethod
    def taken(
        cls, instance: FrameworkInstance, info: PodInfo, state: CycleState, nodes: NodeColumns
    ) -> SentDevices | None:
        """Return what is sent of the devices that Reserve has taken for a pod; None if it needs none."""
        chooser = device_chooser(instance)
        if chooser is None or not chooser.needs_devices(info, nodes):
            return None
        found = chooser.found_devices(state)
        return cls(found.claims, _encode_allocations(found.allocations))

    @property
    def found(self) -> FoundDevices:
        return FoundDevices(self.claims, _decode_allocations(self.allocations))


def may_fork_now(instance: FrameworkInstance) -> bool:
    """Return whether an attempt may continue in another process."""
    # Extenders have connections, and a plugin that is not built in could catch the exception that ends the attempt.
    return not instance.extenders and instance.may_fork and not instance.is_in_plugin


@dataclass(frozen=True, slots=True)
class DeviceMark:
    """Version of the devices of a cluster.

    Attributes:
        changes: Position in the log of nodes whose devices changed.
        shared_changes: Number of changes of the use of devices that several nodes reach.
    """

    changes: int
    shared_changes: int
    classes: int

    @classmethod
    def of(cls, devices: DeviceIndex) -> DeviceMark:
        inventory = devices.hardware.inventory
        return cls(inventory.changed.position, inventory.shared_changes, devices.classes_version)


@dataclass(frozen=True, slots=True)
class UnchangedDevices:
    """The nodes on which a search for devices, made since a mark, would find the same.

    Attributes:
        is_any: Whether there may be such nodes.
        changed: Names of nodes whose devices changed.
        is_shared_same: Whether the use of devices that several nodes reach is the same.
    """

    is_any: bool
    changed: frozenset[str]
    is_shared_same: bool

    @classmethod
    def since(cls, mark: DeviceMark, devices: DeviceIndex) -> UnchangedDevices:
        """Return the nodes that are unchanged now; later changes do not count."""
        inventory = devices.hardware.inventory
        names = inventory.changed.since(mark.changes)
        is_any = names is not None and devices.classes_version == mark.classes
        return cls(is_any, frozenset(names or ()), inventory.shared_changes == mark.shared_changes)

    def includes(self, node: Node, devices: DeviceIndex) -> bool:
        """Return whether a node, which is the same as at the mark, has the same devices in the same use."""
        name = node.metadata.name
        if not self.is_any or name in self.changed:
            return False
        if self.is_shared_same:
            return True
        try:
            pools = devices.hardware.inventory.pools(name, node.metadata.labels, node.status.declared_features)
        except AllocationError:
            return False
        return not any(view.is_shared for view in pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBasis:
    """What every search reads that must be the same when its result is used, or is compared then.

    Attributes:
        instance: The profile's revision, which counts the cycle as in flight.
        nodes: The Node objects by row.
        budgets: The PodDisruptionBudgets by namespace and name.
        position: Number of the next event of those that are recorded for pods in flight.
        rows_position: Position in the log of changed rows.
        selectors: Versions of the labels of namespaces and of the workloads, for whose changes plugins have no hints.
        next_start: Where the next search of a percentage of the nodes started.
        reservations: The reservations by gang; one that ends and begins again is another object.
    """

    instance: FrameworkInstance
    nodes: Sequence[Node | None]
    budgets: Mapping[str, Mapping[str, DisruptionBudget]]
    devices: DeviceMark
    position: int
    rows_position: int
    selectors: tuple[int, int]
    next_start: int
    reservations: Mapping[GroupKey, object]

    @classmethod
    def now(cls, instance: FrameworkInstance, nodes: NodeColumns, position: int, next_start: int, **more: Any) -> Self:
        """Return the basis of a search that begins now; ``more`` are the fields of the subclass."""
        return cls(
            instance=instance,
            nodes=list(nodes.nodes),
            budgets=nodes.disruption_budgets.by_namespace(),
            devices=DeviceMark.of(nodes.devices),
            position=position,
            rows_position=nodes.changes.position,
            selectors=_selectors(nodes),
            next_start=next_start,
            **more,
        )

    def is_same_node(self, nodes: NodeColumns, row: int) -> bool:
        return row < len(self.nodes) and self.nodes[row] is nodes.nodes[row]

    def has_same_labels(self, nodes: NodeColumns, row: int) -> bool:
        """Return whether the node of a row had the same labels when the search began."""
        before, now = self.nodes[row] if row < len(self.nodes) else None, nodes.nodes[row]
        if before is None or now is None:
            return before is now
        was, new = before.metadata, now.metadata
        return (was.name, was.labels) == (new.name, new.labels)

    def _changes(
        self, nodes: NodeColumns, digests: Mapping[str, bytes]
    ) -> tuple[frozenset[int], frozenset[int]] | None:
        """Return the touched and the grown rows of a plan; None if a node differs, or a pod of it left or changed."""
        changed = nodes.changes.since(self.rows_position)
        may_differ = None if changed is None else set(changed)
        touched, grown = set[int](), set[int]()
        for name, digest in digests.items():
            row = nodes.row_of(name)
            if row == NO_ROW or not self.is_same_node(nodes, row):
                return None
            if may_differ is not None and row not in may_differ:
                continue
            touched.add(row)
            nodes.steps.upkeep(_STEPS_OF_DIGESTS + len(nodes.pods[row]))
            # Dry runs are in the log, too; they leave a row as it was.
            now = _digests_of_pods(nodes, row)
            if b"".join(now) == digest:
                continue
            before = {digest[start : start + _DIGEST_BYTES] for start in range(0, len(digest), _DIGEST_BYTES)}
            if not before.issubset(now):
                return None
            grown.add(row)
        return frozenset(touched), frozenset(grown)

    def present(self, cache: ClusterCache, planned: PlannedEviction) -> PresentPlan | None:
        """Return a plan on the present state; None if anything but added pods differs in what it reads.

        Whether the victims are needed, and suffice, is checked by filters.
        """
        nodes, victims = cache.columns, list[PodInfo]()
        if self.selectors != _selectors(nodes):
            # Plugins have no hints for labels of namespaces and for workloads, so no event shows their changes.
            return None
        for uid in planned.victims:
            placed = cache.get(uid)
            if placed is None:
                return None
            victims.append(placed.info)
        changes = self._changes(nodes, planned.digests)
        if changes is None:
            return None
        namespaces = {info.pod.metadata.namespace for info in victims}
        is_same = all(nodes.disruption_budgets.is_same(namespace, self.budgets) for namespace in namespaces)
        return PresentPlan(victims, *changes) if is_same else None

    def victims(self, cache: ClusterCache, planned: PlannedEviction) -> list[PodInfo] | None:
        """Return the victims of a plan; None if nodes, pods or budgets that the plan reads changed.

        Whether they are needed, and suffice, is checked by filters: :func:`needs_eviction`.
        """
        present = self.present(cache, planned)
        return None if present is None or present.grown else present.victims

    def has_same_reservations(self, keys: Iterable[GroupKey], now: Mapping[GroupKey, object]) -> bool:
        """Return whether no reservation of some gangs has ended, which would have activated who it rejected."""
        return all(now.get(key) is self.reservations.get(key) for key in keys)

    def is_woken(
        self, queue: SchedulingQueue, entry: QueuedPod, rejected_by: Iterable[str], pending_on: Iterable[str]
    ) -> bool:
        """Return whether an event since the search began would requeue a pod or gang after its rejection."""
        # Hints are called for the plugins that rejected a pod, and this rejection is not reported yet.
        before = entry.rejected_by, entry.pending_on
        entry.rejected_by, entry.pending_on = frozenset(rejected_by), frozenset(pending_on)
        try:
            return queue.would_retry(entry, self.position)
        finally:
            entry.rejected_by, entry.pending_on = before

    def has_same_devices(self, nodes: NodeColumns, row: int, unchanged: UnchangedDevices) -> bool:
        """Return whether a search for devices on the node of a row would find what it found when the search began."""
        node = nodes.nodes[row]
        return node is not None and self.is_same_node(nodes, row) and unchanged.includes(node, nodes.devices)


def _selectors(nodes: NodeColumns) -> tuple[int, int]:
    return nodes.namespaces.version, nodes.workloads.version


def needs_eviction(
    attempt: Attempt, candidate: PreemptionCandidate, nodes: NodeColumns, nominator: NominatedPods, steps: StepCounter
) -> bool:
    """Return whether a pod is infeasible on a node, and feasible there without the victims, by all filters.

    Raises:
        AttemptLimitError: A filter takes long.
    """
    state, instance, rows = CycleState(), attempt.instance, np.array([nodes.row_of(candidate.node_name)], dtype=np.intp)
    if not run_pre_filters(instance, state, attempt.info, nodes).status.is_success:
        return False
    # What takes room away since the search began requeues no pod, so that only the filters show it: pods with affinity,
    # nominations, devices, taints, a node that accepts no pods.
    with NodeDryRun(instance, state, attempt.info, nodes, nominator, steps=steps) as dry_run:
        if not dry_run.run_filters(rows)[0]:
            return False
        dry_run.remove(*candidate.victims)
        return not dry_run.run_filters(rows)[0]
