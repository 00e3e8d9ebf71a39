"""Measure memory and time per pod over a simulated year of churn.

    python -m benchmarks.churn --nodes 500 --pods 2000 --months 12

Every month replaces half of the nodes and all pods, namespaces, services, volumes, groups and profile revisions by
objects with new names. A flat curve shows that data of removed names are dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import AsyncIterator

import msgspec
from bayplan.kube.timing import SystemClock

from benchmarks.churn_run import ChurnRun
from benchmarks.core_memory import resident_mib


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    asyncio.run(_show(parser.parse_args()))


if __name__ == "__main__":
    main()
