"""Reads the nodes and pods of a GPU trace from CSV files in the format of Alibaba's cluster-trace-gpu-v2023.

The files are read from a folder of the user; nothing is downloaded. Columns that the benchmark does not need are
ignored, in any order.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bayplan_example_plugins.gpu_shares.args import TypicalPod

NODES_FILE = "openb_node_list_all_node.csv"
PODS_FILE = "openb_pod_list_default.csv"
_SOURCE = "cluster-trace-gpu-v2023/csv of github.com/alibaba/clusterdata"
_WHOLE_GPU = 1000
_NO_VALUE = ("", "nan")

T = TypeVar("T", "TraceNode", "TracePod")


class TraceError(Exception):
    """A file of the trace cannot be read; the message names file, row and column."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node: CPU in thousandths, memory in MiB, number of GPUs and their model, "" for none."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """A pod.

    Attributes:
        gpu_milli: Sum over its GPUs, thousandths: below 1000 a share of one GPU, else whole GPUs.
        models: GPU models of which it needs one; () for any.
        created: Time of its creation, in seconds of the trace.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    models: tuple[str, ...]
    created: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes, and pods in the order of their creation."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def gpu_milli(self) -> int:
        return sum(node.gpus for node in self.nodes) * _WHOLE_GPU


class _Row:
    """One row of a file, with its number as an editor shows it."""

    def __init__(self, file: Path, number: int, cells: Mapping[str, str]) -> None:
        self._where = f"{file}: row {number}"
        self._cells = cells

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f'{self._where}, column "{column}": {message}')

    def text(self, column: str) -> str:
        """Return a cell; "" and "nan" are ""."""
        cell = self._cells[column].strip()
        return "" if cell in _NO_VALUE else cell

    def name(self, column: str) -> str:
        """Return a cell that must not be empty."""
        found = self.text(column)
        if not found:
            raise self.error(column, "is empty; give the object a name")
        return found

    def number(self, column: str, most: int = 10**12) -> int:
        """Return a whole number from 0 on."""
        cell = self._cells[column].strip()
        if not (cell.isascii() and cell.isdecimal()):
            raise self.error(column, f'unsupported value "{cell}": use a whole number from 0 on')
        if len(cell) > 13 or int(cell) > most:
            raise self.error(column, f"unsupported value {cell[:20]}: use at most {most}")
        return int(cell)


def read_trace(folder: Path, nodes_file: str = NODES_FILE, pods_file: str = PODS_FILE) -> Trace:
    """Read a trace.

    Raises:
        TraceError: A file is missing or cannot be read.
    """
    nodes = _objects(folder / nodes_file, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), _node)
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time")
    pods = _objects(folder / pods_file, columns, _pod)
    if not any(node.gpus for node in nodes):
        raise TraceError(f'{folder / nodes_file}: column "gpu": no node has a GPU; use a file with GPU nodes')
    if not any(pod.gpu_milli for pod in pods):
        raise TraceError(f'{folder / pods_file}: column "num_gpu": no pod requests a GPU; use a file with GPU pods')
    return Trace(tuple(nodes), tuple(sorted(pods, key=lambda pod: pod.created)))


def _node(row: _Row) -> TraceNode:
    gpus = row.number("gpu", most=64)
    return TraceNode(
        row.name("sn"), row.number("cpu_milli"), row.number("memory_mib"), gpus, row.text("model") if gpus else ""
    )


def _pod(row: _Row) -> TracePod:
    gpus, milli = row.number("num_gpu", most=64), row.number("gpu_milli", most=_WHOLE_GPU)
    if gpus == 1 and not milli:
        raise row.error("gpu_milli", 'is 0 although "num_gpu" is 1; use 1 to 1000')
    if gpus > 1 and milli != _WHOLE_GPU:
        raise row.error("gpu_milli", f'is {milli} although "num_gpu" is {gpus}; several GPUs are whole, use 1000')
    models = tuple(model for model in row.text("gpu_spec").split("|") if model)
    return TracePod(
        row.name("name"),
        row.number("cpu_milli"),
        row.number("memory_mib"),
        gpus * milli,
        models if gpus else (),
        row.number("creation_time"),
    )


def _objects(file: Path, columns: Sequence[str], read: Callable[[_Row], T]) -> list[T]:
    found: dict[str, T] = {}
    for row in _rows(file, columns):
        each = read(row)
        if each.name in found:
            raise row.error(columns[0], f'"{each.name}" is in an earlier row too; names are unique')
        found[each.name] = each
    if not found:
        raise TraceError(f"{file}: row 2: the file has no rows after its header; use the file of {_SOURCE}")
    return list(found.values())


def _rows(file: Path, columns: Sequence[str]) -> Iterator[_Row]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            lines = csv.reader(opened, strict=True)
            header = [name.strip() for name in next(lines, [])]
            missing = [name for name in columns if name not in header]
            if missing:
                named = ", ".join(f'"{name}"' for name in missing)
                raise TraceError(f"{file}: row 1: the header lacks the columns {named}; use the file of {_SOURCE}")
            repeated = [name for name, count in Counter(header).items() if count > 1 and name in columns]
            if repeated:
                raise TraceError(f'{file}: row 1, column "{repeated[0]}": is there twice; keep one')
            for cells in lines:
                if not cells:
                    continue
                if len(cells) != len(header):
                    place = header[min(len(cells), len(header) - 1)]
                    message = f"the row has {len(cells)} columns and the header {len(header)}; correct the row"
                    raise TraceError(f'{file}: row {lines.line_num}, column "{place}": {message}')
                yield _Row(file, lines.line_num, dict(zip(header, cells, strict=True)))
    except FileNotFoundError:
        raise TraceError(f"{file}: the file does not exist; copy it from {_SOURCE}") from None
    except csv.Error as error:
        raise TraceError(f"{file}: row {lines.line_num}: {error}; correct the row") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{file}: is not UTF-8 text ({error.reason}); use the file of {_SOURCE}") from error
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror}; correct the path or its permissions") from error


# -- what arrives -----------------------------------------------------------------------------------------------------


def sampled(trace: Trace, seed: int, load: float) -> list[TracePod]:
    """Sample pods with replacement until they request ``load`` of the GPU capacity, 1 for all of it."""
    rng = random.Random(seed)
    return _until_requested(trace, load, iter(lambda: rng.choice(trace.pods), None))


def in_order(trace: Trace, load: float) -> list[TracePod]:
    """Return the pods in the order of their creation, each once, until they request ``load`` of the GPU capacity."""
    return _until_requested(trace, load, trace.pods)


def _until_requested(trace: Trace, load: float, arriving: Iterable[TracePod]) -> list[TracePod]:
    pods: list[TracePod] = []
    requested = 0
    for pod in arriving:
        if requested >= load * trace.gpu_milli:
            break
        requested += pod.gpu_milli
        pods.append(pod)
    return pods


def typical_pods(pods: Sequence[TracePod], share: float = 0.95) -> tuple[TypicalPod, ...]:
    """Return the most frequent kinds of pods, by CPU, GPUs and models.

    Args:
        share: Share of all pods that the kinds have together, at least.

    Returns:
        The kinds with their numbers as weights, the most frequent one first.
    """
    counts = Counter((pod.cpu_milli, pod.gpu_milli, pod.models) for pod in pods)
    kinds: list[TypicalPod] = []
    covered = 0
    for (cpu, gpu, models), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= share * len(pods):
            break
        covered += count
        kinds.append(TypicalPod(cpu_milli=cpu, gpu_milli=gpu, models=models, weight=count))
    return tuple(kinds)
