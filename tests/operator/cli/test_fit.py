"""Tests of ``bayplan fit`` on files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.tables import table

CLUSTER = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, labels: {zone: x}}, status: {allocatable: {cpu: "4", pods: "10"}}}
- {apiVersion: v1, kind: Node, metadata: {name: b, labels: {zone: y}}, status: {allocatable: {cpu: "4", pods: "10"}}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}
- apiVersion: v1
  kind: Pod
  metadata: {name: running}
  spec: {nodeName: a, containers: [{name: main, image: x, resources: {requests: {cpu: "3"}}}]}
"""
JOB = """
apiVersion: bayplan.dev/v1alpha1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 4}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 4
  template:
    metadata: {labels: {bayplan.dev/pod-group: train}}
    spec:
      restartPolicy: Never
      priorityClassName: high
      containers: [{name: main, image: x, resources: {requests: {cpu: "1"}}}]
"""
TEMPLATE = """
apiVersion: v1
kind: Node
metadata: {labels: {zone: x}}
status: {allocatable: {cpu: "2", pods: "10"}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return a folder with the cluster and a template of new nodes."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    return tmp_path


def fit(folder: Path, text: str, *options: str) -> Result:
    """Run the command on manifests."""
    command = ["fit", "-f", "-", "--nodes-from", str(folder / "cluster.yaml"), *options]
    return CliRunner().invoke(bayplan, command, input=text)


def document(folder: Path, *options: str, text: str = JOB, more: str = "") -> tuple[int, dict[str, Any]]:
    """Return the exit code and the document for manifests, with more objects in the cluster."""
    with (folder / "cluster.yaml").open("a") as file:
        file.write(more)
    result = fit(folder, text, *options, "-o", "json")
    return result.exit_code, json.loads(result.stdout)


def test_a_gang_that_fits(cluster: Path) -> None:
    """The text has the node of each pod."""
    result = fit(cluster, JOB)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:4] == ["All 4 pods would be scheduled now", "", "Nodes", "POD              NODE"]


@table(
    "options, code, verdict",
    ("evictions", ["--count", "7"], 10, "FitsAfterEvictions"),
    ("no-evictions", ["--count", "7", "--no-evictions"], 12, "DoesNotFit"),
    ("impossible", ["--count", "9"], 13, "Impossible"),
)
def test_exit_codes(cluster: Path, options: list[str], code: int, verdict: str) -> None:
    """Each verdict has its exit code."""
    exit_code, found = document(cluster, *options)
    assert (exit_code, found["verdict"]) == (code, verdict)


def test_new_nodes(cluster: Path) -> None:
    """The least number of new nodes is that of the template."""
    exit_code, found = document(cluster, "--count", "12", "--node-template", str(cluster / "template.yaml"))
    assert exit_code == 11
    assert found["newNodes"] == {"count": 4, "atLeast": 4, "tried": 100}
    _, copied = document(cluster, "--count", "12", "--node-template", "b")
    assert copied["newNodes"]["count"] == 2


def test_victims_are_named(cluster: Path) -> None:
    """The document has the victims, and the reasons why the pods do not fit now."""
    _, found = document(cluster, "--count", "7")
    assert found["evictions"]["victims"] == [{"namespace": "default", "name": "running", "priority": 0}]
    assert {each["message"] for each in found["unplaced"]} == {"0/2 nodes are available: 2 Insufficient cpu."}


@table(
    "text, options, message",
    ("no-pods", TEMPLATE, [], "manifests: have no pods; supported kinds: Pod, Job"),
    ("class", JOB.replace("high", "none"), [], 'there is no PriorityClass "none"'),
    ("field", JOB.replace("parallelism: 4", "parallelism: x"), [], "spec.parallelism: must be"),
    ("two-workloads", JOB + "---\n" + JOB, ["--count", "2"], "count: requires exactly one workload"),
    ("template", JOB, ["--node-template", "none"], '"none" is neither a file nor a node'),
)
def test_bad_input(cluster: Path, text: str, options: list[str], message: str) -> None:
    """An error names the field and has exit code 2."""
    result = fit(cluster, text, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


OWNERS = """
apiVersion: bayplan.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: batch}
spec:
  gangs:
    fromOwners:
    - {kind: Job, topology: {key: zone}}
    - {kind: LeaderWorkerSet}
