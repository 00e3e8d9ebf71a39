"""The pods that controllers would create for the manifests of workloads.

Follows Kubernetes v1.37.1 (Job, Deployment, ReplicaSet, StatefulSet), JobSet v0.11 and LeaderWorkerSet v0.8: names,
labels, annotations, owners and volume claims as far as scheduling may depend on them. What the API server or a
controller generates randomly is left out of the names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from bayplan.simulation.cluster_files import DEFAULT_NAMESPACE
from scheduler_core.errors import ConfigError, Problem

MAX_PODS = 5_000
"""Maximum number of pods of one request."""
_MAX_ENTRIES = 500_000
"""Maximum number of labels, annotations and owner references of all pods of one workload; each pod has its own."""
_ENTRIES_OF_CLAIM = 10
"""Number of entries as which a claim that each pod has of its own counts."""

_JOB = "batch.kubernetes.io/"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_EXCLUSIVE_JOBS = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODES_OF_JOBS = "alpha.jobset.sigs.k8s.io/node-selector"
_EXCLUSIVE_GROUPS = f"{_LWS}exclusive-topology"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

Body = Mapping[str, Any]


@dataclass(slots=True)
class WorkloadPods:
    """Pods of manifests.

    Attributes:
        pods: Manifests of pods.
        notices: What the expansion leaves out.
        no_gangs: Why the pods of an owner cannot be one gang, by kind, namespace and name as in ``JobSet ml/train``.
        own_claims: Templates of the PersistentVolumeClaims of each pod, by the names of their volumes; the claim is
            named ``<volume>-<pod>``.
        shared_claims: Manifests of PersistentVolumeClaims that all pods share.
    """

    pods: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    no_gangs: dict[str, str] = field(default_factory=dict)
    own_claims: dict[str, Body] = field(default_factory=dict)
    shared_claims: list[dict[str, Any]] = field(default_factory=list)


def expands(body: Body) -> bool:
    """Return whether an object is a workload whose pods a controller creates, or a pod."""
    return _kind(body) in _EXPANDED


def is_one_pod(body: Body, count: int | None = None) -> bool:
    """Return whether an object is a Pod of which there is one."""
    return _kind(body) == ("", "Pod") and count in (None, 1)


def expand(body: Body, where: str, count: int | None = None) -> WorkloadPods:
    """Return the pods of a workload, or copies of a pod.

    Args:
        where: Place of the manifest, for errors.
        count: Number of pods or replicas, or the parallelism of a Job; None for that of the manifest.

    Raises:
        ConfigError: A field that decides on the pods is missing or invalid, or there are too many pods.
    """
    found = WorkloadPods()
    reader = _Fields(body, f"{where} ({body.get('kind')} {_name(body)})")
    entries = 0
    for pod in _EXPANDED[_kind(body)](reader, found, count):
        if len(found.pods) >= MAX_PODS:
            raise reader.error("spec", f"has more than {MAX_PODS} pods; request fewer of them")
        entries += sum(len(value) for value in pod["metadata"].values() if isinstance(value, dict | list))
        entries += _ENTRIES_OF_CLAIM * _own_claims(pod, found)
        if entries > _MAX_ENTRIES:
            raise reader.error(
                "spec", "has too many labels, annotations or claims for this number of pods; remove some"
            )
        found.pods.append(pod)
    return found


def _own_claims(pod: Body, found: WorkloadPods) -> int:
    """Return the number of claims, for volumes and devices, that one pod has of its own."""
    spec = pod.get("spec")
    count = len(found.own_claims)
    if isinstance(spec, dict):
        devices, volumes = spec.get("resourceClaims"), spec.get("volumes")
        count += len(devices) if isinstance(devices, list) else 0
        count += (
            sum("ephemeral" in each for each in volumes if isinstance(each, dict)) if isinstance(volumes, list) else 0
        )
    return count


def _kind(body: Body) -> tuple[str, str]:
    return str(body.get("apiVersion") or "").rpartition("/")[0], str(body.get("kind"))


def _name(body: Body) -> str:
    meta = body.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return str(meta.get("name") or meta.get("generateName") or "unnamed")


@dataclass(frozen=True, slots=True)
class _Fields:
    """Reads the fields of one manifest."""

    body: Body
    where: str

    def error(self, path: str, message: str) -> ConfigError:
        return ConfigError([Problem(f"{self.where}: {path}", message)])

    def get(self, path: str) -> Any:
        """Return the value of a field, None if it is missing; raises ConfigError if a parent is no mapping."""
        value: Any = self.body
        for name in path.split("."):
            if value is None:
                return None
            if not isinstance(value, dict):
                raise self.error(path, "must be a mapping of fields; correct it")
            value = value.get(name)
        return value

    def mapping(self, path: str) -> dict[str, Any]:
        value = self.get(path)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(path, "must be a mapping of fields; correct it")
        return value

    def items(self, path: str) -> list[Any]:
        value = self.get(path)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(path, "must be a list; correct it")
        return value

    def number(self, path: str, default: int) -> int:
        value = self.get(path)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.error(path, "must be a whole number of at least 0; correct it")
        return value

    def template(self, path: str) -> dict[str, Any]:
        found = self.mapping(path)
        if not isinstance(found.get("spec"), dict):
            raise self.error(f"{path}.spec", "is required; add it")
        self.mapping(f"{path}.metadata.labels")
        self.mapping(f"{path}.metadata.annotations")
        for kind in ("podAffinity", "podAntiAffinity"):
            self.items(f"{path}.spec.affinity.{kind}.{_REQUIRED}")
        self.items(f"{path}.spec.volumes")
        return found

    def mounted_volumes(self, path: str) -> set[str]:
        """Return the names of the volumes that the containers of a pod template mount."""
        found = set[str]()
        for kind in ("containers", "initContainers"):
            for position, container in enumerate(self.items(f"{path}.spec.{kind}")):
                inner = _Fields(container, f"{self.where}: {path}.spec.{kind}[{position}]")
                found |= {str(each.get("name")) for each in inner.items("volumeMounts") if isinstance(each, dict)}
        return found

    def claim_templates(self, path: str) -> dict[str, Body]:
        """Return templates of PersistentVolumeClaims by their names."""
        given = self.get(path)
        if given is None:
            return {}
        if not isinstance(given, list) or not all(
            isinstance(each, dict) and isinstance(each.get("metadata"), dict) and each["metadata"].get("name")
            for each in given
        ):
            raise self.error(path, "must be a list of claims with metadata.name; correct it")
        return {str(each["metadata"]["name"]): each for each in given}

    @property
    def name(self) -> str:
        return _name(self.body)

    @property
    def namespace(self) -> str:
        return str(self.mapping("metadata").get("namespace") or DEFAULT_NAMESPACE)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Controller of pods."""

    kind: str
    api_version: str
    name: str
    namespace: str

    @property
    def reference(self) -> dict[str, Any]:
        """Owner reference, with a UID computed from the name."""
        uid = _sha1(f"{self.kind}/{self.namespace}/{self.name}")
        return {
            "apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": uid, "controller": True,
        }  # fmt: skip


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _pod(
    template: Body, name: str, owner: _Owner, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    meta = template.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": {**(meta.get("annotations") or {}), **(annotations or {})},
            "ownerReferences": [owner.reference],
        },
        "spec": template["spec"],
    }


