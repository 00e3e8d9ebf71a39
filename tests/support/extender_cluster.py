"""Nodes, pods and a scheduler (Bayplan or kube-scheduler) with extenders, on a real API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.api_client import ApiClient, address, condition_of
from hack.controlplane.launcher import ControlPlane
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess

BAYPLAN, KUBE_SCHEDULER = "bayplan", "kube-scheduler"
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05


class ExtenderCluster:
    """Objects of one test and the scheduler.

    Args:
        namespace: Namespace of the pods, prefix of node names, and schedulerName.
        directory: Directory for configurations and logs.

    Attributes:
        api: Client of the API server.
    """

    def __init__(self, plane: ControlPlane, namespace: str, directory: Path) -> None:
        self.plane = plane
        self.api = ApiClient(plane)
        self.namespace = namespace
        self.directory = directory
        self._made: list[Manifest] = []

    @contextmanager
    def scheduler(self, kind: str, extenders: Sequence[Manifest], **fields: Any) -> Iterator[None]:
        """Run a scheduler with one profile and extenders; kill it at the end, as in a crash.

        Args:
            kind: :data:`BAYPLAN` or :data:`KUBE_SCHEDULER`.
            extenders: Extenders of the KubeSchedulerConfiguration.
            fields: Further fields of the configuration.
        """
        configuration: Manifest = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.plane.kubeconfig)},
            "profiles": [{"schedulerName": self.namespace}],
            "extenders": list(extenders),
            **fields,
        }
        file = self.directory / f"{kind}.yaml"
        file.write_text(yaml.safe_dump(configuration))
        if kind == BAYPLAN:
            with OperatorProcess(self.plane.kubeconfig, self.directory / "log", [f"--config={file}"]) as process:
                process.start()
                yield
        else:
            reference = self.plane.start_kube_scheduler(file)
            try:
                yield
            finally:
                reference.kill()

    def node(self, short: str, cpu: str = "8", **metadata: Any) -> str:
        """Create a node that only this test's pods select; return its name."""
        name = f"{self.namespace}-{short}"
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "50", "example.com/licence": "5"}
        labels = {"for": self.namespace, "node": short, **metadata.pop("labels", {})}
        status = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": ["registry.example.com/a:1"], "sizeBytes": 12345678}],
        }
        return self._create_wide(
            {"kind": "Node", "metadata": {"name": name, "labels": labels, **metadata}, "status": status}
        )

    def priority(self, short: str, value: int) -> str:
        """Create a PriorityClass; return its name."""
        metadata = {"name": f"{self.namespace}-{short}"}
        return self._create_wide(
            {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": metadata, "value": value}
        )

    def pod(self, name: str, requests: Manifest | None = None, **spec: Any) -> None:
        """Create a pod for the test's scheduler that selects the test's nodes, unless the spec has other fields."""
        resources = {"requests": requests or {"cpu": "100m"}}
        limits = {key: value for key, value in resources["requests"].items() if "/" in key}
        if limits:
            resources["limits"] = limits
        fields = {
            "schedulerName": self.namespace,
            "nodeSelector": {"for": self.namespace},
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "registry.example.com/a:1", "resources": resources}],
            **spec,
        }
        self.create({**self._pod(name), "spec": fields})

    def set_start_time(self, pod: str, when: str) -> None:
        """Set phase Running and the start time of a pod, as its kubelet does."""
        self.api.patch(self._pod(pod), {"status": {"phase": "Running", "startTime": when}}, subresource="status")

    def create(self, *items: Manifest) -> None:
        """Create objects; the default apiVersion is ``v1``."""
        for item in items:
            self.api.create({"apiVersion": "v1", **item})

    def _create_wide(self, manifest: Manifest) -> str:
        self.create(manifest)
        self._made.append(manifest)
        return str(manifest["metadata"]["name"])

    def _pod(self, name: str) -> Manifest:
        return {"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}}

    def node_of(self, pod: str) -> str:
        """Wait until a pod is bound; return the node's name without the namespace prefix."""
        found: Manifest = {}

        def is_bound() -> bool:
            nonlocal found
            found = self.api.get(address(self._pod(pod)))
            return bool(found["spec"].get("nodeName"))

        self.until(is_bound, f"{pod} is bound")
        return str(found["spec"]["nodeName"]).removeprefix(f"{self.namespace}-")

    def unscheduled_message(self, pod: str) -> str:
        """Wait until a pod has condition PodScheduled with a message; return the message."""

        def message() -> str:
            return str(condition_of(self.api.get(address(self._pod(pod))), "PodScheduled").get("message", ""))

        self.until(lambda: bool(message()), f"{pod} is reported as unscheduled")
        return message()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"not within {_WAIT_SECONDS:.0f} s: {what}"
            time.sleep(_POLL_SECONDS)

    def bind(self, body: Any) -> None:
        """Create the Binding of a bind call, as an extender with a bindVerb does."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
        self.api.request("POST", path, binding)

    def clean_up(self) -> None:
        """Delete the cluster-scoped objects."""
        for manifest in self._made:
            self.api.delete(manifest)
        self.api.close()
