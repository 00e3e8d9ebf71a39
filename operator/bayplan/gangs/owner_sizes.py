"""Number of members of the gang of an owner, from the fields of the owner that its controller creates pods by.

Only these fields are decoded, because the watch stores every owner of a kind, and pod templates are large.

References: Job controller of Kubernetes v1.37.1; JobSet v0.11.1, ``jobset_types.go``; LeaderWorkerSet v0.8.0,
``leaderworkerset_types.go``; Kubeflow training operator v1.9 and mpi-operator v0.6, ``types.go``; KubeRay v1.4,
``raycluster_types.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, defstruct

from scheduler_core.config.gang_owners import OPT_OUT_LABEL, OwnerRule, Sizing
from scheduler_core.model.meta import ObjectMeta


class UnknownSizeError(Exception):
    """The gang of an owner has no size; the message has the reason and the remedy."""


class SuspendedError(Exception):
    """The owner creates no pods now, so that the last size stays."""


class Owner(Struct, frozen=True):
    """Owner of pods of any kind; its spec has the fields that its size depends on."""

    metadata: ObjectMeta
    spec: Any = None


class JobSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec`` of a Job of ``batch/v1``; a null means the default."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None

    @property
    def pods(self) -> int:
        """Number of pods that run at the same time at first."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class _JobTemplate(Struct, frozen=True, gc=False):
    spec: JobSpec = JobSpec()


class ReplicatedJob(Struct, frozen=True, rename="camel"):
    """An entry of ``spec.replicatedJobs`` of a JobSet."""

    name: str
    replicas: int | None = None
    template: _JobTemplate = _JobTemplate()
    depends_on: list[dict[str, Any]] | None = None

    @property
    def pods(self) -> int:
        """Number of pods of all its Jobs."""
        return (1 if self.replicas is None else self.replicas) * self.template.spec.pods


class _StartupPolicy(Struct, frozen=True, gc=False, rename="camel"):
    startup_policy_order: str = ""


class JobSetSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of a JobSet of ``jobset.x-k8s.io/v1alpha2``."""

    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: _StartupPolicy | None = None
    suspend: bool | None = None

    @property
    def starts_in_order(self) -> bool:
        """Whether some of its Jobs are created only when others are ready or complete."""
        in_order = self.startup_policy is not None and self.startup_policy.startup_policy_order == "InOrder"
        return in_order or any(job.depends_on for job in self.replicated_jobs or ())


class LeaderWorkerSetSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec`` of a LeaderWorkerSet of ``leaderworkerset.x-k8s.io/v1``; the size of a replica annotates its pods."""

    startup_policy: str = ""


class _Replicas(Struct, frozen=True, gc=False):
    replicas: int | None = None


class _SchedulingPolicy(Struct, frozen=True, gc=False, rename="camel"):
    min_available: int | None = None


class _RunPolicy(Struct, frozen=True, gc=False, rename="camel"):
    suspend: bool | None = None
    scheduling_policy: _SchedulingPolicy | None = None


class _ElasticPolicy(Struct, frozen=True, gc=False, rename="camel"):
    min_replicas: int | None = None


class KubeflowSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of a job of Kubeflow's training operator or mpi-operator: replicas by type, in a field for each kind."""

    pytorch_replica_specs: dict[str, _Replicas] | None = None
    tf_replica_specs: dict[str, _Replicas] | None = None
    xgb_replica_specs: dict[str, _Replicas] | None = None
    paddle_replica_specs: dict[str, _Replicas] | None = None
    jax_replica_specs: dict[str, _Replicas] | None = None
    mpi_replica_specs: dict[str, _Replicas] | None = None
    run_policy: _RunPolicy | None = None
    elastic_policy: _ElasticPolicy | None = None
    launcher_creation_policy: str = ""

    @property
    def replicas(self) -> dict[str, _Replicas]:
        """Replicas by type."""
        return (
            self.pytorch_replica_specs
            or self.tf_replica_specs
            or self.xgb_replica_specs
            or self.paddle_replica_specs
            or self.jax_replica_specs
            or self.mpi_replica_specs
            or {}
        )


