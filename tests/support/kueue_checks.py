"""Queues of a real Kueue with Bayplan's admission check, and what becomes of the Workloads in them."""

from __future__ import annotations

from typing import Any

from hack.controlplane.api_client import Manifest, status_of
from tests.support.kueue_gangs import QUEUE, VERSION, KueueGangs
from tests.support.owned_gangs import NAMESPACE


class KueueChecks(KueueGangs):
    """:class:`KueueGangs` with queues that have the check."""

    def checked_queue(self, name: str, cpu: int) -> str:
        """Create a queue with the check and a quota of CPUs; return the name of the AdmissionCheck."""
        check = self.cluster_object(
            "AdmissionCheck", f"fit-{name}", VERSION, spec={"controllerName": "bayplan.dev/fit"}
        )
        flavor = self.cluster_object("ResourceFlavor", f"flavor-{name}", VERSION, spec={})
        quota = {"name": "cpu", "nominalQuota": cpu}
        resources = {"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [quota]}]}
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [resources],
            "admissionChecksStrategy": {"admissionChecks": [{"name": check}]},
        }
        queue = self.cluster_object("ClusterQueue", name, VERSION, spec=spec)
        self.namespaced_object("LocalQueue", name, VERSION, spec={"clusterQueue": queue})
        return check

    def sized_job(self, name: str, queue: str, parallelism: int, cpu: int = 1, **spec: Any) -> None:
        """Create a Job in a queue whose pods request CPUs."""
        self.queued_job(name, queue, parallelism, template=self.sized(cpu, **spec))

    def queued_job_set(self, name: str, queue: str, *, jobs: int, parallelism: int) -> None:
        """Create a JobSet of equal Jobs in a queue."""
        job = {"parallelism": parallelism, "completions": parallelism, "template": self.template()}
        replicated = {"name": "workers", "replicas": jobs, "template": {"spec": job}}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: queue}}
        spec = {"replicatedJobs": [replicated]}
        version = "jobset.x-k8s.io/v1alpha2"
        self.api.create({"apiVersion": version, "kind": "JobSet", "metadata": metadata, "spec": spec})

    def queued_replica(self, name: str, queue: str, size: int) -> None:
        """Create a LeaderWorkerSet of one replica in a queue."""
        template = {"size": size, "workerTemplate": self.template(restartPolicy="Always")}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: queue}}
        spec = {"replicas": 1, "leaderWorkerTemplate": template}
        version = "leaderworkerset.x-k8s.io/v1"
        self.api.create({"apiVersion": version, "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec})

    def sized(self, cpu: int, **spec: Any) -> Manifest:
        """Return the template of a pod that requests CPUs."""
        template = self.template(**spec)
        template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpu)
        return template

    def plain_pods(self, *names: str, cpu: int, **spec: Any) -> None:
        """Create pods without an owner or a queue."""
        for name in names:
            template = self.sized(cpu, **spec)
            metadata = {"name": name, "namespace": NAMESPACE, "annotations": template["metadata"]["annotations"]}
            self.api.create({"kind": "Pod", "metadata": metadata, "spec": template["spec"]})

    def remove(self, kind: str, name: str, version: str = "v1") -> None:
        """Delete an object of the namespace, a pod at once."""
        manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
        self.api.delete(manifest, grace_seconds=0)

    def node_of(self, pod: str) -> str:
        """Return the node of a pod; "" for none."""
        found = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")
        return str(found["spec"].get("nodeName", ""))

    def workload(self, name: str, queue: str, count: int, cpu: int) -> None:
        """Create a Workload without an owner, whose pods never come."""
        pod_set = {"name": "main", "count": count, "template": {"spec": self.sized(cpu)["spec"]}}
        metadata = {"name": name, "namespace": NAMESPACE}
        spec = {"queueName": queue, "podSets": [pod_set]}
        self.api.create({"apiVersion": VERSION, "kind": "Workload", "metadata": metadata, "spec": spec})

    def check_of(self, name: str) -> Manifest:
        """Return the state of the check of the Workload of an owner, or with this name; empty if there is none."""
        for workload in self.workloads():
            owners = [owner["name"] for owner in workload["metadata"].get("ownerReferences", ())]
            if name in (*owners, workload["metadata"]["name"]):
                checks = status_of(workload).get("admissionChecks", ())
                return dict(checks[0]) if checks else {}
        return {}

    def messages_of(self, job: str) -> str:
        """Return the messages of the checks of all Workloads of a Job."""
        found = [each for each in self.workloads() if each["metadata"]["name"].startswith(f"job-{job}-")]
        return "; ".join(
            str(check.get("message")) for each in found for check in status_of(each).get("admissionChecks", ())
        )

    def pod_uids(self, job: str) -> set[str]:
        """Return the UIDs of the pods of a Job that have nodes and are not being deleted."""
        pods = self.api.items(
            f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"batch.kubernetes.io/job-name={job}"
        )
        alive = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        return {each["metadata"]["uid"] for each in alive if each["spec"].get("nodeName")}

    def admitted_without_nodes(self, *jobs: str) -> list[str]:
        """Return the admitted Jobs with pods that have no node."""
        return [job for job in jobs if self.is_admitted(job) and "" in self.nodes_of(job)]
