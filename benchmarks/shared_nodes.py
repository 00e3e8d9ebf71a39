"""Counts the pods too many on nodes that two busy schedulers share, Bayplan or kube-scheduler beside kube-scheduler.

Each scheduler gets half of the pods. Nodes have room for a few pods each, and there are more pods than room in all, so
that both schedulers compete for the last places. kube-scheduler has default settings without a rate limit.

Results depend on the load of the machine, which is reported: compare runs at equal load.

    python -m benchmarks.shared_nodes --nodes 100 --repetitions 5
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import ResultLines, UnreadableResultsError, add_output, command_line, report
from hack.controlplane import binaries, probes
from hack.controlplane.accounts import overcommitted
from hack.controlplane.api_client import ApiClient, Manifest
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
_NAMESPACE = "default"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
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


def node(number: int) -> Manifest:
    """Return a node with room for :data:`SLOTS` pods."""
    amounts = {"cpu": str(SLOTS), "memory": "64Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number:04d}"}, "status": status}


def pods(first: int, count: int) -> Iterator[Manifest]:
    """Yield pods of one CPU for the two schedulers in turn."""
    for number in range(first, first + count):
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number:06d}", "namespace": _NAMESPACE},
            "spec": {"schedulerName": (_FIRST, _SECOND)[number % 2], "containers": [container]},
        }


def share(plane: ControlPlane, beside: str, situation: str, nodes: int, repetition: int = 0) -> Outcome:
    """Run both schedulers on the same nodes, and count.

    Args:
        plane: A control plane without nodes, pods and schedulers; it is not cleaned up.
    """
    port = probes.free_port()
    with closing(ApiClient(plane)) as api:
        room = nodes * SLOTS
        if situation != BACKLOG:
            api.create_all(node(number) for number in range(nodes))
        start_kube_scheduler(plane, _SECOND)
        if beside == BAYPLAN:
            start_bayplan(plane, _FIRST, port)
        else:
            _start_another_kube_scheduler(plane, _FIRST)
        if situation == ARRIVALS:
            for first in range(0, room + room // 2, 2 * SLOTS):
                api.create_all(pods(first, 2 * SLOTS))
        elif situation == BACKLOG:
            api.create_all(pods(0, 2 * room))
            for number in range(nodes):
                api.create(node(number))
        else:
            api.create_all(pods(0, 2 * room))
            _until_quiet(api, room)
            _replace(api, room // 4, 2 * room)
        _until_quiet(api, room)
        listed = api.items(_PODS)
        used = Counter(pod["spec"]["nodeName"] for pod in listed if pod["spec"].get("nodeName"))
        by_scheduler = Counter(pod["spec"]["schedulerName"] for pod in listed if pod["spec"].get("nodeName"))
        return Outcome(
            beside,
            situation,
            nodes,
            repetition,
            len(overcommitted(api.items("/api/v1/nodes"), listed)),
            sum(max(0, count - SLOTS) for count in used.values()),
            _reported(port) if beside == BAYPLAN else -1,
            (by_scheduler[_FIRST], by_scheduler[_SECOND]),
            round(os.getloadavg()[0], 1),
        )


def _replace(api: ApiClient, count: int, next_number: int) -> None:
    """Delete bound pods one by one, so that both schedulers compete for each place, and create as many."""
    bound = [pod for pod in api.items(_PODS) if pod["spec"].get("nodeName")]
    for number, pod in enumerate(bound[:count]):
        api.delete({**pod, "apiVersion": "v1", "kind": "Pod"}, grace_seconds=0)
        for each in pods(next_number + number, 1):
            api.create(each)


def _until_quiet(api: ApiClient, room: int) -> None:
    """Wait until the nodes are full and no pod has been bound for a while."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    bound, since = -1, time.monotonic()
    while time.monotonic() - since < _QUIET_SECONDS or bound < room:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{bound} pods are bound after {_LIMIT_SECONDS:g} s; there is room for {room}")
        time.sleep(0.2)
        count = sum(1 for pod in api.items(_PODS) if pod["spec"].get("nodeName"))
        if count != bound:
            bound, since = count, time.monotonic()


def _reported(port: int) -> int:
    """Return the pods of rivals that have overcommitted nodes, according to Bayplan's metrics."""
    with closing(urllib.request.urlopen(f"http://{probes.LOOPBACK}:{port}/metrics", timeout=30)) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("bayplan_rival_overcommits_total{")
    )


def _start_another_kube_scheduler(plane: ControlPlane, name: str) -> None:
    directory = plane.state_dir / "another-kube-scheduler"
    directory.mkdir()
    config, port = directory / "config.yaml", probes.free_port()
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.kubeconfig), "qps": 50_000, "burst": 100_000},
        "profiles": [{"schedulerName": name}],
    }
    config.write_text(json.dumps(document))
    program = binaries.resolve([KUBE_SCHEDULER], plane.options.kubernetes)[KUBE_SCHEDULER]
    flags = (
        f"--config={config}",
        f"--authentication-kubeconfig={plane.kubeconfig}",
        f"--authorization-kubeconfig={plane.kubeconfig}",
        f"--bind-address={probes.LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={directory}",
    )
    certificate = directory / "kube-scheduler.crt"
    plane.start_program(
        "another-kube-scheduler", [str(program), *flags], lambda: probes.https_ok(port, "/readyz", certificate)
    )


def _measured(beside: str, situation: str, nodes: int, repetition: int) -> Callable[[], Outcome]:
    def run() -> Outcome:
        with tempfile.TemporaryDirectory() as folder, ControlPlane(Options(state_dir=Path(folder) / "plane")) as plane:
            return share(plane, beside, situation, nodes, repetition)

    return run


def _key(outcome: Outcome) -> tuple[str, str, int, int]:
    return outcome.beside, outcome.situation, outcome.nodes, outcome.repetition


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.beside} beside kube-scheduler, {outcome.situation}: {outcome.pods_too_many} pods too many on "
        f"{outcome.overcommitted_nodes} nodes, load {outcome.load}"
    )


def show(outcomes: Iterable[Outcome]) -> None:
    table = Table(
        "beside kube-scheduler", "situation", "nodes", "pods too many", "on nodes", "reported", "bound", "load"
    )
    for each in outcomes:
        reported = "-" if each.reported < 0 else str(each.reported)
        bound = " + ".join(map(str, each.bound))
        table.add_row(
            each.beside,
            each.situation,
            str(each.nodes),
            str(each.pods_too_many),
            str(each.overcommitted_nodes),
            reported,
            bound,
            f"{each.load:g}",
        )
    Console().print(table)


def main() -> None:
    parser = command_line(__doc__, nodes=100, repetitions=1)
    parser.add_argument("--situation", choices=SITUATIONS, action="append", help="default: all")
    parser.add_argument("--beside", choices=PAIRS, action="append", help="default: both")
    add_output(parser, "shared-nodes.jsonl")
    arguments = parser.parse_args()
    turns = [
        ((beside, situation, arguments.nodes, repetition), _measured(beside, situation, arguments.nodes, repetition))
        for repetition in range(arguments.repetitions)
        for situation in arguments.situation or SITUATIONS
        for beside in arguments.beside or PAIRS
    ]
    try:
        outcomes = ResultLines(arguments.results, Outcome).complete(turns, _key, _line)
    except UnreadableResultsError as error:
        sys.exit(str(error))
    report(arguments.output, outcomes, lambda: show(outcomes))


if __name__ == "__main__":
    main()
