"""A namespace of the shared control plane that leaves no pods behind.

Owns its creation and the removal of its pods. Other kinds, and objects without a namespace, are for who made them. Why
no deletion of the namespace: no namespace controller runs, it would stay in phase Terminating.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane


@contextmanager
def new_namespace(plane: ControlPlane, name: str) -> Iterator[str]:
    """Create a namespace; at the end remove its pods, without grace, and their finalizers with them."""
    with ApiClient(plane) as api:
        api.create({"kind": "Namespace", "metadata": {"name": name}})
        try:
            yield name
        finally:
            _remove_pods(api, name)


def _remove_pods(api: ApiClient, namespace: str) -> None:
    deleted = api.request("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    for pod in deleted["items"]:
        if pod["metadata"].get("finalizers"):
            api.remove_finalizers({"kind": "Pod", **pod})
