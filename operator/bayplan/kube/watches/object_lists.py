"""Pages of list responses, and one-time lists of all objects of a resource for commands that read once and end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.watches.watch_stream import KubeObject
from scheduler_core.errors import ClusterWriteError

_PAGE_LIMIT = 500
_TIMEOUT_SECONDS = 60.0

T = TypeVar("T", bound=KubeObject)
Item = TypeVar("Item")


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of a page.

    Attributes:
        continue_: Token for the next page; empty on the last one.
    """

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Struct, Generic[Item], frozen=True, gc=False):
    """One page of a list response.

    Metadata is required: a response that is not a list would otherwise decode as a list without objects, and all known
    objects would be treated as deleted.

    Attributes:
        items: The objects; None if the server writes null for an empty list.
    """

    metadata: ListMeta
    items: list[Item] | None = None


_PAGES = ObjectJsonDecoder(ListPage[Raw])


async def list_objects(connection: ApiConnection, path: str, kind: type[T]) -> tuple[list[T], int]:
    """List a collection.

    Args:
        path: Path of the collection, such as ``/api/v1/pods``.

    Returns:
        The objects in the server's order, and the number of objects that could not be decoded.

    Raises:
        ClusterWriteError: The request failed, or the response is not a list; see :meth:`ApiConnection.request`.
    """
    return decoded_objects(await list_json(connection, path), kind)


def decoded_objects(texts: Iterable[bytes], kind: type[T]) -> tuple[list[T], int]:
    """Decode objects; return those that could be decoded, and the number of the others."""
    decoder = ObjectJsonDecoder(kind)
    objects: list[T] = []
    unreadable = 0
    for text in texts:
        try:
            objects.append(decoder.decode(text))
        except msgspec.DecodeError:
            unreadable += 1
    return objects, unreadable


async def list_json(connection: ApiConnection, path: str) -> list[bytes]:
    """List a collection as JSON, in the server's order; raises as :func:`list_objects` does."""
    texts: list[bytes] = []
    token = ""
    while True:
        params: tuple[tuple[str, str], ...] = (("limit", str(_PAGE_LIMIT)),)
        if token:
            params += (("continue", token),)
        request = ApiRequest("GET", path, params=params, timeout=_TIMEOUT_SECONDS, lane=Lane.READS)
        answer = await connection.request(request)
        try:
            page = _PAGES.decode(answer)
        except msgspec.DecodeError as error:
            raise ClusterWriteError(f"GET {path}: no list in the response: {error}; is this an API server?") from error
        texts += [bytes(item) for item in page.items or ()]
        token = page.metadata.continue_
        if not token:
            return texts
