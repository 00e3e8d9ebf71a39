"""Writes to resource claims, volumes and volume claims for what the core allocates and binds.

They are patches with a resource version.
"""

from __future__ import annotations

import msgspec

from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.served_apis import DeviceApi
from scheduler_core.errors import NotFoundError
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod
from scheduler_core.model.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim

_ENCODER = msgspec.json.Encoder()
_CLAIMS = ObjectJsonDecoder(ResourceClaim)


class _Writes:
    def __init__(self, connection: ApiConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout

    async def _patch(self, path: str, body: object, content_type: str = MERGE_PATCH, lane: Lane = Lane.WRITES) -> bytes:
        encoded = _ENCODER.encode(body)
        request = ApiRequest("PATCH", path, encoded, content_type=content_type, timeout=self._timeout, lane=lane)
        return await self._connection.request(request)


class ClaimWrites(_Writes):
    """Implementation of :class:`scheduler_core.ports.ClaimWriter`.

    Every method raises what :meth:`ApiConnection.request` raises, and with a resource version ConflictError if the
    object has changed in the meantime.
    """

    def __init__(self, connection: ApiConnection, timeout: float, api: DeviceApi | None = None) -> None:
        super().__init__(connection, timeout)
        self._api = DeviceApi() if api is None else api

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        """Read a claim; raises NotFoundError if it does not exist."""
        request = ApiRequest("GET", self._path(claim), timeout=self._timeout, lane=Lane.READS)
        return _CLAIMS.decode(await self._connection.request(request))

    async def write_finalizers(self, claim: ResourceClaim) -> ResourceClaim:
        # The lane of binds for what a bind waits for: it has as many connections as there are binds at a time, and no
        # event delays this write.
        body = {"metadata": _precondition(claim) | {"finalizers": claim.metadata.finalizers}}
        return _CLAIMS.decode(await self._patch(self._path(claim), body, lane=Lane.BINDS))

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch ``status.allocation`` and ``status.reservedFor`` of a claim without an allocation."""
        # Needs the verb patch on resourceclaims/status and on the synthetic resourceclaims/binding (KEP-4381).
        status = {"allocation": claim.status.allocation, "reservedFor": claim.status.reserved_for}
        return await self._patch_status(claim, status, lane=Lane.BINDS)

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch ``status.reservedFor`` and the allocation's timestamp; the other fields of the allocation stay."""
        allocation = claim.status.allocation
        stamp = None if allocation is None else allocation.allocation_timestamp
        dated: dict[str, object] = {} if stamp is None else {"allocation": {"allocationTimestamp": stamp}}
        return await self._patch_status(claim, dated | {"reservedFor": claim.status.reserved_for}, lane=Lane.BINDS)

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch ``status`` to remove the allocation, the reservations and the device states."""
        return await self._patch_status(claim, {"allocation": None, "reservedFor": None, "devices": None})

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Remove an entry of ``status.reservedFor``."""
        # A strategic merge patch removes the entry by its UID, so it does not need the latest version of the list.
        body = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": consumer_uid}]},
        }
        return _CLAIMS.decode(await self._patch(f"{self._path(claim)}/status", body, STRATEGIC_MERGE_PATCH))

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        path = f"{self._api.path}/namespaces/{path_part(claim.metadata.namespace)}/resourceclaims"
        request = ApiRequest("POST", path, _ENCODER.encode(new_claim(claim)), timeout=self._timeout, lane=Lane.BINDS)
        return _CLAIMS.decode(await self._connection.request(request))

    async def delete(self, claim: ResourceClaim) -> None:
        body = _ENCODER.encode({"preconditions": {"uid": claim.metadata.uid}})
        request = ApiRequest("DELETE", self._path(claim), body, timeout=self._timeout)
        try:
            await self._connection.request(request)
        except NotFoundError:
            return

    async def write_extended_claim(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Patch ``status.extendedResourceClaimStatus`` of a pod."""
        meta = pod.metadata
        path = f"/api/v1/namespaces/{path_part(meta.namespace)}/pods/{path_part(meta.name)}/status"
        body = {"metadata": {"uid": meta.uid}, "status": {"extendedResourceClaimStatus": status}}
        await self._patch(path, body, STRATEGIC_MERGE_PATCH, Lane.BINDS)

    def _path(self, claim: ResourceClaim) -> str:
        meta = claim.metadata
        return f"{self._api.path}/namespaces/{path_part(meta.namespace)}/resourceclaims/{path_part(meta.name)}"

    async def _patch_status(self, claim: ResourceClaim, status: object, lane: Lane = Lane.WRITES) -> ResourceClaim:
        body = {"metadata": _precondition(claim), "status": status}
        return _CLAIMS.decode(await self._patch(f"{self._path(claim)}/status", body, lane=lane))


def new_claim(claim: ResourceClaim) -> dict[str, object]:
    """Return a claim as it is created for the extended resources of a pod."""
    meta = claim.metadata
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
        for owner in meta.owner_references
    ]
    return {
        "metadata": {
            "namespace": meta.namespace,
            "generateName": f"{meta.owner_references[0].name}-extended-resources-",
            "annotations": meta.annotations,
            # Not added later, so that the claim is protected from its creation.
            "finalizers": meta.finalizers,
            "ownerReferences": owners,
        },
        "spec": {"devices": claim.spec.devices},
    }


def _precondition(stored: ResourceClaim | PersistentVolume | PersistentVolumeClaim) -> dict[str, object]:
    # A patch, because the object is decoded only in part and cannot be written as a whole; with the version, because
    # only one of two concurrent schedulers may succeed.
    return {"uid": stored.metadata.uid, "resourceVersion": stored.metadata.resource_version}


_VOLUMES = ObjectJsonDecoder(PersistentVolume)
_VOLUME_CLAIMS = ObjectJsonDecoder(PersistentVolumeClaim)


class StorageWrites(_Writes):
    """Implementation of :class:`scheduler_core.ports.StorageWriter`.

    Every method raises what :meth:`ApiConnection.request` raises, and ConflictError if the object has changed in the
    meantime.
    """

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Patch a volume's claimRef, and its bound-by-controller annotation if that is set."""
        mark, pointer = volume.metadata.annotations.get(BOUND_BY_CONTROLLER), volume.spec.claim_ref
        # Omitted if it is not set, because a null in a merge patch would delete the annotation.
        annotations = {} if mark is None else {"annotations": {BOUND_BY_CONTROLLER: mark}}
        reference = pointer and {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": pointer.namespace,
            "name": pointer.name,
            "uid": pointer.uid,
        }
        body = {"metadata": _precondition(volume) | annotations, "spec": {"claimRef": reference}}
        return _VOLUMES.decode(await self._patch(f"/api/v1/persistentvolumes/{volume.metadata.name}", body))

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        metadata = claim.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/persistentvolumeclaims/{metadata.name}"
        annotations = {SELECTED_NODE: metadata.annotations.get(SELECTED_NODE)}
        body = {"metadata": _precondition(claim) | {"annotations": annotations}}
        return _VOLUME_CLAIMS.decode(await self._patch(path, body))
