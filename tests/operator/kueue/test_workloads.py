"""The pods of a Workload of Kueue when it is admitted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bayplan.fit.workload_pods import MAX_PODS
from bayplan.kueue.workloads import MissingFlavorError, Placed, ResourceFlavor, Workload, pods_of

from scheduler_core.errors import ConfigError
from tests.support.tables import table

CPU = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}


def workload(*pod_sets: dict[str, Any], **status: Any) -> Workload:
    """Return a Workload with reserved quota."""
    found = [{"template": {"spec": CPU}, **each} for each in pod_sets]
    body = {
        "metadata": {"name": "job", "namespace": "ml", "uid": "u1"},
        "spec": {"podSets": found},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admission": {"podSetAssignments": [{"name": each.get("name", "main")} for each in pod_sets]},
            **status,
        },
    }
    return msgspec.convert(body, Workload)


def assigned(**fields: Any) -> dict[str, Any]:
    """Return an admission of the pod set ``main``."""
    return {"admission": {"podSetAssignments": [{"name": "main", **fields}]}}


@table(
    "status, placed, expected",
    ("as in the spec", {}, {}, 4),
    ("partial admission", assigned(count=3), {}, 3),
    ("pods that have ended", {"reclaimablePods": [{"name": "main", "count": 1}]}, {}, 3),
    ("pods that have nodes", {}, {"main": [{}] * 3}, 1),
    ("more ended than there are", {"reclaimablePods": [{"name": "main", "count": 3}]}, {"main": [{}] * 2}, 0),
)
def test_the_number_of_pods(status: dict[str, Any], placed: Placed, expected: int) -> None:
    """The number of an admission counts, without pods that have ended or have nodes."""
    assert len(pods_of(workload({"count": 4}, **status), ["fit"], {}, placed)) == expected


def test_labels_of_the_pods() -> None:
    """Each pod has labels of its Workload and pod set, beside those of its template."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": CPU}
    pods = pods_of(workload({"name": "driver", "template": template}, {"name": "worker"}), ["fit"], {}, {})
    assert [pod["metadata"]["labels"] for pod in pods] == [
        {"app": "web", "bayplan.dev/admitted-workload": "u1", "bayplan.dev/admitted-pod-set": "driver"},
        {"bayplan.dev/admitted-workload": "u1", "bayplan.dev/admitted-pod-set": "worker"},
    ]


JOBSET_LABELS = {"jobset-name": "train", "jobset-uid": "u2", "replicatedjob-name": "worker"}


@table(
    "kind, api_version, references, labels",
    ("job", "Job", "batch/v1", ["train"], {}),
    ("job-set", "JobSet", "jobset.x-k8s.io/v1alpha2", [], JOBSET_LABELS),
    ("plain-pod", "Pod", "v1", [], {}),
)
def test_what_makes_pods_a_gang(kind: str, api_version: str, references: list[str], labels: dict[str, str]) -> None:
    """Pods have the controller, or the labels, by which a row of a profile makes them a gang."""
    owner = {"kind": kind, "apiVersion": api_version, "name": "train", "uid": "u2", "controller": True}
    body = msgspec.to_builtins(workload({"name": "worker"}))
    body["metadata"]["ownerReferences"] = [owner, {**owner, "name": "other", "controller": False}]
    (pod,) = pods_of(msgspec.convert(body, Workload), ["fit"], {}, {})
    assert [each["name"] for each in pod["metadata"]["ownerReferences"]] == references
    found = {key: value for key, value in pod["metadata"]["labels"].items() if key.startswith("jobset")}
    assert found == {f"jobset.sigs.k8s.io/{key}": value for key, value in labels.items()}


