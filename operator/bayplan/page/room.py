"""Room for pods of a shape that the reader types: how many fit by free amounts, on which nodes and in which domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bayplan.page.node_map import NodeRows
from bayplan.page.page_sources import PageSources, Turns
from scheduler_core.errors import QuantityError
from scheduler_core.explain.candidate_events import amount_text
from scheduler_core.model.pod_requests import in_units, nano
from scheduler_core.snapshot.node_columns import NodeColumns

_MAX_LENGTH = 1024
_MAX_COUNT = 1_000_000
_DOMAINS = 200
_NOTE = (
    "By free amounts of schedulable nodes only: taints, affinity, volumes, devices and reservations are not considered."
)


class RoomError(ValueError):
    """The shape cannot be read; the text names the parameter and what to write."""


class DomainRoom(Struct, frozen=True, rename="camel"):
    """Room in one topology domain."""

    key: str
    name: str
    fits: int


class Room(Struct, frozen=True, rename="camel"):
    """Room for equal pods.

    Attributes:
        requests: What one pod requests, as text by resource.
        fits: Number of such pods that fit.
        nodes: Number of nodes with room for at least one.
        per_node: Index of the node in the map, and number of pods, of each node with room.
        domains: Room by topology domain, most first; with a count only those with room for all pods.
        note: What is not considered.
        command: Command that shows the free amounts.
    """

    requests: dict[str, str]
    fits: int
    nodes: int
    per_node: tuple[tuple[int, int], ...]
    domains: tuple[DomainRoom, ...]
    note: str = _NOTE
    command: str = "kubectl describe nodes"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the reader typed.

    Attributes:
        requests: Amount of one pod by resource, CPU in millicores, everything else in whole units.
        count: Number of pods that must fit in one domain; 0 for none.
        key: Node label of the domains; "" for none.
    """

    requests: Mapping[str, int]
    count: int = 0
    key: str = ""


def read_shape(query: Mapping[str, str]) -> Shape:
    """Return the shape of a request.

    Args:
        query: Parameters ``requests``, ``count`` and ``key``.

    Raises:
        RoomError: A parameter is missing or invalid.
    """
    text, count, key = query.get("requests", ""), query.get("count", "") or "0", query.get("key", "")
    if len(text) > _MAX_LENGTH or len(key) > _MAX_LENGTH:
        raise RoomError(f"requests and key have at most {_MAX_LENGTH} characters")
    amounts: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, quantity = part.partition("=")
        if not equals or not name.strip():
            raise RoomError(f'requests: "{part}" is not RESOURCE=QUANTITY; write such as cpu=4,memory=8Gi')
        try:
            amounts[name.strip()] = nano(quantity.strip())
        except QuantityError as error:
            raise RoomError(f"requests: {name.strip()}: {error}") from error
    units = {name: amount for name, amount in in_units(amounts).items() if amount > 0}
    unknown = sorted(amounts.keys() - in_units(amounts).keys())
    if unknown:
        raise RoomError(f"requests: unknown resource {unknown[0]}; write such as cpu, memory or example.com/gpu")
    if not units:
        raise RoomError("requests: specify an amount above 0, such as requests=cpu=4,memory=8Gi")
    if not (count.isascii() and count.isdigit()) or int(count[:8]) > _MAX_COUNT or len(count) > len(str(_MAX_COUNT)):
        raise RoomError(f"count: must be a number of pods from 0 to {_MAX_COUNT}")
    return Shape(units, int(count), key)


class RoomReader:
    """Computes the room on request."""

    def __init__(self, sources: PageSources, rows: NodeRows) -> None:
        self._sources = sources
        self._rows = rows

    async def read(self, shape: Shape, turns: Turns) -> Room:
        """Return the room for a shape."""
        await self._rows.update(turns)
        columns, rows = self._sources.scheduler.context.cache.columns, self._rows.rows()
        fits = _fits(columns, shape.requests)
        per_node = np.where(rows >= 0, fits[rows], 0) if len(rows) else fits[:0]
        indexes = np.flatnonzero(per_node)
        domains = _domains(columns, shape, fits) if shape.key else ()
        return Room(
            requests={name: amount_text(name, amount) for name, amount in shape.requests.items()},
            fits=int(per_node.sum()),
            nodes=len(indexes),
            per_node=tuple(zip(indexes.tolist(), per_node[indexes].tolist(), strict=True)),
            domains=domains,
        )


def _fits(columns: NodeColumns, requests: Mapping[str, int]) -> NDArray[np.int64]:
    """Return int64[row], how many pods fit."""
    fits = np.where(
        columns.alive & ~columns.unschedulable, np.maximum(columns.allowed_pods - columns.pod_count, 0), 0
    ).astype(np.int64)
    for name, amount in requests.items():
        column = columns.resources.find(name)
        if column is None:
            return np.zeros_like(fits)
        free = np.maximum(columns.allocatable[column] - columns.requested[column], 0)
        fits = np.minimum(fits, free // amount)
    return fits


def _domains(columns: NodeColumns, shape: Shape, fits: NDArray[np.int64]) -> tuple[DomainRoom, ...]:
    # Read from the nodes: a label column would displace one that a pod uses.
    found: dict[str, int] = {}
    for row, room in enumerate(fits.tolist()):
        node = columns.nodes[row]
        name = None if node is None else node.metadata.labels.get(shape.key)
        if name is not None:
            found[name] = found.get(name, 0) + room
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(DomainRoom(shape.key, name, room) for name, room in ordered[:_DOMAINS] if room >= shape.count)
