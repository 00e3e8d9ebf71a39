"""kube-controller-manager beside the launcher's servers creates, evicts and deletes objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.controllers]
NODE = "worker"


@pytest.fixture(scope="module")
def plane(empty_plane: ControlPlane) -> ControlPlane:
    """Start kwok and the controllers, and create one node."""
    empty_plane.start_kwok()
    empty_plane.start_kube_controller_manager()
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    apply(empty_plane, "default", "Node", NODE, status={"capacity": amounts, "allocatable": amounts})
    empty_plane.kubectl("wait", f"node/{NODE}", "--for=condition=Ready", "--timeout=60s")
    return empty_plane


def apply(plane: ControlPlane, namespace: str, kind: str, name: str, **fields: Any) -> None:
    """Create one object."""
    groups = {"Deployment": "apps/v1", "Job": "batch/v1"}
    document = {"apiVersion": groups.get(kind, "v1"), "kind": kind, "metadata": {"name": name}, **fields}
    plane.kubectl("create", "--namespace", namespace, "--filename=-", input=json.dumps(document))


def template(app: str, **spec: Any) -> dict[str, Any]:
    """Return a template of pods that are created on the node."""
    containers = [{"name": "main", "image": "example/main:1"}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, "nodeName": NODE, **spec}}


def deployment(app: str, replicas: int) -> dict[str, Any]:
    return {"replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(app)}


def gone(plane: ControlPlane, namespace: str, what: str, *selector: str) -> None:
    """Wait until objects are deleted."""
    plane.kubectl("wait", "--namespace", namespace, what, *selector, "--for=delete", "--timeout=60s", timeout=90)


def test_a_deployment_has_pods_until_it_is_deleted(plane: ControlPlane) -> None:
    """Controllers create pods of a Deployment, and the garbage collector deletes them after their owner."""
    apply(plane, "default", "Deployment", "web", spec=deployment("web", 2))
    plane.kubectl("rollout", "status", "deployment/web", "--timeout=60s", timeout=90)
    plane.kubectl("delete", "deployment", "web", "--wait=false")
    gone(plane, "default", "pods", "--selector=app=web")
    gone(plane, "default", "replicasets", "--selector=app=web")


def test_a_job_completes(plane: ControlPlane) -> None:
    """The Job controller counts the pods that kwok completes."""
    apply(plane, "default", "Job", "sum", spec={"completions": 2, "template": template("sum", restartPolicy="Never")})
    plane.kubectl("wait", "job/sum", "--for=condition=Complete", "--timeout=60s", timeout=90)


def test_a_taint_evicts_pods(plane: ControlPlane) -> None:
    """Pods that do not tolerate a NoExecute taint are deleted."""
    apply(plane, "default", "Pod", "evicted", spec=template("x")["spec"])
    plane.kubectl("taint", "node", NODE, "maintenance=now:NoExecute")
    try:
        gone(plane, "default", "pod/evicted")
    finally:
        plane.kubectl("taint", "node", NODE, "maintenance-")


def test_a_namespace_is_deleted_with_its_objects(plane: ControlPlane) -> None:
    """The namespace controller deletes the objects of a namespace and then removes its finalizer."""
    plane.kubectl("create", "namespace", "short-lived")
    apply(plane, "short-lived", "Deployment", "web", spec=deployment("web", 1))
    plane.kubectl("delete", "namespace", "short-lived", "--wait=false")
    gone(plane, "short-lived", "namespace/short-lived")
