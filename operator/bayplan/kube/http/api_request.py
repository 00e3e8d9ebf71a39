"""Requests to the API server, and the lanes that carry them."""

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
# Requests only the object's metadata in the response to a write: nothing else is read.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_is_plain = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


def path_part(text: str) -> str:
    """Quote a name for a path; nearly every name in Kubernetes needs no quoting."""
    return text if _is_plain(text) else quote(text, safe="")


class Lane(Enum):
    """Purpose of a request; each lane has its own connections."""

    READS = "reads"
    WATCHES = "watches"
    BINDS = "binds"
    WRITES = "writes"
    LEASES = "leases"
    REVIEWS = "reviews"


class ClusterAccess(Protocol):
    """Address of the API server and credentials."""

    @property
    def base_url(self) -> str:
        """Scheme, host, port and prefix, without a trailing slash."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS context; None only for plain HTTP."""

    @property
    def proxy(self) -> str | None:
        """URL of an HTTP proxy."""

    async def authorization(self) -> str | None:
        """Return the current Authorization header; reads a rotated token or runs a credential plugin."""


class ApiRequest(Struct, frozen=True, gc=False):
    """A request.

    Attributes:
        path: Path from the root, its parts quoted.
        body: Bytes to send.
        timeout: Seconds until the response, including waits for Retry-After but not for the rate limit.
        changes_nothing: Whether a POST only queries, as a review does; a process that does not lead may send it, too.
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
        """Whether only the leader may send it."""
        return self.method != "GET" and self.lane is not Lane.LEASES and not self.changes_nothing