def test_flavors_and_other_checks() -> None:
    """Node labels and tolerations of flavors and of other checks count; what the own check added before does not."""
    flavor = msgspec.convert(
        {"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot"}]}},
        ResourceFlavor,
    )
    checks = [
        {"name": "other", "state": "Ready", "podSetUpdates": [{"name": "main", "nodeSelector": {"claim": "a"}}]},
        {"name": "fit", "state": "Pending", "podSetUpdates": [{"name": "main", "nodeSelector": {"old": "x"}}]},
    ]
    spec = {**CPU, "nodeSelector": {"own": "1"}, "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}
    given = workload({"template": {"spec": spec}}, **assigned(flavors={"cpu": "spot"}), admissionChecks=checks)
    (pod,) = pods_of(given, ["fit"], {"spot": flavor}, {})
    assert pod["spec"]["nodeSelector"] == {"own": "1", "pool": "spot", "claim": "a"}
    assert pod["spec"]["tolerations"] == [{"key": "spot"}]
    assert "schedulingGates" not in pod["spec"]
    with pytest.raises(MissingFlavorError, match="ResourceFlavor spot is not known"):
        pods_of(given, ["fit"], {}, {})


SLICES = {
    "levels": ["block", "host"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "b1"},
                {"individual": {"prefix": "h", "suffix": "x", "roots": ["1", "2"]}},
            ],
            "podCounts": {"individual": [1, 2]},
        },
        {"domainCount": 1, "valuesPerLevel": [{"universal": "b2"}, {"universal": "h9"}], "podCounts": {"universal": 1}},
    ],
}
DOMAINS = {
    "levels": ["block", "host"],
    "domains": [
        {"values": ["b1", "h1x"], "count": 1},
        {"values": ["b1", "h2x"], "count": 2},
        {"values": ["b2", "h9"], "count": 1},
    ],
}


@table("assignment", ("v1beta2", SLICES), ("v1beta1", DOMAINS))
def test_topology_assignments(assignment: dict[str, Any]) -> None:
    """Each pod selects the topology domain that Kueue assigned to it."""
    pods = pods_of(workload({"count": 4}, **assigned(topologyAssignment=assignment)), ["fit"], {}, {})
    found = [(pod["spec"]["nodeSelector"]["block"], pod["spec"]["nodeSelector"]["host"]) for pod in pods]
    assert found == [("b1", "h1x"), ("b1", "h2x"), ("b1", "h2x"), ("b2", "h9")]


@table("assignment", ("v1beta2", SLICES), ("v1beta1", DOMAINS))
def test_topology_domains_of_the_other_pods(assignment: dict[str, Any]) -> None:
    """Pods that have nodes use places of their domains, so that the others select what is left."""
    nodes = [{"block": "b1", "host": "h2x"}, {"block": "b2", "host": "h9"}, {"block": "b7", "host": "elsewhere"}]
    given = workload({"count": 4}, **assigned(topologyAssignment=assignment))
    for placed, expected in ((nodes[:1], ["h1x", "h2x", "h9"]), (nodes[:2], ["h1x", "h2x"]), (nodes[2:], ["h1x"])):
        pods = pods_of(given, ["fit"], {}, {"main": placed})
        assert [pod["spec"]["nodeSelector"]["host"] for pod in pods][: len(expected)] == expected


def test_an_unreadable_topology_assignment() -> None:
    """A form that a newer version may introduce is an error, not a placement without the topology."""
    broken = {"levels": ["host"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"new": "x"}], "podCounts": {}}]}
    with pytest.raises(ConfigError, match="topologyAssignment: cannot be read"):
        pods_of(workload({"count": 1}, **assigned(topologyAssignment=broken)), ["fit"], {}, {})


def test_too_many_pods() -> None:
    """A count of any size costs nothing: no pod is made for a Workload with too many."""
    for sets in (({"count": 2**31 - 1},), ({"count": MAX_PODS}, {"name": "more", "count": 1})):
        with pytest.raises(ConfigError, match=r"count: more than 5000 pods cannot be evaluated"):
            pods_of(workload(*sets), ["fit"], {}, {})


def test_a_long_name() -> None:
    """The names and labels of the pods are valid, however long the name of the Workload is."""
    body = msgspec.to_builtins(workload({"name": "p" * 63, "count": 2}))
    owner = {"kind": "LeaderWorkerSet", "apiVersion": "leaderworkerset.x-k8s.io/v1", "name": "train", "uid": "u2"}
    body["metadata"] |= {"name": "w" * 253, "ownerReferences": [owner]}
    pods = pods_of(msgspec.convert(body, Workload), ["fit"], {}, {})
    assert len({pod["metadata"]["name"] for pod in pods}) == 2
    for each in pods:
        assert len(each["metadata"]["name"]) <= 253
        assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())
