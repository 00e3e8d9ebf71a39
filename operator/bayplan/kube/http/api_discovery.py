"""Discovery: what the API server serves."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import ClusterWriteError, NotFoundError

T = TypeVar("T")


class _Resource(Struct, frozen=True, gc=False):
    name: str


class _Resources(Struct, frozen=True, gc=False):
    resources: list[_Resource] | None = None


async def served_resources(connection: ApiConnection, path: str) -> frozenset[str]:
    """Return the plural names of what a version of an API group serves, such as ``podgroups``.

    Args:
        path: Path of the version, such as ``/apis/resource.k8s.io/v1``.

    Returns:
        The names; none if the version is not served.

    Raises:
        ClusterWriteError: The request failed, or the response cannot be decoded.
    """
    found = await discovered(connection, path, _Resources)
    return frozenset(each.name for each in (found.resources if found is not None else None) or ())


async def discovered(connection: ApiConnection, path: str, kind: type[T]) -> T | None:
    """Return the decoded response to a GET; None if there is no such path.

    Raises:
        ClusterWriteError: The request failed, or the response cannot be decoded.
    """
    try:
        return ObjectJsonDecoder(kind).decode(await connection.request(ApiRequest("GET", path, lane=Lane.READS)))
    except NotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterWriteError(f"GET {path}: the response cannot be decoded: {error}") from error
