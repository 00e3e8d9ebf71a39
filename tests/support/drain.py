"""Two thousand pending pods on a real API server, and the checks after they are scheduled despite a disruption.

The test causes the disruption. Some pods fit no node at first, so that a queue that lost its pods during the disruption
is detected when their nodes are added.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from hack.controlplane import accounts
from hack.controlplane.api_client import ApiClient, ApiRefusalError, Manifest, condition_of
from hack.controlplane.launcher import ControlPlane
from tests.support.operator_process import OperatorProcess

PODS = 2000
TOO_LARGE = 10
_NODES = 40
_WAIT_SECONDS = 90.0
_POLL_SECONDS = 0.2


class Drain:
    """Pods in their own namespace, for their own nodes and their own SchedulerProfile.

    Args:
        plane: Control plane that the test disrupts.
    """

    def __init__(self, plane: ControlPlane, operator: OperatorProcess) -> None:
        self.api = ApiClient(plane)
        self.namespace = f"drain-{uuid.uuid4().hex[:8]}"
        self._plane = plane
        self._operator = operator
        self._log = accounts.BindingLog(plane.audit_log)

    def begin(self) -> None:
        """Create nodes and pods, then the profile that schedules them."""
        self.api.create({"kind": "Namespace", "metadata": {"name": self.namespace}})
        for index in range(_NODES):
            self._node(f"n{index}", "16")
        pods = [self._pod(f"p{index}", "100m") for index in range(PODS)]
        pods += [self._pod(f"large{index}", "20") for index in range(TOO_LARGE)]
        self.api.create_all(pods)
        self.api.create(
            {
                "apiVersion": "bayplan.dev/v1alpha1",
                "kind": "SchedulerProfile",
                "metadata": {"name": self.namespace},
                "spec": {},
            }
        )

    def until_bound(self, count: int) -> None:
        """Wait until the audit log has *count* bindings."""
        self._until(lambda: self.bound >= count, f"{count} pods are bound")

    @property
    def bound(self) -> int:
        """Number of bound pods by the audit log."""
        self._log.read()
        return sum(name.startswith(f"{self.namespace}/") for name in self._log.counts)

    def finish(self) -> None:
        """Wait until only the large pods are pending, add nodes for them, and wait until they are bound."""
        self._until(
            lambda: len(self._unschedulable()) == len(self._unbound()) == TOO_LARGE, "only the large pods are pending"
        )
        for index in range(TOO_LARGE):
            self._node(f"big{index}", "20")
        self._until(lambda: not self._unbound(), "the large pods are bound")
        self._log.read()

    def violations(self) -> list[str]:
        """Return every violation: lost pods, pods bound twice, overcommitted nodes, wrong conditions."""
        pods = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        nodes = self.api.items("/api/v1/nodes", labelSelector=f"for={self.namespace}")
        unbound = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
        return [
            *(f"lost: {name}" for name in unbound),
            *(f"bound twice: {name}" for name in self._log.twice()),
            *(f"overcommitted: {sentence}" for sentence in accounts.overcommitted(nodes, pods)),
            *(f"bound, but reported as unscheduled: {name}" for name in accounts.reported_unscheduled(pods)),
        ]

    def close(self) -> None:
        """Close the connections; the objects stay, so that a later operator has more to recover."""
        self.api.close()

    def _unbound(self) -> list[Manifest]:
        # The audit log may lack a binding: a killed API server does not write its last events.
        return self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", fieldSelector="spec.nodeName=")

    def _unschedulable(self) -> list[Manifest]:
        return [pod for pod in self._unbound() if condition_of(pod, "PodScheduled").get("reason") == "Unschedulable"]

    def _node(self, short: str, cpu: str) -> None:
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "60"}
        name = f"{self.namespace}-{short}"
        metadata = {"name": name, "labels": {"for": self.namespace, "kubernetes.io/hostname": name}}
        self.api.create({"kind": "Node", "metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}})

    def _pod(self, name: str, cpu: str) -> Manifest:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
        spec = {
            "schedulerName": self.namespace,
            "nodeSelector": {"for": self.namespace},
            "containers": [container],
        }
        return {"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}, "spec": spec}

    def _until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _holds(condition):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {_WAIT_SECONDS:.0f} s: {what}\n{self._operator.log[-4000:]}")
            time.sleep(_POLL_SECONDS)


def _holds(condition: Callable[[], Any]) -> bool:
    """Return whether a condition holds; False while the API server is unavailable."""
    try:
        return bool(condition())
    except (OSError, ApiRefusalError):
        return False
