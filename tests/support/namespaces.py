"""A namespace of the shared control plane that leaves no pods behind.

Owns its creation and the removal of its pods. Other kinds, and objects without a namespace, are for who made them. Why
no deletion of the namespace: no namespace controller runs, it would stay in phase Terminating.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from hack.controlplane.launcher import ControlPlane, ControlPlaneError


@contextmanager
def new_namespace(plane: ControlPlane, name: str) -> Iterator[str]:
    """Create a namespace; at the end remove its pods, without grace, and their finalizers with them."""
    plane.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        _remove_pods(plane, name)


def _remove_pods(plane: ControlPlane, namespace: str) -> None:
    # One request for all pods: kubectl deletes five a second.
    pods = f"/api/v1/namespaces/{namespace}/pods"
    deleted = json.loads(plane.kubectl("delete", "--raw", f"{pods}?gracePeriodSeconds=0"))
    held = [f"pod/{pod['metadata']['name']}" for pod in deleted["items"] if pod["metadata"].get("finalizers")]
    patch = '{"metadata":{"finalizers":null}}'
    for pod in held:
        try:
            plane.kubectl("patch", pod, "--namespace", namespace, "--type=merge", f"--patch={patch}")
        except ControlPlaneError as problem:
            # Another client may have removed the last finalizer.
            if "NotFound" not in str(problem):
                raise