"""
_CONTAINER = "{name: main, image: x, resources: {requests: {cpu: 2}}}"
_POD = f"{{schedulerName: batch, restartPolicy: Never, containers: [{_CONTAINER}]}}"
OWNED_JOB = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: train}}
spec: {{parallelism: 2, template: {{spec: {_POD}}}}}
"""
OWNED_SET = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: serve}}
spec: {{replicas: 1, leaderWorkerTemplate: {{size: 2, workerTemplate: {{spec: {_POD}}}}}}}
"""


@table(
    "text, count, code, nodes",
    ("one-zone", OWNED_JOB, 2, 0, ["b", "b"]),
    ("no-zone-has-room", OWNED_JOB, 3, 12, []),
    ("one-pod-is-no-gang", OWNED_JOB, 1, 0, ["b"]),
    ("replica", OWNED_SET, 1, 0, ["b", "b"]),
    ("replica-that-does-not-fit", OWNED_SET, 2, 12, ["b", "b"]),
)
def test_gangs_by_owner(cluster: Path, text: str, count: int, code: int, nodes: list[str]) -> None:
    """The pods of an owner that a row of the profile names are a gang, although its PodGroup does not exist yet."""
    exit_code, found = document(cluster, "--count", str(count), text=text, more=f"---{OWNERS}")
    assert exit_code == code, found
    assert [each["node"] for each in found["placed"]] == nodes


def test_one_source_of_the_cluster(cluster: Path) -> None:
    """At most one source of the cluster is specified."""
    result = fit(cluster, JOB, "--offline")
    assert result.exit_code == 2
    assert "specify only one of --nodes-from, --offline" in result.stderr


def test_pods_without_names(cluster: Path) -> None:
    """Pods whose names the API server generates are different pods."""
    spec = "{containers: [{name: main, image: x}]}"
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{generateName: p-}}, spec: {spec}}}"
    result = fit(cluster, f"{text}\n---\n{text}\n", "-o", "json")
    assert result.exit_code == 0, result.output
    assert [each["pod"] for each in json.loads(result.output)["placed"]] == ["default/p-00001", "default/p-00002"]


JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train
  annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: zone}
spec:
  replicatedJobs:
  - name: slice
    replicas: %d
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            restartPolicy: Never
            containers: [{name: main, image: x, resources: {requests: {cpu: 500m}}}]
"""


@table("jobs, code", ("a zone each", 2, 0), ("more jobs than zones", 3, 12))
def test_jobs_with_a_zone_of_their_own(cluster: Path, jobs: int, code: int) -> None:
    """Each Job of the JobSet is in a zone without another one, although the nodes have room for all."""
    exit_code, found = document(cluster, text=JOB_SET % jobs)
    assert exit_code == code
    nodes = {each["pod"]: each["node"] for each in found["placed"]}
    for job in range(2):
        assert len({nodes[f"default/train-slice-{job}-{number}"] for number in range(2)}) == 1
    assert nodes["default/train-slice-0-0"] != nodes["default/train-slice-1-0"]


GANG = JOB.replace("minMember: 4", "minMember: 2").replace("parallelism: 4", "parallelism: 2")


def test_two_gangs_that_evict(cluster: Path) -> None:
    """The answer names the gangs whose victims may differ."""
    running = "".join(
        f"- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{nodeName: b, containers: "
        '[{name: main, image: x, resources: {requests: {cpu: "2"}}}]}}\n'
        for name in ("b-0", "b-1")
    )
    _, found = document(cluster, text=f"{GANG}---{GANG.replace('train', 'other')}", more=running)
    assert found["verdict"] == "FitsAfterEvictions"
    notice = (
        "gangs default/other, default/train evict pods; if the victims of one end first, nodes and victims may differ"
    )
    assert notice in found["notices"]
    _, alone = document(cluster, text=GANG)
    assert "evict pods" not in "".join(alone["notices"])


STORAGE = """
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: csi.example.com
volumeBindingMode: WaitForFirstConsumer
allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [y]}]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: at-once}
provisioner: csi.example.com
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-db-0, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec:
  volumeName: old
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 5Gi}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: old}
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  claimRef: {namespace: default, name: data-db-0}
  csi: {driver: csi.example.com, volumeHandle: old}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [x]}]}]}}
"""
STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %s}
spec:
  serviceName: db
  replicas: %d
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: main, image: x, resources: {requests: {cpu: "1"}}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {%s accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}
"""
AT_ONCE = "storageClassName: at-once,"
EPHEMERAL = """
apiVersion: v1
kind: Pod
metadata: {name: scratch}
spec:
  containers: [{name: main, image: x}]
  volumes:
  - name: data
    ephemeral:
      volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}}