class _WorkerGroup(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    min_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None


class RayClusterSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of a RayCluster of ``ray.io/v1``."""

    worker_group_specs: list[_WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None


_SPECS: Mapping[Sizing, tuple[Any, object]] = {
    "Job": (JobSpec, JobSpec()),
    "JobSet": (JobSetSpec, JobSetSpec()),
    "ReplicatedJob": (JobSetSpec, JobSetSpec()),
    "LeaderWorkerSet": (LeaderWorkerSetSpec, LeaderWorkerSetSpec()),
    "Kubeflow": (KubeflowSpec, KubeflowSpec()),
    "RayCluster": (RayClusterSpec, RayClusterSpec()),
    "Custom": (dict[str, Any], {}),
}
"""Type of the spec of a rule's owners, and the spec of one that has none; a custom one is stored as received."""
OWNER_TYPES = {
    sizing: cast("type[Owner]", defstruct(f"{sizing}Owner", [("spec", *spec)], bases=(Owner,), frozen=True))
    for sizing, spec in _SPECS.items()
}
"""Type as which the owners of a rule are decoded."""

SIZE_ANNOTATIONS: Mapping[Sizing, str] = {
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/size",
    "KueuePodGroup": "kueue.x-k8s.io/pod-group-total-count",
}
"""Annotation of the pods with the size of their gang."""

_REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_ALONE = f'or set the label {OPT_OUT_LABEL}: "false" in the pod template'


def size_annotation(rule: OwnerRule) -> str:
    """Return the annotation of the pods with the size of their gang; "" if the size is elsewhere."""
    return SIZE_ANNOTATIONS.get(rule.sizing, rule.size.pod_annotation)


def size_of(rule: OwnerRule, owner: Owner, labels: Mapping[str, str]) -> int:
    """Return the number of members of a gang whose size is not an annotation of its pods.

    Args:
        owner: The owner, of the type that :data:`OWNER_TYPES` has for the rule.
        labels: Labels of any of its pods.

    Raises:
        UnknownSizeError: The size cannot be determined.
        SuspendedError: The owner creates no pods now.
    """
    spec = owner.spec
    match rule.sizing:
        case "Job":
            _not_suspended(spec.suspend)
            return _positive(spec.pods)
        case "JobSet" | "ReplicatedJob":
            _not_suspended(spec.suspend)
            return _size_of_job_set(spec, labels.get(_REPLICATED_JOB_LABEL, "") if rule.sizing != "JobSet" else "")
        case "Kubeflow":
            return _size_of_kubeflow_job(spec)
        case "RayCluster":
            _not_suspended(spec.suspend)
            return _size_of_ray_cluster(spec)
        case _:
            if rule.size.pod_label:
                return parsed_size(labels.get(rule.size.pod_label, ""), f"label {rule.size.pod_label}")
            return sum(_field(spec, path) for path in rule.size.owner_fields)


def check_startup(rule: OwnerRule, owner: Owner) -> None:
    """Check that the owner creates all pods of a gang whose size is an annotation of its pods.

    Raises:
        UnknownSizeError: It creates some of them only when others are ready.
    """
    if rule.sizing == "LeaderWorkerSet" and owner.spec.startup_policy == "LeaderReady":
        raise UnknownSizeError(
            "its workers are created when the leader is ready (spec.startupPolicy), so that no gang of all can be "
            f"scheduled; set LeaderCreated, {_ALONE}"
        )


def parsed_size(text: str, what: str) -> int:
    """Return a size in a label or an annotation; raises UnknownSizeError if it is no positive number."""
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise UnknownSizeError(
            f'the {what} of its pods must be the number of pods, not "{text[:32]}"; set it, {_ALONE}'
        )
    return int(text)


def _not_suspended(suspend: bool | None) -> None:
    if suspend:
        raise SuspendedError


def _positive(size: int) -> int:
    if size < 1:
        raise SuspendedError
    return size


def _size_of_job_set(spec: JobSetSpec, replicated_job: str) -> int:
    jobs = spec.replicated_jobs or []
    if replicated_job:
        found = next((job for job in jobs if job.name == replicated_job), None)
        if found is None:
            raise UnknownSizeError(f'it has no replicated job "{replicated_job}", which its pods name; {_ALONE[3:]}')
        return _positive(found.pods)
    if spec.starts_in_order:
        raise UnknownSizeError(
            "its jobs start one after the other (spec.startupPolicy or dependsOn), so that no gang of all can be "
            f"scheduled; use per: ReplicatedJob in the profile, {_ALONE}"
        )
    return _positive(sum(job.pods for job in jobs))


def _size_of_kubeflow_job(spec: KubeflowSpec) -> int:
    policy = spec.run_policy
    _not_suspended(None if policy is None else policy.suspend)
    if policy is not None and policy.scheduling_policy is not None and policy.scheduling_policy.min_available:
        return _positive(policy.scheduling_policy.min_available)
    size, elastic = 0, spec.elastic_policy
    for kind, each in spec.replicas.items():
        replicas = 1 if each.replicas is None else each.replicas
        if kind == "Worker" and elastic is not None and elastic.min_replicas is not None:
            replicas = min(replicas, elastic.min_replicas)
        if kind == "Launcher" and spec.launcher_creation_policy == "WaitForWorkersReady":
            replicas = 0
        size += replicas
    return _positive(size)


def _size_of_ray_cluster(spec: RayClusterSpec) -> int:
    size = 1
    for group in spec.worker_group_specs or ():
        if group.suspend:
            continue
        replicas = group.min_replicas if spec.enable_in_tree_autoscaling else group.replicas
        replicas = (group.min_replicas or 0) if replicas is None else replicas
        size += replicas * (1 if group.num_of_hosts is None else group.num_of_hosts)
    return size


def _field(spec: Mapping[str, Any], path: str) -> int:
    value: Any = spec
    for name in path.split(".")[1:]:
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UnknownSizeError(f"its field {path} must be a number of pods, not {str(value)[:32]!r}; {_ALONE[3:]}")
    return value
