"""Measure preemption for devices in the core alone, in memory, beside preemption for CPU in the same run.

    python -m benchmarks.device_preemption                    # 500 and 5,000 nodes
    python -m benchmarks.device_preemption --nodes 500 --pods 20 --repetitions 1 -o json

Each node is full: of CPU, with two pods of low priority, or of devices, each held by a claim of such a pod. Preemptors
arrive together, and evict pods until all are bound. Times are CPU times of the scheduling cycles, both attempts of a
preemptor together; deletions, binds and what the simulated cluster does are left out. Compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.console import Console

from benchmarks import device_hardware as hardware
from benchmarks.core_drain import decoded_pod, drain, scheduler_with
from benchmarks.device_hardware import CLASS, DRIVER, Objects
from benchmarks.device_workloads import exactly
from benchmarks.harness import ResultLines, add_output, command_line, grouped, report, table
from benchmarks.workloads import (
    PREEMPTING_PRIORITY,
    PRIORITY_CLASS,
    Document,
    Workload,
    node,
    placed,
    pod,
    workload_named,
)
from scheduler_core.config.profile_config import PreemptionSettings

DEVICES = 4
"""Devices of a node, each held by one pod."""
_CPU = "preemption"


def _holder(number: int) -> Document:
    document = placed(number, node(number // DEVICES)["metadata"]["name"], cpu_milli=1, memory_mib=1)
    document["spec"]["resourceClaims"] = [{"name": CLASS, "resourceClaimName": f"held-{number:06d}"}]
    return document


def _held_claim(number: int) -> tuple[str, Document]:
    """Make the claim of a holder, with its allocation."""
    owner, node_name = _holder(number)["metadata"]["name"], node(number // DEVICES)["metadata"]["name"]
    path, document = hardware.claim(number, exactly())
    document["metadata"]["name"] = f"held-{number:06d}"
    result = {"driver": DRIVER, "pool": node_name, "request": f"{CLASS}-0", "device": f"gpu-{number % DEVICES}"}
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    document["status"] = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [only]}},
        "reservedFor": [{"resource": "pods", "name": owner, "uid": f"uid-of-{owner}"}],
    }
    return path, document


def _full(count: int, nodes: int, pods: int) -> Objects:
    """Make the devices of all nodes, the claims of their holders, and claims of preemptors for some devices each."""
    yield from hardware.classes()
    yield from hardware.gpus(nodes, DEVICES)
    yield from map(_held_claim, range(nodes * DEVICES))
    yield from (hardware.claim(number, exactly(count=count)) for number in range(pods))


def _preemptor(number: int) -> Document:
    return pod(
        number,
        {
            "priority": PREEMPTING_PRIORITY,
            "priorityClassName": PRIORITY_CLASS,
            "resourceClaims": [{"name": CLASS, "resourceClaimName": hardware.claim_name(number)}],
        },
        cpu_milli=1,
    )


def _of_devices(name: str, count: int) -> Workload:
    return Workload(
        name,
        f"each pod preempts the holders of {count} devices",
        _preemptor,
        before=lambda nodes, _pods: map(_holder, range(nodes * DEVICES)),
        others=partial(_full, count),
        at_most=lambda nodes: nodes,
    )


CASES = (workload_named(_CPU), _of_devices("one device", 1), _of_devices(f"{DEVICES} devices", DEVICES))


@dataclass(frozen=True, slots=True)
class Preempted:
    """Result of one run.

    Attributes:
        decided_ms: CPU ms of scheduling cycles per preemptor.
    """

    case: str
    nodes: int
    pods: int
    victims: int
    decided_ms: float
    repetition: int


async def measure(workload: Workload, nodes: int, pods: int, repetition: int) -> Preempted:
    """Bind preemptors on full nodes.

    Raises:
        RuntimeError: A preemptor was not bound.
    """
    scheduler, cluster = scheduler_with(workload, nodes, pods, settings=PreemptionSettings(devices=True))
    # The first one pays for what all share.
    for first, last in ((0, 1), (1, pods)):
        cluster.events.clear()
        for number in range(first, last):
            cluster.add_pod(decoded_pod(workload.pod(number)))
        _, bound, deciding, _ = await drain(scheduler, cluster, churn=False)
        if bound != last - first:
            raise RuntimeError(f"{workload.name}: {bound} of {last - first} pods were bound")
    victims = sum(event.reason == "Preempted" for event in cluster.events)
    return Preempted(workload.name, nodes, pods - 1, victims, 1e3 * deciding.seconds / (pods - 1), repetition)


def show(results: Sequence[Preempted]) -> None:
    made = table("Preemption, CPU ms per preemptor", ["case"], ("nodes", "preemptors", "victims", "ms", "ratio", "n"))
    groups = grouped(results, lambda each: (each.case, each.nodes))
    medians = {key: statistics.median(each.decided_ms for each in runs) for key, runs in groups.items()}
    for (case, nodes), runs in groups.items():
        median, of_cpu = medians[case, nodes], medians.get((_CPU, nodes))
        ratio = "" if of_cpu is None else f"{median / of_cpu:.1f}x"
        counts = (f"{nodes:,}", f"{runs[0].pods:,}", f"{runs[0].victims:,}")
        made.add_row("CPU" if case == _CPU else case, *counts, f"{median:.2f}", ratio, str(len(runs)))
    Console(width=100).print(made)


def _turns(arguments: argparse.Namespace) -> Iterator[tuple[tuple[str, int, int], Callable[[], Preempted]]]:
    for nodes in map(int, arguments.nodes.split(",")):
        # Cases alternate, so that a load of the machine concerns all.
        for repetition in range(1, arguments.repetitions + 1):
            for case in CASES:
                yield (case.name, nodes, repetition), partial(_measured, case, nodes, arguments.pods, repetition)


def _measured(workload: Workload, nodes: int, pods: int, repetition: int) -> Preempted:
    return asyncio.run(measure(workload, nodes, pods, repetition))


def main() -> None:
    parser = command_line(__doc__, pods=100, repetitions=3)
    parser.add_argument("--nodes", default="500,5000", help="numbers of nodes, with commas")
    add_output(parser, "", show=True)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.show is not None:
        results = ResultLines(arguments.show, Preempted).read()
    else:
        results = ResultLines(arguments.results, Preempted).complete(
            _turns(arguments),
            lambda each: (each.case, each.nodes, each.repetition),
            lambda each: f"{each.case}, {each.nodes} nodes, #{each.repetition}: {each.decided_ms:.2f} ms",
        )
    report(arguments.output, {"measured": results}, lambda: show(results))


if __name__ == "__main__":
    main()
