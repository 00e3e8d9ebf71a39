"""Nodes, pods and a profile of one test on the shared control plane, created by plain API requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Self

from hack.controlplane.api_client import ApiClient, Manifest, address, condition_of
from hack.controlplane.launcher import ControlPlane
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.namespaces import remove_all
from tests.support.operator_process import OperatorProcess


class LiveWorld:
    """Objects of one test.

    Attributes:
        token: Prefix of cluster-scoped names, scheduler name, and value of the nodes' label ``for``.
    """

    def __init__(self, api: ApiClient, operator: OperatorProcess, namespace: str) -> None:
        self.api = api
        self.operator = operator
        self.namespace = namespace
        self.token = f"world-{uuid.uuid4().hex[:8]}"
        self._made: list[Manifest] = []

    def cluster_object(self, kind: str, short: str, version: str = "v1", **fields: Any) -> str:
        """Create a cluster-scoped object; return its name."""
        manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": f"{self.token}-{short}"}, **fields}
        self.api.create(manifest)
        self._made.append(manifest)
        return f"{self.token}-{short}"

    def namespaced_object(self, kind: str, name: str, version: str, **fields: Any) -> None:
        """Create an object in the namespace."""
        metadata = {"name": name, "namespace": self.namespace}
        manifest = {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
        self.api.create(manifest)
        self._made.append(manifest)

    def profile(self, spec: Manifest) -> None:
        """Create the profile and wait until it is ready."""
        manifest = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": self.token}}
        self.api.create(manifest | {"spec": spec})
        self._made.append(manifest)

        def is_ready() -> bool:
            return condition_of(self.api.get(address(manifest)), "Ready").get("status") == "True"

        self.operator.until(is_ready, "the profile is ready")

    def node(self, short: str, **fields: Any) -> str:
        """Create a node that only this test's pods select, and wait until the operator has received it.

        Returns:
            Name of the node.
        """
        name = self._node(short, **fields)
        self._until_nodes_are_received()
        return name

    def _node(self, short: str, **fields: Any) -> str:
        labels = {"for": self.token, **fields.pop("labels", {})}
        manifest = node_manifest(f"{self.token}-{short}", {**fields, "labels": labels})
        self.api.create(manifest)
        self._made.append(manifest)
        return f"{self.token}-{short}"

    def _until_nodes_are_received(self) -> None:
        """Wait until the operator has received all nodes; their watch may lag behind the watch of pods."""
        self.until(
            lambda: (
                self.operator.metric("bayplan_informer_objects", resource="nodes")
                == len(self.api.items("/api/v1/nodes"))
            ),
            "all nodes are received",
        )

    def pod(self, name: str, **fields: Any) -> None:
        """Create a pod for the test's profile and nodes; the fields are those of ``pod_manifest``."""
        self.api.create(self.manifest(name, **fields))

    def manifest(self, name: str, **fields: Any) -> Manifest:
        """Return the manifest of such a pod."""
        spec = {"schedulerName": self.token, "nodeSelector": {"for": self.token}, **fields.pop("spec", {})}
        return pod_manifest(name, self.namespace, {**fields, "spec": spec})

    def claim(
        self, name: str, class_name: str, annotations: Mapping[str, str] = MappingProxyType({}), **spec: Any
    ) -> None:
        """Create a claim for 1Gi."""
        request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": name, "namespace": self.namespace, "annotations": dict(annotations)}
        spec = {**request, "storageClassName": class_name, **spec}
        self.api.create({"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})

    def read(self, name: str) -> Manifest:
        """Return a pod."""
        return self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def change(self, name: str, change: Manifest) -> None:
        """Patch a pod."""
        self.api.patch({"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}}, change)

    def node_of(self, name: str) -> str:
        """Return the node of a pod; "" if it is not bound."""
        return str(self.read(name)["spec"].get("nodeName", ""))

    def condition(self, name: str, kind: str = "PodScheduled") -> Manifest:
        """Return a condition of a pod; empty if it does not exist."""
        return condition_of(self.read(name), kind)

    def exists(self, name: str) -> bool:
        """Return whether a pod exists."""
        pods = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", fieldSelector=f"metadata.name={name}")
        return bool(pods)

    def event_notes(self, name: str, reason: str) -> list[str]:
        """Return the notes of a pod's events with a reason."""
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [one["note"] for one in events if (one["regarding"]["name"], one["reason"]) == (name, reason)]

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds; fail if the operator ends."""
        self.operator.until(lambda: bool(condition()), what)

    def until_scheduled(self, name: str) -> str:
        """Wait until a pod is bound; return its node."""
        self.until(lambda: self.node_of(name), f"{name} is bound")
        return self.node_of(name)

    def until_rejected(self, name: str, text: str = "") -> str:
        """Wait until a pod is reported as unscheduled with a message that contains *text*; return the message.

        The first attempt may run before the operator has received all objects of the test.
        """
        found: Manifest = {}

        def is_reported() -> bool:
            nonlocal found
            found = self.condition(name)
            return found.get("status") == "False" and text in found["message"]

        self.until(is_reported, f"{name} is reported as unscheduled{text and ': '}{text}")
        return str(found["message"])

    @classmethod
    @contextmanager
    def opened(cls, plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[Self]:
        """Create a world; delete its objects at the end."""
        with ApiClient(plane) as api:
            world = cls(api, operator, namespace)
            try:
                yield world
            finally:
                world.clean_up()

    def clean_up(self) -> None:
        """Delete pods, claims and volumes, then the cluster-scoped objects."""
        root = f"/api/v1/namespaces/{self.namespace}"
        remove_all(self.api, f"{root}/pods", "Pod")
        remove_all(self.api, f"{root}/persistentvolumeclaims", "PersistentVolumeClaim")
        remove_all(self.api, "/api/v1/persistentvolumes", "PersistentVolume")
        for manifest in reversed(self._made):
            self.api.delete(manifest)


live_world = LiveWorld.opened
