"""Measure how much long searches delay other pods, in the core alone: in the background, and with the state frozen.

    python -m benchmarks.long_searches      # 5,000 nodes, a gang of 1,000 that preempts, an explanation of 700 members
    python -m benchmarks.long_searches --nodes 1000 --members 200 --explained 150
    python -m benchmarks.long_searches --cases claim,exhausted
    python -m benchmarks.long_searches --cases plan --moves 0      # a plan of moves without a limit

Pods arrive at a steady rate in a full cluster with room for them alone; each case begins a search and measures the pods
until it has ended. Delays are from the arrival of a pod to its bind, by the wall clock and by the CPU time of the
scheduler's process; a copy of the process has CPU time of its own. A turn is what the process does between two turns of
the event loop. On a busy machine only CPU times are comparable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
from bayplan.explanation.building import explain_gang
from bayplan.kube.timing import SystemClock
from bayplan.process.copies import BackgroundDocuments, Document, ForkedSearches
from bayplan.process.garbage_collection import CollectorPause
from bayplan.rebalancing.plan_documents import plan_document
from bayplan.simulation.memory_cluster import MemoryCluster
from rich.console import Console

from benchmarks.harness import add_output, command_line, percentile, report, table_of
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from scheduler_core.ports import Binding
from scheduler_core.rebalance.requests import Consolidate, Limits, RebalanceRequest
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from tests.support.builders import node, pod
from tests.support.devices import DRIVER, claim, device, device_class, exactly, slice_of, using
from tests.support.rebalancing import movable

SCHEDULER_NAME = "default-scheduler"
_PODS_PER_SECOND = 50.0
_PER_NODE = 4
_MOVABLE_PER_NODE, _CPUS_OF_MOVABLE = 10, 16
_PLAN_STEPS = 100_000_000
_QUIET_SECONDS = 6.0
_UUID = f'device.attributes["{DRIVER}"].uuid'
_TENS = "[1,2,3,4,5,6,7,8,9,10]"


@dataclass(frozen=True, slots=True)
class Delays:
    """What one case measured; times in milliseconds.

    Attributes:
        seconds: Duration of the search.
        pods: Number of pods that were bound meanwhile.
        longest_turn: CPU time between two turns of the event loop.
        longest_fork: Time of the longest fork so far.
        used: Results of copies that were used.
        outdated: Results of copies that did not hold any more, so that the search was made again.
    """

    case: str
    seconds: float
    pods: int
    wall_p50: float
    wall_p99: float
    cpu_p50: float
    cpu_p99: float
    longest_turn: float
    longest_fork: float
    used: int
    outdated: int


@dataclass
class Measured(MemoryCluster):
    """Cluster in memory that measures the delays of binds."""

    arrived: dict[str, tuple[float, float]] = field(default_factory=dict)
    delays: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def arrive(self, name: str) -> None:
        """Create a pod that fits on any node."""
        self.arrived[name] = time.monotonic(), time.process_time()
        self.add_pod(pod(name, requests={"memory": "1Mi"}))

    async def bind(self, binding: Binding) -> None:
        """Bind a pod."""
        began = self.arrived.pop(binding.name, None)
        if began is not None:
            self.delays.append((time.monotonic() - began[0], time.process_time() - began[1]))
        await super().bind(binding)


def scheduler_in(
    world: MemoryCluster,
    nodes: int,
    processes: ForkedSearches | None,
    running: Callable[..., Pod] = pod,
    size: tuple[int, int] = (_PER_NODE, _PER_NODE),
) -> Scheduler:
    """Return a scheduler with nodes that run pods of one CPU.

    Args:
        running: Makes such a pod.
        size: CPUs of a node, and pods that run on it.
    """
    ports = SchedulerPorts(storage=world.storage, claims=world.claims, processes=processes)
    scheduler = Scheduler(SystemClock(), world, SchedulerOptions(), ports=ports)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name=SCHEDULER_NAME))])
    world.watch(scheduler.feed)
    scheduler.group_feed.serve(GroupSource.BAYPLAN)
    cpus, count = size
    for number in range(nodes):
        allocatable = {"cpu": str(cpus), "memory": "64Gi", "pods": "110"}
        scheduler.feed.node_added(node(f"n{number}", allocatable=allocatable))
        for each in range(count):
            world.add_pod(running(f"low-{number}-{each}", node_name=f"n{number}", requests={"cpu": "1"}))
    # As the operator does when its lists are complete: a full collection would walk the whole cluster.
    CollectorPause().freeze()
    return scheduler


class Run:
    """A scheduler in a cluster, and pods that arrive.

    Args:
        is_full: Whether no node has room for a further CPU; otherwise most nodes can be emptied.
    """

    def __init__(self, nodes: int, *, in_background: bool, is_full: bool = True) -> None:
        self.world = Measured()
        self.searches = ForkedSearches() if in_background else None
        self.documents = ForkedSearches() if in_background else None
        not_full = () if is_full else (movable, (_CPUS_OF_MOVABLE, _MOVABLE_PER_NODE))
        self.scheduler = scheduler_in(self.world, nodes, self.searches, *not_full)
        self._count = 0
        self.longest_turn = 0.0

    async def gang(self, name: str, members: int, priority: int, cpu_milli: Callable[[int], int]) -> GroupKey:
        """Create a gang."""
        key = GroupKey(GroupSource.BAYPLAN, "default", name)
        self.scheduler.group_feed.group_changed(PodGroup(key, f"uid-{name}", members, priority=priority))
        for number in range(members):
            made: Pod = pod(
                f"{name}-{number}",
                labels={POD_GROUP_LABELS[GroupSource.BAYPLAN]: name},
                priority=priority,
                requests={"cpu": f"{cpu_milli(number)}m"},
            )
            self.world.add_pod(made)
            # Pods of a gang do not arrive in one turn.
            await asyncio.sleep(0)
        return key

    def add_devices(self, nodes: int, devices: int) -> None:
        """Publish devices of each node."""
        feed = self.scheduler.device_feed
        self.world.claims.serve([device_class()], feed)
        for number in range(nodes):
            published = [
                device(f"d{each}", attributes={"uuid": {"string": f"u{number}-{each}"}}) for each in range(devices)
            ]
            feed.added(slice_of(published, node=f"n{number}"))
        CollectorPause().freeze()

    async def index_devices(self, sizes: Sizes) -> None:
        """Publish the devices, and schedule a pod with a claim, whose search reads all slices once."""
        if self.world.pod("ns", "first") is not None:
            return
        self.add_devices(sizes.nodes, sizes.devices)
        await self.claimant("first")
        await self.until(lambda: self.is_bound("ns", "first"))

    async def claimant(self, name: str, *selectors: str) -> QueuedPod:
        """Create a pod with a claim for a device, and return it in the queue."""
        made = claim(exactly("r", *selectors), name=f"{name}-claim")
        self.world.claims.serve([made], self.scheduler.device_feed)
        user = pod(name, namespace="ns", requests={"memory": "1Mi"})
        self.world.add_pod(using(user, made.metadata.name))
        # The feed defers it while a cycle is suspended.
        queue, uid = self.scheduler.context.queue, user.metadata.uid
        await self.until(lambda: queue.find(uid) is not None)
        queued = queue.find(uid)
        assert queued is not None
        return queued

    async def measure(self, case: str, search: Awaitable[None]) -> Delays:
        """Let pods arrive during a search, and measure them."""
        self.world.arrived.clear()
        self.world.delays.clear()
        began, self.longest_turn = time.monotonic(), 0.0
        counts = self.scheduler.context.background.counts
        used, outdated = counts.used, counts.outdated
        tasks = [asyncio.create_task(self._arrivals()), asyncio.create_task(self._turns())]
        await search
        seconds = time.monotonic() - began
        tasks[0].cancel()
        while self.world.arrived:  # noqa: ASYNC110 - binds have no event for it
            await asyncio.sleep(0.01)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        wall, cpu = (sorted(1000 * each[index] for each in self.world.delays) for index in (0, 1))

        def at(values: list[float], share: float) -> float:
            return round(percentile(values, share), 1) if values else 0.0

        longest = round(1000 * self.longest_turn, 1)
        forks = [each.longest_fork_seconds for each in (self.searches, self.documents) if each is not None]
        fork = round(1000 * max(forks, default=0.0), 1)
        p50, p99 = 0.5, 0.99
        return Delays(
            case,
            round(seconds, 2),
            len(wall),
            at(wall, p50),
            at(wall, p99),
            at(cpu, p50),
            at(cpu, p99),
            longest,
            fork,
            counts.used - used,
            counts.outdated - outdated,
        )

    async def _arrivals(self) -> None:
        while True:
            self._count += 1
            self.world.arrive(f"other-{self._count}")
            await asyncio.sleep(1 / _PODS_PER_SECOND)

    async def _turns(self) -> None:
        before = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            self.longest_turn = max(self.longest_turn, now - before)
            before = now

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the scheduler does."""
        while not condition():  # noqa: ASYNC110 - the scheduler has no event for it
            await asyncio.sleep(0.005)

    def is_bound(self, namespace: str, name: str) -> bool:
        """Return whether a pod is bound."""
        found = self.world.pod(namespace, name)
        return found is not None and found.spec.node_name != ""

    def is_tried(self, key: GroupKey) -> bool:
        """Return whether a gang has an outcome, or is scheduled."""
        gang = self.scheduler.context.queue.gangs.get(key)
        return gang is not None and gang.outcome is not None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the cases, and which of them run."""

    nodes: int
    members: int
    explained: int
    devices: int
    claims: int
    moves: int
    cases: frozenset[str]


async def _run(sizes: Sizes, *, in_background: bool, is_full: bool) -> list[Delays]:
    made = Run(sizes.nodes, in_background=in_background, is_full=is_full)
    running = asyncio.create_task(made.scheduler.run())
    mode = "in the background" if in_background else "state frozen"
    found = []
    try:
        await made.measure("warm-up", asyncio.sleep(1.0))
        found.append(await made.measure(f"quiet, {mode}", asyncio.sleep(_QUIET_SECONDS)))
        for name, (title, case) in CASES.items():
            if name in sizes.cases and (name == _PLAN) is not is_full:
                about = f"{title.format(sizes)}, {mode}"
                found += [await made.measure(about, search) async for search in case(made, sizes)]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return found


async def _preempt(made: Run, sizes: Sizes) -> AsyncIterator[Awaitable[None]]:
    async def search() -> None:
        key = await made.gang("high", sizes.members, 10, lambda number: 600 + number % 400)
        await made.until(lambda: made.is_tried(key))

    yield search()
    await made.until(lambda: made.is_bound("default", f"high-{sizes.members - 1}"))


async def _explain(made: Run, sizes: Sizes) -> AsyncIterator[Awaitable[None]]:
    gang = await made.gang("wide", sizes.explained, -1, lambda number: 700 + number)
    await made.until(lambda: made.is_tried(gang))
    documents = BackgroundDocuments(made.scheduler.context, made.documents)
    explained_gang = made.scheduler.context.queue.gangs.get(gang)
    assert explained_gang is not None

    def make() -> Document:
        return Document(200, msgspec.json.encode(explain_gang(made.scheduler, explained_gang)))

    async def search() -> None:
        for _ in range(5):
            await documents.build(make)
            await asyncio.sleep(0.2)

    yield search()


async def _claim(made: Run, sizes: Sizes) -> AsyncIterator[Awaitable[None]]:
    await made.index_devices(sizes)

    async def search() -> None:
        # Each selector is new, so that nothing that is stored serves it.
        for number in range(sizes.claims):
            await made.claimant(f"claimant-{number}", f'{_UUID} != "u0-{number}"')
            await made.until(partial(made.is_bound, "ns", f"claimant-{number}"))

    yield search()


async def _exhaust(made: Run, sizes: Sizes) -> AsyncIterator[Awaitable[None]]:
    await made.index_devices(sizes)

    async def search() -> None:
        for number in range(sizes.claims):
            costly = f'{_TENS}.all(a, {_TENS}.all(b, a + b > 0 && {_UUID} != "{number}"))'
            queued = await made.claimant(f"costly-{number}", costly)
            await made.until(partial(getattr, queued, "was_given_up"))
            # Its next attempt would search during the next one.
            made.scheduler.feed.pod_deleted(queued.info.pod)

    yield search()


async def _plan(made: Run, sizes: Sizes) -> AsyncIterator[Awaitable[None]]:
    documents = BackgroundDocuments(made.scheduler.context, made.documents)
    request = RebalanceRequest(Consolidate(), limits=Limits(sizes.moves or None))

    def make() -> Document:
        return Document(200, msgspec.json.encode(plan_document(made.scheduler, request, _PLAN_STEPS)))

    async def search() -> None:
        await documents.build(make)

    yield search()


_PLAN = "plan"
Case = Callable[[Run, Sizes], AsyncIterator[Awaitable[None]]]
CASES: dict[str, tuple[str, Case]] = {
    "preempt": ("gang of {0.members} preempts", _preempt),
    "explain": ("5 explanations of a gang of {0.explained}", _explain),
    "claim": ("{0.claims} claims read each of {0.devices} devices a node", _claim),
    "exhausted": ("{0.claims} claims take all steps of an attempt", _exhaust),
    _PLAN: ("plan that empties nodes, limit of moves {0.moves}", _plan),
}


_COLUMNS: Mapping[str, Callable[[Delays], object]] = {
    "case": lambda each: each.case,
    "seconds": lambda each: each.seconds,
    "pods": lambda each: each.pods,
    "wall p50": lambda each: each.wall_p50,
    "wall p99": lambda each: each.wall_p99,
    "CPU p50": lambda each: each.cpu_p50,
    "CPU p99": lambda each: each.cpu_p99,
    "longest turn (CPU)": lambda each: each.longest_turn,
    "longest fork": lambda each: each.longest_fork,
    "used": lambda each: each.used,
    "outdated": lambda each: each.outdated,
}


def main() -> None:
    parser = command_line(__doc__, nodes=5000, members=1000, explained=700, devices=4, claims=20, moves=1000)
    parser.add_argument("--cases", default=",".join(CASES), help="the cases to measure, separated by commas")
    add_output(parser)
    arguments = parser.parse_args()
    found: list[Delays] = []
    cases = frozenset(arguments.cases.split(","))
    numbers = ("nodes", "members", "explained", "devices", "claims", "moves")
    sizes = Sizes(**{name: getattr(arguments, name) for name in numbers}, cases=cases)
    for is_full in (True, False):
        if cases - {_PLAN} if is_full else _PLAN in cases:
            for in_background in (True, False):
                found += asyncio.run(_run(sizes, in_background=in_background, is_full=is_full))
    report(
        arguments.output,
        found,
        lambda: Console(width=150).print(table_of("Delays of other pods in milliseconds", found, _COLUMNS)),
    )


if __name__ == "__main__":
    main()
