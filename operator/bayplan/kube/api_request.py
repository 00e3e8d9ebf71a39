"""What is asked of the API server, and by whom.

Owns the form of a request and the lanes. It must not know how one is carried.
"""

from __future__ import annotations

import re
import ssl
from enum import Enum
from typing import Protocol
from urllib.parse import quote

from msgspec import Struct

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
# Asks the server to answer a write with the object's metadata alone: nobody reads the rest.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_is_plain = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


def path_part(text: str) -> str:
    """A name as one part of a path; nearly every name of Kubernetes is one as it is."""
    return text if _is_plain(text) else quote(text, safe="")


class Lane(Enum):
    """What a request is for: each lane has connections of its own."""

    READS = "reads"
    WATCHES = "watches"
    BINDS = "binds"
    WRITES = "writes"
    LEASES = "leases"
    REVIEWS = "reviews"


class ClusterAccess(Protocol):
    """Where the API server is and how to show who we are."""

    @property
    def base_url(self) -> str:
        """Scheme, host, port and prefix, without a slash at the end."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """None for plain HTTP only."""

    @property
    def server_name(self) -> str | None:
        """The name that the certificate must carry where it is not the URL's host."""

    @property
    def proxy(self) -> str | None:
        """An HTTP proxy's URL."""

    async def authorization(self) -> str | None:
        """The Authorization header as it is now: reads a rotated token, runs a credential plugin. None is anonymous."""


class ApiRequest(Struct, frozen=True, gc=False):
    """One request.

    Attributes:
        method: HTTP method.
        path: From the root, its parts quoted already.
        body: Bytes to send.
        content_type: Of the body.
        params: Query parameters.
        timeout: Seconds until an answer, waits for Retry-After included, waits in the rate limit not.
        lane: Which connections carry it.
        accept: What to answer with.
        changes_nothing: A POST that only asks something, which also a process that does not lead may send.
    """

    method: str
    path: str
    body: bytes | None = None
    content_type: str = JSON
    params: tuple[tuple[str, str], ...] = ()
    timeout: float = 10.0
    lane: Lane = Lane.WRITES
    accept: str = JSON
    changes_nothing: bool = False

    @property
    def is_fenced(self) -> bool:
        """Whether it is only for the process that leads to send it."""
        return self.method != "GET" and self.lane is not Lane.LEASES and not self.changes_nothing
