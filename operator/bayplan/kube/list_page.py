"""A page of a list, as the API server answers it.

Owns the form of the page. It must not know what is listed, nor who asks for how many. Why the metadata must be there:
an answer that is no list would otherwise be read as one without objects, and all that are known would be taken for
gone.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

Item = TypeVar("Item")


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    """What is said of a page.

    Attributes:
        resource_version: Of the whole list.
        continue_: What to ask for the next page with; empty on the last one.
    """

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Struct, Generic[Item], frozen=True, gc=False):
    """One page.

    Attributes:
        metadata: See :class:`ListMeta`.
        items: The objects; None where a server writes no list for none.
    """

    metadata: ListMeta
    items: list[Item] | None = None
