"""``bayplan explain`` of pods whose storage is missing: amounts, and the objects that must change."""

from __future__ import annotations

import json

from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.tables import table

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n, labels: {rack: r1}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop}
spec:
  containers: [{name: c, image: i}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
---
"""
CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disks.example.com
volumeBindingMode: WaitForFirstConsumer
---
"""
UNBOUND = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 30Gi}}}
---
"""
BOUND = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume-data}
spec:
  storageClassName: fast
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: shop, name: data, uid: uid-of-data}
  csi: {driver: disks.example.com, volumeHandle: data}
  NODE_AFFINITY
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, uid: uid-of-data, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec:
  storageClassName: fast
  volumeName: volume-data
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
status: {phase: Bound}
---
"""
REPORTS_CAPACITY = """
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disks.example.com}
spec: {storageCapacity: true}
---
"""
CAPACITY = """
apiVersion: storage.k8s.io/v1
kind: CSIStorageCapacity
metadata: {name: rack1, namespace: storage}
storageClassName: fast
capacity: 20Gi
nodeTopology: {matchLabels: {rack: r1}}
---
"""
MUST_BE_INSTALLED = """
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disks.example.com}
spec: {attachRequired: true, preventPodSchedulingIfMissing: true}
---
"""
FULL = """
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: n}
spec: {drivers: [{name: disks.example.com, nodeID: n, allocatable: {count: 1}}]}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: csi-old}
spec: {attacher: disks.example.com, nodeName: n, source: {persistentVolumeName: volume-old}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume-old}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: disks.example.com, volumeHandle: old}}
---
"""
WITHOUT_DRIVERS = """
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: n}
spec: {drivers: []}
---
"""
ELSEWHERE = """nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: In, values: [r2, r3]}]}]}"""


def explain_pod_in(text: str, *options: str) -> Result:
    """Run the command on manifests."""
    return CliRunner().invoke(bayplan, ["explain", "-f", "-", *options], input=text)


@table(
    "manifests, detail, event",
    (
        "too little capacity",
        NODE + CLASS + UNBOUND + REPORTS_CAPACITY + CAPACITY + POD,
        "claim shop/data needs 30Gi of class fast; CSIStorageCapacity storage/rack1 of the node has 20Gi",
        "CSIStorageCapacity storage/rack1 of node n grown from 20Gi to 30Gi",
    ),
    (
        "no capacity reported",
        NODE + CLASS + UNBOUND + REPORTS_CAPACITY + POD,
        "claim shop/data needs 30Gi of class fast; no CSIStorageCapacity of the class includes the node",
        "a CSIStorageCapacity of class fast with 30Gi that includes node n",
    ),
    (
        "driver not installed",
        NODE + CLASS + BOUND.replace("NODE_AFFINITY", "") + MUST_BE_INSTALLED + WITHOUT_DRIVERS + POD,
        "driver disks.example.com is not installed on the node: CSINode n does not list it",
        "driver disks.example.com registered in CSINode n, with a limit of volumes",
    ),
    (
        "a detaching volume fills the node",
        NODE + CLASS + BOUND.replace("NODE_AFFINITY", "") + FULL + POD,
        "driver disks.example.com has 1 volumes of at most 1 on the node",
        "VolumeAttachment csi-old deleted (volume volume-old, node n)",
    ),
    (
        "volume of another topology",
        NODE + CLASS + BOUND.replace("NODE_AFFINITY", ELSEWHERE) + POD,
        "volume volume-data of claim shop/data is accessible only from nodes with rack In (r2, r3)",
        "",
    ),
)
def test_storage(manifests: str, detail: str, event: str) -> None:
    """The nearest node has the amounts, and the events name the object that must change; text and JSON have both."""
    document = json.loads(explain_pod_in(manifests, "--pod", "shop/p", "-o", "json").stdout)
    [miss] = document["nearest"]
    assert [each for lack in miss["lacks"] for each in lack["details"]] == [detail]
    text = explain_pod_in(manifests, "--pod", "shop/p").stdout
    assert detail in text
    if event:
        assert event in [each["what"] for each in document["unblocking"]]
        assert event in text


def test_a_claim_that_is_being_deleted() -> None:
    """The event names the pod whose end the deletion of the claim waits for."""
    deleted = BOUND.replace("NODE_AFFINITY", "").replace(
        "{name: data, namespace: shop, uid: uid-of-data,",
        '{name: data, namespace: shop, uid: uid-of-data, deletionTimestamp: "2026-01-01T00:00:00Z",',
    )
    running = POD.replace("name: p,", "name: last,").replace("spec:", "spec:\n  nodeName: n", 1)
    result = explain_pod_in(NODE + CLASS + deleted + running + POD, "--pod", "shop/p")
    event = "claim shop/data created again after its deletion, which waits for the end of pod shop/last"
    assert event in result.stdout
    assert "Preemption  would not help: plugin VolumeBinding rejects the pod on every node" in result.stdout
