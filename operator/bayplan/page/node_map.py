"""Map of the nodes: utilisation of each node by resource, and fragmentation; sent whole once, then as changes.

Amounts of all nodes are read as arrays in one turn of the event loop; Node objects and devices in several. One node
with its pods, taints and labels is read on request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bayplan.page.page_sources import PageSources, Turns
from bayplan.simulation.packing import devices_title
from scheduler_core.cycle.filter_and_score import ZONE_LABEL
from scheduler_core.explain.device_problems import taint_text
from scheduler_core.kernels.resource_scores import unusable_shares
from scheduler_core.model.node import Node
from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, amount_text, is_extended_resource
from scheduler_core.ports import Clock
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, DeviceUse, count_device_uses
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

# -- zones and racks --------------------------------------------------------------------------------------------------


_NOT_READY = frozenset(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"))
_RACK = "rack"
_NODES_PER_LOOK = 256


class Rack(Struct, frozen=True, rename="camel"):
    """Nodes of a rack by their index; the name is "" for nodes without the label."""

    name: str
    nodes: tuple[int, ...]


class Zone(Struct, frozen=True, rename="camel"):
    """Racks of a zone; the name is "" for nodes without the label."""

    name: str
    racks: tuple[Rack, ...]


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Order of the nodes.

    Attributes:
        names: Names of the nodes in alphabetical order; the index of a node is its position.
        zones: Zones and racks in alphabetical order.
        unschedulable: Indexes of cordoned nodes.
        not_ready: Indexes of nodes that are not ready, by their taints.
        rack_label: Node label of racks, "" for none.
    """

    names: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    unschedulable: tuple[int, ...] = ()
    not_ready: tuple[int, ...] = ()
    rack_label: str = ""


