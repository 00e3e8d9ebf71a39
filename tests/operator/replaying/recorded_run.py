"""Recording of a scheduler on a cluster in memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from bayplan.recording.record_directory import RecordDirectory
from bayplan.simulation.memory_cluster import MemoryCluster
from bayplan.simulation.simulated_clock import SimulatedClock

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.record_assembly import header_of, record_feeds, recorded_ports
from scheduler_core.recording.recorded_ports import RecordedWriter
from scheduler_core.recording.recorder import Recorder
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts
from tests.support.builders import node, pod

MEBIBYTE = 1 << 20
LARGE = "default/large"


async def _run(path: Path, nodes: int, pods: int, version: str) -> None:
    clock, world = SimulatedClock(), MemoryCluster()
    options, registry = SchedulerOptions(seed=5), in_tree_registry()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    header = header_of(options, ports, registry, version)
    directory = RecordDirectory(path, header, 64 * MEBIBYTE, 3600.0, lambda: datetime.now(UTC))
    recorder = Recorder(clock, directory)
    scheduler = Scheduler(
        recorder.clock,
        RecordedWriter(world, recorder),
        options,
        registry,
        ports=recorded_ports(recorder, clock, ports),
    )
    record_feeds(recorder, scheduler)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])
    world.watch(scheduler.feed)
    for number in range(nodes):
        scheduler.feed.node_added(node(f"n{number}", allocatable={"cpu": "64", "memory": "256Gi", "pods": "500"}))
    running = asyncio.create_task(scheduler.run())
    for number in range(pods):
        world.add_pod(pod(f"p{number}", requests={"cpu": f"{10 + number % 7}m"}))
    world.add_pod(pod("large", requests={"cpu": "1000"}))
    await scheduler.until_idle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    directory.close()


def record_run(path: Path, nodes: int = 5, pods: int = 40, version: str = "1.0") -> Path:
    """Schedule pods and one infeasible pod, and return the only file of the record."""
    asyncio.run(_run(path, nodes, pods, version))
    return next(path.glob("*.bpr"))
