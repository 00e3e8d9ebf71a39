"""Plugins that read more than pods and nodes, on a real API server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.processes import Process
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
CRDS = Path(__file__).resolve().parents[2] / "crds"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SECONDS = "--timeout=60s"
BY_CPU: Manifest = {
    "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
        }
    ],
}
BIND_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
CLAIM_SPEC: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@dataclass
class Cluster:
    """Objects of one test. Cluster-scoped names have the test's token; these objects are deleted at the end.

    Attributes:
        token: Part of every cluster-scoped name, and label value of the test's nodes.
    """

    plane: ControlPlane
    operator: OperatorProcess
    namespace: str
    token: str = field(default_factory=lambda: f"live-{uuid.uuid4().hex[:8]}")
    created: list[str] = field(default_factory=list)

    def create(self, kind: str, name: str, *, api: str = "v1", **fields: Any) -> None:
        """Create an object in the test's namespace."""
        metadata = {"name": name, "namespace": self.namespace, **fields.pop("metadata", {})}
        manifest = {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}
        self.plane.kubectl("create", "-f", "-", input=json.dumps(manifest))

    def create_wide(self, kind: str, short: str, *, api: str = "v1", **fields: Any) -> str:
        """Create a cluster-scoped object; return its name, which has the test's token."""
        name = f"{self.token}-{short}"
        manifest = {"apiVersion": api, "kind": kind, "metadata": {"name": name, **fields.pop("metadata", {})}, **fields}
        self.plane.kubectl("create", "-f", "-", input=json.dumps(manifest))
        self.created.append(f"{kind}/{name}")
        return name

    def node(self, short: str, zone: str = "a", cpu: str = "4") -> str:
        """Create a node that only the pods of this test select."""
        name = f"{self.token}-{short}"
        amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        labels = {"for": self.token, HOST: name, ZONE: zone}
        return self.create_wide(
            "Node", short, metadata={"labels": labels}, status={"allocatable": amounts, "capacity": amounts}
        )

    def profile(self) -> str:
        """Create the test's profile."""
        return self.create_wide("SchedulerProfile", "p", api="bayplan.dev/v1alpha1", spec=BY_CPU)

    def pod(self, name: str, labels: dict[str, str] | None = None, cpu: str = "100m", **spec: Any) -> None:
        """Create a pod for the test's profile and nodes."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        chosen = {"schedulerName": f"{self.token}-p", "nodeSelector": {"for": self.token}, "containers": [container]}
        self.create("Pod", name, metadata={"labels": labels or {}}, spec={**chosen, **spec})

    def claim(self, name: str, class_name: str, **fields: Any) -> None:
        """Create a claim for 1Gi."""
        spec = {**CLAIM_SPEC, "storageClassName": class_name, **fields.pop("spec", {})}
        self.create("PersistentVolumeClaim", name, spec=spec, **fields)

    def volume(self, short: str, node: str, class_name: str, **spec: Any) -> str:
        """Create a volume of 1Gi that is reachable from one node."""
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        reach = {"required": {"nodeSelectorTerms": [term]}}
        fields = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/mnt"}}
        return self.create_wide(
            "PersistentVolume",
            short,
            spec={**fields, "storageClassName": class_name, "nodeAffinity": reach, **spec},
        )

    def placed(self, *names: str) -> list[str]:
        """Wait until pods are bound; return the node of each."""
        pods = [f"pod/{name}" for name in names]
        self.plane.kubectl("wait", "--for=condition=PodScheduled", SECONDS, f"--namespace={self.namespace}", *pods)
        listed = json.loads(self.plane.kubectl("get", "pods", f"--namespace={self.namespace}", "--output=json"))
        nodes = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in listed["items"] if "nodeName" in pod["spec"]
        }
        return [nodes[name] for name in names]

    def refusal(self, name: str) -> str:
        """Wait until a pod is reported as unschedulable; return the message."""
        waits = ("wait", f"pod/{name}", "--for=condition=PodScheduled=False", SECONDS, f"--namespace={self.namespace}")
        self.plane.kubectl(*waits)
        path = "{.status.conditions[?(@.type=='PodScheduled')].message}"
        return self.plane.kubectl("get", f"pod/{name}", f"--namespace={self.namespace}", f"--output=jsonpath={path}")

    def informed(self, resource: str) -> float:
        """Return the number of objects in the operator's informer of a resource."""
        return self.operator.metric("bayplan_informer_objects", resource=resource)

    def clean_up(self) -> None:
        """Delete cluster-scoped objects; their finalizers are removed here because no controller runs that would."""
        for name in reversed(self.created):
            with suppress(ControlPlaneError):
                self.plane.kubectl("delete", name, "--wait=false", "--ignore-not-found")
            if name.startswith("PersistentVolume/"):
                with suppress(ControlPlaneError):
                    self.plane.kubectl("patch", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}')


