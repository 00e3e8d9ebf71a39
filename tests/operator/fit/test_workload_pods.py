"""The pods of workloads, as their controllers would create them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from bayplan.fit.workload_pods import MAX_PODS, WorkloadPods, expand

from scheduler_core.errors import ConfigError
from tests.support.tables import table

TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main"}]}}


def workload(api: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w", "namespace": "ml"}, "spec": spec}


def job(**spec: Any) -> dict[str, Any]:
    return workload("batch/v1", "Job", **{"template": TEMPLATE, **spec})


def names(found: WorkloadPods) -> list[str]:
    return [each["metadata"]["name"] for each in found.pods]


@table(
    "body, count, expected",
    ("job", job(), None, ["w-0"]),
    ("parallelism", job(parallelism=3), None, ["w-0", "w-1", "w-2"]),
    ("few-completions", job(parallelism=3, completions=2), None, ["w-0", "w-1"]),
    ("count", job(parallelism=1), 2, ["w-0", "w-1"]),
    ("cron", workload("batch/v1", "CronJob", jobTemplate={"spec": {"template": TEMPLATE}}), None, ["w-0"]),
    ("deployment", workload("apps/v1", "Deployment", replicas=2, template=TEMPLATE), None, ["w-new-0", "w-new-1"]),
    ("replica-set", workload("apps/v1", "ReplicaSet", template=TEMPLATE), None, ["w-0"]),
    (
        "stateful-set",
        workload("apps/v1", "StatefulSet", replicas=2, ordinals={"start": 3}, template=TEMPLATE),
        None,
        ["w-3", "w-4"],
    ),
    (
        "jobset",
        workload(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            replicatedJobs=[
                {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
            ],
        ),
        None,
        ["w-driver-0-0", "w-workers-0-0", "w-workers-0-1", "w-workers-1-0", "w-workers-1-1"],
    ),
    (
        "leader-worker-set",
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            replicas=2,
            leaderWorkerTemplate={"size": 2, "workerTemplate": TEMPLATE},
        ),
        None,
        ["w-0", "w-0-1", "w-1", "w-1-1"],
    ),
    ("copies", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}, 2, ["p-0", "p-1"]),
)
def test_names(body: dict[str, Any], count: int | None, expected: list[str]) -> None:
    """Each workload has the pods of its controller."""
    assert names(expand(body, "here", count)) == expected


def test_labels_of_an_indexed_job() -> None:
    """Pods have the labels and the owner by which groups and constraints select them."""
    first, second = expand(job(parallelism=2, completions=2, completionMode="Indexed"), "here").pods
    labels = second["metadata"]["labels"]
    assert labels["app"] == "x"
    assert labels["batch.kubernetes.io/job-name"] == "w"
    assert labels["batch.kubernetes.io/job-completion-index"] == "1"
    assert second["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1"
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "w", True)


def test_groups_of_a_leader_worker_set() -> None:
    """The pods of one replica share the key of their group, and those of another have a different one."""
    body = workload(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        replicas=2,
        leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE},
    )
    keys = [each["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-key"] for each in expand(body, "here").pods]
    assert [keys.count(key) for key in dict.fromkeys(keys)] == [3, 3]


def test_a_suspended_job() -> None:
    """A suspended Job counts as if it were resumed, and a notice names that."""
    found = expand(job(suspend=True), "here")
    assert names(found) == ["w-0"]
    assert found.notices == ["Job ml/w is suspended; its pods are those after it is resumed"]


@table(
    "body, path",
    ("number", job(parallelism="many"), "spec.parallelism: must be a whole number"),
    ("bool", job(parallelism=True), "spec.parallelism: must be a whole number"),
    ("template", workload("batch/v1", "Job"), "spec.template.spec: is required"),
    ("no-jobs", workload("jobset.x-k8s.io/v1alpha2", "JobSet"), "spec.replicatedJobs: is required"),
    (
        "no-name",
        workload("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[{}]),
        "spec.replicatedJobs[0]: name: is required",
    ),
    ("too-many", job(parallelism=MAX_PODS + 1), f"has more than {MAX_PODS} pods"),
    ("list", {"apiVersion": "apps/v1", "kind": "Deployment", "spec": []}, "must be a mapping"),
)
def test_errors_name_the_field(body: dict[str, Any], path: str) -> None:
    """An error names the field and the remedy."""
    with pytest.raises(ConfigError) as error:
        expand(body, "here")
    assert path in str(error.value)


def _jobs(mode: str = "Indexed", **annotations: str) -> dict[str, Any]:
    spec = {"parallelism": 2, "completionMode": mode, "template": TEMPLATE}
    body = workload(
        "jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[{"name": "j", "replicas": 2, "template": {"spec": spec}}]
    )
    body["metadata"]["annotations"] = annotations
    return body


def _groups(**annotations: str) -> dict[str, Any]:
    body = workload(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        replicas=2,
        leaderWorkerTemplate={"size": 2, "workerTemplate": TEMPLATE},
    )
    body["metadata"]["annotations"] = annotations
    return body


JOBS, GROUPS = "alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/exclusive-topology"


@table(
    "body, label",
    ("jobs", _jobs(**{JOBS: "rack"}), "jobset.sigs.k8s.io/job-key"),
    ("groups", _groups(**{GROUPS: "rack"}), "leaderworkerset.sigs.k8s.io/group-key"),
)
def test_an_exclusive_topology(body: dict[str, Any], label: str) -> None:
    """Leaders keep other leaders off their domain, and the other pods follow their leader."""
    found = expand(body, "here")
    assert "count as if they were created with it" in found.notices[0]
    for number, each in enumerate(found.pods):
        key, affinity = each["metadata"]["labels"][label], each["spec"]["affinity"]
        (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "rack"
        assert term["labelSelector"] == {"matchExpressions": [{"key": label, "operator": "In", "values": [key]}]}
        assert ("podAntiAffinity" in affinity) is (number % 2 == 0)
    assert "affinity" not in TEMPLATE["spec"]


@table(
    "body, notice",
    ("labelled-nodes", _jobs(**{"alpha.jobset.sigs.k8s.io/node-selector": "true", JOBS: "rack"}), "node-selector"),
    (
        "subgroups",
        _groups(**{"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "rack"}),
        "subgroup-exclusive-topology",
    ),
)
def test_annotations_that_are_left_out(body: dict[str, Any], notice: str) -> None:
    """An annotation that is not evaluated is named, and the pods have no terms for it."""
    found = expand(body, "here")
    assert [f"{notice} of ml/w is not evaluated" in each for each in found.notices] == [True]
    assert all("affinity" not in each["spec"] for each in found.pods)


def test_an_exclusive_topology_without_a_leader() -> None:
    """The pods of a Job without indexes would never be created."""
    with pytest.raises(ConfigError, match="completionMode: must be Indexed"):
        expand(_jobs("NonIndexed", **{JOBS: "rack"}), "here")


ALONE = {"size": 1, "workerTemplate": TEMPLATE}


def _with(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], **fields}}


@table(
    "body, reason",
    ("groups of a leader alone", _with(_groups(**{GROUPS: "rack"}), leaderWorkerTemplate=ALONE), ""),
    ("exclusive groups", _groups(**{GROUPS: "rack"}), "when their leader is scheduled"),
    ("exclusive jobs", _jobs(**{JOBS: "rack"}), "when their leader is scheduled"),
    ("leader first", _with(_groups(), startupPolicy="LeaderReady"), "leader is ready"),
    (
        "jobs in order",
        _with(_jobs(), startupPolicy={"startupPolicyOrder": "InOrder"}),
        "one after the other",
    ),
)
def test_pods_that_are_no_gang(body: dict[str, Any], reason: str) -> None:
    """A workload whose controller creates some pods after others is no gang, as in the operator."""
    found = expand(body, "here").no_gangs
    assert list(found) == ([f"{body['kind']} ml/w"] if reason else [])
    assert reason in "".join(found.values())


CLAIM: dict[str, Any] = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
OTHERS = {
    "metadata": {},
    "spec": {
        "containers": [{"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}}],
    },
}


@table(
    "body",
    ("stateful-set", workload("apps/v1", "StatefulSet", template=OTHERS, volumeClaimTemplates=[CLAIM])),
    (
        "leader-worker-set",
        workload(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            leaderWorkerTemplate={"size": 2, "workerTemplate": OTHERS, "volumeClaimTemplates": [CLAIM]},
        ),
    ),
)
def test_claims_of_each_pod(body: dict[str, Any]) -> None:
    """A claim template replaces the volume with its name, and each pod has a claim of its own."""
    found = expand(body, "here")
    assert found.own_claims == {"data": CLAIM}
    for each in found.pods:
        assert [volume["name"] for volume in each["spec"]["volumes"]] == ["other", "data"]
        assert "persistentVolumeClaim" in each["spec"]["volumes"][1]


@table("mounts, volumes", ("mounted", [{"name": "data"}], ["data"]), ("not-mounted", [], []))
def test_claims_of_a_jobset(mounts: list[dict[str, Any]], volumes: list[str]) -> None:
    """All jobs share the claims of a JobSet; those that mount one have its volume."""
    template = {"spec": {"containers": [{"name": "main", "volumeMounts": mounts}]}}
    parts = [{"name": "jobs", "template": {"spec": {"template": template}}}]
    spec = {"replicatedJobs": parts, "volumeClaimPolicies": [{"templates": [CLAIM]}]}
    found = expand(workload("jobset.x-k8s.io/v1alpha2", "JobSet", **spec), "here")
    assert [each["metadata"]["name"] for each in found.shared_claims] == ["data-w"]
    (made,) = found.pods
    assert [each["name"] for each in made["spec"].get("volumes", [])] == volumes


def test_claim_templates_without_names() -> None:
    """A claim template without a name is an error with its place."""
    body = workload("apps/v1", "StatefulSet", template=TEMPLATE, volumeClaimTemplates=[{"spec": {}}])
    with pytest.raises(ConfigError, match=r"volumeClaimTemplates: must be a list of claims with metadata\.name"):
        expand(body, "here")


MOST = 2**31 - 1
LABELS = {f"l{number}": "" for number in range(10_000)}
PVCS = [{"metadata": {"name": f"v{number}"}} for number in range(100)]
DEVICES = [{"name": f"d{number}", "resourceClaimTemplateName": "gpu"} for number in range(100)]
VOLUMES = [{"name": f"v{number}", "ephemeral": {}} for number in range(100)]


def with_spec(**fields: Any) -> dict[str, Any]:
    """Return the template of a pod with further fields."""
    return {**TEMPLATE, "spec": {**TEMPLATE["spec"], **fields}}


@table(
    "body, message",
    ("job", job(parallelism=MOST), "has more than 5000 pods"),
    (
        "leader-worker-set",
        workload(
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet",
            leaderWorkerTemplate={"size": MOST, "workerTemplate": TEMPLATE},
        ),
        "has more than 5000 pods",
    ),
    (
        "labels",
        workload("apps/v1", "Deployment", replicas=100, template={**TEMPLATE, "metadata": {"labels": LABELS}}),
        "has too many labels, annotations or claims for this number of pods",
    ),
    *(
        (name, body, "has too many labels, annotations or claims for this number of pods")
        for name, body in (
            ("claims", workload("apps/v1", "StatefulSet", replicas=MOST, template=TEMPLATE, volumeClaimTemplates=PVCS)),
            ("devices", job(parallelism=MOST, template=with_spec(resourceClaims=DEVICES))),
            ("ephemeral volumes", job(parallelism=MOST, template=with_spec(volumes=VOLUMES))),
        )
    ),
)  # fmt: skip
def test_sizes_are_bounded(body: dict[str, Any], message: str) -> None:
    """A workload that is too large is an error, and not as many pods in memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=message):
            expand(body, "here")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000_000


def test_jobs_without_pods() -> None:
    """Jobs of a JobSet that have no pods are not counted one by one."""
    part = {"name": "jobs", "replicas": MOST, "template": {"spec": {"parallelism": 0, "template": TEMPLATE}}}
    assert not expand(workload("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[part]), "here").pods
