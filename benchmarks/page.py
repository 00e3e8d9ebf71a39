"""Measure the cost of the page: CPU time and bytes by number of viewers, on a large cluster in memory.

    make bench-page                                         # 5,000 nodes, 50,000 pods, 10,000 of them pending
    make bench-page QUICK=1
    python -m benchmarks.page --nodes 1000 --pods 10000 --viewers 0,1

The scheduler, the documents, the HTTP server and its connections are those of the operator; the cluster is in memory.
Pods on nodes are replaced at a steady rate. Viewers are another process, which reads all panels. CPU time is that of
the serving process, so compare it with the time without viewers.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec
from bayplan.explanation.building import explain_pod
from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.introspection.status_building import profile_states
from bayplan.kube.leader_election import LeaderState
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.kube.timing import SystemClock
from bayplan.kube.writes.api_dispatcher import WriteMetrics
from bayplan.page.page_documents import PageDocuments
from bayplan.page.page_sources import PageSources, Turns
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer
from bayplan.serving.served_page import PageAccess, PageEndpoints
from bayplan.simulation.memory_cluster import MemoryCluster
from prometheus_client import CollectorRegistry
from rich.console import Console

from benchmarks.core_drain import decoded_node, decoded_pod
from benchmarks.harness import DEFAULT_FOLDER, ResultLines, command_line, table_of
from benchmarks.workloads import SCHEDULER_NAME, Document, node, placed, pod
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts

_CAUSES = 20
_FIRST_PENDING = 1_000_000
_CHANGES_PER_SECOND = 200
_TICK_SECONDS = 0.05
_WARM_UP_SECONDS = 10.0
_VIEWER = "--read"


class Result(msgspec.Struct, frozen=True):
    """Result with one number of viewers.

    Attributes:
        changes_per_second: Replaced pods per second; less than intended on a busy machine.
        page_percent: CPU time of building documents, in percent of a core.
        bytes_per_second: Bytes per second that one viewer received, after the first documents.
        longest_ms: Maximum CPU time of one slice of building a document; a dry run is one slice.
    """

    nodes: int
    pods: int
    viewers: int
    changes_per_second: float
    cpu_percent: float
    page_percent: float
    bytes_per_second: float
    first_bytes: float
    longest_ms: float


class CpuTurns(Turns):
    """Slices measured in CPU time, which excludes other processes of the machine."""

    def begin(self) -> None:
        super().begin()
        self._cpu = time.thread_time()

    def end(self) -> None:
        super().end()
        seconds = time.thread_time() - self._cpu
        self.cpu_spent += seconds
        self.cpu_longest = max(self.cpu_longest, seconds)

    cpu_spent = cpu_longest = _cpu = 0.0


class World:
    """A cluster in memory with its scheduler and its page.

    Args:
        pods: Number of pods, a fifth of them pending.
    """

    def __init__(self, nodes: int, pods: int, viewers: int) -> None:
        clock, history = SystemClock(), AttemptHistory()
        # Pods are not retried by the periodic flush, so that all measurements have the same load.
        options = SchedulerOptions(max_unschedulable_seconds=math.inf)
        self._cluster = cluster = MemoryCluster()
        self.scheduler = Scheduler(clock, cluster, options, ports=SchedulerPorts(attempts=history))
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name=SCHEDULER_NAME))])
        cluster.watch(self.scheduler.feed)
        self._names = [f"node-{number:05d}" for number in range(nodes)]
        for number in range(nodes):
            self.scheduler.feed.node_added(decoded_node(node(number)))
        running = pods * 4 // 5
        self._running = [self._place(number) for number in range(running)]
        self._numbers = itertools.count(running)
        self._changes = 0
        for number in range(pods - running):
            cluster.add_pod(decoded_pod(_pending(number)))
        context = self.scheduler.context
        sources = PageSources(
            scheduler=self.scheduler,
            readiness=Readiness(()),
            clock=clock,
            started=clock.now(),
            attempts=history,
            writes=WriteMetrics(clock),
            find_pod=self._find,
            explain_pod=self._explain,
            explain_gang=_no_gang,
            profile_states=lambda: profile_states(context, lambda _: ()),
            profile_readings=lambda: None,
            server=ServerSupport,
        )
        self.documents = PageDocuments(sources, viewers)
        self.turns = self.documents.stream.turns = CpuTurns(clock)
        page = PageEndpoints(
            documents=self.documents,
            assets={},
            access=PageAccess(None),
            readiness=sources.readiness,
            leader=lambda: LeaderState(is_standby=False),
            is_suspended=lambda: False,
        )
        listener = Listener(("127.0.0.1", 0))
        self.server = HealthServer(
            listener, sources.readiness, CollectorRegistry(), page.routes, background=self.documents
        )

    @property
    def changes(self) -> int:
        return self._changes

    async def change(self) -> None:
        for turn in itertools.count():
            await asyncio.sleep(_TICK_SECONDS)
            for change in range(int(_CHANGES_PER_SECOND * _TICK_SECONDS)):
                position = (turn * 7919 + change) % len(self._running)
                self._cluster.remove_pod(self._running[position])
                self._running[position] = self._place(next(self._numbers))
                self._changes += 1

    def _place(self, number: int) -> Pod:
        made = decoded_pod(placed(number, self._names[(number * 31) % len(self._names)]))
        self._cluster.add_pod(made)
        return made

    def _find(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        return self._cluster.pod(namespace, name)

    def _explain(self, namespace: str, name: str) -> Explanation | None:
        found = self._cluster.pod(namespace, name)
        return None if found is None else explain_pod(self.scheduler, found)


def _no_gang(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
    del namespace, name, source
    return None


def _pending(number: int) -> Document:
    """Make a pending pod: half of these pods match no node, the others have one of ten scheduling gates."""
    cause = number % _CAUSES
    spec: Document = {"schedulingGates": [{"name": f"example.com/gate-{cause}"}]}
    if cause < _CAUSES // 2:
        spec = {"nodeSelector": {"missing": "label"}}
    return pod(_FIRST_PENDING + number, spec, cpu_milli=1000 + cause)


async def measure(nodes: int, pods: int, counts: Sequence[int], seconds: float) -> list[Result]:
    world = World(nodes, pods, max(*counts, 1))
    scheduling = asyncio.create_task(world.scheduler.run())
    changing = asyncio.create_task(world.change())
    await world.server.start()
    await world.scheduler.until_idle()
    # As the operator does once its caches are complete.
    gc.freeze()
    results = [await _measure(world, (nodes, pods), count, seconds) for count in counts]
    changing.cancel()
    await world.server.stop()
    scheduling.cancel()
    await asyncio.gather(scheduling, changing, return_exceptions=True)
    await world.scheduler.stop(1.0)
    return results


async def _measure(world: World, size: tuple[int, int], viewers: int, seconds: float) -> Result:
    url = f"http://127.0.0.1:{world.server.port}/page/events"
    command = [sys.executable, "-m", "benchmarks.page", _VIEWER, url, str(viewers), str(_WARM_UP_SECONDS), str(seconds)]
    reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(_WARM_UP_SECONDS)
    turns = world.turns
    turns.cpu_longest, began, cpu, spent = 0.0, time.monotonic(), time.process_time(), turns.cpu_spent
    changes = world.changes
    await asyncio.sleep(seconds)
    elapsed = time.monotonic() - began
    cpu_percent = 100 * (time.process_time() - cpu) / elapsed
    page_percent = 100 * (turns.cpu_spent - spent) / elapsed
    longest = turns.cpu_longest
    output, _ = await reader.communicate()
    first, rate = json.loads(output)
    changed = (world.changes - changes) / elapsed
    return Result(*size, viewers, changed, cpu_percent, page_percent, rate, first, 1000 * longest)


async def _read(url: str, viewers: int, warm_up: float, seconds: float) -> tuple[float, float]:
    """Return the bytes before and the bytes per second after the warm-up, on average over the viewers."""
    received = [0] * viewers

    async def follow(number: int) -> None:
        async with session.get(url) as answer:
            async for chunk in answer.content.iter_any():
                received[number] += len(chunk)

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        tasks = [asyncio.create_task(follow(number)) for number in range(viewers)]
        await asyncio.sleep(warm_up)
        first = sum(received)
        await asyncio.sleep(seconds)
        rate = (sum(received) - first) / seconds
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return first / max(viewers, 1), rate / max(viewers, 1)


_COLUMNS: Mapping[str, Callable[[Result], object]] = {
    "viewers": lambda each: each.viewers,
    "changes/s": lambda each: f"{each.changes_per_second:,.1f}",
    "CPU %": lambda each: f"{each.cpu_percent:,.1f}",
    "documents %": lambda each: f"{each.page_percent:,.1f}",
    "first bytes": lambda each: f"{each.first_bytes:,.1f}",
    "bytes/s per viewer": lambda each: f"{each.bytes_per_second:,.1f}",
    "longest turn ms": lambda each: f"{each.longest_ms:,.1f}",
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [_VIEWER]:
        received = asyncio.run(_read(given[1], int(given[2]), float(given[3]), float(given[4])))
        sys.stdout.write(json.dumps(received))
        return 0
    parser = command_line(__doc__, nodes=5000, pods=50_000, seconds=30.0)
    parser.add_argument("--viewers", default="0,1,10", help="Numbers of viewers, separated by commas")
    parser.add_argument("--quick", action="store_true", help="500 nodes, 5,000 pods, 5 seconds")
    parser.add_argument("--results", type=Path, default=DEFAULT_FOLDER / "page.jsonl")
    options = parser.parse_args(given)
    if options.quick:
        options.nodes, options.pods, options.seconds = 500, 5000, 5.0
    counts = [int(each) for each in options.viewers.split(",")]
    found = asyncio.run(measure(options.nodes, options.pods, counts, options.seconds))
    for each in found:
        ResultLines(options.results, Result).add(each)
    Console().print(table_of("", found, _COLUMNS, len(_COLUMNS)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
