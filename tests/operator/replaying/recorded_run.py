"""Recording of a scheduler on a cluster in memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from bayplan.explanation.building import explain_pod
from bayplan.recording import RecordDirectory
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.record_assembly import header_of, recorded_scheduler
from scheduler_core.recording.recorder import Recorder
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from scheduler_core.step_counter import NO_LIMIT
from tests.support.builders import node, pod
from tests.support.devices import claim, device, device_class, exactly, slice_of, using
from tests.support.moved_searches import AwaitedSearches

MEBIBYTE = 1 << 20
LARGE = "default/large"
PARTS_LIMIT = 180
"""Steps that the first of the attempts in parts does not need only because the others take some."""


async def _run(path: Path, nodes: int, pods: int, version: str, *, has_clients: bool) -> None:
    clock, world = SimulatedClock(), MemoryCluster()
    options, registry = SchedulerOptions(seed=5), in_tree_registry()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    header = header_of(options, ports, registry, version)
    directory = RecordDirectory(path, header, 64 * MEBIBYTE, 3600.0, lambda: datetime.now(UTC))
    recorder = Recorder(clock, directory)
    scheduler = recorded_scheduler(recorder, world, options, registry, ports=ports)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])
    world.watch(scheduler.feed)
    for number in range(nodes):
        scheduler.feed.node_added(node(f"n{number}", allocatable={"cpu": "64", "memory": "256Gi", "pods": "500"}))
    running = asyncio.create_task(scheduler.run())
    if has_clients:
        scheduler.expect_clients()
    for number in range(pods):
        world.add_pod(pod(f"p{number}", requests={"cpu": f"{10 + number % 7}m"}))
    world.add_pod(pod("large", requests={"cpu": "1000"}))
    await scheduler.until_idle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    directory.close()


def record_run(path: Path, nodes: int = 5, pods: int = 40, version: str = "1.0", *, has_clients: bool = False) -> Path:
    """Schedule pods and one infeasible pod, and return the only file of the record.

    Args:
        has_clients: Whether clients wait for responses meanwhile.
    """
    asyncio.run(_run(path, nodes, pods, version, has_clients=has_clients))
    return next(path.glob("*.bpr"))


async def _run_long_searches(path: Path, *, is_explained: bool) -> int:
    clock, world = SimulatedClock(), MemoryCluster()
    options, registry = SchedulerOptions(attempt_steps=9_000), in_tree_registry()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    directory = RecordDirectory(
        path, header_of(options, ports, registry, "1.0"), 64 * MEBIBYTE, 3600.0, lambda: datetime.now(UTC)
    )
    recorder = Recorder(clock, directory)
    scheduler = recorded_scheduler(recorder, world, options, registry, ports=ports)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])
    world.watch(scheduler.feed)
    scheduler.feed.node_added(node("n0", allocatable={"cpu": "64", "memory": "256Gi", "pods": "500"}))
    hundreds = f"[{','.join(map(str, range(10)))}].all(a, [{','.join(map(str, range(300)))}].all(b, a + b >= 0))"
    claims = [
        claim(
            exactly("r", *(f"{hundreds} && {number}{index}>=0" for index in range(1 + 3 * number))), name=f"c{number}"
        )
        for number in range(6)
    ]
    slices_of_node = slice_of([device(f"d{number}") for number in range(4)])
    world.claims.serve([device_class(), slices_of_node, *claims], scheduler.device_feed)
    running = asyncio.create_task(scheduler.run())
    slices = 0
    for number in range(6):
        user = using(pod(f"user{number}", namespace="ns", requests={"cpu": f"{10 + number}m"}), f"c{number}")
        world.add_pod(user)
        if is_explained:
            explain_pod(scheduler, user)
        for turn in range(40):
            await asyncio.sleep(0)
            if scheduler.context.suspension.is_midway:
                slices += 1
                world.add_pod(pod(f"p{number}-{turn}", requests={"cpu": "10m"}))
    await scheduler.until_idle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    directory.close()
    return slices


def record_long_searches(path: Path, *, is_explained: bool) -> tuple[Path, int]:
    """Schedule pods whose cycles have several slices, of which some are given up, while other pods arrive.

    Args:
        is_explained: Whether each pod is explained before its attempt.

    Returns:
        The file, and the number of turns between slices.
    """
    slices = asyncio.run(_run_long_searches(path, is_explained=is_explained))
    return next(path.glob("*.bpr")), slices


async def _run_parts(path: Path) -> int:
    clock, world = SimulatedClock(), MemoryCluster()
    options, registry = SchedulerOptions(attempt_steps=PARTS_LIMIT), in_tree_registry()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims, processes=AwaitedSearches(clock, 1.0))
    directory = RecordDirectory(
        path, header_of(options, ports, registry, "1.0"), 64 * MEBIBYTE, 3600.0, lambda: datetime.now(UTC)
    )
    recorder = Recorder(clock, directory)
    recorder.slice_steps, recorder.part_steps = NO_LIMIT, 20
    scheduler = recorded_scheduler(recorder, world, options, registry, ports=ports)
    scheduler.activate([scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])
    world.watch(scheduler.feed)
    for number in range(40):
        scheduler.feed.node_added(node(f"n{number}", allocatable={"cpu": "64", "memory": "256Gi", "pods": "500"}))
    slices = [
        slice_of([device("d0", attributes={"uuid": {"string": f"u{number}"}})], node=f"n{number}")
        for number in range(40)
    ]
    selector = 'device.attributes["gpu.example.com"].uuid != "none"'
    claims = [claim(exactly("r", selector), name=f"c{number}") for number in range(6)]
    world.claims.serve([device_class(), *slices, *claims], scheduler.device_feed)
    running = asyncio.create_task(scheduler.run())
    for number in range(6):
        world.add_pod(using(pod(f"user{number}", namespace="ns", requests={"cpu": f"{10 + number}m"}), f"c{number}"))
    await scheduler.until_idle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    directory.close()
    return scheduler.context.background.counts.postponed


def record_parts(path: Path) -> tuple[Path, int]:
    """Schedule pods with equal new claims, whose attempts share what is stored; return the file and number of parts."""
    parts = asyncio.run(_run_parts(path))
    return next(path.glob("*.bpr")), parts
