"""Kinds of requests, which fail independently of each other, and the faults that their failures count as."""

from __future__ import annotations

from bayplan.kube.http.connection import ApiRequest

COUNTED = {
    ("bind", "error before"): "bind refused",
    ("bind", "error after"): "bind failed after it took effect",
    ("bind", "request lost"): "bind request lost",
    ("bind", "response lost"): "bind response lost",
    ("bind", "no response"): "bind timed out",
    ("bind", "conflict"): "bind conflict without cause",
    ("bind", "slow"): "bind slow",
    ("bind", "acknowledged only"): "bind acknowledged but not performed",
    ("read", "error before"): "read failed",
    ("read", "request lost"): "read failed",
    ("patch", "error before"): "patch failed",
    ("patch", "response lost"): "patch failed",
    ("delete", "error before"): "deletion failed",
    ("delete", "response lost"): "deletion failed",
    ("volume", "error before"): "volume bind failed",
    ("volume", "response lost"): "volume bind failed",
    ("claim", "error before"): "claim write failed",
    ("claim", "error after"): "claim write failed",
    ("claim", "request lost"): "claim write failed",
    ("claim", "response lost"): "claim write failed",
    ("claim", "no response"): "claim write failed",
    ("claim", "conflict"): "claim write conflict",
    ("group", "error before"): "PodGroup write failed",
    ("group", "error after"): "PodGroup write failed",
    ("group", "request lost"): "PodGroup write failed",
    ("group", "response lost"): "PodGroup write failed",
    ("group", "no response"): "PodGroup write failed",
    ("group", "conflict"): "PodGroup write failed",
}
"""Fault to count, by the kind of a request and how the request fails."""


def kind_of(request: ApiRequest) -> str:
    """Return the kind of a request."""
    path = request.path
    if path.endswith("/binding"):
        return "bind"
    if "/events.k8s.io/" in path:
        return "event"
    if "/resourceclaims" in path and request.method != "GET":
        return "claim"
    if path.endswith("/eviction"):
        return "evict"
    if "/rebalanceplans" in path:
        return "plan"
    if "/podgroups" in path:
        return "group"
    if "/persistentvolume" in path:
        return "volume" if request.method != "GET" else "list"
    if request.method == "PATCH":
        return "patch"
    if request.method == "DELETE":
        return "delete"
    return "read" if "/namespaces/" in path else "list"
