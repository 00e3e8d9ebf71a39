"""Measure the cost of a record: alternate runs with and without ``--record`` on a real API server.

    python -m benchmarks.record                     # 5,000 pods, three times each
    python -m benchmarks.record --pods 20000 --repetitions 1

CPU time is that of the operator's process after the first bindings, without start and first lists. The last record is
replayed, and every decision must be equal.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.end_to_end import prepared
from benchmarks.end_to_end_drain import Drain, drain
from benchmarks.harness import command_line
from benchmarks.workloads import SCHEDULER_NAME, WORKLOADS
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import BAYPLAN, start_bayplan


def _recorded(plane: ControlPlane, directory: Path) -> Process:
    return start_bayplan(plane, SCHEDULER_NAME, free_port(), flags=("--record", str(directory)))


def main() -> int:
    parser = command_line(__doc__, nodes=500, pods=5000, repetitions=3)
    given = parser.parse_args()
    workload = WORKLOADS[0]
    found: dict[str, list[Drain]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as place, prepared(workload, given.nodes, given.pods) as cluster:
        records = Path(place)
        for repetition in range(1, given.repetitions + 1):
            turn = given.nodes, given.pods, repetition
            found["without"].append(drain(cluster, workload, BAYPLAN, turn))
            directory = records / str(repetition)
            start = partial(_recorded, directory=directory)
            found["with"].append(drain(cluster, workload, BAYPLAN, turn, start=start))
        for name, drains in found.items():
            cpu = statistics.median(each.later_cpu_ms_per_pod for each in drains)
            rate = statistics.median(each.rate for each in drains)
            each = ", ".join(f"{one.later_cpu_ms_per_pod:.3f}" for one in drains)
            print(f"{name:8} a record: {cpu:.3f} CPU ms/pod ({each}), {rate:.0f} pods/s")
        cpu_with, cpu_without = (
            statistics.median(each.later_cpu_ms_per_pod for each in found[name]) for name in ("with", "without")
        )
        size = sum(each.stat().st_size for each in directory.iterdir())
        print(
            f"overhead: {100 * (cpu_with / cpu_without - 1):.1f} % CPU per pod; {size / given.pods:.0f} bytes per pod"
        )
        began = time.monotonic()
        replayed = subprocess.run([sys.executable, "-m", "bayplan", "replay", str(directory)], check=False)
        print(f"replayed in {time.monotonic() - began:.1f} s")
    return replayed.returncode


if __name__ == "__main__":
    sys.exit(main())
