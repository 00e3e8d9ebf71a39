"""Measure fit requests while a backlog is bound, and what they cost the backlog, in the core and over real HTTP.

    python -m benchmarks.fit_latency                        # 5,000 nodes, a gang of 1,000, five pairs of phases a case
    python -m benchmarks.fit_latency --nodes 1000 --members 200 --pairs 2
    python -m benchmarks.fit_latency --cases pod,gang

A scheduler in a cluster in memory binds pods of a backlog that never ends. For each case, phases with and without fit
requests alternate; another process sends the requests one after another, with pauses, so that the share of the time for
fit requests is not used up. Latencies are those that this client measures. Binds are counted by wall-clock time, and by
CPU time of the scheduler's process: on a busy machine only the second is comparable. The pods of the backlog use
memory, and are deleted after they are bound; three quarters of the CPUs of each node are in use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from bayplan.kube.readiness import Readiness
from bayplan.process.copies import BackgroundDocuments, ForkedSearches
from bayplan.serving import FIT_PATH
from bayplan.serving.authorization import Handler
from bayplan.serving.deferred_server import Listener
from bayplan.serving.fit_endpoint import FitEndpoint, FitSources
from bayplan.serving.http_server import HealthServer
from bayplan.simulation.memory_cluster import MemoryCluster
from prometheus_client import CollectorRegistry
from rich.console import Console

from benchmarks.harness import add_output, command_line, percentile, report, table_of
from benchmarks.long_searches import SCHEDULER_NAME, scheduler_in
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupSource
from scheduler_core.ports import Binding, Event
from tests.support.builders import pod

_CPUS, _CPUS_IN_USE = 4, 3
_PENDING = 200
"""Pods of the backlog that wait at a time."""
_BOUND = 2000
"""Bound pods of the backlog that exist at a time."""
_GROUP = "fit"


@dataclass(frozen=True, slots=True)
class Case:
    """A request that is repeated.

    Attributes:
        cpu: CPUs of each pod.
        count: Number of pods; of a gang if more than one.
        pause: Seconds between two requests.
    """

    title: str
    cpu: int
    count: int
    priority: int
    pause: float

    def body(self) -> bytes:
        """Return the body of the request."""
        of_gang = {POD_GROUP_LABELS[GroupSource.BAYPLAN]: _GROUP} if self.count > 1 else {}
        containers = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": str(self.cpu)}}}]
        template = {
            "metadata": {"labels": of_gang},
            "spec": {
                "containers": containers,
                "schedulerName": SCHEDULER_NAME,
                "priority": self.priority,
                "restartPolicy": "Never",
            },
        }
        if self.count == 1:
            objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Pod", **template}]
            objects[0]["metadata"] = {"name": "fit"}
        else:
            group = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": _GROUP}}
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fit"}}
            counts = {"parallelism": self.count, "completions": self.count}
            objects = [{**group, "spec": {"minMember": self.count}}, {**job, "spec": {**counts, "template": template}}]
        return json.dumps({"objects": objects}).encode()


def _cases(members: int) -> dict[str, Case]:
    return {
        "pod": Case("a pod that fits", 1, 1, 0, 0.25),
        "nowhere": Case("a pod for which no node has room now", _CPUS, 1, 0, 0.25),
        "evicts": Case("a pod that evicts others", _CPUS, 1, 10, 0.5),
        "gang": Case(f"a gang of {members:,} that fits", 1, members, 0, 1.5),
        "gang-nowhere": Case(f"a gang of {members:,} for which no node has room now", _CPUS, members, 0, 1.5),
    }


@dataclass(frozen=True, slots=True)
class Measured:
    """What one case measured.

    Attributes:
        requests: Number of responses.
        verdicts: Verdicts of the responses.
        p50: Latency in milliseconds.
        p99: Latency in milliseconds.
        binds: Binds by second without requests.
        copy_p50: CPU time of the copy of the process that made the answer, in milliseconds; 0 if none was made.
        copy_p99: The same.
        lost_by_wall: Share of the binds by second that phases with requests lose, in percent; negative if they gain.
        lost_by_cpu: The same of the binds by CPU second of the scheduler's process.
    """

    case: str
    requests: int
    verdicts: tuple[str, ...]
    p50: float
    p99: float
    copy_p50: float
    copy_p99: float
    binds: float
    lost_by_wall: float
    lost_by_cpu: float


class Backlog(MemoryCluster):
    """A cluster in memory whose backlog never ends.

    Attributes:
        bound: Number of binds so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bound = 0
        self._created = 0
        self._pending = 0
        self._running: deque[str] = deque()

    def fill(self) -> None:
        """Create pods until as many as wanted wait."""
        while self._pending < _PENDING:
            self._created += 1
            self._pending += 1
            self.add_pod(pod(f"backlog-{self._created}", requests={"memory": "1Mi"}))

    def record(self, event: Event) -> None:
        """Drop the event: each full garbage collection would walk all of them."""
        del event
        self.writes += 1

    async def bind(self, binding: Binding) -> None:
        """Bind a pod, create the next one, and delete an older one."""
        await super().bind(binding)
        self.bound += 1
        self._pending -= 1
        self._running.append(binding.name)
        if len(self._running) > _BOUND:
            oldest = self.pod(binding.namespace, self._running.popleft())
            assert oldest is not None, "nothing else deletes pods of the backlog"
            self.remove_pod(oldest)
        self.fill()


