"""Resource claims in memory with resource versions as in an API server, and a record of the calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod


@dataclass
class RecordingClaimWriter:
    """Implementation of :class:`scheduler_core.ports.ClaimWriter`.

    Attributes:
        claims: Stored claims by key; a write with another version than the stored one is a conflict.
        failures: Errors of the next writes, one for each.
        calls: Names of the called methods, in order.
        extended: Statuses written to pods, by key of the pod.
    """

    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    failures: list[ClusterWriteError] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    extended: dict[str, ExtendedResourceClaimStatus] = field(default_factory=dict)

    def store(self, claim: ResourceClaim) -> ResourceClaim:
        """Store a claim with a new version, as another writer does; return it."""
        stored = self.claims.get(claim.key)
        version = int(stored.metadata.resource_version or 0) + 1 if stored is not None else 1
        claim = replace(claim, metadata=replace(claim.metadata, resource_version=str(version)))
        self.claims[claim.key] = claim
        return claim

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the stored claim."""
        self.calls.append("read")
        if claim.key not in self.claims:
            raise NotFoundError(f"{claim.key} not found")
        return self.claims[claim.key]

    async def write_finalizers(self, claim: ResourceClaim) -> ResourceClaim:
        """Store the finalizers."""
        stored = self._begin("write_finalizers", claim)
        return self.store(replace(stored, metadata=replace(stored.metadata, finalizers=claim.metadata.finalizers)))

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Store the allocation and the reservations."""
        return self.store(replace(self._begin("write_allocation", claim), status=claim.status))

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        """Store the reservations."""
        return self.store(replace(self._begin("write_reservation", claim), status=claim.status))

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Store an empty status."""
        return self.store(replace(self._begin("deallocate", claim), status=ResourceClaimStatus()))

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Remove a consumer without a check of the version."""
        self.calls.append("end_reservation")
        stored = self.claims[claim.key]
        left = tuple(each for each in stored.status.reserved_for if each.uid != consumer_uid)
        return self.store(replace(stored, status=replace(stored.status, reserved_for=left)))

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Store a claim with a generated name."""
        self.calls.append("create")
        if self.failures:
            raise self.failures.pop(0)
        name = f"generated-{len(self.claims)}"
        return self.store(replace(claim, metadata=replace(claim.metadata, name=name, uid=f"uid-of-{name}")))

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim."""
        self._begin("delete", claim)
        del self.claims[claim.key]

    async def write_extended_claim(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Record the status."""
        self.calls.append("write_extended_claim")
        self.extended[pod.key] = status

    def _begin(self, call: str, claim: ResourceClaim) -> ResourceClaim:
        """Return the stored claim; raise a conflict if the caller has another version."""
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)
        stored = self.claims.get(claim.key)
        if stored is None:
            raise NotFoundError(f"{claim.key} not found")
        if (stored.metadata.uid, stored.metadata.resource_version) != (
            claim.metadata.uid,
            claim.metadata.resource_version,
        ):
            raise ConflictError("the object has been modified")
        return stored
