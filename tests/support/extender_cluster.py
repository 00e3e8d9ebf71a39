"""Nodes, pods and either scheduler with extenders, on the real API server.

Owns what a test of extenders makes there, under names of its own. It must not know what is tested.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess

BAYPLAN, KUBE_SCHEDULER = "bayplan", "kube-scheduler"
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05


class ExtenderCluster:
    """What one test makes.

    Args:
        plane: The control plane.
        namespace: Of the pods; names of nodes begin with it, and the schedulerName is it.
        directory: Takes configurations and logs.
    """

    def __init__(self, plane: ControlPlane, namespace: str, directory: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.directory = directory
        self._made: list[str] = []

    @contextmanager
    def scheduler(self, kind: str, extenders: Sequence[Manifest], **fields: Any) -> Iterator[None]:
        """Either scheduler with one profile and these extenders; killed at the end, as in a crash.

        Args:
            kind: Which.
            extenders: As in a KubeSchedulerConfiguration.
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
        """Make a node that only this test's pods select; its name."""
        name = f"{self.namespace}-{short}"
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "50", "example.com/licence": "5"}
        labels = {"for": self.namespace, "node": short, **metadata.pop("labels", {})}
        status = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": ["registry.example.com/a:1"], "sizeBytes": 12345678}],
        }
        self.create({"kind": "Node", "metadata": {"name": name, "labels": labels, **metadata}, "status": status})
        self._made.append(f"node/{name}")
        return name

    def priority(self, short: str, value: int) -> str:
        """Make a PriorityClass; its name."""
        name = f"{self.namespace}-{short}"
        body = {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name}}
        self.create({**body, "value": value})
        self._made.append(f"priorityclass/{name}")
        return name

    def pod(self, name: str, requests: Manifest | None = None, **spec: Any) -> None:
        """Make a pod of the test's scheduler, for any of its nodes unless the spec says otherwise."""
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
        self.create({"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}, "spec": fields})

    def set_start_time(self, pod: str, when: str) -> None:
        """Say since when a pod runs, as its kubelet would."""
        patch = json.dumps({"status": {"phase": "Running", "startTime": when}})
        flags = (f"--namespace={self.namespace}", "--subresource=status", "--type=merge", f"--patch={patch}")
        self.plane.kubectl("patch", "pod", pod, *flags)

    def create(self, *items: Manifest) -> None:
        """Create objects; ``v1`` unless they say otherwise."""
        whole = [{"apiVersion": "v1", **item} for item in items]
        self.plane.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": whole}))

    def get(self, *what: str) -> Any:
        """An object as it is."""
        return json.loads(self.plane.kubectl("get", *what, f"--namespace={self.namespace}", "--output=json"))

    def node_of(self, pod: str) -> str:
        """Wait until a pod is bound; the node's name without the test's."""
        self.until(lambda: bool(self.get("pod", pod)["spec"].get("nodeName")), f"{pod} is bound")
        return str(self.get("pod", pod)["spec"]["nodeName"]).removeprefix(f"{self.namespace}-")

    def unscheduled_message(self, pod: str) -> str:
        """Wait until a pod's condition says why it is not scheduled; return the message."""

        def message() -> str:
            conditions = self.get("pod", pod).get("status", {}).get("conditions", [])
            return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")

        self.until(lambda: bool(message()), f"{pod} is reported")
        return message()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again until a condition holds."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"not within {_WAIT_SECONDS:.0f} s: {what}"
            time.sleep(_POLL_SECONDS)

    def bind(self, body: Any) -> None:
        """Bind a pod as an extender that binds does."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
        self.plane.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))

    def clean_up(self) -> None:
        """Delete what is not of the namespace."""
        for name in self._made:
            with suppress(ControlPlaneError):
                self.plane.kubectl("delete", name)
