"""Namespaces of the shared control plane whose pods are deleted after a test.

The namespace itself is not deleted: without a namespace controller, it would stay in phase Terminating.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane


@contextmanager
def new_namespace(plane: ControlPlane, name: str) -> Iterator[str]:
    """Create a namespace; at the end, delete its pods without grace period and remove their finalizers."""
    with ApiClient(plane) as api:
        api.create({"kind": "Namespace", "metadata": {"name": name}})
        try:
            yield name
        finally:
            remove_all(api, f"/api/v1/namespaces/{name}/pods", "Pod")


def remove_all(api: ApiClient, path: str, kind: str) -> None:
    """Delete all objects of a collection without grace period, and remove their finalizers."""
    for each in api.request("DELETE", f"{path}?gracePeriodSeconds=0")["items"]:
        if each["metadata"].get("finalizers"):
            api.remove_finalizers({**each, "kind": kind})
