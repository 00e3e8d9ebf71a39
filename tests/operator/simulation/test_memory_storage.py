"""The volume controller and the provisioners of a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.simulation.memory_cluster import MemoryCluster
from bayplan.simulation.memory_storage import MemoryStorage
from bayplan.simulation.simulated_clock import SimulatedClock
from msgspec.structs import replace

from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.model.storage import SELECTED_NODE, StorageObject
from scheduler_core.plugins.volume_binding.reserving import bound_volume
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from tests.support.storage import claim, storage_class, volume

CSI_CLASS = storage_class("fast", "csi.example.com")


def served(*objects: StorageObject) -> tuple[MemoryStorage, StorageIndex]:
    """Return storage, and the storage index of a scheduler that watches it."""
    scheduler = Scheduler(SimulatedClock(), MemoryCluster())
    storage = MemoryStorage()
    storage.serve(objects, scheduler.storage_feed)
    return storage, scheduler.context.cache.columns.storage


def of(original: Any, **fields: str) -> Any:
    """Return the object with other metadata."""
    return replace(original, metadata=replace(original.metadata, **fields))


async def test_binding_a_volume_binds_its_claim() -> None:
    """Both are reported before the write returns, the volume in the returned version."""
    free, waiting = volume("v", version="41"), claim("c", version="40")
    storage, known = served(storage_class(), free, waiting)
    written = await storage.bind_volume(bound_volume(free, waiting))
    assert known.volumes.get("v") is written is storage.volume("v")
    assert int(written.metadata.resource_version) > 41
    bound = known.claims.get("default/c")
    assert bound is not None
    assert (bound.is_fully_bound, bound.spec.volume_name, bound.status.phase) == (True, "v", "Bound")


async def test_selecting_a_node_creates_a_volume() -> None:
    """The new volume has the requested size, is the driver's, and is bound to the claim."""
    waiting = claim("c", storage_class="fast", size="7Gi")
    storage, known = served(CSI_CLASS, waiting)
    annotations = {SELECTED_NODE: "n"}
    await storage.select_node(replace(waiting, metadata=replace(waiting.metadata, annotations=annotations)))
    bound = storage.claim("default", "c")
    assert bound is not None
    assert bound.is_fully_bound
    assert bound.metadata.annotations[SELECTED_NODE] == "n"
    made = known.volumes.get(bound.spec.volume_name)
    assert made is not None
    assert made.is_reserved_for(bound)
    assert (made.spec.capacity, made.spec.storage_class_name) == ({"storage": "7Gi"}, "fast")
    assert made.spec.csi is not None
    assert made.spec.csi.driver == "csi.example.com"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({"name": "gone"}, NotFoundError, id="gone"),
        pytest.param({"uid": "another"}, NotFoundError, id="another of that name"),
        pytest.param({"resource_version": "0"}, ConflictError, id="changed since"),
    ],
)
async def test_rejects_writes_as_the_api_server_does(fields: dict[str, str], error: type[Exception]) -> None:
    """A write fails if the object was recreated or has another version."""
    free, waiting = volume("v"), claim("c", storage_class="fast")
    storage, known = served(CSI_CLASS, free, waiting)
    with pytest.raises(error):
        await storage.bind_volume(of(free, **fields))
    with pytest.raises(error):
        await storage.select_node(of(waiting, **fields))
    assert (known.volumes.get("v"), known.claims.get("default/c")) == (free, waiting)
