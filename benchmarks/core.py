"""The scheduler core alone, in memory: how fast it decides, and how that grows with the cluster.

    python -m benchmarks.core --nodes 5000 --only basic,spread
    python -m benchmarks.core --nodes 5000 --only basic --profile basic.prof
    python -m benchmarks.core --nodes 5000 --pods 50000 --memory

Pods are taken in, decided, bound and confirmed as in the operator, by a cluster in memory that answers at once: no
request is sent and nothing is decoded. Pods a second count all of it but the taking in, which is told beside them. What
is timed is CPU; a ratio between two lines of one run is worth more than any line.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from bayplan.kube.system_clock import SystemClock
from bayplan.simulation.memory_cluster import MemoryCluster
from rich.console import Console
from rich.table import Table

from benchmarks.workload import SCHEDULER_NAME, Document, encoded, node
from benchmarks.workloads import WORKLOADS, Workload, placed, workload_named
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.binding import bind
from scheduler_core.cycle.scheduling import schedule
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler

_NODE = msgspec.json.Decoder(Node)
_POD = msgspec.json.Decoder(Pod)
_WARM_PODS = 50
"""Decided before anything is timed: NumPy and the interpreter warm up with the first ones."""
_IDLE_TURNS = 8
"""Turns of the loop without a pod to try after which nothing more comes: victims go and news come within fewer."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One backlog decided.

    Attributes:
        workload: Which one.
        nodes: How many nodes.
        pods: Pods that were timed.
        bound: Of these, bound.
        taken_in_us: CPU µs a pod for compiling and queueing it.
        decided_us: CPU µs a pod from the pop to the node that is held, or to the diagnosis.
        bound_us: CPU µs a pod for binding and confirming.
    """

    workload: str
    nodes: int
    pods: int
    bound: int
    taken_in_us: float
    decided_us: float
    bound_us: float

    @property
    def rate(self) -> float:
        """Pods a second of one CPU that does nothing else."""
        return 1e6 / (self.decided_us + self.bound_us)


@dataclass(frozen=True, slots=True)
class Size:
    """How much of what: nodes, pods to decide, and pods that run beforehand beside those of the workload."""

    nodes: int
    pods: int
    occupied: int = 0


def _node(number: int) -> Node:
    document = node(number)
    document["metadata"]["uid"] = f"uid-of-{document['metadata']['name']}"
    return _NODE.decode(encoded(document))


def pod(document: Document) -> Pod:
    """A pod as an informer would decode it."""
    document["metadata"]["uid"] = f"uid-of-{document['metadata']['name']}"
    return _POD.decode(encoded(document))


def scheduler_with(workload: Workload, nodes: int, pods: int, occupied: int = 0) -> tuple[Scheduler, MemoryCluster]:
    """A scheduler that knows the nodes and what runs on them, and the cluster it writes to."""
    cluster = MemoryCluster()
    scheduler = Scheduler(SystemClock(), cluster)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name=SCHEDULER_NAME))])
    for number in range(nodes):
        scheduler.feed.node_added(_node(number))
    cluster.watch(scheduler.feed)
    for document in workload.before(nodes, pods):
        cluster.add_pod(pod(document))
    for number in range(occupied):
        name = f"node-{number % nodes:05d}"
        cluster.add_pod(pod(placed(number, name, cpu_milli=1, memory_mib=1)))
    return scheduler, cluster


class _Clocked:
    """CPU seconds spent in steps of one kind."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._since


async def _drain(scheduler: Scheduler, *, churn: bool) -> tuple[int, int, _Clocked, _Clocked]:
    """Decide and bind until nothing can be tried; how many were tried and bound, and what that took.

    Slices of 64 pods are decided and then bound, as the loop of the scheduler has it.
    """
    context, deciding, binding = scheduler.context, _Clocked(), _Clocked()
    tried = bound = idle = 0
    leaving: list[Pod] = []
    while idle < _IDLE_TURNS:
        attempts = []
        with deciding:
            for _ in range(64):
                queued = context.queue.pop()
                if queued is None:
                    break
                assert not isinstance(queued, QueuedGang), "no workload here has gangs"
                tried += 1
                attempt = schedule(context, queued)
                if attempt is not None:
                    attempts.append(attempt)
        idle = idle + 1 if queued is None and not attempts else 0
        with binding:
            for attempt in attempts:
                bound += await bind(context, attempt)
            await asyncio.sleep(0)
        if churn:
            for gone in leaving:
                scheduler.feed.pod_deleted(gone)
            leaving = [attempt.info.pod for attempt in attempts]
    return tried, bound, deciding, binding


