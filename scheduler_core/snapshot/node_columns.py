"""Nodes as columns, with the sums of the pods on them.

The row of a node never changes; a free list reuses rows, and the capacity doubles. Plugins see read-only views. The row
of a removed node stays in the views with ``alive`` False until it is reused. ``allocatable`` and ``requested`` are
[resource, row], so that one resource of all nodes is contiguous.

A sum that exceeds the range of a column is stored clamped, with its exact value beside it: kube-scheduler lets int64
overflow, so that an overcommitted node may seem to have free resources.

A held node accepts no pods, because an object that decides about it cannot be read. The filters of every profile start
from these rows, so that neither a toleration nor a profile without a certain plugin lets a pod pass. The last readable
version of such an object stays in the columns: its pods occupy their room, and its labels count as a topology domain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.change_log import ChangeLog
from scheduler_core.errors import CacheError, PodTooDemandingError
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, LARGEST_REQUEST, PODS, in_units, nano, whole_units
from scheduler_core.model.pod_volumes import NO_VOLUMES
from scheduler_core.model.taints import Taint
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.indexes.pod_index import PodIndex
from scheduler_core.snapshot.indexes.row_indexes import HostPortIndex, ImageIndex, PriorityCounts
from scheduler_core.snapshot.indexes.selector_index import DisruptionBudgets, NamespaceLabels, WorkloadIndex
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from scheduler_core.snapshot.interning import (
    DEFAULT_BOUNDS,
    FIXED_RESOURCES,
    LabelColumn,
    LabelColumns,
    LoggedInterner,
    ResourceNames,
    SnapshotBounds,
)
from scheduler_core.snapshot.pod_info import (
    MAX_DEMANDS,
    NO_ROW,
    PodInfo,
    ScalarResources,
    demand_count,
    limited_volumes,
)

if TYPE_CHECKING:
    from scheduler_core.snapshot.overlay import ColumnsOverlay


class ExactSums:
    __slots__ = ("sums",)

    def __init__(self) -> None:
        self.sums: dict[tuple[int, int], int] = {}

    def put_into(self, sums: Sequence[list[int]], rows: Sequence[int]) -> None:
        """Replace clamped sums, given by column and position in ``rows``."""
        positions = {row: position for position, row in enumerate(rows)} if self.sums else {}
        for (column, row), exact in self.sums.items():
            if column >= 0 and row in positions:
                sums[column][positions[row]] = exact

    def clamp(self, column: int, row: int, total: int, amount: int) -> int:
        """Return *total* clamped to ``LARGEST_REQUEST``; store the exact sum, so that removals restore it."""
        exact = self.sums.pop((column, row), total - amount) + amount
        if exact <= LARGEST_REQUEST:
            return exact
        self.sums[column, row] = exact
        return LARGEST_REQUEST

    def drop(self, columns: Collection[int]) -> None:
        """Drop the sums of columns that are reused for another resource."""
        if self.sums and columns:
            self.sums = {place: exact for place, exact in self.sums.items() if place[0] not in columns}


_MOST_TEXTS = 1000
_OTHER = "node(s) depend on an object that could not be decoded"


class HeldNodes:
    """Nodes that accept no pods, with the reasons.

    Each reason has a source, such as the node itself or a pod on it. A node is held until all its sources are released.
    It need not exist.

    Attributes:
        is_empty: Whether there are none; an attribute, because it is read for every event and every filter run.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self._by_node: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, str] = {}
        self._codes: dict[str, int] = {}
        self._verdicts: NDArray[np.int32] | None = None
        self._version = -1

    def __len__(self) -> int:
        return len(self._by_node)

    def hold(self, node_name: str, source: str, reason: str) -> None:
        """Hold a node for a source, which holds at most one."""
        self.release(source)
        self._nodes[source] = node_name
        self._by_node.setdefault(node_name, {})[source] = reason
        self.is_empty = False
        self._verdicts = None

    def release(self, source: str) -> str:
        """Release what a source holds, and return the node's name; "" if it holds none."""
        node_name = self._nodes.pop(source, "")
        if node_name:
            sources = self._by_node[node_name]
            del sources[source]
            if not sources:
                del self._by_node[node_name]
                self.is_empty = not self._by_node
            self._verdicts = None
        return node_name

    def held_only_by(self, source: str) -> str:
        """Return the node that a source holds alone; "" if it holds none, or others hold it too."""
        node_name = self._nodes.get(source, "")
        return node_name if len(self._by_node.get(node_name, ())) == 1 else ""

    def reason(self, node_name: str) -> str:
        """Return why a node is held; "" if it is not."""
        return next(iter(self._by_node.get(node_name, {}).values()), "")

    def verdicts(self, size: int, version: int, row_of: Callable[[str], int]) -> NDArray[np.int32]:
        """Return int32 per row, 0 for rows that are not held, else a code for :meth:`text`."""
        if self._verdicts is None or self._version != version or len(self._verdicts) != size:
            self._verdicts, self._version = np.zeros(size, dtype=np.int32), version
            for name in self._by_node:
                row = row_of(name)
                if row != NO_ROW:
                    self._verdicts[row] = self._code(self.reason(name))
        return self._verdicts

    def _code(self, text: str) -> int:
        if text not in self._codes and len(self._codes) >= _MOST_TEXTS:
            text = _OTHER
        return self._codes.setdefault(text, len(self._codes) + 1)

    def text(self, code: int) -> str:
        return next((text for text, known in self._codes.items() if known == code), _OTHER)


