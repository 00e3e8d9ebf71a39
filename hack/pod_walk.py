"""Counts the calls that one pod takes through the code, from the pop out of the queue to the confirmed bind.

Run it with ``python -m hack.pod_walk``; ``--trace`` prints the calls of one path in their order. Counted are calls of
Python functions of ``scheduler_core`` and ``operator``, the files that they are in, and how often the file changes from
one call to the next. The cluster is that of ``bayplan simulate``, whose few calls are included; what the loop does once
for a batch of pods is not.

=================  ==================================================================================================
path               what is counted
=================  ==================================================================================================
fast               a pod of a known class on a profile that has scheduled others: its results are reused
full               the first pod of a scheduler: every plugin runs, and caches are built
new class          a pod of a class that is not known, on a scheduler that has scheduled others
gang of two        the group cycle of a gang with two members, without its binding cycles
=================  ==================================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import msgspec
from bayplan.simulation.memory_cluster import MemoryCluster

from benchmarks.core_drain import decoded_pod, scheduler_with
from benchmarks.workloads import Document, workload_named
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler

ROOT = f"{Path(__file__).parents[1]}{os.sep}"
COUNTED = (f"{ROOT}scheduler_core", f"{ROOT}operator")
_NODES, _PODS, _WARM = 500, 400, 60


@dataclass(slots=True)
class Walk:
    steps: list[tuple[str, str]] = field(default_factory=list)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        del argument
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(COUNTED):
            self.steps.append((name.removeprefix(ROOT), frame.f_code.co_qualname))

    @property
    def files(self) -> int:
        return len({file for file, _ in self.steps})

    @property
    def changes(self) -> int:
        """How often the file changes from one call to the next; the first call counts."""
        return sum(here != before for (here, _), (before, _) in zip(self.steps, [("", ""), *self.steps], strict=False))


async def pod_path(name: str, warm: int) -> Walk:
    """Return the calls for one pod of a workload, after ``warm`` others."""
    workload, walk = workload_named(name), Walk()
    scheduler, cluster = scheduler_with(workload, _NODES, _PODS)
    for number in range(warm + 1):
        cluster.add_pod(decoded_pod(workload.pod(number)))
        if number == warm:
            sys.setprofile(walk.note)
        queued = scheduler.context.queue.pop()
        assert queued is not None
        await scheduler._cycle(queued)  # noqa: SLF001 - the loop's step for one pod
        while scheduler.binding_count:  # noqa: ASYNC110 - counts no calls of its own
            await asyncio.sleep(0)
        sys.setprofile(None)
    return walk


async def gang_path() -> Walk:
    """Return the calls of the group cycle of a gang with two members, after other gangs."""
    workload, walk = workload_named("basic"), Walk()
    scheduler, cluster = scheduler_with(workload, _NODES, _PODS)
    scheduler.group_feed.serve(GroupSource.BAYPLAN)
    for number in range(10):
        sys.setprofile(None)
        entry = _queued_gang(scheduler, cluster, number)
        walk.steps.clear()
        sys.setprofile(walk.note)
        attempts = await scheduler.cycles.gangs.schedule(entry)
        sys.setprofile(None)
        await asyncio.gather(*map(scheduler.cycles.binding.bind, attempts))
    return walk


def _queued_gang(scheduler: Scheduler, cluster: MemoryCluster, number: int) -> QueuedGang:
    name = f"gang-{number}"
    key = GroupKey(GroupSource.BAYPLAN, "default", name)
    scheduler.group_feed.group_changed(PodGroup(key, f"uid-of-{name}", 2))
    for member in range(2):
        document: Document = msgspec.convert(workload_named("basic").pod(2 * number + member), dict)
        labels = document["metadata"].get("labels", {})
        document["metadata"]["labels"] = {**labels, POD_GROUP_LABELS[GroupSource.BAYPLAN]: name}
        cluster.add_pod(decoded_pod(document))
    entry = scheduler.context.queue.pop()
    assert isinstance(entry, QueuedGang)
    return entry


PATHS = {
    "fast": lambda: pod_path("basic", _WARM),
    "full": lambda: pod_path("basic", 0),
    "new class": lambda: pod_path("sizes", _WARM),
    "gang of two": gang_path,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.pod_walk", description=__doc__.partition("\n")[0])
    parser.add_argument("--trace", choices=PATHS, help="Print the calls of this path")
    arguments = parser.parse_args()
    if arguments.trace:
        for file, function in asyncio.run(PATHS[arguments.trace]()).steps:
            print(file, function)
        return
    print(f"{'path':<14}{'calls':>7}{'files':>7}{'changes of file':>17}")
    for name, path in PATHS.items():
        walk = asyncio.run(path())
        print(f"{name:<14}{len(walk.steps):>7}{walk.files:>7}{walk.changes:>17}")


if __name__ == "__main__":
    main()
