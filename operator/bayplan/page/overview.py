"""Overview: sizes of the cluster and the queue, and utilisation by resource and by driver of devices."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

import bayplan
from bayplan.page.node_map import NodeDevices, shown_resources
from bayplan.page.page_sources import PageSources, Turns
from bayplan.page.pending_work import GangsPanel
from bayplan.page.problems import PageProblem, find_problems
from bayplan.page.rates import Objective, RatesPanel
from bayplan.resources.resource_model import format_time
from bayplan.simulation.packing import PODS
from scheduler_core.model.pod_requests import CPU, amount_text


class Utilisation(Struct, frozen=True, rename="camel"):
    """Requested and allocatable amount of a resource; CPU in millicores, everything else in whole units.

    Attributes:
        text: Both amounts for people.
    """

    resource: str
    used: int
    allocatable: int
    text: str


class DriverDevices(Struct, frozen=True, rename="camel"):
    """Devices of Dynamic Resource Allocation of one driver."""

    driver: str
    in_use: int
    devices: int


class ClusterVersion(Struct, frozen=True, rename="camel"):
    """The API server's version, "" if it is not known, and what it lacks."""

    version: str
    missing: tuple[str, ...] = ()


class Overview(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        role: Role of a standby; "" for a process that schedules.
        time: Time of the document, RFC 3339.
        nodes, pods: Number of nodes, and of pods that are on nodes.
        pending: Number of pods in the queue.
        places: Number of pods by place of the queue.
        missing: Conditions that are not met yet for readiness.
        problems: What is wrong now.
        objectives: Objectives with what was measured.
    """

    version: str
    role: str
    uptime_seconds: float
    time: str
    nodes: int
    pods: int
    pending: int
    gangs_waiting: int
    places: dict[str, int]
    cluster: ClusterVersion
    utilisation: tuple[Utilisation, ...]
    devices: tuple[DriverDevices, ...]
    missing: tuple[str, ...]
    objectives: tuple[Objective, ...]
    problems: tuple[PageProblem, ...]
    command: str


class OverviewPanel:
    """Builds the document."""

    interval = 1.0

    def __init__(self, sources: PageSources, gangs: GangsPanel, rates: RatesPanel, devices: NodeDevices) -> None:
        self._sources = sources
        self._gangs = gangs
        self._rates = rates
        self._devices = devices

    async def build(self, turns: Turns) -> Overview:
        sources = self._sources
        gangs = await self._gangs.waiting(turns)
        devices = await self._devices.by_driver(turns)
        context = sources.scheduler.context
        places, server = self._places(), sources.server()
        return Overview(
            version=bayplan.__version__,
            role=sources.readiness.role,
            uptime_seconds=round(sources.clock.now() - sources.started, 1),
            time=format_time(sources.clock.wall()),
            nodes=context.cache.columns.count,
            pods=len(context.cache),
            pending=sum(places.values()),
            gangs_waiting=len(gangs),
            places=places,
            cluster=ClusterVersion(server.version, server.missing),
            utilisation=self._utilisation(),
            devices=tuple(DriverDevices(driver, *counts) for driver, counts in sorted(devices.items())),
            missing=tuple(sources.readiness.missing),
            objectives=self._rates.objectives(),
            problems=find_problems(sources),
            command=sources.commands.status,
        )

    def without_ages(self, document: Overview) -> Overview:
        """Return the document without times."""
        return replace(document, uptime_seconds=0.0, time="")

    def _places(self) -> dict[str, int]:
        readings = self._sources.scheduler.context.queue.readings
        places = Counter({"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0})
        for counts in readings.counts().values():
            places["active"] += counts.active
            places["backoff"] += counts.backoff
            places["unschedulable"] += counts.unschedulable
            places["gated"] += counts.gated
        profiles = self._sources.scheduler.context.profiles
        places["parked"] = profiles.count_meant(readings.parked_counts())
        places["inFlight"] = readings.in_flight_count
        return dict(places)

    def _utilisation(self) -> tuple[Utilisation, ...]:
        columns = self._sources.scheduler.context.cache.columns
        pods = int(columns.pod_count.sum()), int(columns.allowed_pods.sum())
        found = [Utilisation(PODS, *pods, f"{pods[0]} / {pods[1]}")]
        for name, column in shown_resources(columns):
            # Sums of int64 could overflow; a double is exact enough for people.
            used = int(columns.requested[column].sum(dtype=np.float64))
            allocatable = int(columns.allocatable[column].sum(dtype=np.float64))
            unit = " cores" if name == CPU else ""
            text = f"{amount_text(name, used)} / {amount_text(name, allocatable)}{unit}"
            found.append(Utilisation(name, used, allocatable, text))
        return tuple(found)