class NodeRows:
    """Layout of the nodes, read again when a Node object has changed; ``version`` counts its changes."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._read_at = -1
        self._rows_at = -1
        self._rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.layout = NodeLayout()
        self.version = 0

    async def update(self, turns: Turns) -> None:
        """Read the nodes if one has changed."""
        columns = self._columns
        if self._read_at == columns.version:
            return
        # Nodes are immutable, so the list stays consistent during the pauses.
        version, nodes = columns.version, [node for node in columns.nodes if node is not None]
        nodes.sort(key=lambda node: node.metadata.name)
        await turns.pause_if_due()
        layout = await _layout_of(nodes, turns)
        self._read_at = version
        if layout != self.layout:
            self.layout, self.version, self._rows_at = layout, self.version + 1, -1

    def rows(self) -> NDArray[np.intp]:
        """Return the row of each node of the layout; -1 for a node that was removed meanwhile."""
        if self._rows_at != self._columns.version:
            self._rows_at = self._columns.version
            names = self.layout.names
            self._rows = np.fromiter(map(self._columns.row_of, names), dtype=np.intp, count=len(names))
        return self._rows


async def _layout_of(nodes: Sequence[Node], turns: Turns) -> NodeLayout:
    keys: Counter[str] = Counter()
    for position, node in enumerate(nodes):
        keys.update(key for key in node.metadata.labels if key.rpartition("/")[2] == _RACK)
        if position % _NODES_PER_LOOK == 0:
            await turns.pause_if_due()
    rack_label = min(keys, key=lambda key: (-keys[key], key), default="")
    zones: dict[str, dict[str, list[int]]] = {}
    unschedulable, not_ready = [], []
    for index, node in enumerate(nodes):
        labels = node.metadata.labels
        racks = zones.setdefault(labels.get(ZONE_LABEL, ""), {})
        racks.setdefault(labels.get(rack_label, ""), []).append(index)
        if node.spec.unschedulable:
            unschedulable.append(index)
        if node.spec.taints and any(taint.key in _NOT_READY for taint in node.spec.taints):
            not_ready.append(index)
        if index % _NODES_PER_LOOK == 0:
            await turns.pause_if_due()
    return NodeLayout(
        names=tuple(node.metadata.name for node in nodes),
        zones=tuple(
            Zone(zone, tuple(Rack(rack, tuple(found)) for rack, found in sorted(racks.items())))
            for zone, racks in sorted(zones.items())
        ),
        unschedulable=tuple(unschedulable),
        not_ready=tuple(not_ready),
        rack_label=rack_label,
    )


# -- resources and devices --------------------------------------------------------------------------------------------


_MAX_RESOURCES = 16
_DEVICE_SECONDS = 5.0
"""Minimum time between two counts of devices, which read every published device."""


def shown_resources(columns: NodeColumns) -> list[tuple[str, int]]:
    """Return name and column of the resources to show: CPU, memory, then those that are extended or requested."""
    found = []
    for column, name in enumerate(columns.resources.keys):
        if not name:
            continue
        is_requested = bool(columns.requested[column].any())
        is_offered = bool(columns.allocatable[column].any())
        if name in (CPU, MEMORY) or (is_offered and (is_requested or is_extended_resource(name))):
            found.append((name, column))
    order = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 3}
    found.sort(key=lambda each: (order.get(each[0], 2), each[0]))
    return found[:_MAX_RESOURCES]


class DeviceCounts:
    """Devices of Dynamic Resource Allocation, counted at most every few seconds."""

    def __init__(self, devices: DeviceIndex, clock: Clock) -> None:
        self._devices = devices
        self._clock = clock
        self._counted_at = float("-inf")
        self._uses: tuple[DeviceUse, ...] = ()

    async def by_node(self, turns: Turns) -> tuple[DeviceUse, ...]:
        if self._clock.now() - self._counted_at >= _DEVICE_SECONDS:
            self._counted_at = self._clock.now()
            steps = count_device_uses(self._devices)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    self._uses = end.value
                    break
                await turns.pause_if_due()
        return self._uses

    async def by_driver(self, turns: Turns) -> dict[str, tuple[int, int]]:
        """Return the number of devices in use and of published devices, by driver."""
        found: dict[str, tuple[int, int]] = {}
        for use in await self.by_node(turns):
            in_use, devices = found.get(use.driver, (0, 0))
            found[use.driver] = in_use + use.in_use, devices + use.devices
        return found


# -- the document -----------------------------------------------------------------------------------------------------


_SAMPLED_PODS = 500
"""Pods of the queue whose requests define which free amounts are unusable."""
_FULL = 1000
_NOT_OFFERED = -1
_UNITS = {CPU: "cores", PODS: "pods"}

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
        unschedulable: Indexes of cordoned nodes.
        not_ready: Indexes of nodes that are not ready.
        unusable_by: Pods over which the unusable shares are averaged.
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
    zone_label: str
    command: str
    unusable_by: str = "waiting pods"


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


@dataclass(frozen=True, slots=True)
class MapState:
    """The map at one moment, as arrays.

    Attributes:
        version: Version of the layout and of the list of resources.
        pods: int64[node].
        used: int32[resource, node], permille.
        command: Command that prints the nodes.
    """

    version: int
    layout: NodeLayout
    resources: tuple[MapResource, ...]
    pods: NDArray[np.int64]
    used: Permille
    fragmentation: tuple[Fragmentation, ...]
    command: str


class NodesPanel:
    """Builds the document and its changes."""

    interval = 1.0

    def __init__(self, sources: PageSources, rows: NodeRows, devices: DeviceCounts) -> None:
        self._sources = sources
        self._rows = rows
        self._devices = devices
        self._version = 0
        self._versioned: tuple[int, tuple[MapResource, ...]] = (-1, ())

    async def read(self, turns: Turns) -> MapState:
        await self._rows.update(turns)
        devices = await self._devices.by_node(turns)
        columns, rows = self._sources.scheduler.context.cache.columns, self._rows.rows()
        pods = np.where(rows >= 0, columns.pod_count[rows], 0) if len(rows) else np.empty(0, dtype=np.int64)
        resources, used = self._used(columns, rows, devices)
        if self._versioned != (self._rows.version, resources):
            self._versioned = self._rows.version, resources
            self._version += 1
        fragmentation, command = self._fragmentation(columns), self._sources.commands.nodes
        return MapState(self._version, self._rows.layout, resources, pods, used, fragmentation, command)

    async def build(self, turns: Turns) -> NodeMap:
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
        zone_label=ZONE_LABEL,
        command=state.command,
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


_PODS = 250
"""Maximum number of pods in the document."""


class NodeAmount(Struct, frozen=True, rename="camel"):
    """Requested and allocatable amount of a resource.

    Attributes:
        used, allocatable, free: Amounts for people.
        share: Used share, 0 to 1 or more; None if nothing is allocatable.
    """

    resource: str
    used: str
    allocatable: str
    free: str
    share: float | None


class NodePod(Struct, frozen=True, rename="camel"):
    """Pod on a node, with what it requests, for people."""

    pod: str
    priority: int
    requests: str


class NodeCard(Struct, frozen=True, rename="camel", kw_only=True):
    """A node.

    Attributes:
        held: Why it accepts no pods although it is schedulable, "" if it does.
        taints: Taints as kubectl writes them.
        pods: Pods, those with the highest priority first.
        omitted: Number of pods that are not in the document.
        reservation: Gang that has reserved it, and holders of room there; "" for none.
    """

    name: str
    unschedulable: bool
    held: str
    amounts: tuple[NodeAmount, ...]
    taints: tuple[str, ...]
    labels: dict[str, str]
    pods: tuple[NodePod, ...]
    omitted: int
    nominated: tuple[str, ...]
    reservation: str
    command: str


def read_node(sources: PageSources, name: str, devices: tuple[DeviceUse, ...]) -> NodeCard | None:
    """Return a node; None if it does not exist."""
    context = sources.scheduler.context
    columns = context.cache.columns
    row = columns.row_of(name)
    node = columns.nodes[row] if row >= 0 else None
    if node is None:
        return None
    pods = sorted(columns.pods[row].values(), key=lambda info: (-info.priority, info.key))
    reservations = sources.scheduler.reservations
    reservation = reservations.on_node(name)
    gang = () if reservation is None else (f"gang {reservation.key}",)
    rooms = [room.holder.key.holder for room in reservations.held.on_node(name)]
    return NodeCard(
        name=name,
        unschedulable=node.spec.unschedulable,
        held=columns.held.reason(name),
        amounts=(*_amounts(sources, row), *(_device_amount(use) for use in devices if use.node_name == name)),
        taints=tuple(map(taint_text, node.spec.taints)),
        labels=dict(sorted(node.metadata.labels.items())),
        pods=tuple(NodePod(info.key, info.priority, _requests(info)) for info in pods[:_PODS]),
        omitted=max(0, len(pods) - _PODS),
        nominated=tuple(sorted(info.key for info in context.queue.nominator.nominated_pods(name))),
        reservation=", ".join((*gang, *rooms)),
        command=f"kubectl describe node {name}",
    )


def _amounts(sources: PageSources, row: int) -> list[NodeAmount]:
    columns = sources.scheduler.context.cache.columns
    found = [_amount(PODS, int(columns.pod_count[row]), int(columns.allowed_pods[row]))]
    for column, name in enumerate(columns.resources.keys):
        if not name:
            continue
        used, allocatable = int(columns.requested[column, row]), int(columns.allocatable[column, row])
        if name in (CPU, MEMORY) or used or (allocatable and is_extended_resource(name)):
            found.append(_amount(name, used, allocatable))
    return found


def _amount(name: str, used: int, allocatable: int) -> NodeAmount:
    used_text, all_text, free = (amount_text(name, each) for each in (used, allocatable, max(0, allocatable - used)))
    return NodeAmount(name, used_text, all_text, free, round(used / allocatable, 4) if allocatable else None)


def _device_amount(use: DeviceUse) -> NodeAmount:
    return _amount(devices_title(use.driver), use.in_use, use.devices)


def _requests(info: PodInfo) -> str:
    amounts = info.requests.accounted.items()
    return ", ".join(f"{amount_text(name, amount)} {name}" for name, amount in amounts if amount)
