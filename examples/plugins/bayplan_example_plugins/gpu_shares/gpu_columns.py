"""Free amounts on the GPUs of every node, updated from the change log of the columns.

Which GPUs a pod has is read from its annotation; between Reserve and the bind it is read from the reservations, which
all profiles of the process share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bayplan_example_plugins.gpu_shares.args import GPU_MILLI, GpuSharesArgs
from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import RowCache

MOST_GPUS = 64
"""GPUs of a node that are used; further ones are ignored."""
SIZE_CLASSES = 6
"""Pods are counted by what they request: a share, or up to 1, 2, 4, 8 or more GPUs."""

Devices = tuple[int, ...]

reservations: WeakKeyDictionary[PodInfo, Devices] = WeakKeyDictionary()
"""GPUs of pods that Reserve has accepted; an entry ends with its pod."""


def size_class(gpu_milli: int) -> int:
    """Return the class of a GPU request that is not 0."""
    gpus = gpu_milli // GPU_MILLI
    return min(0 if gpus == 0 else (gpus - 1).bit_length() + 1, SIZE_CLASSES - 1)


def parse_devices(text: str) -> Devices | None:
    """Return the GPU indices of an annotation such as ``0,3``; None if it is not a list of distinct numbers."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        return None
    devices = tuple(int(part) for part in parts)
    return devices if len(set(devices)) == len(devices) else None


@dataclass(frozen=True, slots=True)
class NodeStates:
    """The free resources of some nodes, as arrays over these nodes.

    Attributes:
        cpu_milli, memory: int64[n], thousandths of a CPU, bytes; negative if the node is overcommitted.
        gpu_milli: int64[n, g], thousandths of each GPU; 0 beyond the number of GPUs of the node.
        gpus: int64[n], number of GPUs.
        models: intp[n], number of the model.
        sizes: int64[n, SIZE_CLASSES], number of pods by size class.
        model_names: Models by number; "" for nodes without the label.
    """

    cpu_milli: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpu_milli: NDArray[np.int64]
    gpus: NDArray[np.int64]
    models: NDArray[np.intp]
    sizes: NDArray[np.int64]
    model_names: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Row:
    free: list[int]
    sizes: list[int]
    is_known: bool
    model: str


class GpuColumns(RowCache):
    """GPUs of all nodes; call :meth:`refresh` before reading them.

    Attributes:
        free: int64[row, gpu], thousandths; 0 beyond the number of GPUs of the node.
        count: int64[row], number of GPUs.
        is_known: bool[row], whether the GPUs of every pod on the node are known.
    """

    __slots__ = ("_args", "_model", "_model_names", "_model_numbers", "_sizes", "count", "free", "is_known")

    def __init__(self, nodes: NodeColumns, args: GpuSharesArgs) -> None:
        super().__init__(nodes)
        self._args = args
        self._clear(0, 1)

    @property
    def resource(self) -> str:
        """The extended resource of GPUs."""
        return self._args.resource

    def _clear(self, rows: int, width: int) -> None:
        self.free = np.zeros((rows, max(1, width)), dtype=np.int64)
        self.count = np.zeros(rows, dtype=np.int64)
        self.is_known = np.ones(rows, dtype=np.bool_)
        self._sizes = np.zeros((rows, SIZE_CLASSES), dtype=np.int64)
        self._model = np.zeros(rows, dtype=np.intp)
        self._model_names: list[str] = []
        self._model_numbers: dict[str, int] = {}

    def _rebuild(self) -> None:
        read = [self._read(row) for row in range(self.nodes.size)]
        self._clear(len(read), max((len(each.free) for each in read), default=1))
        for row, each in enumerate(read):
            self._write(row, each)

    def _refresh_rows(self, rows: Iterable[int]) -> None:
        read = {row: self._read(row) for row in rows}
        if any(len(each.free) > self.free.shape[1] for each in read.values()):
            self._rebuild()
            return
        for row, each in read.items():
            self._write(row, each)

    def _read(self, row: int, without: PodInfo | None = None) -> _Row:
        nodes, resource = self.nodes, self.resource
        node, column = nodes.nodes[row], nodes.resources.find(resource)
        gpus = 0 if node is None or column is None else nodes.allocatable.item(column, row) // GPU_MILLI
        free, sizes, is_known = [GPU_MILLI] * min(gpus, MOST_GPUS), [0] * SIZE_CLASSES, True
        for info in nodes.pods[row].values():
            amount = info.requests.accounted.get(resource, 0)
            if amount and (without is None or info.uid != without.uid):
                is_known &= _take(free, self._devices_of(info), amount)
                sizes[size_class(amount)] += 1
        model = "" if node is None else node.metadata.labels.get(self._args.model_label, "")
        return _Row(free, sizes, is_known, model)

    def _devices_of(self, info: PodInfo) -> Devices | None:
        reserved = reservations.get(info)
        if reserved is not None:
            return reserved
        text = annotations_of(info.pod).get(self._args.devices_annotation)
        return None if text is None else parse_devices(text)

    def _write(self, row: int, read: _Row) -> None:
        count = len(read.free)
        self.free[row, :count] = read.free
        self.free[row, count:] = 0
        self.count[row] = count
        self.is_known[row] = read.is_known
        self._sizes[row] = read.sizes
        self._model[row] = self._number_of(read.model)

    def _number_of(self, model: str) -> int:
        number = self._model_numbers.get(model)
        if number is None:
            number = self._model_numbers[model] = len(self._model_names)
            self._model_names.append(model)
        return number

    def states(self, rows: Rows) -> NodeStates:
        """Return the free resources of some rows."""
        return NodeStates(
            self._free_amount("cpu", rows),
            self._free_amount("memory", rows),
            self.free[rows],
            self.count[rows],
            self._model[rows],
            self._sizes[rows],
            self._model_names,
        )

    def state_without(self, pod: PodInfo, row: int) -> NodeStates | None:
        """Return the free resources of one row as if ``pod``, which is counted there, were not.

        Returns:
            None if the GPUs of another pod are not known.
        """
        read = self._read(row, without=pod)
        if not read.is_known:
            return None
        rows, requests = np.array([row], dtype=np.intp), pod.requests.accounted
        return NodeStates(
            self._free_amount("cpu", rows) + requests.get("cpu", 0),
            self._free_amount("memory", rows) + requests.get("memory", 0),
            np.array([read.free or [0]], dtype=np.int64),
            np.array([len(read.free)], dtype=np.int64),
            np.array([self._number_of(read.model)], dtype=np.intp),
            np.array([read.sizes], dtype=np.int64),
            self._model_names,
        )

    def _free_amount(self, resource: str, rows: Rows) -> NDArray[np.int64]:
        column = self.nodes.resources.find(resource)
        assert column is not None, "CPU and memory have fixed columns"
        return self.nodes.allocatable[column, rows] - self.nodes.requested[column, rows]


def _take(free: list[int], devices: Sequence[int] | None, amount: int) -> bool:
    """Subtract a pod from its GPUs; return False if they are not known or are not those that it requests."""
    if not devices or max(devices) >= len(free):
        return False
    each = amount if len(devices) == 1 else GPU_MILLI
    if each > GPU_MILLI or each * len(devices) != amount:
        return False
    for device in devices:
        free[device] = max(0, free[device] - each)
    return True
