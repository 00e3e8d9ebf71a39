"""Writes to resource claims for the allocations that the core decides.

They are patches with a resource version: the claim is decoded only in part and cannot be written as a whole, and of two
concurrent schedulers only one may succeed. Allocation and ``reservedFor`` need the verb patch on
``resourceclaims/status`` and on the synthetic ``resourceclaims/binding`` (KEP-4381).

Writes that a bind waits for use the connections of binds: there are as many of these as binds at a time, and no event
delays them.
"""

from __future__ import annotations

import msgspec

from bayplan.kube.device_api import DeviceApi
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import NotFoundError
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod

_ENCODER = msgspec.json.Encoder()
_CLAIMS = ObjectJsonDecoder(ResourceClaim)


class ClaimWrites:
    """Implementation of :class:`scheduler_core.ports.ClaimWriter`.

    Args:
        connection: Connection to the API server.
        timeout: Timeout of a request in seconds.
        api: Version of the API that the server serves.
    """

    def __init__(self, connection: ApiConnection, timeout: float, api: DeviceApi | None = None) -> None:
        self._connection = connection
        self._timeout = timeout
        self._api = DeviceApi() if api is None else api

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        """Read a claim.

        Raises:
            NotFoundError: The claim does not exist.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        request = ApiRequest("GET", self._path(claim), timeout=self._timeout, lane=Lane.READS)
        return _CLAIMS.decode(await self._connection.request(request))

    async def write_finalizers(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch the finalizers.

        Raises:
            ConflictError: The claim has changed in the meantime.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        body = {"metadata": _precondition(claim) | {"finalizers": claim.metadata.finalizers}}
        return await self._patch(self._path(claim), body, lane=Lane.BINDS)

    async def write_allocation(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch ``status.allocation`` and ``status.reservedFor`` of a claim without an allocation.

        Raises:
            ConflictError: The claim has changed in the meantime.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        status = {"allocation": claim.status.allocation} | _reservation(claim)
        return await self._patch_status(claim, status, lane=Lane.BINDS)

    async def write_reservation(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch ``status.reservedFor`` and the allocation's timestamp; the other fields of the allocation stay.

        Raises:
            ConflictError: The claim has changed in the meantime.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        allocation = claim.status.allocation
        stamp = None if allocation is None else allocation.allocation_timestamp
        dated: dict[str, object] = {} if stamp is None else {"allocation": {"allocationTimestamp": stamp}}
        return await self._patch_status(claim, dated | _reservation(claim), lane=Lane.BINDS)

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Patch ``status`` to remove the allocation, the reservations and the device states.

        Raises:
            ConflictError: The claim has changed in the meantime.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        return await self._patch_status(claim, {"allocation": None, "reservedFor": None, "devices": None})

    async def end_reservation(self, claim: ResourceClaim, consumer_uid: str) -> ResourceClaim:
        """Remove an entry of ``status.reservedFor``; a strategic merge patch does not need the latest version.

        Raises:
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        body = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": consumer_uid}]},
        }
        return await self._patch(self._path(claim) + "/status", body, STRATEGIC_MERGE_PATCH)

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create a claim.

        Raises:
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        path = f"{self._api.path}/namespaces/{path_part(claim.metadata.namespace)}/resourceclaims"
        request = ApiRequest("POST", path, _ENCODER.encode(new_claim(claim)), timeout=self._timeout, lane=Lane.BINDS)
        return _CLAIMS.decode(await self._connection.request(request))

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim of this UID.

        Raises:
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        body = _ENCODER.encode({"preconditions": {"uid": claim.metadata.uid}})
        request = ApiRequest("DELETE", self._path(claim), body, timeout=self._timeout)
        try:
            await self._connection.request(request)
        except NotFoundError:
            return

    async def write_extended_claim(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """Patch ``status.extendedResourceClaimStatus`` of a pod.

        Raises:
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        meta = pod.metadata
        path = f"/api/v1/namespaces/{path_part(meta.namespace)}/pods/{path_part(meta.name)}/status"
        body = _ENCODER.encode({"metadata": {"uid": meta.uid}, "status": {"extendedResourceClaimStatus": status}})
        await self._connection.request(
            ApiRequest("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH, timeout=self._timeout, lane=Lane.BINDS)
        )

    def _path(self, claim: ResourceClaim) -> str:
        meta = claim.metadata
        return f"{self._api.path}/namespaces/{path_part(meta.namespace)}/resourceclaims/{path_part(meta.name)}"

    async def _patch_status(
        self, claim: ResourceClaim, status: dict[str, object], lane: Lane = Lane.WRITES
    ) -> ResourceClaim:
        body = {"metadata": _precondition(claim), "status": status}
        return await self._patch(self._path(claim) + "/status", body, lane=lane)

    async def _patch(
        self, path: str, body: object, content_type: str = MERGE_PATCH, lane: Lane = Lane.WRITES
    ) -> ResourceClaim:
        request = ApiRequest(
            "PATCH", path, _ENCODER.encode(body), content_type=content_type, timeout=self._timeout, lane=lane
        )
        return _CLAIMS.decode(await self._connection.request(request))


def _reservation(claim: ResourceClaim) -> dict[str, object]:
    return {"reservedFor": claim.status.reserved_for}


def new_claim(claim: ResourceClaim) -> dict[str, object]:
    """Return a claim as it is created for the extended resources of a pod."""
    meta = claim.metadata
    owners = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
        }
        for owner in meta.owner_references
    ]
    return {
        "metadata": {
            "namespace": meta.namespace,
            "generateName": f"{meta.owner_references[0].name}-extended-resources-",
            "annotations": meta.annotations,
            "finalizers": meta.finalizers,
            "ownerReferences": owners,
        },
        "spec": {"devices": claim.spec.devices},
    }


def _precondition(claim: ResourceClaim) -> dict[str, object]:
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
