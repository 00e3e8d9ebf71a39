"""On SIGUSR2 logs the cache and the queue, and their differences from the API server.

Follows kube-scheduler v1.37.1 (``backend/cache/debugger``), whose comparer and dumper run on the same signal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from bayplan.introspection.cache_check import check_cache
from bayplan.kube.http.connection import ApiConnection
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.errors import ClusterWriteError
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.cluster_cache import Placement

log = logging.getLogger(__name__)

_LINES_AT_ONCE = 200


class CacheDebugger:
    """Dumps and compares the cache and the queue, one run at a time.

    Args:
        connection: Connection to the API server.
        scheduler: Scheduler whose cache and queue are logged.
    """

    def __init__(self, connection: ApiConnection, scheduler: Scheduler) -> None:
        self._connection = connection
        self._scheduler = scheduler
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a run unless one is in progress; the signal handler calls this."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self.run(), name="cache debugger")

    async def stop(self) -> None:
        """Cancel the run in progress."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def run(self) -> None:
        """Dump and compare once."""
        for number, line in enumerate([*dump(self._scheduler.context)]):
            log.info("%s", line)
            if number % _LINES_AT_ONCE == _LINES_AT_ONCE - 1:
                await asyncio.sleep(0)
        try:
            found = await check_cache(self._connection, self._scheduler)
        except ClusterWriteError as error:
            log.warning("cache check: nodes or pods cannot be listed: %s; send the signal again", error)
            return
        for difference in found:
            log.warning("cache check: %s", difference)
        log.info("cache check: %d differences", len(found))


def dump(context: CycleContext) -> Iterator[str]:
    """Yield the cache and the queue, a line for each node and each pod of the queue."""
    columns, cache = context.cache.columns, context.cache
    yield f"cache dump: {columns.count} nodes, {len(cache)} pods, {cache.assumed_count} of them assumed"
    for name in sorted(name for name in columns.names if name is not None):
        row = columns.row_of(name)
        amounts = [
            f"{resource} {int(requested)}/{int(allocatable)}"
            for resource, requested, allocatable in zip(
                columns.resources.keys, columns.requested[:, row], columns.allocatable[:, row], strict=True
            )
            if requested or allocatable
        ]
        nominated = [info.key for info in context.queue.nominator.nominated_pods(name)]
        nominations = f", nominated {' '.join(nominated)}" if nominated else ""
        pods = f"pods {int(columns.pod_count[row])}/{int(columns.allowed_pods[row])}"
        yield f"node {name}: requested of allocatable {', '.join((*amounts, pods))}{nominations}"
    for placed in cache.placed_pods():
        if placed.placement is not Placement.ADDED:
            yield f"assumed pod {placed.info.key}: node {placed.info.node_name}, {placed.placement.name.lower()}"
    for entry in context.waiting:
        yield f"waiting pod {entry.pod.key}: node {entry.node_name}, for {' '.join(entry.pending_plugins())}"
    yield f"queue dump: {len(context.queue.readings)} pods, {context.queue.readings.parked_count} parked pods"
    for place, pod in context.queue.readings.places():
        reason = f", rejected by {' '.join(sorted(pod.rejected_by))}" if pod.rejected_by else ""
        yield f"queue {place}: pod {pod.info.key}, attempts {pod.attempts}{reason}"
