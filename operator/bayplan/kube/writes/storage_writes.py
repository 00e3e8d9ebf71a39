"""Writes to volumes and claims for the binding that the core decides.

They are patches with a resource version: the object is decoded only in part and cannot be written as a whole, and of
two concurrent binders only one may succeed.
"""

from __future__ import annotations

import msgspec

from bayplan.kube.http.connection import MERGE_PATCH, ApiConnection, ApiRequest
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.model.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)

_ENCODER = msgspec.json.Encoder()
_VOLUMES = ObjectJsonDecoder(PersistentVolume)
_CLAIMS = ObjectJsonDecoder(PersistentVolumeClaim)


class StorageWrites:
    """Implementation of :class:`scheduler_core.ports.StorageWriter`.

    Args:
        connection: Connection to the API server.
        timeout: Timeout of a request in seconds.
    """

    def __init__(self, connection: ApiConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Patch a volume's claimRef and its bound-by-controller annotation.

        Raises:
            ConflictError: The volume has changed in the meantime.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        path = f"/api/v1/persistentvolumes/{volume.metadata.name}"
        return _VOLUMES.decode(await self._patch(path, volume_patch(volume)))

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Patch a claim's selected node.

        Raises:
            ConflictError: The claim has changed in the meantime.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        metadata = claim.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/persistentvolumeclaims/{metadata.name}"
        return _CLAIMS.decode(await self._patch(path, claim_patch(claim)))

    async def _patch(self, path: str, body: bytes) -> bytes:
        request = ApiRequest("PATCH", path, body, content_type=MERGE_PATCH, timeout=self._timeout)
        return await self._connection.request(request)


def volume_patch(volume: PersistentVolume) -> bytes:
    """Encode the merge patch of a volume that is bound to the claim of its ``claim_ref``."""
    mark = volume.metadata.annotations.get(BOUND_BY_CONTROLLER)
    pointer = volume.spec.claim_ref
    body = {
        "metadata": _precondition(volume) | ({} if mark is None else {"annotations": {BOUND_BY_CONTROLLER: mark}}),
        "spec": {
            "claimRef": None
            if pointer is None
            else {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": pointer.namespace,
                "name": pointer.name,
                "uid": pointer.uid,
            }
        },
    }
    return _ENCODER.encode(body)


def claim_patch(claim: PersistentVolumeClaim) -> bytes:
    """Encode the merge patch of a claim for which a node was selected."""
    node = claim.metadata.annotations.get(SELECTED_NODE)
    return _ENCODER.encode({"metadata": _precondition(claim) | {"annotations": {SELECTED_NODE: node}}})


def _precondition(shown: PersistentVolume | PersistentVolumeClaim) -> dict[str, object]:
    return {"uid": shown.metadata.uid, "resourceVersion": shown.metadata.resource_version}