"""
NAMED = """
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  containers: [{name: main, image: x}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"""
WRITTEN = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}
"""


@table(
    "text, options, code, nodes",
    ("zone of the default class", STATEFUL_SET % ("web", 2, ""), [], 0, ["b", "b"]),
    ("more than the zone has room for", STATEFUL_SET % ("web", 5, ""), [], 12, ["b"] * 4),
    ("claim that exists", STATEFUL_SET % ("db", 2, ""), [], 0, ["a", "b"]),
    ("bound at once", STATEFUL_SET % ("web", 1, AT_ONCE), [], 0, ["b"]),
    ("class that does not exist", STATEFUL_SET % ("web", 1, "storageClassName: gone,"), [], 12, []),
    ("ephemeral volume", EPHEMERAL, [], 0, ["b"]),
    ("copies with ephemeral volumes", EPHEMERAL, ["--count", "3"], 0, ["b"] * 3),
    ("claim of the manifest", f"{WRITTEN}---{NAMED}", [], 0, ["b"]),
    ("missing claim", NAMED, [], 12, []),
)
def test_claims(cluster: Path, text: str, options: list[str], code: int, nodes: list[str]) -> None:
    """Claims that a controller creates with the pods count with their storage class; others must exist."""
    exit_code, found = document(cluster, *options, text=text, more=STORAGE)
    assert exit_code == code, found
    assert [each["node"] for each in found["placed"]] == nodes


@table(
    "text, expected",
    (
        "bound-at-once",
        STATEFUL_SET % ("web", 2, AT_ONCE),
        (
            "2 PersistentVolumeClaims of StorageClass at-once: the volumes are created before the pods are scheduled "
            "(volumeBindingMode Immediate), in a zone that is not known; the pods may not fit there"
        ),
    ),
    (
        "no-class",
        STATEFUL_SET % ("web", 1, "storageClassName: gone,"),
        '1 PersistentVolumeClaim: there is no StorageClass "gone"; only existing PersistentVolumes can be bound',
    ),
    ("bound-with-the-pod", STATEFUL_SET % ("web", 1, ""), ""),
)
def test_notices_of_claims(cluster: Path, text: str, expected: str) -> None:
    """What cannot be known about a volume is reported."""
    _, found = document(cluster, text=text, more=STORAGE)
    assert [each for each in found["notices"] if "PersistentVolumeClaim" in each] == ([expected] if expected else [])


def test_the_reason_of_a_missing_claim(cluster: Path) -> None:
    """A pod that names a claim which does not exist is reported with the claim."""
    (item,) = document(cluster, text=NAMED)[1]["unplaced"]
    assert 'persistentvolumeclaim "data" not found' in item["message"]


DEVICES = """
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
"""
SLICE = """
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: NODE-gpus}
spec:
  driver: gpu.example.com
  nodeName: NODE
  pool: {name: NODE, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
"""
BY_CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 5
  template:
    spec:
      restartPolicy: Never
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
      containers: [{name: main, image: x, resources: {requests: {cpu: 500m}, claims: [{name: gpu}]}}]
"""
BY_RESOURCE = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 5
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: x, resources: {requests: {cpu: 500m, example.com/gpu: 1}, limits: {example.com/gpu: 1}}}
"""
NODE_WITH_DEVICES = TEMPLATE.replace("metadata: {labels", "metadata: {name: new, labels") + SLICE.replace("NODE", "new")


@table("job", ("claims", BY_CLAIM), ("extended resource", BY_RESOURCE))
def test_devices_of_new_nodes(cluster: Path, job: str) -> None:
    """Two devices exist on a node, and two on each new node, whose slices are beside it in the file."""
    (cluster / "cluster.yaml").write_text(CLUSTER + DEVICES + SLICE.replace("NODE", "b"))
    (cluster / "template.yaml").write_text(NODE_WITH_DEVICES)
    code, found = document(cluster, "--node-template", str(cluster / "template.yaml"), text=job)
    assert (code, found["newNodes"]["count"]) == (11, 2)
    assert set(Counter(each["node"] for each in found["placed"]).values()) <= {1, 2}
    assert found["notices"] == []
    _, without = document(cluster, text=job)
    assert (without["verdict"], len(without["placed"])) == ("DoesNotFit", 2)


def test_claim_templates_of_the_cluster(cluster: Path) -> None:
    """A template of the files with the cluster counts; a notice names one that is in no file."""
    template, _, job = BY_CLAIM.partition("---")
    _, found = document(cluster, text=job, more=DEVICES + SLICE.replace("NODE", "b"))
    assert found["notices"] == [
        "ResourceClaimTemplate default/one is not in the manifests; add it, or its pods do not fit"
    ]
    _, found = document(cluster, text=job, more=f"---{template}")
    assert (len(found["placed"]), found["notices"]) == (2, [])


def test_a_device_class_of_the_manifests(cluster: Path) -> None:
    """A class that does not exist in the cluster counts; slices of the manifests do not, which a notice reports."""
    classed = BY_CLAIM + DEVICES + SLICE.replace("NODE", "a")
    _, found = document(cluster, text=classed, more=SLICE.replace("NODE", "b"))
    assert [each["node"] for each in found["placed"]] == ["b", "b"]
    assert any(each.startswith("ResourceSlices of the manifests are left out") for each in found["notices"])


@table(
    "template, message",
    ("other-node", TEMPLATE + SLICE.replace("NODE", "b"), 'spec.nodeName: must be "template", the name of the Node'),
    ("other-kind", TEMPLATE + DEVICES, "is neither a Node nor a ResourceSlice"),
    ("two-nodes", f"{TEMPLATE}---{TEMPLATE}", "has 2 Nodes; write one"),
)
def test_bad_templates(cluster: Path, template: str, message: str) -> None:
    """An error names the object of the file of the template."""
    (cluster / "template.yaml").write_text(template)
    result = fit(cluster, JOB, "--node-template", str(cluster / "template.yaml"))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