async def measure(workload: Workload, size: Size, profiler: cProfile.Profile | None) -> Measured:
    """Decide one backlog.

    Raises:
        RuntimeError: Another number of pods was bound than the workload says.
    """
    nodes, pods = size.nodes, size.pods
    scheduler, cluster = scheduler_with(workload, nodes, pods, size.occupied)
    warm = min(_WARM_PODS, pods // 10)
    made = [pod(workload.pod(number)) for number in range(pods)]
    for each in made[:warm]:
        cluster.add_pod(each)
    _, bound_before, _, _ = await _drain(scheduler, churn=workload.churn)
    gc.collect()
    gc.freeze()
    taking = _Clocked()
    with profiler or nullcontext():
        with taking:
            for each in made[warm:]:
                cluster.add_pod(each)
        tried, bound, deciding, binding = await _drain(scheduler, churn=workload.churn)
    gc.unfreeze()
    expected = workload.bound_of(pods)
    if bound + bound_before != expected and workload.name != "preemption":
        raise RuntimeError(f"{workload.name}: {bound + bound_before} of {expected} pods were bound; give it more nodes")
    count = pods - warm
    return Measured(
        workload.name,
        nodes,
        tried,
        bound,
        1e6 * taking.seconds / count,
        1e6 * deciding.seconds / tried,
        1e6 * binding.seconds / max(1, bound),
    )


def resident_mib() -> float:
    """Memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def memory(nodes: int, pods: int) -> tuple[float, float]:
    """KiB a node and KiB a bound pod, of objects and columns; call it in a process that has done nothing else."""
    scheduler_with(workload_named("basic"), 1, 0)
    empty = resident_mib()
    with_nodes = scheduler_with(workload_named("basic"), nodes, 0)
    after_nodes = resident_mib()
    for number in range(pods):
        with_nodes[0].feed.pod_added(pod(placed(number, f"node-{number % nodes:05d}", cpu_milli=1, memory_mib=1)))
    return 1024 * (after_nodes - empty) / nodes, 1024 * (resident_mib() - after_nodes) / max(1, pods)


def show(results: Sequence[Measured]) -> None:
    """Print medians."""
    table = Table(title="The core alone, medians")
    table.add_column("workload")
    for column in ("nodes", "tried", "bound", "take in µs", "decide µs", "bind µs", "pods/s"):
        table.add_column(column, justify="right")
    for key in dict.fromkeys((each.nodes, each.workload) for each in results):
        own = [each for each in results if (each.nodes, each.workload) == key]
        medians = [
            statistics.median(values)
            for values in (
                [each.taken_in_us for each in own],
                [each.decided_us for each in own],
                [each.bound_us for each in own],
                [each.rate for each in own],
            )
        ]
        counts = (f"{key[0]:,}", f"{own[0].pods:,}", f"{own[0].bound:,}")
        table.add_row(key[1], *counts, *(f"{median:,.0f}" for median in medians))
    Console().print(table)


def _cases(arguments: argparse.Namespace) -> Iterator[tuple[Workload, Size]]:
    names = None if arguments.only is None else arguments.only.split(",")
    for nodes in (int(text) for text in arguments.nodes.split(",")):
        for workload in WORKLOADS:
            if names is None or workload.name in names:
                yield workload, Size(nodes, min(arguments.pods, workload.at_most(nodes)), arguments.occupied)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="100,1000,5000", help="one number or several with commas")
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--occupied", type=int, default=0, help="pods that run beforehand")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", help="workloads with commas: " + ", ".join(each.name for each in WORKLOADS))
    parser.add_argument("--profile", type=Path, help="run under cProfile and write the profile there")
    parser.add_argument("--memory", action="store_true", help="tell memory per node and per bound pod, and end")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    if arguments.memory:
        nodes = int(arguments.nodes.split(",")[-1])
        node_kib, pod_kib = memory(nodes, arguments.pods)
        print(f"{nodes:,} nodes: {node_kib:.1f} KiB each; {arguments.pods:,} bound pods: {pod_kib:.1f} KiB each")
        return
    profiler = cProfile.Profile() if arguments.profile is not None else None
    results = [
        asyncio.run(measure(workload, size, profiler))
        for workload, size in _cases(arguments)
        for _ in range(arguments.repetitions)
    ]
    if profiler is not None:
        profiler.dump_stats(arguments.profile)
    if arguments.output == "json":
        print(json.dumps([asdict(each) for each in results], indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
