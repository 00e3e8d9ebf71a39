"""Kinds of requests that the faulty proxy distinguishes, and the faults that it injects into each kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """Fields of a request that determine its kind."""

    method: str
    path: str
    is_watch: bool


class RequestFault(StrEnum):
    """Fault of a request; with the APPLIED faults, the server has applied the request."""

    CONFLICT = "rejected 409"
    EXPIRED = "rejected 410"
    BUSY = "rejected 429"
    FAILED = "rejected 500"
    UNAVAILABLE = "rejected 503"
    TIMED_OUT = "rejected 504"
    RESET = "reset before it is forwarded"
    DELAYED = "delayed"
    APPLIED_AND_FAILED = "applied, then 500"
    APPLIED_AND_TIMED_OUT = "applied, then 504"
    APPLIED_AND_RESET = "applied, then reset"
    APPLIED_AND_SILENT = "applied, then silence"

    @property
    def status(self) -> int:
        """HTTP status of the response; 0 for no response."""
        last = self.value.rsplit(" ", 1)[-1]
        return int(last) if last.isdigit() else 0

    @property
    def is_applied(self) -> bool:
        """Whether the server has applied the request."""
        return self.value.startswith("applied")


_ANY_REQUEST = (
    RequestFault.BUSY,
    RequestFault.FAILED,
    RequestFault.UNAVAILABLE,
    RequestFault.TIMED_OUT,
    RequestFault.RESET,
    RequestFault.DELAYED,
)
_APPLIED = (
    RequestFault.APPLIED_AND_FAILED,
    RequestFault.APPLIED_AND_TIMED_OUT,
    RequestFault.APPLIED_AND_RESET,
    RequestFault.APPLIED_AND_SILENT,
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


def request_kind(request: ProxiedRequest) -> str:
    """Return the kind of a request."""
    if request.is_watch:
        return "watch"
    for kind, method, pattern in _KINDS:
        if method in ("", request.method) and re.fullmatch(pattern, request.path):
            return kind
    return "list" if request.method == "GET" else "other"


def faults_of(kind: str) -> tuple[RequestFault, ...]:
    """Return the faults that the proxy injects into requests of a kind."""
    if kind == "watch":
        return (*_ANY_REQUEST, RequestFault.EXPIRED)
    return (*_ANY_REQUEST, *_APPLIED, *((RequestFault.CONFLICT,) if kind in _CONFLICTING else ()))
