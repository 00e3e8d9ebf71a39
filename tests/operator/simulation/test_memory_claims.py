"""Tests of writes to the resource claims of a simulated cluster."""

from __future__ import annotations

import pytest
from bayplan.simulation.memory_cluster import MemoryClaims, MemoryCluster, SimulatedClock
from msgspec.structs import replace

from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.model.devices import ClaimConsumer, ResourceClaim
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import ExtendedResourceClaimStatus
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.support.builders import pod
from tests.support.devices import allocated_claim, claim, exactly
from tests.support.presence import present
from tests.support.tables import table

WAITING = claim(exactly("r"), name="c")


def claims_with_index(*objects: ResourceClaim) -> tuple[MemoryClaims, DeviceIndex]:
    """Return claims, and the device index of a scheduler that watches them."""
    world = MemoryCluster()
    scheduler = Scheduler(SimulatedClock(), world)
    world.claims.serve(objects, scheduler.device_feed)
    return world.claims, scheduler.context.cache.columns.devices


def used_by(given: ResourceClaim, *uids: str) -> ResourceClaim:
    """Return a claim with an allocation that is reserved for these pods."""
    reserved = tuple(ClaimConsumer("pods", uid, uid) for uid in uids)
    allocation = allocated_claim({"device": "d0", "bindingConditions": ["ready"]}).status.allocation
    return replace(given, status=replace(given.status, allocation=allocation, reserved_for=reserved))


async def test_a_write_is_reported_before_it_returns() -> None:
    """When a write returns, the index has the written version with the binding conditions of its devices."""
    claims, index = claims_with_index(WAITING)
    protected = await claims.write_finalizers(replace(WAITING, metadata=replace(WAITING.metadata, finalizers=("f",))))
    written = await claims.write_allocation(used_by(protected, "a"))
    assert index.claims.get("ns/c") is written is await claims.read(WAITING)
    assert (written.metadata.finalizers, [each.uid for each in written.status.reserved_for]) == (("f",), ["a"])
    assert [(one.type, one.status) for each in written.status.devices for one in each.conditions] == [("ready", "True")]
    usage = present(index.hardware.allocated.usage(("gpu.example.com", "n0")))
    assert usage.uses("d0")


async def test_reservations_end_one_by_one() -> None:
    """The allocation of a claim stays when a reservation ends, until it is deallocated."""
    claims, index = claims_with_index(WAITING)
    written = await claims.write_reservation(used_by(WAITING, "a", "b"))
    await claims.end_reservation(WAITING, "a")
    left = await claims.read(WAITING)
    assert [each.uid for each in left.status.reserved_for] == ["b"]
    assert left.status.allocation == written.status.allocation
    await claims.deallocate(left)
    assert index.hardware.allocated.usage(("gpu.example.com", "n0")) is None


@table(
    "fields, error",
    ("gone", {"name": "gone"}, NotFoundError),
    ("another claim of the name", {"uid": "another"}, NotFoundError),
    ("changed", {"resource_version": "0"}, ConflictError),
)
async def test_stale_writes_are_rejected(fields: dict[str, str], error: type[Exception]) -> None:
    """A write to a recreated or changed claim fails and changes nothing."""
    claims, index = claims_with_index(WAITING)
    stale = used_by(replace(WAITING, metadata=replace(WAITING.metadata, **fields)), "a")
    for write in (claims.write_finalizers, claims.write_allocation, claims.write_reservation, claims.deallocate):
        with pytest.raises(error):
            await write(stale)
    assert index.claims.get("ns/c") is WAITING


async def test_claims_of_extended_resources() -> None:
    """The name of a created claim is generated from its owner, and a second deletion is no error."""
    claims, index = claims_with_index()
    owner = OwnerReference("Pod", "web", "uid-of-web", "v1", controller=True)
    made = await claims.create(replace(WAITING, metadata=replace(WAITING.metadata, owner_references=(owner,))))
    assert made.metadata.name.startswith("web-extended-resources-")
    assert list(index.claims) == [made]
    await claims.delete(made)
    await claims.delete(made)
    assert list(index.claims) == []


async def test_a_pod_records_its_extended_claim() -> None:
    """The status of a pod names its extended resource claim, and a missing pod is an error."""
    world = MemoryCluster()
    web = pod("web")
    world.add_pod(web)
    await world.claims.write_extended_claim(web, ExtendedResourceClaimStatus((), "web-x"))
    found = present(world.pod(web.metadata.namespace, "web"))
    assert found.status.extended_resource_claim_status == ExtendedResourceClaimStatus((), "web-x")
    with pytest.raises(NotFoundError):
        await world.claims.write_extended_claim(pod("gone"), ExtendedResourceClaimStatus((), "x"))
