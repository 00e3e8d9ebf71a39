"""Requests for resource claims: patches with preconditions, validation, and deletion with finalizers.

Follows kube-apiserver v1.37.1: an existing allocation cannot change, and can be removed only if no pod has the claim
reserved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from tests.simulation.api_server import DELETION_TIME, ApiServer, Response, status_response
from tests.simulation.device_objects import API, DEVICE_CLASSES, RESOURCE_CLAIMS, SLICES, TAINT_RULES

_SERVED = [{"name": path.rsplit("/", 1)[1]} for path in (RESOURCE_CLAIMS, SLICES, DEVICE_CLASSES, TAINT_RULES)]
_MAXIMUM_CONSUMERS = 256
Written = Callable[[ResourceClaim, ResourceClaim, str], None]
"""Called with a claim before and after a write of its status, and with the client."""


class DeviceApi:
    """API of resource claims.

    Args:
        server: Stores the claims.

    Attributes:
        on_written: See :data:`Written`.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.on_written: Written = lambda *_: None

    def respond(self, method: str, path: str, document: dict[str, Any], client: str) -> Response:
        """Process a request below ``/apis/resource.k8s.io/v1``, except for lists."""
        if path == API:
            return 200, msgspec.json.encode({"resources": _SERVED})
        if method == "POST":
            return 201, msgspec.json.encode(self._create(document))
        is_status = path.endswith("/status")
        name = path.removesuffix("/status").rsplit("/", 1)[1]
        claim = self.claim(name)
        if claim is None:
            return status_response(404, f'resourceclaims "{name}" not found')
        if method == "GET":
            return 200, msgspec.json.encode(claim)
        if method == "DELETE":
            if document["preconditions"]["uid"] != claim.metadata.uid:
                return status_response(409, f"the UID in the precondition does not match that of {name}")
            self.delete(claim)
            return 200, b"{}"
        meta = document["metadata"]
        version = meta.get("resourceVersion", claim.metadata.resource_version)
        if meta["uid"] != claim.metadata.uid or version != claim.metadata.resource_version:
            return status_response(409, f"the object {name} has been modified; please apply your changes to the latest")
        if not is_status:
            return 200, msgspec.json.encode(self._write_finalizers(claim, tuple(meta["finalizers"])))
        status = _patched(claim.status, document["status"])
        problem = _invalid(claim.status, status)
        if problem:
            return status_response(422, f"resourceclaims {name} is invalid: {problem}")
        written = self._server.put(RESOURCE_CLAIMS, replace(claim, status=status))
        self.on_written(claim, written, client)
        return 200, msgspec.json.encode(written)

    def claim(self, name: str) -> ResourceClaim | None:
        """Return a claim by name."""
        found: ResourceClaim | None = self._server.collection(RESOURCE_CLAIMS).objects.get(name)
        return found

    def claims(self) -> list[ResourceClaim]:
        """Return every claim."""
        return list(self._server.objects(RESOURCE_CLAIMS))

    def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim, at once if it has no finalizers."""
        if not claim.metadata.finalizers:
            self._server.remove(RESOURCE_CLAIMS, claim.metadata.name)
        elif claim.metadata.deletion_timestamp is None:
            metadata = replace(claim.metadata, deletion_timestamp=DELETION_TIME)
            self._server.put(RESOURCE_CLAIMS, replace(claim, metadata=metadata))

    def _create(self, document: dict[str, Any]) -> ResourceClaim:
        """Create a claim; the server completes its name from ``generateName``."""
        uid = self._server.new_uid(document["metadata"]["generateName"].rstrip("-"))
        body = {**document, "metadata": {**document["metadata"], "name": uid, "uid": uid}}
        created: ResourceClaim = self._server.put(RESOURCE_CLAIMS, msgspec.convert(body, ResourceClaim))
        return created

    def _write_finalizers(self, claim: ResourceClaim, finalizers: tuple[str, ...]) -> ResourceClaim:
        written = replace(claim, metadata=replace(claim.metadata, finalizers=finalizers))
        if claim.metadata.deletion_timestamp is not None and not finalizers:
            self._server.remove(RESOURCE_CLAIMS, claim.metadata.name)
            return written
        stored: ResourceClaim = self._server.put(RESOURCE_CLAIMS, written)
        return stored


def _patched(status: ResourceClaimStatus, patch: dict[str, Any]) -> ResourceClaimStatus:
    """Apply a merge patch, or the strategic merge patch that removes a consumer."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    consumers = patch.get("reservedFor") or ()
    removed = {each["uid"] for each in consumers if each.get("$patch") == "delete"}
    if removed:
        body["reservedFor"] = [each for each in body.get("reservedFor", ()) if each["uid"] not in removed]
    else:
        _merge(body, patch)
    return msgspec.json.decode(msgspec.json.encode(body), type=ResourceClaimStatus)


def _merge(body: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            body.pop(key, None)
        elif isinstance(value, dict) and isinstance(body.get(key), dict):
            _merge(body[key], value)
        else:
            body[key] = value


def _invalid(old: ResourceClaimStatus, new: ResourceClaimStatus) -> str:
    if new.allocation is None and new.reserved_for:
        return "status.reservedFor: may not be specified when `allocated` is not set"
    if old.allocation is not None and new.allocation is not None and old.allocation.devices != new.allocation.devices:
        return "status.allocation: field is immutable"
    if len(new.reserved_for) > _MAXIMUM_CONSUMERS:
        return "status.reservedFor: too many"
    if len({each.uid for each in new.reserved_for}) < len(new.reserved_for):
        return "status.reservedFor: duplicate value"
    return ""
