"""Merge patches of the status subresource of custom resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from bayplan.kube.http.connection import MERGE_PATCH, METADATA_ONLY, ApiConnection, ApiRequest


class CustomResource(Struct, frozen=True):
    """Identity of an object: ``namespace`` is None if cluster-scoped, ``plural`` as in its URL."""

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


async def patch_status(
    connection: ApiConnection, resource: CustomResource, status: Mapping[str, Any], seconds: float = 10.0
) -> None:
    """Merge ``status`` into the object's status; None removes a field, lists are replaced as a whole.

    Args:
        connection: Connection to the API server.
        resource: The object.
        status: The fields below ``status``.
        seconds: Timeout of the request.

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
            timeout=seconds,
            accept=METADATA_ONLY,
        )
    )
