"""In-memory API server: objects, versions, history, and the requests that the operator sends.

Objects are stored as the structs that the operator decodes, and sent as JSON. :mod:`tests.simulation.network` injects
network faults and delays.

Follows kube-apiserver v1.36.3 as far as the operator can observe it: all resources share one version counter, a bind of
a bound pod or with another UID gets status 409, an unbound pod is deleted at once and a bound one when its kubelet has
stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod, PodCondition
from scheduler_core.model.storage import ClaimPointer, PersistentVolume, PersistentVolumeClaim

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
NAMESPACES = "/api/v1/namespaces"
NAMESPACE = "default"
OPERATOR = "operator"
DELETION_TIME = datetime(2026, 1, 1, tzinfo=UTC)
Response = tuple[int, bytes]
"""Status code and body."""

DeviceRequest = Callable[[str, str, Any, str], Response]
"""Handles a request: method, path, body and client."""

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.decode


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a resource's history: the version, and the line that a watch sends."""

    version: int
    line: bytes


@dataclass(slots=True)
class Collection:
    """Objects of one resource.

    Attributes:
        objects: Objects by name.
        history: Changes that a watch can replay.
        compacted: Version up to which the history was compacted.
        listeners: Called with each change.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    compacted: int = 0
    listeners: list[Callable[[Change], None]] = field(default_factory=list)


class ApiServer:
    """The server.

    Attributes:
        version: Version of the last change of any object.
        on_bound: Called with each pod that is bound, and the client that bound it.
        on_deletion: Called with each bound pod that is deleted and has to terminate.
        on_event: Called with each Event that is created.
        on_device_request: Handles requests for resource claims, and the discovery of their API.
        on_group_request: Handles requests for PodGroups.
        on_reservation_request: Handles requests for NodeReservations.
        on_plan_request: Handles requests for RebalancePlans.
        on_eviction: Evicts a pod of a name and a UID.
        annotations: Annotations of pods by UID, which only a read returns.
    """

    def __init__(self) -> None:
        self.version = 100
        self.on_bound: Callable[[Pod, str], None] = lambda _, __: None
        self.on_deletion: Callable[[Pod], None] = lambda _: None
        self.on_event: Callable[[dict[str, Any]], None] = lambda _: None
        self.on_device_request: DeviceRequest = lambda _, path, __, ___: status_response(404, path)
        self.on_group_request: DeviceRequest = lambda _, path, __, ___: status_response(404, path)
        self.on_plan_request: DeviceRequest = lambda _, path, __, ___: status_response(404, path)
        self.on_eviction: Callable[[str, str], Response] = lambda name, _: status_response(404, name)
        self.on_reservation_request: DeviceRequest = lambda _, path, __, ___: status_response(404, path)
        self.annotations: dict[str, dict[str, str]] = {}
        self._collections: dict[str, Collection] = {}
        self._uids = 0

    def collection(self, path: str) -> Collection:
        """Return the collection of a path such as ``/api/v1/pods``."""
        found = self._collections.get(path)
        if found is None:
            found = self._collections[path] = Collection()
        return found

    def objects(self, path: str) -> list[Any]:
        """Return all objects of a path, sorted by name."""
        objects = self.collection(path).objects
        return [objects[name] for name in sorted(objects)]

    def pods(self) -> Iterator[Pod]:
        """Yield every pod, in the order of creation."""
        yield from self.collection(PODS).objects.values()

    def pod(self, name: str) -> Pod | None:
        """Return a pod by name."""
        found: Pod | None = self.collection(PODS).objects.get(name)
        return found

    # -- changes by other clients ---------------------------------------------------------------------------------

    def new_uid(self, name: str) -> str:
        """Return a unique UID."""
        self._uids += 1
        return f"{name}-{self._uids:04d}"

    def put(self, path: str, obj: Any) -> Any:
        """Create or replace an object, and return it with its new version."""
        collection = self.collection(path)
        name = obj.metadata.name
        self.version += 1
        new = replace(obj, metadata=replace(obj.metadata, resource_version=str(self.version)))
        verb = b"MODIFIED" if name in collection.objects else b"ADDED"
        collection.objects[name] = new
        self._notify(collection, verb, new)
        return new

    def remove(self, path: str, name: str) -> Any:
        """Delete an object at once; return its last state, or None if it does not exist."""
        collection = self.collection(path)
        deleted = collection.objects.pop(name, None)
        if deleted is not None:
            self.version += 1
            deleted = replace(deleted, metadata=replace(deleted.metadata, resource_version=str(self.version)))
            self._notify(collection, b"DELETED", deleted)
        return deleted

    def compact(self, path: str) -> None:
        """Compact a resource's history, so that a disconnected watch has to list again."""
        collection = self.collection(path)
        collection.compacted = self.version
        collection.history.clear()

    def bind(self, name: str, uid: str, node_name: str, client: str) -> Response:
        """Bind a pod."""
        pod = self.pod(name)
        if pod is None:
            return status_response(404, f'pods "{name}" not found')
        if pod.metadata.uid != uid:
            return status_response(409, f"the UID in the precondition ({uid}) does not match ({pod.metadata.uid})")
        if pod.spec.node_name:
            return status_response(409, f"pod {name} is already assigned to node {pod.spec.node_name}")
        if pod.metadata.deletion_timestamp is not None:
            return status_response(409, f"pod {name} is being deleted, cannot be assigned to a host")
        conditions = _with_condition(pod.status.conditions, PodCondition("PodScheduled", "True"))
        bound = replace(
            pod, spec=replace(pod.spec, node_name=node_name), status=replace(pod.status, conditions=conditions)
        )
        self.on_bound(self.put(PODS, bound), client)
        return 201, b'{"kind":"Status","status":"Success"}'

    def delete_pod(self, name: str, uid: str = "") -> Response:
        """Delete a pod: at once if it is not bound, otherwise when its kubelet has stopped it."""
        pod = self.pod(name)
        if pod is None:
            return status_response(404, f'pods "{name}" not found')
        if uid and pod.metadata.uid != uid:
            return status_response(409, f"the UID in the precondition ({uid}) does not match ({pod.metadata.uid})")
        if not pod.spec.node_name or pod.is_terminal:
            self.remove(PODS, name)
        elif pod.metadata.deletion_timestamp is None:
            deleted_at = DELETION_TIME + timedelta(seconds=self.version)
            terminating = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=deleted_at))
            self.on_deletion(self.put(PODS, terminating))
        return 200, b"{}"

    # -- requests of the operator -------------------------------------------------------------------------------

    def respond(self, method: str, path: str, body: bytes | None, client: str = OPERATOR) -> Response:
        """Process one request, except for watches."""
        parts = path.split("/")
        document: Any = _DECODE(body) if body else {}
        if "/events.k8s.io/" in path:
            self.on_event(document)
            return 201, b"{}"
        if "/resource.k8s.io/" in path and (path.endswith("/v1") or "/namespaces/" in path):
            return self.on_device_request(method, path, document, client)
        if "/podgroups" in path:
            return self.on_group_request(method, path, document, client)
        if "/nodereservations" in path:
            return self.on_reservation_request(method, path, document, client)
        if "/rebalanceplans" in path:
            return self.on_plan_request(method, path, document, client)
        if parts[-1] == "eviction":
            return self.on_eviction(parts[-2], document["deleteOptions"]["preconditions"]["uid"])
        if method == "GET" and "/namespaces/" not in path:
            return self._list(path)
        if parts[-1] == "binding":
            meta = document["metadata"]
            return self.bind(meta["name"], meta["uid"], document["target"]["name"], client)
        if parts[-2] == "persistentvolumes":
            return self._patch_volume(parts[-1], document)
        if parts[-2] == "persistentvolumeclaims":
            return self._patch_claim(parts[-1], document)
        if parts[-1] == "status":
            return self._patch_status(parts[-2], document)
        if method == "DELETE":
            return self.delete_pod(parts[-1], document["preconditions"]["uid"])
        pod = self.pod(parts[-1])
        if pod is None:
            return status_response(404, f'pods "{parts[-1]}" not found')
        annotations = self.annotations.get(pod.metadata.uid)
        if annotations:
            annotated: dict[str, Any] = msgspec.to_builtins(pod)
            annotated["metadata"]["annotations"] = annotations
            return 200, _ENCODE(annotated)
        return 200, _ENCODE(pod)

    def initial_lines(self, path: str) -> list[bytes]:
        """Return the list of a resource as the lines with which a watch begins."""
        lines = [_line(b"ADDED", each) for each in self.objects(path)]
        mark = f'{{"resourceVersion":"{self.version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}'
        lines.append(b'{"type":"BOOKMARK","object":{"metadata":%b}}' % mark.encode())
        return lines

    def _list(self, path: str) -> Response:
        items = b",".join(_ENCODE(each) for each in self.objects(path))
        return 200, b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (self.version, items)

    def _patch_status(self, name: str, document: dict[str, Any]) -> Response:
        pod = self.pod(name)
        if pod is None:
            return status_response(404, f'pods "{name}" not found')
        uid = document["metadata"]["uid"]
        if pod.metadata.uid != uid:
            return status_response(422, f"metadata.uid: Invalid value: {uid}: field is immutable")
        status = pod.status
        for given in document["status"].get("conditions", ()):
            condition = PodCondition(
                given["type"],
                given["status"],
                given.get("reason") or "",
                given.get("message") or "",
                given.get("observedGeneration", 0),
            )
            status = replace(status, conditions=_with_condition(status.conditions, condition))
        if "nominatedNodeName" in document["status"]:
            status = replace(status, nominated_node_name=document["status"]["nominatedNodeName"] or "")
        if "extendedResourceClaimStatus" in document["status"]:
            claim = msgspec.convert(document["status"]["extendedResourceClaimStatus"], ExtendedResourceClaimStatus)
            status = replace(status, extended_resource_claim_status=claim)
        if status != pod.status:
            self.put(PODS, replace(pod, status=status))
        return 200, b"{}"

    def _patch_volume(self, name: str, document: dict[str, Any]) -> Response:
        volume: PersistentVolume | None = self.collection(VOLUMES).objects.get(name)
        error = _precondition_error(volume, document)
        if volume is None or error is not None:
            return error or status_response(404, name)
        ref = document["spec"]["claimRef"]
        pointer = None if ref is None else ClaimPointer(ref["namespace"], ref["name"], ref["uid"])
        metadata = replace(volume.metadata, annotations=volume.metadata.annotations | _annotations(document))
        written = replace(volume, metadata=metadata, spec=replace(volume.spec, claim_ref=pointer))
        return 200, _ENCODE(self.put(VOLUMES, written))

    def _patch_claim(self, name: str, document: dict[str, Any]) -> Response:
        claim: PersistentVolumeClaim | None = self.collection(CLAIMS).objects.get(name)
        error = _precondition_error(claim, document)
        if claim is None or error is not None:
            return error or status_response(404, name)
        metadata = replace(claim.metadata, annotations=claim.metadata.annotations | _annotations(document))
        return 200, _ENCODE(self.put(CLAIMS, replace(claim, metadata=metadata)))

    def _notify(self, collection: Collection, verb: bytes, obj: Any) -> None:
        change = Change(self.version, _line(verb, obj))
        collection.history.append(change)
        for listener in collection.listeners:
            listener(change)


