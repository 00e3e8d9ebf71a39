"""Measure the group cycle of one gang in the core alone, in memory: no other decision is made during this time.

    python -m benchmarks.gang_core                       # 1,000 members on 5,000 nodes
    python -m benchmarks.gang_core --only equal --repetitions 20
    python -m benchmarks.gang_core --only equal --profile gang.prof

The time of the group cycle is from the pop of the gang to the Reserve of its members, or to the diagnosis if it does
not fit. No pod is bound and no request is sent. Each repetition has a new scheduler with default plugins. On a busy
machine only CPU times are comparable between runs.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from bayplan.kube.timing import SystemClock
from bayplan.simulation.memory_cluster import MemoryCluster
from rich.console import Console

from benchmarks.core_drain import decoded_node, decoded_pod
from benchmarks.harness import add_output, command_line, grouped, median_of, report, table
from benchmarks.workloads import NAMESPACE, SCHEDULER_NAME, node, pod
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.scheduler import Scheduler

NODE_CPUS = 8
ZONES = 10
ZONE_LABEL = "topology.kubernetes.io/zone"
GANG = "gang"


@dataclass(frozen=True, slots=True)
class Case:
    """A gang and its cluster.

    Attributes:
        free_nodes: Number of nodes without pods, given the number of members; None for all.
    """

    name: str
    description: str
    cpu_milli: Callable[[int], int] = lambda _: 1000
    topology: GroupTopology | None = None
    free_nodes: Callable[[int], int] | None = None

    @property
    def fits(self) -> bool:
        return self.free_nodes is None


CASES = (
    Case("equal", "all members of one size"),
    Case("different", "members of different sizes", lambda number: 500 + number % 3500),
    Case("zone", f"one of {ZONES} zones required", topology=GroupTopology(ZONE_LABEL)),
    Case(
        "misfit",
        "all but one fit: the trial is undone",
        lambda _: NODE_CPUS * 1000,
        free_nodes=lambda members: members - 1,
    ),
)


@dataclass(frozen=True, slots=True)
class Decision:
    case: str
    nodes: int
    members: int
    cpu_seconds: float
    wall_seconds: float


def _node(number: int) -> Node:
    document = node(number, cpu=str(NODE_CPUS), memory="64Gi")
    document["metadata"]["labels"][ZONE_LABEL] = f"zone-{number % ZONES}"
    return decoded_node(document)


def _pod(name: str, cpu_milli: int, *, node_name: str = "") -> Pod:
    document = pod(0, {"nodeName": node_name} if node_name else None, cpu_milli=cpu_milli, memory_mib=1024)
    labels = {} if node_name else {POD_GROUP_LABELS[GroupSource.BAYPLAN]: GANG}
    document["metadata"] |= {"name": name, "labels": labels}
    return decoded_pod(document)


def scheduler_with(case: Case, nodes: int, members: int) -> Scheduler:
    scheduler = Scheduler(SystemClock(), MemoryCluster())
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name=SCHEDULER_NAME))])
    scheduler.group_feed.serve(GroupSource.BAYPLAN)
    free = nodes if case.free_nodes is None else case.free_nodes(members)
    for number in range(nodes):
        added = _node(number)
        scheduler.feed.node_added(added)
        if number >= free:
            name = added.metadata.name
            scheduler.feed.pod_added(_pod(f"runs-on-{name}", NODE_CPUS * 1000, node_name=name))
    key = GroupKey(GroupSource.BAYPLAN, NAMESPACE, GANG)
    scheduler.group_feed.group_changed(PodGroup(key, "uid-of-group", members, topology=case.topology))
    for number in range(members):
        scheduler.feed.pod_added(_pod(f"{GANG}-{number}", case.cpu_milli(number)))
    return scheduler


async def decide(case: Case, nodes: int, members: int, profiler: cProfile.Profile | None = None) -> Decision:
    """Run the group cycle of a case once.

    Raises:
        RuntimeError: The gang has another result than the case expects.
    """
    scheduler = scheduler_with(case, nodes, members)
    entry = scheduler.context.queue.pop()
    assert isinstance(entry, QueuedGang), "no other entry waits"
    gc.collect()
    with profiler or nullcontext():
        cpu, wall = time.process_time(), time.perf_counter()
        attempts = await scheduler.cycles.gangs.schedule(entry)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    expected = members if case.fits else 0
    held = scheduler.context.cache.assumed_count
    if not len(attempts) == held == expected:
        raise RuntimeError(
            f"case {case.name}: {len(attempts)} members were placed and {held} hold a node instead of {expected}; "
            "use more nodes than members"
        )
    return Decision(case.name, nodes, members, cpu, wall)


def show(decisions: Sequence[Decision]) -> None:
    first = decisions[0]
    made = table(
        f"A gang of {first.members} decided on {first.nodes} nodes, medians (lowest to highest)",
        ["gang"],
        ("CPU ms", "wall ms", "CPU µs/member"),
    )
    descriptions = {case.name: case.description for case in CASES}
    for case, own in grouped(decisions, lambda each: each.case).items():
        cpu = [1000 * decision.cpu_seconds for decision in own]
        wall = [1000 * decision.wall_seconds for decision in own]
        made.add_row(
            f"{case}: {descriptions[case]}",
            median_of(cpu, ".0f"),
            median_of(wall, ".0f"),
            f"{1000 * statistics.median(cpu) / first.members:.0f}",
        )
    Console().print(made)


def main() -> None:
    parser = command_line(__doc__, members=1000, repetitions=5)
    parser.add_argument("--nodes", type=int, default=5000, help="more than members")
    parser.add_argument("--only", choices=[case.name for case in CASES])
    parser.add_argument("--profile", type=Path, help="file for a profile of the group cycles by cProfile")
    add_output(parser)
    arguments = parser.parse_args()
    profiler = cProfile.Profile() if arguments.profile is not None else None
    decisions = [
        asyncio.run(decide(case, arguments.nodes, arguments.members, profiler))
        for case in CASES
        if arguments.only in (None, case.name)
        for _ in range(arguments.repetitions)
    ]
    if profiler is not None:
        profiler.dump_stats(arguments.profile)
    report(arguments.output, decisions, lambda: show(decisions))


if __name__ == "__main__":
    main()
