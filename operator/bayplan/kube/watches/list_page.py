"""A page of a list response.

Metadata is required: a response that is not a list would otherwise decode as a list without objects, and all known
objects would be treated as deleted.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

Item = TypeVar("Item")


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of a page.

    Attributes:
        resource_version: Resource version of the whole list.
        continue_: Token for the next page; empty on the last one.
    """

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Struct, Generic[Item], frozen=True, gc=False):
    """One page.

    Attributes:
        metadata: See :class:`ListMeta`.
        items: The objects; None if the server writes null for an empty list.
    """

    metadata: ListMeta
    items: list[Item] | None = None