T = TypeVar("T")


class KindStore(Generic[T]):
    """Objects of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], T] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object; None if there is none. Omit ``namespace`` for kinds without namespaces."""
        return self._objects.get((namespace, name))

    def assign(self, namespace: str, name: str, shown: T) -> None:
        """Add an object or replace it by its newest version."""
        self._objects[namespace, name] = shown

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object; no effect if it is not known."""
        self._objects.pop((namespace, name), None)


Rows = slice | NDArray[np.intp]
"""Rows to process: all as ``slice(None)``, or selected rows in ascending order."""

ALL_ROWS = slice(None)
_LARGEST_ALLOWED_PODS = 2**31 - 1
_NONZERO_CPU, _NONZERO_MEMORY = -1, -2
_FIRST_CAPACITY = 64

_NodeParts = tuple[Mapping[str, int], int]
_T = TypeVar("_T", bound=np.generic)


log = logging.getLogger(__name__)


class NodeColumns:
    """Columns of all nodes.

    Attributes:
        size: Number of rows including unused ones; the length of every column.
        names, nodes: Name and object of each row's node, None for an unused row.
        pods_without_row: Pods on nodes that have no row, by node and UID: those of deleted nodes, which may still run.
        resources: Columns of the resources that nodes offer, the first axis of the two resource matrices.
        taint_sets: Numbers of the distinct taint lists of nodes.
        storage, devices: Storage objects, and objects of Dynamic Resource Allocation.
        workloads: Services and owners of pods, whose selectors are the default of spread constraints.
        pod_index: Counts of pods by row, for queries and for the pods' affinity terms.
        version: Incremented when a Node object is added, changed or removed, also by a dry run.
        dry_run_changes: How many of these changes were made, and undone, by dry runs.
        is_broken: Whether a :meth:`rebuild` raised, so that nothing here can be relied on until it is repeated.
        alive: bool[row], whether the row has a node.
        allocatable: int64[resource, row], CPU in millicores, the rest in whole units, 0 to ``LARGEST_CAPACITY``.
        requested: int64[resource, row], sum over pods, 0 to ``LARGEST_REQUEST``; see :meth:`exact_requested`.
        nonzero_requested: int64[2, row], CPU in millicores and memory in bytes, with defaults for containers without
            requests; same bounds.
        allowed_pods: int64[row], 0 to 2**31 - 1.
        pod_count: int64[row].
        unschedulable: bool[row], ``spec.unschedulable``.
        taint_set_ids: int32[row].
        name_hashes: uint64[row], hash of the name, for choices that must not depend on the order of nodes.
    """

    def __init__(self, bounds: SnapshotBounds = DEFAULT_BOUNDS, devices: DeviceIndex | None = None) -> None:
        self.bounds = bounds
        self.size = self.count = self.version = self.dry_run_changes = 0
        self.is_broken = False
        self.names: list[str | None] = []
        self.nodes: list[Node | None] = []
        self.pods: list[dict[str, PodInfo]] = []
        self.pods_without_row: dict[str, dict[str, PodInfo]] = {}
        self.resources = ResourceNames(bounds.resources)
        self.taint_sets: LoggedInterner[tuple[Taint, ...]] = LoggedInterner(bounds.taint_lists)
        self.taint_sets.acquire(())
        self.images, self.host_ports = ImageIndex(), HostPortIndex()
        self.namespaces = NamespaceLabels()
        self.devices = devices or DeviceIndex()
        self.steps = steps = self.devices.hardware.steps
        self.storage, self.disruption_budgets = StorageIndex(self.row_of, steps, self.pods), DisruptionBudgets(steps)
        self.workloads = WorkloadIndex(bounds.default_selectors)
        self.priorities = PriorityCounts()
        self.pod_index = PodIndex(self.namespaces, bounds, steps)
        self.held = HeldNodes()
        self.changes: ChangeLog[int] = ChangeLog(bounds.changes)
        self.overlays: list[ColumnsOverlay] = []
        self._exact = ExactSums()
        self.row_by_name: dict[str, int] = {}
        self._free: list[int] = []
        self._scalars = ScalarResources(self.resources)
        self._labels = LabelColumns(self._labels_of, bounds.label_columns, self.steps)
        self._capacity = 0
        self._allocate(_FIRST_CAPACITY, len(self.resources))

    def undo_overlays(self, count: int) -> None:
        """Undo all but the first overlays, the last one first; for an overlay whose own undo raised."""
        # Each once: a loop until none is left would not end if an undo left its overlay in the list.
        for overlay in reversed(self.overlays[count:]):
            try:
                overlay.undo()
            except Exception:
                log.exception("hypothetical changes could not be undone; they are undone once more")
                overlay.undo()

    # -- reading ------------------------------------------------------------------------------------------------

    def row_of(self, name: str) -> int:
        """Return the row of the node called ``name``, -1 if there is none."""
        return self.row_by_name.get(name, NO_ROW)

    def label_column(self, key: str) -> LabelColumn:
        """Return the column of a label key; create it on first use."""
        return self._labels.column(key)

    def node_name(self, row: int) -> str:
        """Return the name of the node in ``row``; raise CacheError if the row has no node."""
        name = self.names[row]
        if name is None:
            raise CacheError(f"row {row} has no node; use only rows that are alive")
        return name

    def exact_requested(self, column: int, row: int) -> int:
        """Return the sum of the requests on a row, which :attr:`requested` clamps to ``LARGEST_REQUEST``."""
        exact = self._exact.sums.get((column, row))
        return self._requested.item(column, row) if exact is None else exact

    def exact_requests(self, rows: NDArray[np.intp]) -> list[list[int]]:
        """Return :meth:`exact_requested` of ``rows``, by resource column and position."""
        sums: list[list[int]] = self.requested[:, rows].tolist()
        self._exact.put_into(sums, rows.tolist())
        return sums

    def requested_amount(self, resource: str, row: int) -> int:
        """Return the sum of the requests for a resource on a row, even if no node offers the resource."""
        column = self.resources.find(resource)
        if column is not None:
            return self.exact_requested(column, row)
        return sum(info.requests.accounted.get(resource, 0) for info in self.pods[row].values())

    def labels_of_nodes(self) -> Iterator[Mapping[str, str]]:
        """Yield the labels of each node."""
        for row in np.flatnonzero(self.alive).tolist():
            labels = self._labels_of(row)
            if labels is not None:
                yield labels

    def _labels_of(self, row: int) -> Mapping[str, str] | None:
        node = self.nodes[row]
        return None if node is None else node.metadata.labels

    # -- nodes --------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> int:
        """Add a node and return its row. Raises CacheError, QuantityError: its name is taken, or an amount invalid."""
        name = node.metadata.name
        if name in self.row_by_name:
            raise CacheError(f'node "{name}" is already in the columns; update it instead')
        parts = _parts(node)
        row = self._free.pop() if self._free else self._add_row()
        # First what :meth:`rebuild` reads, so that it can complete a change that an exception interrupted.
        self.row_by_name[name] = row
        self.names[row], self.nodes[row] = name, node
        self.count += 1
        try:
            self._name_hashes[row] = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
            self._taint_set_ids[row] = self.taint_sets.acquire(())
            self._fill(row, node, parts)
            self.storage.use.node_moved(name)
        except Exception:
            log.exception("the change of node %s was interrupted; everything is computed again", node.metadata.name)
            self.rebuild()
            if not self._alive[row]:
                raise
        return row

    def _add_row(self) -> int:
        row = self.size
        try:
            if row == self._capacity:
                self._allocate(self._capacity * 2, len(self.resources))
            self.size += 1
            self.names.append(None)
            self.nodes.append(None)
            self.pods.append({})
            self._show()
        except Exception:
            # Arrays of different lengths would let every cycle fail. The new row is free then.
            log.exception("the addition of a row was interrupted; everything is computed again")
            self.rebuild()
            raise
        return row

    def update_node(self, node: Node) -> int:
        """Update a node; its pods stay. Raises CacheError or QuantityError: nothing was changed."""
        row = self.row_by_name.get(node.metadata.name)
        old = None if row is None else self.nodes[row]
        if row is None or old is None:
            raise CacheError(f'node "{node.metadata.name}" is not in the columns; add it first')
        parts = _parts(node)
        self.nodes[row] = node
        try:
            self.images.remove_node(row, old.status.images)
            self._fill(row, node, parts)
        except Exception:
            log.exception("the change of node %s was interrupted; everything is computed again", node.metadata.name)
            self.rebuild()
            if not self._alive[row]:
                raise
        return row

    def remove_node(self, name: str) -> list[PodInfo]:
        """Remove a node; return its pods, which are counted nowhere now. Raises CacheError: there is none."""
        row = self.row_by_name.get(name)
        node = None if row is None else self.nodes[row]
        if row is None or node is None:
            raise CacheError(f'node "{name}" is not in the columns')
        pods = list(self.pods[row].values())
        try:
            for info in pods:
                self.remove_pod(info)
            self.devices.hardware.inventory.remove_node(name)
        except Exception:
            # Raised again with all pods on the row, because they are only returned to the caller.
            for info in pods:
                self.pods[row][info.uid] = info
                info.row = row
            self._recount()
            raise
        # First what :meth:`rebuild` reads, as in :meth:`add_node`.
        del self.row_by_name[name]
        self.names[row] = self.nodes[row] = None
        self._free.append(row)
        self.count -= 1
        try:
            self.storage.use.node_moved(name)
            self.images.remove_node(row, node.status.images)
            self._labels.assign(row, {})
            self._offer(row, ())
            self.taint_sets.release(int(self._taint_set_ids[row]))
            self._alive[row] = False
            self._allocatable[:, row] = 0
            self._allowed_pods[row] = 0
            self._unschedulable[row] = False
            self._taint_set_ids[row] = 0
            self._touch_node(row)
        except Exception:
            log.exception("the removal of node %s was interrupted; everything is computed again", name)
            self.rebuild()
        return pods

    def _fill(self, row: int, node: Node, parts: _NodeParts) -> None:
        """Set the columns of a row, whose previous taints are released."""
        amounts, allowed_pods = parts
        self._offer(row, tuple([name for name in amounts if name not in FIXED_RESOURCES]))
        self._allocatable[:, row] = 0
        for name, amount in amounts.items():
            column = self.resources.find(name)
            if column is not None:
                self._allocatable[column, row] = amount
        self._allowed_pods[row] = allowed_pods
        self._unschedulable[row] = node.spec.unschedulable
        taint_set = self.taint_sets.acquire(node.spec.taints)
        self.taint_sets.release(int(self._taint_set_ids[row]))
        self._taint_set_ids[row] = taint_set
        self.images.add_node(row, node.status.images)
        self._labels.assign(row, node.metadata.labels)
        self._alive[row] = True
        self._touch_node(row)

    @property
    def real_version(self) -> int:
        """Number of changes of Node objects without those of dry runs; decisions depend only on this one."""
        return self.version - self.dry_run_changes

    def hold_node(self, name: str, source: str, reason: str) -> None:
        """Let a node accept no pods until :meth:`release_node` is called for the source; it need not exist."""
        self.release_node(source)
        self.held.hold(name, source, reason)
        self._touch_named(name)

    def release_node(self, source: str) -> str:
        """End what a source holds; return the node's name, "" if it holds none."""
        name = self.held.release(source)
        if name:
            self._touch_named(name)
        return name

    def _touch_named(self, name: str) -> None:
        row = self.row_of(name)
        if row != NO_ROW:
            self._touch_node(row)

    def _touch_node(self, row: int) -> None:
        self.version += 1
        self.changes.append(row)

    # -- pods ---------------------------------------------------------------------------------------------------

    def compile_pod(self, pod: Pod) -> PodInfo:
        """Compile a pod.

        If a pod that is on a node exceeds the limit of demands, its requests and its first volumes count, and its
        constraints do not.

        Raises:
            QuantityError: A quantity of the pod is invalid.
            PodTooDemandingError: The pod has no node and exceeds the limit.
        """
        demands = demand_count(pod.spec)
        if demands > MAX_DEMANDS:
            if not pod.spec.node_name:
                message = f"it makes {demands} demands of nodes and neighbours, but at most {MAX_DEMANDS} are evaluated"
                raise PodTooDemandingError(f"{message}; remove terms, requirements, volumes, resources or containers")
            unconstrained = replace(pod.spec, affinity=None, topology_spread_constraints=(), node_selector={})
            pod = replace(pod, spec=replace(unconstrained, volumes=limited_volumes(pod.spec.volumes)))
        info = PodInfo(pod, self.resources)
        info.demands = demands
        return info

    def add_pod(self, info: PodInfo, row: int) -> None:
        """Count a pod on a row; if that raises, the pod is not counted."""
        # First what a new count reads, so that it can undo a change that an exception interrupted.
        self.pods[row][info.uid] = info
        info.row = row
        try:
            self._account(info, row, 1)
            if info.scalars:
                self._scalars.add_pod(info)
            if info.host_ports:
                self.host_ports.add(row, info.host_ports)
            if info.volumes is not NO_VOLUMES:
                self.storage.use.add_pod(row, info.volumes)
            self.priorities.add(row, info.priority)
            self.pod_index.count(info, row, 1)
            self.changes.append(row)
        except Exception:
            # Raised again with the pod on no row: some of the sums may have counted it.
            del self.pods[row][info.uid]
            info.row = NO_ROW
            self._recount()
            raise

    def remove_pod(self, info: PodInfo) -> None:
        row = info.row
        del self.pods[row][info.uid]
        info.row = NO_ROW
        try:
            self._account(info, row, -1)
            if info.scalars:
                self._scalars.remove_pod(info)
            if info.host_ports:
                self.host_ports.remove(row, info.host_ports)
            if info.volumes is not NO_VOLUMES:
                self.storage.use.remove_pod(row, info.volumes)
            self.priorities.remove(row, info.priority)
            self.pod_index.count(info, row, -1)
            self.changes.append(row)
        except Exception:
            log.exception("the removal of pod %s from its node was interrupted; all pods are counted again", info.key)
            self._recount()

    def relabel_pod(self, info: PodInfo, pod: Pod) -> None:
        """Replace a pod on a row by another version that differs only in labels."""
        try:
            self.pod_index.relabel(info, pod, info.row)
            info.pod = pod
            self.changes.append(info.row)
        except Exception:
            log.exception("a change of the labels of pod %s was interrupted; all pods are counted again", info.key)
            info.pod = pod
            self._recount()

    # -- after an exception -------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Compute everything again from the nodes and the pods on them; a node that cannot be read is not alive."""
        self.is_broken = True
        self.row_by_name = {name: row for row, name in enumerate(self.names) if name is not None}
        self._free = [row for row, name in enumerate(self.names) if name is None]
        self.count = len(self.row_by_name)
        self._show()
        self._alive[:] = self._unschedulable[:] = False
        self._allocatable[:] = self._allowed_pods[:] = 0
        self._scalars.clear()
        self.taint_sets.clear()
        self._taint_set_ids[:] = self.taint_sets.acquire(())
        self.images.clear()
        self._labels.clear()
        for name, row in self.row_by_name.items():
            node = self.nodes[row]
            self._taint_set_ids[row] = self.taint_sets.acquire(())
            try:
                assert node is not None
                self._fill(row, node, _parts(node))
            except Exception:
                # Fail closed: only this node takes no pods, and the rest is counted.
                log.exception("node %s could not be read; it accepts no pods until its next version", name)
                self._alive[row] = False
        self.images.drop_unused()
        self._recount()

    def _recount(self) -> None:
        self.is_broken = True
        self._requested[:] = self._nonzero_requested[:] = self._pod_count[:] = 0
        self._exact = ExactSums()
        for counts in (self._scalars, self.host_ports, self.priorities, self.pod_index):
            counts.clear_pods()
        for row, pods in enumerate(self.pods):
            for info in pods.values():
                self._account(info, row, 1)
                self._scalars.add_pod(info)
                self.host_ports.add(row, info.host_ports)
                self.priorities.add(row, info.priority)
                self.pod_index.count(info, row, 1)
        self.storage.rebuild()
        self.changes.append_all()
        self.is_broken = False

    def _account(self, info: PodInfo, row: int, sign: int) -> None:
        requested, exact = self._requested, self._exact
        if info.numbering != self.resources.version:
            info.number()
        for column, amount in info.numbered:
            more = sign * amount
            total = requested.item(column, row) + more
            if exact.sums or total > LARGEST_REQUEST:
                total = exact.clamp(column, row, total, more)
            requested[column, row] = total
        nonzero, requests = self._nonzero_requested, info.requests
        cpu, memory = sign * requests.nonzero_cpu_milli, sign * requests.nonzero_memory
        cpu_total, memory_total = nonzero.item(0, row) + cpu, nonzero.item(1, row) + memory
        if exact.sums or cpu_total > LARGEST_REQUEST or memory_total > LARGEST_REQUEST:
            cpu_total = exact.clamp(_NONZERO_CPU, row, cpu_total, cpu)
            memory_total = exact.clamp(_NONZERO_MEMORY, row, memory_total, memory)
        nonzero[0, row], nonzero[1, row] = cpu_total, memory_total
        self._pod_count[row] += sign

    # -- storage ------------------------------------------------------------------------------------------------

    def _offer(self, row: int, names: tuple[str, ...]) -> None:
        """Set the resources without a fixed column that the node of a row offers."""
        change = self._scalars.offer(row, names)
        for column in change.closed:
            self._allocatable[column] = self._requested[column] = 0
        self._exact.drop(change.closed)
        if len(self.resources) > len(self._requested):
            self._allocate(self._capacity, len(self.resources))
        for name in change.opened:
            self._open(name)

    def _open(self, name: str) -> None:
        column = self.resources.find(name)
        assert column is not None
        for row, amount in self._scalars.taken(name):
            total = self._requested.item(column, row) + amount
            self._requested[column, row] = self._exact.clamp(column, row, total, amount)
        for row in self._scalars.rows_with(name):
            node = self.nodes[row]
            if node is not None:
                # Of this resource alone: a node may offer thousands, each of which is opened.
                quantity = node.status.allocatable.get(name, 0)
                self._allocatable[column, row] = in_units({name: nano(quantity)}, LARGEST_CAPACITY).get(name, 0)
                self._touch_node(row)

    def _allocate(self, capacity: int, resources: int) -> None:
        old_capacity = self._capacity

        def grown(name: str, shape: Iterable[int], dtype: type[np.generic]) -> NDArray[np.generic]:
            array = np.zeros(tuple(shape), dtype=dtype)
            if old_capacity:
                old: NDArray[np.generic] = getattr(self, name)
                array[tuple(slice(extent) for extent in old.shape)] = old
            return array

        self._allocatable = grown("_allocatable", (resources, capacity), np.int64).view(np.int64)
        self._requested = grown("_requested", (resources, capacity), np.int64).view(np.int64)
        self._nonzero_requested = grown("_nonzero_requested", (2, capacity), np.int64).view(np.int64)
        self._allowed_pods = grown("_allowed_pods", (capacity,), np.int64).view(np.int64)
        self._pod_count = grown("_pod_count", (capacity,), np.int64).view(np.int64)
        self._taint_set_ids = grown("_taint_set_ids", (capacity,), np.int32).view(np.int32)
        self._name_hashes = grown("_name_hashes", (capacity,), np.uint64).view(np.uint64)
        self._alive = grown("_alive", (capacity,), np.bool_).view(np.bool_)
        self._unschedulable = grown("_unschedulable", (capacity,), np.bool_).view(np.bool_)
        self.priorities.resize(capacity)
        self.pod_index.resize(capacity, self.pods)
        # Last, so that a growth that an exception interrupted is repeated.
        self._capacity = capacity
        self._show()

    def _show(self) -> None:
        size = self.size
        self._labels.resize(self._capacity, size)
        self.allocatable = _read_only(self._allocatable[:, :size])
        self.requested = _read_only(self._requested[:, :size])
        self.nonzero_requested = _read_only(self._nonzero_requested[:, :size])
        self.allowed_pods = _read_only(self._allowed_pods[:size])
        self.pod_count = _read_only(self._pod_count[:size])
        self.taint_set_ids = _read_only(self._taint_set_ids[:size])
        self.name_hashes = _read_only(self._name_hashes[:size])
        self.alive = _read_only(self._alive[:size])
        self.unschedulable = _read_only(self._unschedulable[:size])


def _read_only(array: NDArray[_T]) -> NDArray[_T]:
    array.flags.writeable = False
    return array


def _parts(node: Node) -> _NodeParts:
    quantities = {name: nano(quantity) for name, quantity in node.status.allocatable.items()}
    allowed_pods = min(max(whole_units(quantities.get(PODS, 0)), 0), _LARGEST_ALLOWED_PODS)
    return in_units(quantities, LARGEST_CAPACITY), allowed_pods
