"""Map of the nodes: utilisation of each node by resource, and fragmentation; sent whole once, then as changes.

Amounts of all nodes are read as arrays in one turn of the event loop.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bayplan.page.node_layout import NodeLayout, NodeRows, Zone
from bayplan.page.page_sources import PageSources, Turns
from bayplan.page.resource_amounts import NodeDevices, shown_resources
from bayplan.simulation.packing import PODS, devices_title
from scheduler_core.cycle.percentage_of_nodes import ZONE_LABEL
from scheduler_core.kernels.resource_scores import unusable_shares
from scheduler_core.model.pod_requests import CPU
from scheduler_core.snapshot.indexes.device_index import DeviceUse
from scheduler_core.snapshot.node_columns import NodeColumns

_SAMPLED_PODS = 500
"""Pods of the queue whose requests define which free amounts are unusable."""
_FULL = 1000
_NOT_OFFERED = -1
_UNITS = {CPU: "cores", PODS: "pods"}
_COMMAND = "kubectl describe nodes"

Permille = NDArray[np.int32]
"""int32[resource, node], used share in permille; -1 if the node does not offer the resource."""


class MapResource(Struct, frozen=True, rename="camel"):
    """Resource of the map."""

    name: str
    unit: str


class Fragmentation(Struct, frozen=True, rename="camel"):
    """Free amounts of a resource on schedulable nodes; CPU in millicores, everything else in whole units.

    Attributes:
        free: Free amount of all nodes.
        largest_free: Largest free amount on one node.
        unusable_share: Share of the free amount on nodes where a waiting pod that requests the resource does not fit,
            averaged over these pods, 0 to 1; None if no such pod waits.
    """

    resource: str
    free: int
    largest_free: int
    unusable_share: float | None = None


class NodeMap(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        version: Version of the names and zones.
        names: Names of the nodes by index.
        used: Used share in permille by resource, in the order of names; -1 if a node does not offer it.
        pods: Number of pods by index.
        unschedulable: Indexes of cordoned nodes.
        not_ready: Indexes of nodes that are not ready.
    """

    version: int
    resources: tuple[MapResource, ...]
    zones: tuple[Zone, ...]
    names: tuple[str, ...]
    used: dict[str, list[int]]
    pods: list[int]
    unschedulable: tuple[int, ...]
    not_ready: tuple[int, ...]
    fragmentation: tuple[Fragmentation, ...]
    rack_label: str
    zone_label: str = ZONE_LABEL
    command: str = _COMMAND


class NodeMapDelta(Struct, frozen=True, rename="camel"):
    """Changes since the document before.

    Attributes:
        version: Version of the names and zones, as in the whole document.
        since: Same as version; a delta applies only to a document of that version.
        nodes: Index, number of pods, and used permille in the order of resources, of each changed node.
    """

    version: int
    since: int
    nodes: tuple[tuple[int, int, list[int]], ...]
    fragmentation: tuple[Fragmentation, ...]


class MapState(Struct, frozen=True):
    """The map at one moment, as arrays.

    Attributes:
        version: Version of the layout and of the list of resources.
        layout: Order of the nodes.
        pods: int64[node].
        used: int32[resource, node], permille.
    """

    version: int
    layout: NodeLayout
    resources: tuple[MapResource, ...]
    pods: NDArray[np.int64]
    used: Permille
    fragmentation: tuple[Fragmentation, ...]


