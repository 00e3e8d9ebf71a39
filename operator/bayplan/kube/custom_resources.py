"""Requests for custom resources, and for the ControllerRevisions that store revisions of profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from bayplan.kube.http.api_request import JSON_PATCH, InvalidRequestError
from bayplan.kube.http.connection import (
    MERGE_PATCH,
    METADATA_ONLY,
    ApiConnection,
    ApiRequest,
    Lane,
    ListPage,
    list_pages,
)
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.resources.resource_model import GROUP, VERSION
from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta

T = TypeVar("T")


class _Items(Struct, Generic[T], frozen=True):
    items: list[T] = []


class _WithUid(Struct, frozen=True):
    metadata: ObjectMeta


_LIST = ObjectJsonDecoder(ListPage[dict[str, Any]])
_UIDS = ObjectJsonDecoder(_Items[_WithUid])


class ObjectPath(Struct, frozen=True):
    """Path of a custom resource: ``namespace`` is None if cluster-scoped, ``plural`` as in its URL."""

    group: str
    version: str
    plural: str
    name: str
    namespace: str | None = None

    @property
    def collection(self) -> str:
        scope = "" if self.namespace is None else f"/namespaces/{quote(self.namespace, safe='')}"
        return f"/apis/{self.group}/{self.version}{scope}/{self.plural}"

    @property
    def path(self) -> str:
        return f"{self.collection}/{quote(self.name, safe='')}"


async def replace_status(connection: ApiConnection, resource: ObjectPath, uid: str, status: Mapping[str, Any]) -> None:
    """Replace the status of the object with this UID, and not that of a later object of the same name.

    The UID in a merge patch for a custom resource has no effect, but the one of a test operation has.

    Raises:
        NotFoundError: The object is gone.
    """
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status", "value": status},
    ]
    body, path = msgspec.json.encode(operations), f"{resource.path}/status"
    try:
        await connection.request(ApiRequest("PATCH", path, body, JSON_PATCH, timeout=10.0, accept=METADATA_ONLY))
    except InvalidRequestError as error:
        # The response is the same for a failed test and for some invalid statuses. A list, because the operator has no
        # right to get these objects.
        named = (("fieldSelector", f"metadata.name={resource.name}"),)
        found = _UIDS.decode(await connection.request(ApiRequest("GET", resource.collection, params=named)))
        if all(each.metadata.uid != uid for each in found.items):
            raise NotFoundError(f"{resource.path}: the object with UID {uid} is gone") from error
        raise


class CustomResources:
    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects and the list's version; raises NotFoundError without their CustomResourceDefinition."""
        path = f"/apis/{GROUP}/{VERSION}/{plural}"
        items: list[dict[str, Any]] = []
        version = ""
        async for page in list_pages(self._connection, path, _LIST, seconds=30.0):
            items += page.items or ()
            version = page.metadata.resource_version
        return items, version

    async def replace_status(self, plural: str, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Replace the status of the object with this UID; raises NotFoundError if it is gone."""
        await replace_status(self._connection, ObjectPath(GROUP, VERSION, plural, name), uid, status)


class ControllerRevision(Struct, frozen=True, rename="camel"):
    """An immutable snapshot: ``data`` is any JSON object, a higher ``revision`` is newer."""

    metadata: AnnotatedMeta
    revision: int
    data: dict[str, Any] = {}


_ONE = ObjectJsonDecoder(ControllerRevision)
_MANY = ObjectJsonDecoder(_Items[ControllerRevision])


class ControllerRevisions:
    """The ControllerRevisions of one namespace, or with an empty one those of all namespaces, to list them."""

    def __init__(self, connection: ApiConnection, namespace: str) -> None:
        self._connection = connection
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        self._path = f"/apis/apps/v1{within}/controllerrevisions"
        self._namespace = namespace

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Return the revisions with all ``labels``, oldest first; raises ClusterWriteError if that fails."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        params = (("labelSelector", selector),) if selector else ()
        answer = await self._connection.request(ApiRequest("GET", self._path, params=params, lane=Lane.READS))
        try:
            return sorted(_MANY.decode(answer).items, key=lambda found: (found.revision, found.metadata.name))
        except msgspec.DecodeError as error:
            raise ClusterWriteError(f"GET {self._path}: the response cannot be read: {error}") from error

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Create a revision with name, labels and owners of its metadata; raises ConflictError if the name is taken."""
        meta = revision.metadata
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": meta.name,
                "namespace": self._namespace,
                "labels": meta.labels,
                "annotations": meta.annotations,
                "ownerReferences": meta.owner_references,
            },
            "revision": revision.revision,
            "data": revision.data,
        }
        answer = await self._connection.request(ApiRequest("POST", self._path, msgspec.json.encode(body)))
        try:
            return _ONE.decode(answer)
        except msgspec.DecodeError as error:
            raise ClusterWriteError(f"POST {self._path}: the response cannot be read: {error}") from error

    async def annotate(self, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Set some annotations of the revision with this UID; raises NotFoundError if it is gone."""
        body = msgspec.json.encode({"metadata": {"uid": uid, "annotations": annotations}})
        path = f"{self._path}/{quote(name, safe='')}"
        try:
            await self._connection.request(ApiRequest("PATCH", path, body, MERGE_PATCH))
        except (InvalidRequestError, ConflictError) as error:
            # The response depends on the version of the API server.
            if uid in str(error):
                raise NotFoundError(f"{path}: the object with UID {uid} is gone") from error
            raise

    async def delete(self, name: str, uid: str) -> None:
        """Delete the revision with this UID; one that is gone is no error."""
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
        path = f"{self._path}/{quote(name, safe='')}"
        try:
            await self._connection.request(ApiRequest("DELETE", path, body))
        except (NotFoundError, ConflictError):
            return
