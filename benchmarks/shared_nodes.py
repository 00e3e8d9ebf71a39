"""Counts the pods too many on nodes that two busy schedulers share, Bayplan or kube-scheduler beside kube-scheduler.

Each scheduler gets half of the pods. Nodes have room for a few pods each, and there are more pods than room in all, so
that both schedulers compete for the last places. kube-scheduler has default settings without a rate limit.

Results depend on the load of the machine, which is reported: compare runs at equal load.

    python -m benchmarks.shared_nodes --nodes 100 --repetitions 5
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.harness import Metrics, ResultLines, UnreadableResultsError, add_output, command_line, report, table_of
from benchmarks.workloads import NODES_PATH, PODS_PATH, Document, node, pod
from hack.controlplane import probes
from hack.controlplane.accounts import overcommitted
from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_bayplan, start_kube_scheduler
from hack.controlplane.servers import Options

ARRIVALS, BACKLOG, FULL = "arrivals", "nodes appear", "full nodes"
SITUATIONS = (ARRIVALS, BACKLOG, FULL)
PAIRS = (BAYPLAN, KUBE_SCHEDULER)
"""What runs beside kube-scheduler."""
SLOTS = 8
"""Pods for which a node has room."""
_FIRST, _SECOND = "first", "second"
_QUIET_SECONDS = 3.0
_LIMIT_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one run.

    Attributes:
        beside: The scheduler that ran beside kube-scheduler.
        pods_too_many: Pods beyond the room of their nodes.
        reported: What Bayplan's metric bayplan_rival_overcommits_total counts; -1 for two kube-schedulers.
        bound: Bound pods of both schedulers.
        load: Load average of the machine over the last minute, at the end.
    """

    beside: str
    situation: str
    nodes: int
    repetition: int
    overcommitted_nodes: int
    pods_too_many: int
    reported: int
    bound: tuple[int, int]
    load: float


def _node(number: int) -> Document:
    return node(number, cpu=str(SLOTS), memory="64Gi")


def _backlog(first: int, count: int) -> Iterator[Document]:
    """Yield pods of one CPU for the two schedulers in turn."""
    for number in range(first, first + count):
        yield pod(number, {"schedulerName": (_FIRST, _SECOND)[number % 2]}, cpu_milli=1000)


def share(plane: ControlPlane, beside: str, situation: str, nodes: int, repetition: int = 0) -> Outcome:
    """Run both schedulers on the same nodes, and count.

    Args:
        plane: A control plane without nodes, pods and schedulers; it is not cleaned up.
    """
    port = probes.free_port()
    with ApiClient(plane) as api:
        room = nodes * SLOTS
        if situation != BACKLOG:
            api.create_all(_node(number) for number in range(nodes))
        start_kube_scheduler(plane, _SECOND)
        if beside == BAYPLAN:
            start_bayplan(plane, _FIRST, port)
        else:
            start_kube_scheduler(plane, _FIRST, program="another-kube-scheduler")
        if situation == ARRIVALS:
            for first in range(0, room + room // 2, 2 * SLOTS):
                api.create_all(_backlog(first, 2 * SLOTS))
        elif situation == BACKLOG:
            api.create_all(_backlog(0, 2 * room))
            for number in range(nodes):
                api.create(_node(number))
        else:
            api.create_all(_backlog(0, 2 * room))
            _until_quiet(api, room)
            _replace(api, room // 4, 2 * room)
        _until_quiet(api, room)
        listed = api.items(PODS_PATH)
        used = Counter(pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName"))
        by_scheduler = Counter(pod["spec"]["schedulerName"] for pod in listed if pod["spec"].get("nodeName"))
        return Outcome(
            beside,
            situation,
            nodes,
            repetition,
            len(overcommitted(api.items(NODES_PATH), listed)),
            sum(max(0, count - SLOTS) for count in used.values()),
            _reported(port) if beside == BAYPLAN else -1,
            (by_scheduler[_FIRST], by_scheduler[_SECOND]),
            round(os.getloadavg()[0], 1),
        )


def _replace(api: ApiClient, count: int, next_number: int) -> None:
    """Delete bound pods one by one, so that both schedulers compete for each place, and create as many."""
    bound = [pod for pod in api.items(PODS_PATH) if pod["spec"].get("nodeName")]
    for number, each in enumerate(bound[:count]):
        api.delete({**each, "apiVersion": "v1", "kind": "Pod"}, grace_seconds=0)
        api.create_all(_backlog(next_number + number, 1))


def _until_quiet(api: ApiClient, room: int) -> None:
    """Wait until the nodes are full and no pod has been bound for a while."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    bound, since = -1, time.monotonic()
    while time.monotonic() - since < _QUIET_SECONDS or bound < room:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{bound} pods are bound after {_LIMIT_SECONDS:g} s; there is room for {room}")
        time.sleep(0.2)
        count = sum(1 for pod in api.items(PODS_PATH) if pod["spec"].get("nodeName"))
        if count != bound:
            bound, since = count, time.monotonic()


def _reported(port: int) -> int:
    """Return the pods of rivals that have overcommitted nodes, according to Bayplan's metrics."""
    metrics = Metrics(probes.fetch(f"http://{probes.LOOPBACK}:{port}/metrics"))
    return int(metrics.total("bayplan_rival_overcommits_total"))


def _measured(beside: str, situation: str, nodes: int, repetition: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Options(state_dir=Path(folder) / "plane")) as plane:
        return share(plane, beside, situation, nodes, repetition)


_COLUMNS: Mapping[str, Callable[[Outcome], object]] = {
    "beside kube-scheduler": lambda each: each.beside,
    "situation": lambda each: each.situation,
    "nodes": lambda each: each.nodes,
    "pods too many": lambda each: each.pods_too_many,
    "on nodes": lambda each: each.overcommitted_nodes,
    "reported": lambda each: "-" if each.reported < 0 else each.reported,
    "bound": lambda each: " + ".join(map(str, each.bound)),
    "load": lambda each: f"{each.load:g}",
}


def main() -> None:
    parser = command_line(__doc__, nodes=100, repetitions=1)
    parser.add_argument("--situation", choices=SITUATIONS, action="append", help="default: all")
    parser.add_argument("--beside", choices=PAIRS, action="append", help="default: both")
    add_output(parser, "shared-nodes.jsonl")
    arguments = parser.parse_args()
    turns = [
        (turn, partial(_measured, *turn))
        for repetition in range(arguments.repetitions)
        for situation in arguments.situation or SITUATIONS
        for beside in arguments.beside or PAIRS
        for turn in [(beside, situation, arguments.nodes, repetition)]
    ]
    try:
        outcomes = ResultLines(arguments.results, Outcome).complete(
            turns,
            lambda each: (each.beside, each.situation, each.nodes, each.repetition),
            lambda each: (
                f"{each.beside} beside kube-scheduler, {each.situation}: {each.pods_too_many} pods too many on "
                f"{each.overcommitted_nodes} nodes, load {each.load}"
            ),
        )
    except UnreadableResultsError as error:
        sys.exit(str(error))
    report(arguments.output, outcomes, lambda: Console().print(table_of("", outcomes, _COLUMNS, len(_COLUMNS))))


if __name__ == "__main__":
    main()