class NodesPanel:
    """Builds the document and its changes.

    Args:
        sources: Parts of the operator.
        rows: Order of the nodes.
        devices: Counts devices.
    """

    interval = 1.0

    def __init__(self, sources: PageSources, rows: NodeRows, devices: NodeDevices) -> None:
        self._sources = sources
        self._rows = rows
        self._devices = devices
        self._version = 0
        self._versioned: tuple[int, tuple[MapResource, ...]] = (-1, ())

    async def read(self, turns: Turns) -> MapState:
        """Return the current state."""
        await self._rows.update(turns)
        devices = await self._devices.by_node(turns)
        columns, rows = self._sources.scheduler.context.cache.columns, self._rows.rows()
        pods = np.where(rows >= 0, columns.pod_count[rows], 0) if len(rows) else np.empty(0, dtype=np.int64)
        resources, used = self._used(columns, rows, devices)
        if self._versioned != (self._rows.version, resources):
            self._versioned = self._rows.version, resources
            self._version += 1
        return MapState(self._version, self._rows.layout, resources, pods, used, self._fragmentation(columns))

    async def build(self, turns: Turns) -> NodeMap:
        """Return the whole document."""
        return whole(await self.read(turns))

    def _used(
        self, columns: NodeColumns, rows: NDArray[np.intp], devices: tuple[DeviceUse, ...]
    ) -> tuple[tuple[MapResource, ...], Permille]:
        named = shown_resources(columns)
        shares = [permille(columns.requested[column, rows], columns.allocatable[column, rows]) for _, column in named]
        shares.append(permille(columns.pod_count[rows], columns.allowed_pods[rows]))
        names = [*(name for name, _ in named), PODS]
        index = {name: position for position, name in enumerate(self._rows.layout.names)} if devices else {}
        drivers: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for use in devices:
            position = index.get(use.node_name)
            if position is not None:
                zeros = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
                in_use, published = drivers.setdefault(use.driver, zeros)
                in_use[position], published[position] = use.in_use, use.devices
        for driver, counts in sorted(drivers.items()):
            names.append(devices_title(driver))
            shares.append(permille(*counts))
        used = np.array(shares, dtype=np.int32).reshape(len(names), len(rows))
        used[:, rows < 0] = _NOT_OFFERED
        return tuple(MapResource(name, _unit(name)) for name in names), used

    def _fragmentation(self, columns: NodeColumns) -> tuple[Fragmentation, ...]:
        schedulable = columns.alive & ~columns.unschedulable
        named = shown_resources(columns)
        free = {
            name: np.where(schedulable, np.maximum(columns.allocatable[column] - columns.requested[column], 0), 0)
            for name, column in named
        }
        slots = schedulable & (columns.pod_count < columns.allowed_pods)
        kinds: Counter[tuple[tuple[str, int], ...]] = Counter()
        for pod in islice(self._sources.scheduler.context.queue.readings, _SAMPLED_PODS):
            requests = pod.info.requests.fit
            kinds[tuple((name, requests[name]) for name in pod.info.fit_names if name in free)] += 1
        unusable = unusable_shares(free, slots, kinds.items())
        return tuple(
            Fragmentation(
                name,
                int(amounts.sum(dtype=np.float64)),
                int(amounts.max(initial=0)),
                None if name not in unusable else round(unusable[name], 4),
            )
            for name, amounts in free.items()
        )


def whole(state: MapState) -> NodeMap:
    """Return the whole document of a state."""
    layout = state.layout
    return NodeMap(
        version=state.version,
        resources=state.resources,
        zones=layout.zones,
        names=layout.names,
        used={each.name: shares.tolist() for each, shares in zip(state.resources, state.used, strict=True)},
        pods=state.pods.tolist(),
        unschedulable=layout.unschedulable,
        not_ready=layout.not_ready,
        fragmentation=state.fragmentation,
        rack_label=layout.rack_label,
    )


def delta(before: MapState, after: MapState) -> NodeMapDelta | None:
    """Return what changed between two states of the same version; None if nothing did."""
    changed = np.flatnonzero((before.pods != after.pods) | (before.used != after.used).any(axis=0))
    if not len(changed) and before.fragmentation == after.fragmentation:
        return None
    shares = after.used[:, changed].T.tolist()
    rows = zip(changed.tolist(), after.pods[changed].tolist(), shares, strict=True)
    return NodeMapDelta(after.version, after.version, tuple(rows), after.fragmentation)


def permille(used: NDArray[np.int64], allocatable: NDArray[np.int64]) -> Permille:
    """Return the used share in permille; -1 if nothing is allocatable and nothing used."""
    # As doubles: 1,000 times an amount may exceed int64.
    shares = np.minimum(np.rint(used * float(_FULL) / np.maximum(allocatable, 1)), np.iinfo(np.int32).max)
    offered: Permille = np.where((allocatable > 0) | (used > 0), shares, _NOT_OFFERED).astype(np.int32)
    return offered


def _unit(name: str) -> str:
    if name in _UNITS:
        return _UNITS[name]
    if name.startswith(devices_title("")):
        return "devices"
    return "GiB" if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-") else ""
