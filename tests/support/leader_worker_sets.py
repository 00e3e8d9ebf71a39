"""LeaderWorkerSets on a real API server, with their real controller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hack.controlplane.api_client import Manifest
from tests.support.owned_gangs import NAMESPACE, OwnedGangs

VERSION = "leaderworkerset.x-k8s.io/v1"
NAME = "leaderworkerset.sigs.k8s.io/name"
INDEX = "leaderworkerset.sigs.k8s.io/group-index"
SIZE = 4
"""Number of pods of a replica."""


class LeaderWorkerSets(OwnedGangs):
    """:class:`OwnedGangs` with LeaderWorkerSets whose replicas have four pods."""

    def leader_worker_set(self, name: str, replicas: int, **spec: Any) -> None:
        """Create a LeaderWorkerSet."""
        template = {"size": SIZE, "workerTemplate": self.template(restartPolicy="Always")}
        fields = {"replicas": replicas, "leaderWorkerTemplate": template, **spec}
        self.namespaced_object("LeaderWorkerSet", name, VERSION, spec=fields)

    def scale(self, name: str, replicas: int) -> None:
        """Change the number of replicas."""
        manifest = {
            "apiVersion": VERSION,
            "kind": "LeaderWorkerSet",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        self.api.patch(manifest, {"spec": {"replicas": replicas}})

    def replica_pods(self, name: str) -> list[Manifest]:
        """Return the pods of a LeaderWorkerSet."""
        return self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"{NAME}={name}")

    def bound_by_replica(self, name: str) -> list[int]:
        """Return the number of bound pods of each replica, in ascending order."""
        pods = self.replica_pods(name)
        counts = Counter({pod["metadata"]["labels"][INDEX]: 0 for pod in pods})
        counts.update(pod["metadata"]["labels"][INDEX] for pod in pods if pod["spec"].get("nodeName"))
        return sorted(counts.values())
