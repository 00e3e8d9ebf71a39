"""Hypothetical pods, nodes, and objects of devices and of storage on the live columns.

All dry runs change the columns through one class, read them as in any cycle, and undo the changes in reverse order. No
other code runs meanwhile, because a cycle does not await. A copy of the columns was rejected: for 5,000 nodes it costs
more than all dry runs of a preemption.

What remains are entries in the change log, so that readers look once more at rows that are as before, and free rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from scheduler_core.model.node import Node
from scheduler_core.model.storage import StorageObject
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.indexes.device_index import DeviceObject
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, HostPort, PodInfo

T = TypeVar("T")


class ColumnsOverlay:
    """Hypothetical changes; they are undone when the ``with`` block ends, or by :meth:`undo`.

    Changes of the same columns by others (assumed members of a gang, a nested overlay) must be undone before those of
    this overlay, or be of other pods and of nodes that this overlay did not add.

    Args:
        frees_shared_ports: Whether the removal of a pod frees its host ports although another pod on the node uses
            them. kube-scheduler does that, because it stores the ports of a node as a set.
        held: Claims whose devices are free when all their holders are removed; None if devices stay in use.
    """

    __slots__ = ("_frees_shared_ports", "_held", "_log", "_nodes", "_orders", "_removed")

    def __init__(self, nodes: NodeColumns, *, frees_shared_ports: bool = False, held: HeldClaims | None = None) -> None:
        self._nodes = nodes
        self._frees_shared_ports = frees_shared_ports
        self._held = held
        self._log: list[Callable[[], object]] = []
        self._removed: dict[str, tuple[PodInfo, int]] = {}
        self._orders: dict[int, tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        self._nodes.overlays.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def undo(self) -> None:
        """Undo all changes, the last one first; if a step raises, the next call begins with it."""
        while self._log:
            self._log[-1]()
            self._log.pop()
        self._reorder(self._orders)
        self._orders.clear()
        if self in self._nodes.overlays:
            self._nodes.overlays.remove(self)

    @property
    def removed(self) -> list[PodInfo]:
        """The pods that are removed now, in the order of their removal."""
        return [info for info, _ in self._removed.values()]

    # -- pods ---------------------------------------------------------------------------------------------------

    def remove(self, pods: Iterable[PodInfo]) -> list[PodInfo]:
        """Remove and return pods from their rows; a pod that is on no row is skipped."""
        nodes, removed = self._nodes, []
        for info in pods:
            row = info.row
            if row == NO_ROW:
                continue
            if row not in self._orders:
                self._orders[row] = tuple(nodes.pods[row])
            self._removed[info.uid] = (info, row)
            self._log.append(partial(self._put_back, info))
            nodes.remove_pod(info)
            if self._frees_shared_ports and info.host_ports:
                nodes.host_ports.hide(row, info.host_ports)
            if self._held is not None:
                self._held.removed(info)
            removed.append(info)
        return removed

    def restore(self, pods: Iterable[PodInfo]) -> list[int]:
        """Put removed pods back on their rows, in their old order, and return the rows; other pods are skipped."""
        rows = [row for info in pods if (row := self._put_back(info)) != NO_ROW]
        self._reorder(set(rows))
        return rows

    def add(self, info: PodInfo, row: int) -> None:
        nodes, ports = self._nodes, info.host_ports
        # The undo comes first: revealing ports may raise.
        revealed: list[HostPort] = []
        self._log.append(partial(self._take_off, info, row, revealed))
        nodes.add_pod(info, row)
        if ports:
            revealed += nodes.host_ports.reveal(row, ports)

    def _put_back(self, info: PodInfo) -> int:
        _, row = self._removed.get(info.uid, (None, NO_ROW))
        if row != NO_ROW:
            if info.row == NO_ROW:
                self._nodes.add_pod(info, row)
            del self._removed[info.uid]
            if self._frees_shared_ports and info.host_ports:
                self._nodes.host_ports.reveal(row, info.host_ports)
            if self._held is not None:
                self._held.restored(info)
        return row

    def _take_off(self, info: PodInfo, row: int, revealed: Iterable[HostPort]) -> None:
        if info.row != NO_ROW:
            self._nodes.remove_pod(info)
            self._nodes.host_ports.hide(row, tuple(revealed))

    def _reorder(self, rows: Iterable[int]) -> None:
        """Give the pods of rows their old order, with added pods last."""
        for row in rows:
            pods = self._nodes.pods[row]
            old = {uid: pods.pop(uid) for uid in self._orders[row] if uid in pods}
            added = dict(pods)
            pods.clear()
            pods.update(old)
            pods.update(added)

    # -- nodes --------------------------------------------------------------------------------------------------

    def add_node(self, node: Node, pods: Iterable[PodInfo] = ()) -> None:
        """Add a node with pods that are on no row; errors are those of the columns."""
        row = self._change_node(partial(self._nodes.add_node, node))
        self._log.append(partial(self._change_node, partial(self._nodes.remove_node, node.metadata.name)))
        for info in pods:
            self.add(info, row)

    def update_node(self, node: Node) -> None:
        """Update a node; its pods stay; errors are those of the columns."""
        nodes, row, sizes = self._nodes, self._nodes.row_of(node.metadata.name), dict[str, int]()
        old = None if row == NO_ROW else nodes.nodes[row]
        if old is not None:
            # A resource that only this node offers keeps its column; another that waits for one would not give it back.
            for name in filter(nodes.resources.hold, old.status.allocatable):
                self._log.append(partial(nodes.resources.withdraw, name))
            # The size of an image is the first that was reported, perhaps by a node that is gone.
            names = (name for image in old.status.images for name in image.names)
            sizes = {name: state.size_bytes for name in names if (state := nodes.images.get(name)) is not None}
        self._change_node(partial(nodes.update_node, node))
        if old is not None:
            self._log.append(partial(self._revert_node, old, sizes))

    def _change_node(self, change: Callable[[], T]) -> T:
        """Change a node, and count that as a change by a dry run."""
        nodes, version = self._nodes, self._nodes.version
        try:
            return change()
        finally:
            nodes.dry_run_changes += nodes.version - version

    def _revert_node(self, old: Node, sizes: Mapping[str, int]) -> None:
        self._change_node(partial(self._nodes.update_node, old))
        for name, size in sizes.items():
            state = self._nodes.images.get(name)
            if state is not None:
                state.size_bytes = size

    # -- devices ------------------------------------------------------------------------------------------------

    def copy_devices(self, node_name: str, new_name: str) -> None:
        """Give a node that was added the devices of another one, as far as their slices are those of that node only."""
        inventory = self._nodes.devices.hardware.inventory
        for name in inventory.copy_slices(node_name, new_name):
            self._log.append(partial(inventory.remove_slice, name))

    def replace_device_object(self, old: DeviceObject | None, new: DeviceObject | None) -> None:
        """Replace a claim, class, slice or taint rule; None for one that does not exist before, or after."""
        devices = self._nodes.devices
        if new is not None:
            devices.assign(new)
        elif old is not None:
            devices.remove(old)
        if old is not None:
            self._log.append(partial(devices.assign, old))
        elif new is not None:
            self._log.append(partial(devices.remove, new))

    # -- storage ------------------------------------------------------------------------------------------------

    def assign_storage(self, old: StorageObject | None, new: StorageObject) -> None:
        """Add a storage object, or replace *old*; what is assumed of it afterwards must be restored first."""
        storage = self._nodes.storage
        storage.assign(new)
        self._log.append(partial(storage.remove, new) if old is None else partial(storage.assign, old))