# -- Kubernetes -------------------------------------------------------------------------------------------------------


def _pods(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    del found
    meta = {key: value for key, value in of.mapping("metadata").items() if key != "uid"}
    if count is None:
        yield {**of.body, "metadata": meta}
        return
    for number in range(count):
        own = {**meta, "name": f"{of.name}-{number}"}
        own.pop("generateName", None)
        yield {**of.body, "metadata": own}


def _job(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    if of.get("spec.suspend") is True:
        found.notices.append(f"Job {of.namespace}/{of.name} is suspended; its pods are those after it is resumed")
    yield from _pods_of_job(of, "spec", _Owner("Job", "batch/v1", of.name, of.namespace), count=count)


def _cron_job(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    found.notices.append(f"CronJob {of.namespace}/{of.name}: the pods are those of one run")
    yield from _pods_of_job(of, "spec.jobTemplate.spec", _Owner("Job", "batch/v1", of.name, of.namespace), count=count)


def _pods_of_job(
    of: _Fields,
    path: str,
    owner: _Owner,
    *,
    count: int | None = None,
    labels: Mapping[str, str] | None = None,
    default_mode: str = "NonIndexed",
) -> Iterator[dict[str, Any]]:
    template = of.template(f"{path}.template")
    is_indexed = (of.get(f"{path}.completionMode") or default_mode) == "Indexed"
    uid = owner.reference["uid"]
    own = {
        f"{_JOB}job-name": owner.name, "job-name": owner.name, f"{_JOB}controller-uid": uid, "controller-uid": uid,
        **(labels or {}),
    }  # fmt: skip
    for number in range(_parallelism(of, path) if count is None else count):
        index = {f"{_JOB}job-completion-index": str(number)} if is_indexed else {}
        yield _pod(template, f"{owner.name}-{number}", owner, {**own, **index}, {**(labels or {}), **index})


def _parallelism(of: _Fields, path: str) -> int:
    parallelism = of.number(f"{path}.parallelism", 1)
    completions = of.number(f"{path}.completions", parallelism)
    return min(parallelism, completions)


def _deployment(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    del found
    template = of.template("spec.template")
    owner = _Owner("ReplicaSet", "apps/v1", f"{of.name}-new", of.namespace)
    for number in range(of.number("spec.replicas", 1) if count is None else count):
        yield _pod(template, f"{owner.name}-{number}", owner, {"pod-template-hash": "new"})


def _replica_set(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    del found
    template = of.template("spec.template")
    owner = _Owner(str(of.body["kind"]), str(of.body.get("apiVersion") or "v1"), of.name, of.namespace)
    for number in range(of.number("spec.replicas", 1) if count is None else count):
        yield _pod(template, f"{of.name}-{number}", owner, {})


def _stateful_set(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    found.own_claims = of.claim_templates("spec.volumeClaimTemplates")
    template = _with_volumes(of.template("spec.template"), found.own_claims)
    owner = _Owner("StatefulSet", "apps/v1", of.name, of.namespace)
    first = of.number("spec.ordinals.start", 0)
    for number in range(of.number("spec.replicas", 1) if count is None else count):
        name = f"{of.name}-{first + number}"
        labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(first + number)}
        yield _pod(template, name, owner, labels)


def _with_volumes(template: Body, claims: Iterable[str], suffix: str = "") -> dict[str, Any]:
    """Return a template with volumes for claims in place of those so named; names of shared ones end in ``suffix``."""
    spec, names = template["spec"], set(claims)
    if not names:
        return {**template}
    given = spec.get("volumes")
    others = [
        each
        for each in (given if isinstance(given, list) else ())
        if not isinstance(each, dict) or str(each.get("name")) not in names
    ]
    added = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{suffix}"}} for name in sorted(names)]
    return {**template, "spec": {**spec, "volumes": [*others, *added]}}


def claim_of(template: Body, name: str, namespace: str) -> dict[str, Any]:
    """Return the manifest of a claim that a controller creates from a template."""
    meta = template.get("metadata")
    own = {**(meta if isinstance(meta, dict) else {}), "name": name, "namespace": namespace}
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": own, "spec": template.get("spec") or {}
    }  # fmt: skip


# -- groups of workloads ----------------------------------------------------------------------------------------------


def _note_left_out(of: _Fields, found: WorkloadPods) -> None:
    annotations = of.mapping("metadata.annotations")
    left_out = (key for key in map(str, annotations) if key.startswith(_LWS) and key.endswith("-topology"))
    found.notices += (
        f"annotation {key} of {of.namespace}/{of.name} is not evaluated"
        for key in (*left_out, *(key for key in annotations if key == _NODES_OF_JOBS))
        if key != _EXCLUSIVE_GROUPS
    )


def _exclusive(pods: Iterable[dict[str, Any]], label: str, topology: str, **of_term: Any) -> Iterator[dict[str, Any]]:
    """Yield the pods of one Job or group, which has a topology domain of its own.

    The first pod has the terms that the webhooks of JobSet and LeaderWorkerSet add to the leader. The others are
    created with a node selector for its domain when it is scheduled, which an affinity to it stands for.
    """
    specs: dict[int, Body] = {}
    for number, pod in enumerate(pods):
        key = pod["metadata"]["labels"][label]
        own: dict[str, Any] = {"key": label, "operator": "In", "values": [key]}
        others: list[dict[str, Any]] = [
            {"key": label, "operator": "Exists"},
            {"key": label, "operator": "NotIn", "values": [key]},
        ]
        # All pods after the first share a spec, so that one of them is validated.
        at = min(number, 1)
        if at not in specs:
            terms: dict[str, list[dict[str, Any]]] = {"podAffinity": [own]}
            if not number:
                terms["podAntiAffinity"] = others
            specs[at] = _with_terms(pod["spec"], terms, {"topologyKey": topology, **of_term})
        yield {**pod, "spec": specs[at]}


def _with_terms(spec: Body, terms: Mapping[str, list[dict[str, Any]]], of_term: Body) -> Body:
    affinity = dict(spec.get("affinity") or {})
    for kind, expressions in terms.items():
        given = affinity.get(kind) or {}
        required = given.get(_REQUIRED) or []
        term = {"labelSelector": {"matchExpressions": expressions}, **of_term}
        affinity[kind] = {**given, _REQUIRED: [*required, term]}
    return {**spec, "affinity": affinity}


def _note_leaders(of: _Fields, found: WorkloadPods, topology: str, size: int) -> None:
    notice = (
        f"{of.body.get('kind')} {of.namespace}/{of.name} has a domain of {topology} for each leader and its pods, "
        "which are created when the leader is scheduled; they count as if they were created with it"
    )
    if notice not in found.notices:
        found.notices.append(notice)
    if size > 1:
        _note_no_gang(of, found, "its pods are created when their leader is scheduled (exclusive topology)")


def _note_no_gang(of: _Fields, found: WorkloadPods, reason: str) -> None:
    owner = f"{of.body.get('kind')} {of.namespace}/{of.name}"
    found.no_gangs[owner] = f"{reason}, so that no gang of all can be scheduled"


def _job_set(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    _note_left_out(of, found)
    annotations = of.mapping("metadata.annotations")
    parts = of.get("spec.replicatedJobs")
    if of.get("spec.startupPolicy.startupPolicyOrder") == "InOrder" or any(
        isinstance(each, dict) and each.get("dependsOn") for each in (parts if isinstance(parts, list) else ())
    ):
        _note_no_gang(of, found, "its jobs start one after the other (spec.startupPolicy or dependsOn)")
    if not isinstance(parts, list) or not parts:
        raise of.error("spec.replicatedJobs", "is required; add at least one")
    shared = _shared_claims(of)
    found.shared_claims += (claim_of(each, f"{name}-{of.name}", of.namespace) for name, each in shared.items())
    if count is not None and len(parts) > 1:
        raise of.error(
            "spec.replicatedJobs", "has several entries, so it is not known whose number --count is; leave it out"
        )
    for position, part in enumerate(parts):
        inner = _Fields(part if isinstance(part, dict) else {}, f"{of.where}: spec.replicatedJobs[{position}]")
        if not inner.body.get("name"):
            raise inner.error("name", "is required; add it")
        replicas = inner.number("replicas", 1) if count is None else count
        own = {**annotations, **inner.mapping("template.metadata.annotations")}
        topology = "" if _NODES_OF_JOBS in own else str(own.get(_EXCLUSIVE_JOBS) or "")
        if topology:
            _note_leaders(of, found, topology, inner.number("template.spec.parallelism", 1))
            if inner.get("template.spec.completionMode") == "NonIndexed":
                raise inner.error(
                    "template.spec.completionMode", f"must be Indexed, because annotation {_EXCLUSIVE_JOBS} is set"
                )
        with_claims = _with_shared_claims(inner, shared, of.name)
        if not _parallelism(with_claims, "template.spec"):
            # Otherwise there is no limit to the number of Jobs.
            continue
        for number in range(replicas):
            job = f"{of.name}-{inner.body['name']}-{number}"
            labels = {
                f"{_JOBSET}jobset-name": of.name,
                f"{_JOBSET}replicatedjob-name": str(inner.body["name"]),
                f"{_JOBSET}replicatedjob-replicas": str(replicas),
                f"{_JOBSET}job-index": str(number),
                f"{_JOBSET}job-key": _sha1(f"{of.namespace}/{job}"),
                f"{_JOBSET}restart-attempt": "0",
            }
            owner = _Owner("Job", "batch/v1", job, of.namespace)
            pods = _pods_of_job(with_claims, "template.spec", owner, labels=labels, default_mode="Indexed")
            yield from _exclusive(pods, f"{_JOBSET}job-key", topology, namespaceSelector={}) if topology else pods


def _shared_claims(of: _Fields) -> dict[str, Body]:
    """Return the templates of the claims that all pods of a JobSet share, by the names of their volumes."""
    policies = of.get("spec.volumeClaimPolicies")
    found: dict[str, Body] = {}
    for position, policy in enumerate(policies if isinstance(policies, list) else ()):
        inner = _Fields(policy if isinstance(policy, dict) else {}, f"{of.where}: spec.volumeClaimPolicies[{position}]")
        found |= inner.claim_templates("templates")
    return found


def _with_shared_claims(of: _Fields, shared: Mapping[str, Body], name: str) -> _Fields:
    """Return a replicated job whose pods have the volumes of the claims that one of their containers mounts."""
    if not shared:
        return of
    template = of.template("template.spec.template")
    mounted = of.mounted_volumes("template.spec.template")
    added = _with_volumes(template, shared.keys() & mounted, name)
    job = of.mapping("template")
    return _Fields({**of.body, "template": {**job, "spec": {**job["spec"], "template": added}}}, of.where)


def _leader_worker_set(of: _Fields, found: WorkloadPods, count: int | None) -> Iterator[dict[str, Any]]:
    _note_left_out(of, found)
    topology = str(of.mapping("metadata.annotations").get(_EXCLUSIVE_GROUPS) or "")
    if topology:
        _note_leaders(of, found, topology, of.number("spec.leaderWorkerTemplate.size", 1))
    if of.get("spec.startupPolicy") == "LeaderReady":
        _note_no_gang(of, found, "its workers are created when the leader is ready (spec.startupPolicy)")
    path = "spec.leaderWorkerTemplate"
    found.own_claims = of.claim_templates(f"{path}.volumeClaimTemplates")
    worker = _with_volumes(of.template(f"{path}.workerTemplate"), found.own_claims)
    leader = worker
    if of.get(f"{path}.leaderTemplate"):
        leader = _with_volumes(of.template(f"{path}.leaderTemplate"), found.own_claims)
    size = of.number(f"{path}.size", 1)
    for group in range(of.number("spec.replicas", 1) if count is None else count):
        name = f"{of.name}-{group}"
        labels = {
            f"{_LWS}name": of.name,
            f"{_LWS}group-index": str(group),
            f"{_LWS}group-key": _sha1(f"{of.namespace}/{name}"),
        }
        annotations = {f"{_LWS}size": str(size)}
        owner = _Owner("StatefulSet", "apps/v1", of.name, of.namespace)
        first = _pod(leader, name, owner, {**labels, f"{_LWS}worker-index": "0"}, annotations)
        owner = _Owner("StatefulSet", "apps/v1", name, of.namespace)
        pods = chain((first,), _workers(worker, owner, labels, annotations, size))
        yield from _exclusive(pods, f"{_LWS}group-key", topology) if topology else pods


def _workers(template: Body, owner: _Owner, labels: Body, annotations: Body, size: int) -> Iterator[dict[str, Any]]:
    annotations = {**annotations, f"{_LWS}leader-name": owner.name}
    for number in range(1, size):
        own = {**labels, f"{_LWS}worker-index": str(number)}
        yield _pod(template, f"{owner.name}-{number}", owner, own, annotations)


_Expansion = Callable[[_Fields, WorkloadPods, int | None], Iterator[dict[str, Any]]]
_EXPANDED: Mapping[tuple[str, str], _Expansion] = {
    ("", "Pod"): _pods,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("", "ReplicationController"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
}
WORKLOADS = tuple(kind for _, kind in _EXPANDED)
"""Kinds of the manifests that have pods."""
