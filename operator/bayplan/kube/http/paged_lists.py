"""Lists of a collection in pages, so that no response, and no turn of the event loop that decodes it, is long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import ClusterWriteError

PAGE_LIMIT = 500
_SECONDS = 60.0

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


RAW_PAGES = ObjectJsonDecoder(ListPage[Raw])


class MalformedListError(ClusterWriteError):
    """The response is not a list."""


async def list_pages(
    connection: ApiConnection,
    path: str,
    decoder: ObjectJsonDecoder[ListPage[Item]],
    *,
    params: Iterable[tuple[str, str]] = (),
    limit: int = PAGE_LIMIT,
    seconds: float = _SECONDS,
) -> AsyncIterator[ListPage[Item]]:
    """Yield the pages of a collection in the server's order.

    Raises:
        MalformedListError: A response is not a list.
        ClusterWriteError: A request failed; see :meth:`ApiConnection.request`.
    """
    token = ""
    while True:
        query = (("limit", str(limit)), *params, *((("continue", token),) if token else ()))
        answer = await connection.request(ApiRequest("GET", path, params=query, timeout=seconds, lane=Lane.READS))
        try:
            page = decoder.decode(answer)
        except msgspec.DecodeError as error:
            raise MalformedListError(f"GET {path}: no list in the response: {error}; is this an API server?") from error
        yield page
        token = page.metadata.continue_
        if not token:
            return
