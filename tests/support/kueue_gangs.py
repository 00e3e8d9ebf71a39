"""Queues, Jobs and pod groups of a real Kueue, for tests with gangs by owner."""

from __future__ import annotations

from typing import Any

from hack.controlplane.api_client import Manifest, condition_of
from tests.support.owned_gangs import NAMESPACE, OwnedGangs

VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
ELASTIC = "kueue.x-k8s.io/elastic-job"


class KueueGangs(OwnedGangs):
    """:class:`OwnedGangs` with queues."""

    def queue(self, name: str, cpu: int) -> None:
        """Create a LocalQueue with a ClusterQueue of its own that has a quota of CPUs."""
        flavor = self.cluster_object("ResourceFlavor", f"flavor-{name}", VERSION, spec={})
        quota = {"name": "cpu", "nominalQuota": cpu}
        resources = {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [quota]}]}
        queue = self.cluster_object(
            "ClusterQueue", name, VERSION, spec={"namespaceSelector": {}, "resourceGroups": [resources]}
        )
        self.namespaced_object("LocalQueue", name, VERSION, spec={"clusterQueue": queue})

    def queued_job(self, name: str, queue: str, parallelism: int, minimum: int = 0, **spec: Any) -> None:
        """Create a Job in a queue; Kueue may admit it with fewer pods, but not with fewer than *minimum*, if given."""
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: queue}}
        if minimum:
            metadata["annotations"] = {MIN_PARALLELISM: str(minimum)}
        fields = {"parallelism": parallelism, "completions": parallelism, "template": self.template(), **spec}
        self.api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": fields})

    def elastic_job(self, name: str, queue: str, parallelism: int) -> None:
        """Create a Job in a queue that may be scaled while it runs."""
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: queue}, "annotations": {ELASTIC: "true"}}
        spec = {"parallelism": parallelism, "completions": 100, "template": self.template()}
        self.api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    def pod_group(self, name: str, queue: str, count: int, total: int = 0) -> None:
        """Create pods of a pod group of Kueue; *total* is its total count, by default the number of pods."""
        template = self.template()
        labels = {QUEUE: queue, GROUP: name}
        annotations = {**template["metadata"]["annotations"], TOTAL_COUNT: str(total or count)}
        for number in range(count):
            metadata = {"name": f"{name}-{number}", "namespace": NAMESPACE, "labels": labels}
            metadata["annotations"] = annotations
            self.api.create({"kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    def workloads(self) -> list[Manifest]:
        """Return the Workloads of the namespace."""
        return self.api.items(f"/apis/{VERSION}/namespaces/{NAMESPACE}/workloads")

    def is_admitted(self, name: str) -> bool:
        """Return whether a Workload of an owner with this name is admitted."""
        return "True" in self._conditions(name, "Admitted")

    def quota_reserved(self, name: str) -> str:
        """Return the status of ``QuotaReserved`` of the Workload of an owner; "" before Kueue writes it."""
        return next(iter(self._conditions(name, "QuotaReserved")), "")

    def _conditions(self, name: str, kind: str) -> list[str]:
        return [
            condition_of(workload, kind).get("status", "")
            for workload in self.workloads()
            if any(owner["name"].startswith(name) for owner in workload["metadata"].get("ownerReferences", ()))
            or workload["metadata"]["name"] == name
        ]

    def remove_pods(self) -> None:
        """Delete all pods, including those that a finalizer of Kueue keeps."""
        for pod in self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"):
            manifest = {"kind": "Pod", "metadata": {"name": pod["metadata"]["name"], "namespace": NAMESPACE}}
            self.api.delete(manifest, grace_seconds=0)
            self.api.remove_finalizers(manifest)
