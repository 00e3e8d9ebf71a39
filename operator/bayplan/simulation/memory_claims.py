"""Resource claims in memory, with drivers whose binding conditions come true at once.

Implements :class:`scheduler_core.ports.ClaimWriter`. A write happens immediately and is reported before its response,
from a binding or a background task and therefore between two cycles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from bayplan.simulation.storage_admission import uid_of
from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.model.devices import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceCondition,
    ResourceClaim,
    ResourceClaimStatus,
)
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod
from scheduler_core.snapshot.indexes.device_index import DeviceObject

WritePodStatus = Callable[[Pod, ExtendedResourceClaimStatus], None]
"""Writes ``status.extendedResourceClaimStatus`` of a pod."""


class MemoryClaims:
    """Resource claims by key."""

    def __init__(self, write_pod_status: WritePodStatus) -> None:
        self._write_pod_status = write_pod_status
        self._feed: DeviceFeed | None = None
        self._claims: dict[str, ResourceClaim] = {}
        self._versions = itertools.count(1)

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """Current claims."""
        return tuple(self._claims.values())

    def serve(self, objects: Iterable[DeviceObject], feed: DeviceFeed) -> None:
        """Store the initial claims, and report them, all other objects, and every later change of a claim."""
        self._feed = feed
        highest = 0
        for each in objects:
            if isinstance(each, ResourceClaim):
                version = each.metadata.resource_version
                highest = max(highest, int(version) if version.isdecimal() else 0)
                self._claims[each.key] = each
            feed.added(each)
        self._versions = itertools.count(highest + 1)

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the current version of a claim.

        Raises:
            NotFoundError: It does not exist.
        """
        current = self._claims.get(claim.key)
        if current is None:
            raise NotFoundError(f"resource claim {claim.key} not found")
        return current

    async def write_finalizers(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the finalizers.

        Raises:
            NotFoundError: The claim does not exist.
            ConflictError: The claim has another version.
        """
        current = self._checked(claim)
        return self._put(replace(current, metadata=replace(current.metadata, finalizers=claim.metadata.finalizers)))

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the allocation, the reservations, and the binding conditions that drivers report.

        Raises:
            NotFoundError: The claim does not exist.
            ConflictError: The claim has another version.
        """
        given = claim.status
        status = ResourceClaimStatus(given.allocation, given.reserved_for, _fulfilled(given.allocation))
        return self._put(replace(self._checked(claim), status=status))

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        """Write the reservations and the allocation with its timestamp.

        Raises:
            NotFoundError: The claim does not exist.
            ConflictError: The claim has another version.
        """
        current = self._checked(claim)
        status = replace(current.status, allocation=claim.status.allocation, reserved_for=claim.status.reserved_for)
        return self._put(replace(current, status=status))

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Remove the allocation, the reservations and the states of devices.

        Raises:
            NotFoundError: The claim does not exist.
            ConflictError: The claim has another version.
        """
        return self._put(replace(self._checked(claim), status=ResourceClaimStatus()))

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Remove one consumer, whatever the version of the claim is.

        Raises:
            NotFoundError: The claim does not exist.
        """
        current = await self.read(claim)
        remaining = tuple(each for each in current.status.reserved_for if each.uid != consumer_uid)
        return self._put(replace(current, status=replace(current.status, reserved_for=remaining)))

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim for the extended resources of its owner."""
        owner = claim.metadata.owner_references[0]
        version = str(next(self._versions))
        name = f"{owner.name}-extended-resources-{version}"
        uid = uid_of("ResourceClaim", claim.metadata.namespace, f"{owner.uid}/{name}")
        metadata = replace(claim.metadata, name=name, uid=uid, resource_version=version)
        created = self._claims[f"{metadata.namespace}/{name}"] = ResourceClaim(metadata, claim.spec)
        if self._feed is not None:
            self._feed.added(created)
        return created

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim; no error if it does not exist."""
        current = self._claims.get(claim.key)
        if current is not None and current.metadata.uid == claim.metadata.uid:
            del self._claims[claim.key]
            if self._feed is not None:
                self._feed.deleted(current)

    async def write_extended_claim(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Write a pod's ``status.extendedResourceClaimStatus``."""
        self._write_pod_status(pod, status)

    def _checked(self, claim: ResourceClaim) -> ResourceClaim:
        current = self._claims.get(claim.key)
        if current is None or current.metadata.uid != claim.metadata.uid:
            raise NotFoundError(f"resource claim {claim.key} not found")
        if current.metadata.resource_version != claim.metadata.resource_version:
            raise ConflictError(f"resource claim {claim.key} has been modified; apply the change to the latest version")
        return current

    def _put(self, claim: ResourceClaim) -> ResourceClaim:
        new = replace(claim, metadata=replace(claim.metadata, resource_version=str(next(self._versions))))
        old = self._claims[new.key]
        self._claims[new.key] = new
        if self._feed is not None:
            self._feed.updated(old, new)
        return new


def _fulfilled(allocation: AllocationResult | None) -> tuple[AllocatedDeviceStatus, ...]:
    """Return the states of allocated devices that have binding conditions, with all of them true."""
    return tuple(
        AllocatedDeviceStatus(
            each.driver,
            each.pool,
            each.device,
            each.share_id,
            tuple(DeviceCondition(name, "True") for name in each.binding_conditions),
        )
        for each in (() if allocation is None else allocation.devices.results)
        if each.binding_conditions
    )
