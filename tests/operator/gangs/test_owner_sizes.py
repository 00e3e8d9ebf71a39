"""Sizes of the gangs of owners: tables of specs as their controllers read them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bayplan.gangs.owner_sizes import OWNER_TYPES, SuspendedError, UnknownSizeError, check_startup, parsed_size, size_of

from scheduler_core.config.gang_owners import GangOwner
from scheduler_core.config.validation import validate

REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
SOLVER = {"kind": "Solver", "apiVersion": "example.com/v1"}


def size(row: dict[str, Any], spec: dict[str, Any], **labels: str) -> int:
    """Return the size of the gang of an owner with a spec."""
    rule = validate(GangOwner, row).rule
    owner = msgspec.convert({"metadata": {"name": "o"}, "spec": spec}, OWNER_TYPES[rule.sizing])
    return size_of(rule, owner, labels)


def replicated(name: str, replicas: int | None, parallelism: int, completions: int | None = None, **more: Any) -> Any:
    """Return an entry of ``replicatedJobs``."""
    job = {"parallelism": parallelism, "completions": completions}
    return {"name": name, "replicas": replicas, "template": {"spec": job}, **more}


SIZES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "Job": ({"kind": "Job"}, {"parallelism": 4, "completions": 4}, 4),
    "Job without fields": ({"kind": "Job"}, {}, 1),
    "Job with nulls": ({"kind": "Job"}, {"parallelism": None, "completions": None, "suspend": None}, 1),
    "Job with a work queue": ({"kind": "Job"}, {"parallelism": 3}, 3),
    "Job with fewer completions": ({"kind": "Job"}, {"parallelism": 8, "completions": 5}, 5),
    "Job with more completions": ({"kind": "Job"}, {"parallelism": 2, "completions": 50}, 2),
    "JobSet": ({"kind": "JobSet"}, {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 2, 3, 3)]}, 7),
    "JobSet without replicas": ({"kind": "JobSet"}, {"replicatedJobs": [replicated("a", None, 2)]}, 2),
    "PyTorchJob": (
        {"kind": "PyTorchJob"},
        {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}},
        4,
    ),
    "elastic PyTorchJob": (
        {"kind": "PyTorchJob"},
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 6}}, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 6}},
        2,
    ),
    "TFJob with minAvailable": (
        {"kind": "TFJob"},
        {"tfReplicaSpecs": {"Worker": {"replicas": 6}}, "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
        5,
    ),
    "MPIJob": ({"kind": "MPIJob"}, {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}}, 3),
    "MPIJob whose launcher waits": (
        {"kind": "MPIJob"},
        {
            "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}},
            "launcherCreationPolicy": "WaitForWorkersReady",
        },
        2,
    ),
    "RayCluster": (
        {"kind": "RayCluster"},
        {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4}, {"replicas": 1}, {"replicas": 9, "suspend": True}]},
        10,
    ),
    "RayCluster that scales": (
        {"kind": "RayCluster"},
        {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 5, "minReplicas": 1}, {}]},
        2,
    ),
    "custom fields": (
        {**SOLVER, "size": {"ownerFields": ["spec.workers.count", "spec.masters"]}},
        {"workers": {"count": 3}, "masters": 2},
        5,
    ),
    "absent custom field": ({**SOLVER, "size": {"ownerFields": ["spec.workers"]}}, {}, 1),
}


@pytest.mark.parametrize(("row", "spec", "expected"), SIZES.values(), ids=SIZES)
def test_sizes(row: dict[str, Any], spec: dict[str, Any], expected: int) -> None:
    """The size is the number of pods that exist at the same time at first."""
    assert size(row, spec) == expected


def test_replicated_jobs_in_order() -> None:
    """The jobs of a JobSet that starts in order have sizes of their own."""
    row = {"kind": "JobSet", "per": "ReplicatedJob"}
    spec = {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": [replicated("ps", 1, 2), replicated("worker", 3, 2)],
    }
    assert size(row, spec, **{REPLICATED: "worker"}) == 6
    with pytest.raises(UnknownSizeError, match="it has no replicated job"):
        size(row, spec, **{REPLICATED: "other"})


UNKNOWN: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "JobSet in order": (
        {"kind": "JobSet"},
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [replicated("a", 1, 1)]},
        "start one after the other",
    ),
    "JobSet with dependencies": (
        {"kind": "JobSet"},
        {"replicatedJobs": [replicated("a", 1, 1), replicated("b", 1, 1, dependsOn=[{"name": "a"}])]},
        "start one after the other",
    ),
    "custom field that is no number": (
        {**SOLVER, "size": {"ownerFields": ["spec.workers"]}},
        {"workers": "3"},
        "must be a number of pods",
    ),
    "missing label": ({**SOLVER, "size": {"podLabel": "example.com/size"}}, {}, "label example.com/size"),
}


@pytest.mark.parametrize(("row", "spec", "text"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_sizes(row: dict[str, Any], spec: dict[str, Any], text: str) -> None:
    """The reason names the field and a remedy."""
    with pytest.raises(UnknownSizeError, match=text):
        size(row, spec)


SUSPENDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Job": ({"kind": "Job"}, {"parallelism": 3, "suspend": True}),
    "Job without pods": ({"kind": "Job"}, {"parallelism": 0}),
    "JobSet": ({"kind": "JobSet"}, {"suspend": True, "replicatedJobs": [replicated("a", 1, 1)]}),
    "PyTorchJob": ({"kind": "PyTorchJob"}, {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": {}}}),
    "RayCluster": ({"kind": "RayCluster"}, {"suspend": True}),
}


@pytest.mark.parametrize(("row", "spec"), SUSPENDED.values(), ids=SUSPENDED)
def test_suspended_owners(row: dict[str, Any], spec: dict[str, Any]) -> None:
    """An owner that creates no pods has no size."""
    with pytest.raises(SuspendedError):
        size(row, spec)


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.5", "9" * 400, "²"])
def test_texts_that_are_no_size(text: str) -> None:
    """A size in a label or annotation is a positive number."""
    with pytest.raises(UnknownSizeError, match="must be the number of pods"):
        parsed_size(text, "annotation x")


@pytest.mark.parametrize("policy", ["LeaderReady", "LeaderCreated"])
def test_startup_of_replicas(policy: str) -> None:
    """The workers of a LeaderWorkerSet must be created with the leader."""
    rule = validate(GangOwner, {"kind": "LeaderWorkerSet"}).rule
    owner = msgspec.convert({"metadata": {"name": "o"}, "spec": {"startupPolicy": policy}}, OWNER_TYPES[rule.sizing])
    if policy == "LeaderCreated":
        check_startup(rule, owner)
        return
    with pytest.raises(UnknownSizeError, match="set LeaderCreated"):
        check_startup(rule, owner)
