"""Measure memory and time per pod over a simulated year of churn.

    python -m benchmarks.churn --nodes 500 --pods 2000 --months 12

Every month replaces half of the nodes and all pods, namespaces, services, volumes, groups and profile revisions by
objects with new names. A flat curve shows that data of removed names are dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
from bayplan.kube.timing import SystemClock
from bayplan.simulation.memory_cluster import MemoryCluster

from benchmarks import churn_objects as objects
from benchmarks.core_drain import resident_mib
from benchmarks.harness import add_output, command_line
from benchmarks.workloads import SCHEDULER_NAME
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.ports import Clock, PodDeletion
from scheduler_core.scheduler import Scheduler, SchedulerOptions

_TURNS = 4
"""Iterations of the event loop after which the cluster has reported all changes."""


class ChurnRun:
    """One scheduler and its cluster.

    Args:
        nodes: Nodes at any time; half of them are replaced in a month.
        pods: Number of pods per month.
        options: Settings of the scheduler.
    """

    def __init__(
        self,
        clock: Clock,
        nodes: int,
        pods: int,
        options: SchedulerOptions | None = None,
        *,
        revisions: bool = True,
    ) -> None:
        self._cluster = MemoryCluster()
        self.scheduler = Scheduler(clock, self._cluster, options)
        self._pods_a_month = pods
        self._revisions = revisions
        self._months = itertools.count()
        self._nodes: list[Node] = []
        self._pods: list[Pod] = []
        self._activate(SCHEDULER_NAME, 0)
        self.scheduler.group_feed.serve(GroupSource.BAYPLAN)
        self._cluster.watch(self.scheduler.feed)
        for number in range(nodes):
            self._nodes.append(objects.node(-1, number))
            self.scheduler.feed.node_added(self._nodes[-1])

    async def month(self) -> int:
        """Simulate one month; return the number of attempted pods."""
        month = next(self._months)
        if self._revisions and month:
            self._activate(SCHEDULER_NAME, month)
        self._activate(f"profile-{month}", 0)
        self._bring_surroundings(month)
        self._replace_nodes(month)
        before, self._pods = self._pods, []
        gang = [objects.member(month, number) for number in range(objects.GANG_MEMBERS)]
        created = [*gang, *(objects.pod(month, number) for number in range(self._pods_a_month))]
        tried = 0
        for number, pod in enumerate(created):
            self._cluster.add_pod(pod)
            self._pods.append(pod)
            tried += await self._decide()
            if number < len(before):
                await self._delete(before[number : number + 1])
        await self._delete(before[len(created) :])
        self._drop_surroundings(month - 1)
        self.scheduler.withdraw(f"profile-{month}")
        self._cluster.events.clear()
        self.scheduler.context.metrics.settle()
        return tried

    def close(self) -> None:
        self.scheduler.context.queue.close()

    def _activate(self, name: str, seconds: int) -> None:
        config = ProfileConfig(scheduler_name=name, pod_max_backoff_seconds=60 + seconds)
        self.scheduler.activate([self.scheduler.build(config)])

    def _bring_surroundings(self, month: int) -> None:
        for each in objects.surroundings(month):
            self.scheduler.workload_feed.added(each)
        for stored in objects.storage(month):
            self.scheduler.storage_feed.added(stored)
        self.scheduler.group_feed.group_changed(objects.group(month))

    def _drop_surroundings(self, month: int) -> None:
        if month < 0:
            return
        for each in objects.surroundings(month):
            self.scheduler.workload_feed.deleted(each)
        for stored in objects.storage(month):
            self.scheduler.storage_feed.deleted(stored)
        self.scheduler.group_feed.group_deleted(GroupKey(GroupSource.BAYPLAN, f"ns-{month}", f"gang-{month}"))

    def _replace_nodes(self, month: int) -> None:
        feed, half = self.scheduler.feed, len(self._nodes) // 2
        leaving, self._nodes = self._nodes[:half], self._nodes[half:]
        for number, old in enumerate(leaving):
            new = objects.node(month, number)
            feed.node_added(new)
            self._nodes.append(new)
            candidate, doomed = objects.leaving(old, month)
            feed.node_updated(old, candidate)
            feed.node_updated(candidate, doomed)
            feed.node_deleted(doomed)

    async def _decide(self) -> int:
        context, tried = self.scheduler.context, 0
        while (queued := context.queue.pop()) is not None:
            if isinstance(queued, QueuedGang):
                attempts = await self.scheduler.cycles.gangs.schedule(queued)
                tried += len(attempts)
            else:
                attempt = self.scheduler.cycles.pods.schedule(queued)
                attempts = [] if attempt is None else [attempt]
                tried += 1
            await asyncio.gather(*(self.scheduler.cycles.binding.bind(each) for each in attempts))
            await asyncio.sleep(0)
        return tried

    async def _delete(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            meta = pod.metadata
            self._cluster.delete_pod(PodDeletion(meta.namespace, meta.name, meta.uid), lambda _: None)
        for _ in range(_TURNS):
            await asyncio.sleep(0)


class Month(msgspec.Struct, frozen=True):
    """Result of one month.

    Attributes:
        pod_us: CPU time per pod, µs, including all other work of the month.
    """

    month: int
    pods: int
    rss_mib: float
    pod_us: float
    taint_lists: int
    resources: int


async def measure(nodes: int, pods: int, months: int) -> AsyncIterator[Month]:
    run = ChurnRun(SystemClock(), nodes, pods)
    for month in range(1, months + 1):
        begun = time.process_time()
        tried = await run.month()
        seconds = time.process_time() - begun
        gc.collect()
        columns = run.scheduler.context.cache.columns
        taint_lists, resources = len(columns.taint_sets), len(columns.resources)
        yield Month(month, tried, resident_mib(), 1e6 * seconds / tried, taint_lists, resources)
    run.close()


async def _show(args: argparse.Namespace) -> None:
    is_json = args.output == "json"
    if not is_json:
        print(f"{'month':>5} {'pods':>6} {'RSS MiB':>8} {'us/pod':>7} {'taint lists':>11} {'resources':>9}")
    async for each in measure(args.nodes, args.pods, args.months):
        line = f"{each.month:5} {each.pods:6} {each.rss_mib:8.1f} {each.pod_us:7.0f}"
        line += f" {each.taint_lists:11} {each.resources:9}"
        print(msgspec.json.encode(each).decode() if is_json else line, flush=True)


def main() -> None:
    parser = command_line(__doc__, nodes=500, pods=2000, months=12)
    add_output(parser)
    asyncio.run(_show(parser.parse_args()))


if __name__ == "__main__":
    main()