def _of_children() -> float:
    """Return the CPU time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True, slots=True)
class Phase:
    """Binds of a phase by second of wall-clock time, and by second of CPU time."""

    by_wall: float
    by_cpu: float


class Run:
    """A scheduler with a backlog, which serves fit requests."""

    def __init__(self, nodes: int) -> None:
        self.world = Backlog()
        self._documents = ForkedSearches()
        self.copy_times: list[float] = []
        """CPU time of copies during each request, in milliseconds."""
        self.scheduler = scheduler_in(self.world, nodes, ForkedSearches(), size=(_CPUS, _CPUS_IN_USE))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Schedule and serve; yields the port."""
        readiness, context = Readiness(()), self.scheduler.context
        documents = BackgroundDocuments(context, self._documents)

        async def classes() -> list[dict[str, Any]]:
            return []

        sources = FitSources(self.scheduler, readiness, lambda: context.suspension.is_on, classes, documents)
        listener = Listener(("127.0.0.1", 0))
        routes = [web.post(each.path, self._timed(each.handler)) for each in FitEndpoint(sources).routes]
        server = HealthServer(listener, readiness, CollectorRegistry(), routes)
        await server.start()
        running = asyncio.create_task(self.scheduler.run())
        self.world.fill()
        try:
            yield server.port
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await server.stop()

    def _timed(self, handler: Any) -> Handler:
        async def timed(request: web.Request) -> web.StreamResponse:
            before = _of_children()
            response: web.StreamResponse = await handler(request)
            self.copy_times.append(1000 * (_of_children() - before))
            return response

        return timed

    async def phase(self, seconds: float) -> Phase:
        """Count the binds of some seconds."""
        bound, wall, cpu = self.world.bound, time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        count = self.world.bound - bound
        return Phase(count / (time.monotonic() - wall), count / (time.process_time() - cpu))


async def _measure(run: Run, port: int, name: str, case: Case, arguments: argparse.Namespace) -> Measured:
    options = ("--client", str(port), "--cases", name, "--members", str(arguments.members))
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.fit_latency", *options,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    latencies, verdicts, pairs = list[float](), set[str](), list[tuple[Phase, Phase]]()
    await client.stdout.readline()
    for number in range(arguments.pairs + 1):
        without = await run.phase(arguments.seconds)
        client.stdin.write(f"{arguments.seconds}\n".encode())
        beside = await run.phase(arguments.seconds)
        found = json.loads(await client.stdout.readline())
        if number:
            # The first pair imports modules and fills caches.
            pairs.append((without, beside))
            latencies += found["latencies"]
            verdicts |= set(found["verdicts"])
    copies = run.copy_times[-len(latencies) :]
    client.stdin.close()
    await client.wait()
    return Measured(
        case.title,
        len(latencies),
        tuple(sorted(verdicts)),
        *_percentiles(latencies),
        *_percentiles(copies),
        round(statistics.median(without.by_wall for without, _ in pairs)),
        _lost((without.by_wall, beside.by_wall) for without, beside in pairs),
        _lost((without.by_cpu, beside.by_cpu) for without, beside in pairs),
    )


def _percentiles(values: list[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    return round(statistics.median(values), 1), round(percentile(sorted(values), 0.99), 1)


def _lost(pairs: Iterator[tuple[float, float]]) -> float:
    return round(statistics.median(100 * (1 - beside / without) for without, beside in pairs), 1)


async def _client(port: int, case: Case) -> None:
    """Send requests for as many seconds as each line of the standard input has, and write what was measured."""
    url, body = f"http://127.0.0.1:{port}{FIT_PATH}", case.body()
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:
        print(flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            latencies, verdicts, until = list[float](), set[str](), time.monotonic() + float(line)
            while time.monotonic() < until:
                began = time.monotonic()
                async with session.post(url, data=body) as response:
                    found = await response.json()
                latencies.append(1000 * (time.monotonic() - began))
                verdicts.add(found.get("verdict") or f"{response.status} {found.get('error')}")
                await asyncio.sleep(case.pause)
            print(json.dumps({"latencies": latencies, "verdicts": sorted(verdicts)}), flush=True)


async def _run(arguments: argparse.Namespace) -> list[Measured]:
    cases = _cases(arguments.members)
    run = Run(arguments.nodes)
    found = []
    async with run.serving() as port:
        await run.phase(1.0)
        for name in arguments.cases.split(","):
            found.append(await _measure(run, port, name, cases[name], arguments))
            print(f"{name} measured", file=sys.stderr)
    return found


_COLUMNS: Mapping[str, Callable[[Measured], object]] = {
    "case": lambda each: each.case,
    "requests": lambda each: each.requests,
    "p50 ms": lambda each: each.p50,
    "p99 ms": lambda each: each.p99,
    "copy CPU p50": lambda each: each.copy_p50,
    "p99": lambda each: each.copy_p99,
    "binds/s alone": lambda each: f"{each.binds:,.0f}",
    "binds/s lost": lambda each: f"{each.lost_by_wall} %",
    "by CPU time": lambda each: f"{each.lost_by_cpu} %",
    "verdicts": lambda each: ", ".join(each.verdicts),
}


def main() -> None:
    parser = command_line(__doc__, nodes=5000, members=1000, pairs=5, seconds=10.0)
    parser.add_argument("--cases", default=",".join(_cases(0)), help="the cases to measure, separated by commas")
    parser.add_argument("--client", type=int, default=0, help=argparse.SUPPRESS)
    add_output(parser)
    arguments = parser.parse_args()
    if arguments.client:
        asyncio.run(_client(arguments.client, _cases(arguments.members)[arguments.cases]))
        return
    # On a busy machine cycles take long by wall-clock time.
    logging.getLogger("scheduler_core").setLevel(logging.ERROR)
    found = asyncio.run(_run(arguments))
    report(
        arguments.output,
        found,
        lambda: Console(width=150).print(table_of("Fit requests beside a backlog", found, _COLUMNS)),
    )


if __name__ == "__main__":
    main()
