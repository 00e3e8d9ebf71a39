"""Tests of the volume controller and the provisioners of a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.simulation.memory_cluster import MemoryCluster, MemoryStorage, SimulatedClock
from msgspec.structs import replace

from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.model.storage import SELECTED_NODE, StorageObject
from scheduler_core.plugins.volume_binding import bound_volume
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from tests.support.presence import present
from tests.support.storage import claim, storage_class, volume
from tests.support.tables import table

CSI_CLASS = storage_class("fast", "csi.example.com")


def storage_with_index(*objects: StorageObject) -> tuple[MemoryStorage, StorageIndex]:
    """Return storage, and the storage index of a scheduler that watches it."""
    scheduler = Scheduler(SimulatedClock(), MemoryCluster())
    storage = MemoryStorage()
    storage.serve(objects, scheduler.storage_feed)
    return storage, scheduler.context.cache.columns.storage


def with_metadata(original: Any, **fields: str) -> Any:
    """Return the object with other metadata."""
    return replace(original, metadata=replace(original.metadata, **fields))


async def test_binding_a_volume_binds_its_claim() -> None:
    """When a volume is bound, its claim is bound, and both are reported before the write returns."""
    free, waiting = volume("v", version="41"), claim("c", version="40")
    storage, index = storage_with_index(storage_class(), free, waiting)
    written = await storage.bind_volume(bound_volume(free, waiting))
    assert index.volumes.get("v") is written
    assert int(written.metadata.resource_version) > 41
    bound = present(index.claims.get("default/c"))
    assert (bound.is_fully_bound, bound.spec.volume_name, bound.status.phase) == (True, "v", "Bound")


async def test_selecting_a_node_creates_a_volume() -> None:
    """A selected node causes a new volume of the requested size that is bound to the claim."""
    waiting = claim("c", storage_class="fast", size="7Gi")
    storage, index = storage_with_index(CSI_CLASS, waiting)
    annotations = {SELECTED_NODE: "n"}
    await storage.select_node(replace(waiting, metadata=replace(waiting.metadata, annotations=annotations)))
    bound = present(index.claims.get("default/c"))
    assert bound.is_fully_bound
    assert bound.metadata.annotations[SELECTED_NODE] == "n"
    made = present(index.volumes.get(bound.spec.volume_name))
    assert made.is_reserved_for(bound)
    assert (made.spec.capacity, made.spec.storage_class_name) == ({"storage": "7Gi"}, "fast")
    assert made.spec.csi is not None
    assert made.spec.csi.driver == "csi.example.com"


@table(
    "fields, error",
    ("gone", {"name": "gone"}, NotFoundError),
    ("another object of the name", {"uid": "another"}, NotFoundError),
    ("changed", {"resource_version": "0"}, ConflictError),
)
async def test_stale_writes_are_rejected(fields: dict[str, str], error: type[Exception]) -> None:
    """A write to a recreated or changed object fails and changes nothing."""
    free, waiting = volume("v"), claim("c", storage_class="fast")
    storage, index = storage_with_index(CSI_CLASS, free, waiting)
    with pytest.raises(error):
        await storage.bind_volume(with_metadata(free, **fields))
    with pytest.raises(error):
        await storage.select_node(with_metadata(waiting, **fields))
    assert (index.volumes.get("v"), index.claims.get("default/c")) == (free, waiting)
