"""Kinds of requests that a proxy distinguishes, and the faults of each.

Owns the names. It must not know how an ill is brought about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """Fields of a request that the proxy distinguishes."""

    method: str
    path: str
    watches: bool


class RequestFault(StrEnum):
    """What befalls a request; the name says whether the server has carried it out."""

    CONFLICT = "refused 409"
    EXPIRED = "refused 410"
    BUSY = "refused 429"
    FAILED = "refused 500"
    AWAY = "refused 503"
    TIMED_OUT = "refused 504"
    RESET = "reset before"
    DELAYED = "delayed"
    DONE_AND_FAILED = "done, then 500"
    DONE_AND_TIMED_OUT = "done, then 504"
    DONE_AND_RESET = "done, then reset"
    DONE_AND_SILENT = "done, then silence"

    @property
    def status(self) -> int:
        """What is answered; 0 for no answer."""
        last = self.value.rsplit(" ", 1)[-1]
        return int(last) if last.isdigit() else 0

    @property
    def is_done(self) -> bool:
        """Whether the server has carried it out."""
        return self.value.startswith("done")


_ALWAYS = (
    RequestFault.BUSY,
    RequestFault.FAILED,
    RequestFault.AWAY,
    RequestFault.TIMED_OUT,
    RequestFault.RESET,
    RequestFault.DELAYED,
)
_DONE = (
    RequestFault.DONE_AND_FAILED,
    RequestFault.DONE_AND_TIMED_OUT,
    RequestFault.DONE_AND_RESET,
    RequestFault.DONE_AND_SILENT,
)

_PODS = r"/api/v1/namespaces/[^/]+/pods/[^/]+"
_KINDS = (
    ("bind", "POST", _PODS + "/binding"),
    ("status patch", "PATCH", _PODS + "/status"),
    ("pod deletion", "DELETE", _PODS),
    ("pod read", "GET", _PODS),
    ("event creation", "POST", r"/apis/events\.k8s\.io/v1/namespaces/[^/]+/events"),
    ("event series", "PATCH", r"/apis/events\.k8s\.io/v1/namespaces/[^/]+/events/.*"),
    ("lease", "", r"/apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases.*"),
    ("claim write", "PATCH", r"/api/v1/namespaces/[^/]+/persistentvolumeclaims/[^/]+"),
    ("volume write", "PATCH", r"/api/v1/persistentvolumes/[^/]+"),
    ("profile", "", r"/apis/bayplan\.dev/.*"),
)
_CONFLICTING = {"bind", "status patch", "pod deletion", "claim write", "volume write", "lease"}


def request_kind(asked: ProxiedRequest) -> str:
    """The kind of a request; nothing else distinguishes watches from lists."""
    if asked.watches:
        return "watch"
    for kind, method, pattern in _KINDS:
        if method in ("", asked.method) and re.fullmatch(pattern, asked.path):
            return kind
    return "list" if asked.method == "GET" else "other"


def faults_of(kind: str) -> tuple[RequestFault, ...]:
    """What may befall requests of a kind."""
    if kind == "watch":
        return (*_ALWAYS, RequestFault.EXPIRED)
    return (*_ALWAYS, *_DONE, *((RequestFault.CONFLICT,) if kind in _CONFLICTING else ()))