def _line(verb: bytes, obj: Any) -> bytes:
    return b'{"type":"%b","object":%b}' % (verb, _ENCODE(obj))


def _annotations(document: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = document["metadata"].get("annotations", {})
    return found


def _precondition_error(
    obj: PersistentVolume | PersistentVolumeClaim | None, document: dict[str, Any]
) -> Response | None:
    meta = document["metadata"]
    if obj is None:
        return status_response(404, "not found")
    if obj.metadata.uid != meta["uid"] or obj.metadata.resource_version != meta["resourceVersion"]:
        return status_response(409, "the object has been modified; please apply your changes to the latest version")
    return None


def status_response(code: int, message: str) -> Response:
    """Return a response with a Status."""
    return code, _ENCODE({"kind": "Status", "code": code, "message": message})


def _with_condition(conditions: tuple[PodCondition, ...], new: PodCondition) -> tuple[PodCondition, ...]:
    return (*(each for each in conditions if each.type != new.type), new)


def replaced_status(
    method: str, path: str, bodies: Mapping[str, dict[str, Any]], operations: Sequence[dict[str, Any]]
) -> Response | dict[str, Any]:
    """Return the object with the status of a JSON patch that tests the UID, or the response to another request."""
    name = path.removesuffix("/status").split("/")[-1]
    body = bodies.get(name)
    if body is None:
        return status_response(404, f'"{name}" not found')
    if method == "GET":
        return 200, msgspec.json.encode(body)
    test, add = operations
    if body["metadata"]["uid"] != test["value"]:
        return status_response(422, "the server rejected our request due to an error in our request")
    return {**body, "status": add["value"]}
