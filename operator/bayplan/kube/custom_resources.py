"""Client for Bayplan's own resources: lists, and statuses of cluster-scoped objects.

Objects stay plain mappings: they are validated field by field, and an invalid one is reported and not skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from bayplan.kube.http.connection import MERGE_PATCH, METADATA_ONLY, ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.watches.object_lists import ListPage
from bayplan.resources.resource_model import GROUP, VERSION
from scheduler_core.errors import ClusterWriteError

_PAGE_LIMIT = 500
_LIST = ObjectJsonDecoder(ListPage[dict[str, Any]])


class ObjectPath(Struct, frozen=True):
    """Path of a custom resource: ``namespace`` is None if cluster-scoped, ``plural`` as in its URL."""

    group: str
    version: str
    plural: str
    name: str
    namespace: str | None = None

    @property
    def path(self) -> str:
        """The object's URL path."""
        scope = "" if self.namespace is None else f"/namespaces/{quote(self.namespace, safe='')}"
        return f"/apis/{self.group}/{self.version}{scope}/{self.plural}/{quote(self.name, safe='')}"


async def patch_status(connection: ApiConnection, resource: ObjectPath, status: Mapping[str, Any]) -> None:
    """Merge ``status`` into the object's status; None removes a field, lists are replaced as a whole.

    Args:
        status: The fields below ``status``.

    Raises:
        NotFoundError: The object is gone.
        ClusterWriteError: See :meth:`ApiConnection.request`.
    """
    await connection.request(
        ApiRequest(
            "PATCH",
            f"{resource.path}/status",
            msgspec.json.encode({"status": status}),
            content_type=MERGE_PATCH,
            timeout=10.0,
            accept=METADATA_ONLY,
        )
    )


class CustomResources:
    """Client for the custom resources.

    Args:
        connection: Connection to the API server.
    """

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a kind and the list's resource version.

        Raises:
            NotFoundError: Its CustomResourceDefinition is not installed.
            ClusterWriteError: The request failed, or the response cannot be read.
        """
        path = f"/apis/{GROUP}/{VERSION}/{plural}"
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            # In pages: decoding thousands of groups at once would delay a scheduling cycle.
            params = (("limit", str(_PAGE_LIMIT)), *((("continue", token),) if token else ()))
            request = ApiRequest("GET", path, params=params, timeout=30.0, lane=Lane.READS)
            answer = await self._connection.request(request)
            try:
                found = _LIST.decode(answer)
            except msgspec.DecodeError as error:
                raise ClusterWriteError(f"GET {path}: the response cannot be read: {error}") from error
            items += found.items or ()
            token = found.metadata.continue_
            if not token:
                return items, found.metadata.resource_version

    async def patch_status(self, plural: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge ``patch`` over an object's status.

        Raises:
            NotFoundError: The object is gone.
            ClusterWriteError: See :meth:`ApiConnection.request`.
        """
        await patch_status(self._connection, ObjectPath(GROUP, VERSION, plural, name), patch)
