"""Gangs by owner on a real API server with the controllers of Kubernetes."""

from __future__ import annotations

from typing import Any

from hack.controlplane.api_client import Manifest
from tests.support.live_gangs import LiveGangs

NAMESPACE = "default"
GROUPS = f"/apis/bayplan.dev/v1alpha1/namespaces/{NAMESPACE}/podgroups"


class OwnedGangs(LiveGangs):
    """:class:`LiveGangs` with real owners."""

    def template(self, **spec: Any) -> Manifest:
        """Return the template of a pod that requests one CPU and runs for an hour."""
        container = {"name": "main", "image": "example.com/main", "resources": {"requests": {"cpu": "1"}}}
        return {
            "metadata": {"annotations": {"bayplan.dev/run-for": "1h"}},
            "spec": {
                "schedulerName": self.token,
                "nodeSelector": {"for": self.token},
                "restartPolicy": "Never",
                "containers": [container],
                **spec,
            },
        }

    def batch_job(self, name: str, parallelism: int, **spec: Any) -> None:
        """Create a Job."""
        fields = {"parallelism": parallelism, "completions": parallelism, "template": self.template(), **spec}
        self.namespaced_object("Job", name, "batch/v1", spec=fields)

    def change_job(self, name: str, **spec: Any) -> None:
        """Patch the spec of a Job."""
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}}
        self.api.patch(job, {"spec": spec})

    def groups(self, owner: str) -> list[Manifest]:
        """Return the PodGroups of owners with a name that begins so."""
        found = self.api.items(GROUPS)
        return [each for each in found if each["metadata"]["name"].startswith(owner)]

    def sizes(self, owner: str) -> list[int]:
        """Return ``minMember`` of these PodGroups."""
        return sorted(each["spec"]["minMember"] for each in self.groups(owner))

    def nodes_of(self, job: str) -> list[str]:
        """Return the node of each pod of a Job; "" for none."""
        return self.nodes_by_label(f"batch.kubernetes.io/job-name={job}")

    def nodes_by_label(self, selector: str) -> list[str]:
        """Return the node of each pod that a label selector matches; "" for none."""
        pods = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)
        return [each["spec"].get("nodeName", "") for each in pods]

    def is_bound(self, job: str, count: int) -> bool:
        """Return whether *count* pods of a Job exist, and all are bound."""
        nodes = self.nodes_of(job)
        return len(nodes) == count and all(nodes)

    def clean_up_after_owners(self) -> None:
        """Wait until the PodGroups are deleted with their owners; delete all other objects."""
        self.until(lambda: not self.api.items(GROUPS), "the PodGroups are deleted with their owners")
        self.clean_up()