@pytest.fixture
def cluster(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[Cluster]:
    """Create a namespace and a profile for one test."""
    cluster = Cluster(control_plane, operator, namespace)
    cluster.profile()
    yield cluster
    cluster.clean_up()


def test_required_anti_affinity(cluster: Cluster) -> None:
    """The second pod is bound to the smaller node, and the third is unschedulable with the plugin's reason."""
    large, small = cluster.node("large", cpu="100"), cluster.node("small")
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.pod("a", {"app": "db"}, affinity=away)
    assert cluster.placed("a") == [large]
    cluster.pod("b", {"app": "db"}, affinity=away)
    assert cluster.placed("b") == [small]
    cluster.pod("c", {"app": "db"}, affinity=away)
    assert "2 node(s) didn't match pod anti-affinity rules" in cluster.refusal("c")


def test_a_service_spreads_its_pods_over_zones(cluster: Cluster) -> None:
    """Pods without spread constraints are spread over zones if a Service selects them; others pick the larger node."""
    large, small = cluster.node("large", "a", cpu="400"), cluster.node("small", "b")
    before = cluster.informed("services")
    ports = [{"port": 80}]
    cluster.create("Service", "web", spec={"selector": {"app": "web"}, "clusterIP": "None", "ports": ports})
    cluster.operator.until(lambda: cluster.informed("services") > before, "the Service is in the informer")
    for name in "abcd":
        cluster.pod(f"web-{name}", {"app": "web"})
        cluster.pod(f"other-{name}", {"app": "other"})
    assert sorted(cluster.placed(*(f"web-{name}" for name in "abcd"))) == [large, large, small, small]
    assert set(cluster.placed(*(f"other-{name}" for name in "abcd"))) == {large}


def test_a_bound_volume_restricts_its_pod(cluster: Cluster) -> None:
    """A pod is bound to the node from which its volume is reachable, though another node has more room."""
    cluster.node("large", cpu="100")
    small = cluster.node("small")
    reference = {"namespace": cluster.namespace, "name": "data"}
    volume = cluster.volume(
        "pv", small, "", claimRef={**reference, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    )
    cluster.claim("data", "", metadata={"annotations": BIND_COMPLETED}, spec={"volumeName": volume})
    cluster.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    assert cluster.placed("p") == [small]


def test_a_volume_is_bound_for_its_first_pod(cluster: Cluster) -> None:
    """The scheduler writes the claim into a reachable volume, and binds the pod when the claim is bound."""
    cluster.node("large", cpu="100")
    small = cluster.node("small")
    class_name = cluster.create_wide(
        "StorageClass",
        "waits",
        api="storage.k8s.io/v1",
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    volume = cluster.volume("pv", small, class_name)
    patch = '--patch={"status":{"phase":"Available"}}'
    cluster.plane.kubectl("patch", f"pv/{volume}", "--subresource=status", "--type=merge", patch)
    cluster.claim("data", class_name)
    cluster.pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    cluster.plane.kubectl("wait", f"pv/{volume}", "--for=jsonpath={.spec.claimRef.name}=data", SECONDS)
    # The volume controller would write this.
    completed = json.dumps({"metadata": {"annotations": BIND_COMPLETED}, "spec": {"volumeName": volume}})
    claim = ("pvc/data", f"--namespace={cluster.namespace}", "--type=merge", f"--patch={completed}")
    cluster.plane.kubectl("patch", *claim)
    assert cluster.placed("p") == [small]


def test_preemption_spares_a_disruption_budget(cluster: Cluster, kwok: Process) -> None:
    """The victim is deleted and the preemptor gets its node; a pod of lower priority with a budget is not evicted."""
    del kwok  # finishes deletions
    priorities = "scheduling.k8s.io/v1"
    low = cluster.create_wide("PriorityClass", "low", api=priorities, value=1)
    middle = cluster.create_wide("PriorityClass", "middle", api=priorities, value=2)
    high = cluster.create_wide("PriorityClass", "high", api=priorities, value=3)
    first = cluster.node("first")
    cluster.pod("protected", {"app": "protected"}, cpu="3", priorityClassName=low)
    assert cluster.placed("protected") == [first]
    second = cluster.node("second")
    cluster.pod("victim", cpu="3", priorityClassName=middle)
    assert cluster.placed("victim") == [second]
    before = cluster.informed("poddisruptionbudgets")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}
    cluster.create("PodDisruptionBudget", "keep", api="policy/v1", spec=budget)
    cluster.operator.until(lambda: cluster.informed("poddisruptionbudgets") > before, "the budget is in the informer")
    cluster.pod("important", cpu="3", priorityClassName=high)
    assert cluster.placed("important", "protected") == [second, first]
    cluster.plane.kubectl("wait", "pod/victim", "--for=delete", SECONDS, f"--namespace={cluster.namespace}")
