"""Kinds of requests, each with faults of its own, and the names under which their faults are counted."""

from __future__ import annotations

from bayplan.kube.http.connection import ApiRequest

COUNTED = {
    ("bind", "refused"): "bind refused",
    ("bind", "failed"): "bind failed after it happened",
    ("bind", "lost before"): "bind lost before it happened",
    ("bind", "lost after"): "bind lost after it happened",
    ("bind", "unanswered"): "bind unanswered",
    ("bind", "conflict"): "bind conflict without reason",
    ("bind", "slow"): "bind slow",
    ("bind", "in name only"): "bind answered and never done",
    ("read", "refused"): "read failed",
    ("read", "lost before"): "read failed",
    ("patch", "refused"): "patch failed",
    ("patch", "lost after"): "patch failed",
    ("delete", "refused"): "deletion failed",
    ("delete", "lost after"): "deletion failed",
    ("volume", "refused"): "volume changed under a pod",
    ("volume", "lost after"): "volume changed under a pod",
    ("claim", "refused"): "claim write failed",
    ("claim", "failed"): "claim write failed",
    ("claim", "lost before"): "claim write failed",
    ("claim", "lost after"): "claim write failed",
    ("claim", "unanswered"): "claim write failed",
    ("claim", "conflict"): "claim write conflict",
}
"""The fault to count for a kind of request and the way in which it fails."""


def kind_of(request: ApiRequest) -> str:
    """Return the kind of a request: a kind fails separately from the others."""
    path = request.path
    if path.endswith("/binding"):
        return "bind"
    if "/events.k8s.io/" in path:
        return "event"
    if "/resourceclaims" in path and request.method != "GET":
        return "claim"
    if "/persistentvolume" in path:
        return "volume" if request.method != "GET" else "list"
    if request.method == "PATCH":
        return "patch"
    if request.method == "DELETE":
        return "delete"
    return "read" if "/namespaces/" in path else "list"
