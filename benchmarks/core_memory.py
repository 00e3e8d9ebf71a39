"""Measure the memory of the core per node and per bound pod, including objects and columns.

    python -m benchmarks.core_memory --nodes 5000 --pods 50000

Each measurement needs its own process (:func:`in_own_process`): memory that an earlier measurement freed would be
reused and not increase the resident set.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.core_drain import decoded_pod, scheduler_with
from benchmarks.harness import command_line
from benchmarks.workloads import placed, workload_named

_ROOT = Path(__file__).resolve().parents[1]
_LIMIT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a cluster.

    Attributes:
        whole_mib: MiB of the whole process at the end.
    """

    nodes: int
    pods: int
    node_kib: float
    pod_kib: float
    whole_mib: float


def measured(nodes: int, pods: int) -> Memory:
    """Measure a filled scheduler; call it first in a new process."""
    scheduler_with(workload_named("basic"), 1, 0)
    empty = resident_mib()
    scheduler, _ = scheduler_with(workload_named("basic"), nodes, 0)
    after_nodes = resident_mib()
    for number in range(pods):
        scheduler.feed.pod_added(decoded_pod(placed(number, f"node-{number % nodes:05d}", cpu_milli=1, memory_mib=1)))
    whole = resident_mib()
    pod_kib = 1024 * (whole - after_nodes) / max(1, pods)
    return Memory(nodes, pods, 1024 * (after_nodes - empty) / nodes, pod_kib, whole)


def in_own_process(nodes: int, pods: int) -> Memory:
    """Return the result of :func:`measured` in a new process.

    Raises:
        subprocess.SubprocessError: It failed or timed out.
    """
    command = [sys.executable, "-m", "benchmarks.core_memory", "--nodes", str(nodes), "--pods", str(pods), "-o", "json"]
    output = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True, timeout=_LIMIT_SECONDS).stdout
    return msgspec.json.decode(output, type=Memory)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = command_line(__doc__, nodes=5000, pods=50_000)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    found = measured(arguments.nodes, arguments.pods)
    if arguments.output == "json":
        print(msgspec.json.encode(found).decode())
        return
    print(
        f"{found.nodes:,} nodes: {found.node_kib:.1f} KiB each; {found.pods:,} bound pods: {found.pod_kib:.1f} KiB "
        f"each; the whole process: {found.whole_mib:.0f} MiB"
    )


if __name__ == "__main__":
    main()
