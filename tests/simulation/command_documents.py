"""Commands that decide in memory what a running operator decides: `simulate`, `diff` and `explain --offline`.

They get the objects of the operator's own informers, and run in the same process as the operator, so that everything
that a module stores is shared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bayplan.comparison import ComparedProfile, PodSelection, Reschedule, compare, parse_label_query
from bayplan.explanation.building import explain_gang, explain_pod
from bayplan.page.page_sources import Commands
from bayplan.page.report_documents import simulated_documents
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Placed
from bayplan.simulation.cluster_snapshot import LIVE
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan.simulation.simulation import PodPlacement, SimulationOptions, populate, simulate

from scheduler_core.feeds.object_feed import PodSurrounding
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import StorageObject
from scheduler_core.scheduler import Scheduler, SchedulerPorts
from scheduler_core.snapshot.indexes.device_index import DeviceObject
from tests.simulation.operator_process import OperatorProcess
from tests.simulation.profiles import PROFILES

_OPTIONS = SimulationOptions(seed=7, patience_seconds=60.0)


def command_documents(process: OperatorProcess, rng: random.Random) -> Iterator[str]:
    """Run one of the commands, and yield its name."""
    cluster = _cluster(process)
    commands: dict[str, Callable[[], object]] = {
        "simulate -o html": partial(_simulated, cluster),
        "diff": partial(_compared, cluster, Reschedule.NO),
        "diff --reschedule present": partial(_compared, cluster, Reschedule.PRESENT),
        "diff --reschedule empty": partial(_compared, cluster, Reschedule.EMPTY),
        "explain --offline": partial(_explained, cluster),
    }
    name = rng.choice(list(commands))
    # It runs an event loop of its own.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(commands[name]).result()
    yield name


def _cluster(process: OperatorProcess) -> AdmittedCluster:
    known: list[Any] = [each for _, informer in process.informers for each in informer.known.values()]
    return AdmittedCluster(
        nodes=tuple(each for each in known if isinstance(each, Node)),
        pods=tuple(each for each in known if isinstance(each, Pod)),
        storage=tuple(each for each in known if isinstance(each, StorageObject)),
        surroundings=tuple(each for each in known if isinstance(each, PodSurrounding)),
        devices=tuple(each for each in known if isinstance(each, DeviceObject)),
        profiles=tuple(_profile(name) for name in PROFILES),
        groups=(*process.received_groups.groups.values(), *process.received_groups.composites.values()),
    )


def _profile(name: str, strategy: str = "LeastAllocated") -> Placed[dict[str, Any]]:
    resources = [{"name": "cpu", "weight": 1}]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    spec = {"schedulerName": name, "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
    kind = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": name}}
    return Placed({**kind, "spec": spec}, LIVE)


async def _read_html(scheduler: Scheduler, _: Sequence[PodPlacement]) -> None:
    await simulated_documents(scheduler, Commands.of_simulation("bayplan simulate"))


def _simulated(cluster: AdmittedCluster) -> object:
    return simulate(cluster, _OPTIONS, in_tree_registry(), inspect=_read_html)


def _compared(cluster: AdmittedCluster, reschedule: Reschedule) -> object:
    sides = tuple(ComparedProfile(each, _profile(PROFILES[0], each)) for each in ("LeastAllocated", "MostAllocated"))
    selection = PodSelection(reschedule, "", parse_label_query(""))
    return compare(cluster, (sides[0], sides[1]), selection, _OPTIONS, in_tree_registry())


def _explained(cluster: AdmittedCluster) -> object:
    world = MemoryCluster()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    scheduler = Scheduler(SimulatedClock(), world, _OPTIONS.of_scheduler(), in_tree_registry(), ports=ports)
    populate(scheduler, world, cluster)
    gangs = scheduler.context.queue.gangs
    return [explain_pod(scheduler, pod) for pod in cluster.pods[:4]], [explain_gang(scheduler, each) for each in gangs]
