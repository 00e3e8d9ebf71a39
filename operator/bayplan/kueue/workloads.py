"""Workloads of Kueue, and the pods that exist when one is admitted.

The pods follow from the pod sets, the flavors and the counts of the admission, and from what the other admission
checks add. References: Kueue v0.17.0, ``apis/kueue/v1beta2/workload_types.go`` and ``pkg/podset/podset.go``;
``v1beta1`` differs in the form of topology assignments.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from bayplan.fit.workload_pods import MAX_PODS
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.gangs.held_room import POD_SET_LABEL, WORKLOAD_LABEL
from scheduler_core.model.meta import AnnotatedMeta, ObjectCondition, ObjectMeta, OwnerReference

GROUP = "kueue.x-k8s.io"
CONTROLLER = "bayplan.dev/fit"
"""``spec.controllerName`` of the AdmissionChecks that Bayplan answers."""

_JOB_SET, _REPLICAS, _POD = "JobSet", "LeaderWorkerSet", "Pod"
_ELASTIC = "kueue.x-k8s.io/elastic-job"
_NOT_OF_PODS = frozenset((_JOB_SET, _REPLICAS, _POD))
"""Kinds of the owners of Workloads that do not control the pods."""

_NAME_PART = 180
"""Maximum length of a Workload's name in those of its pods, which have the name of the pod set and a number, too."""

Placed = Mapping[str, Sequence[Mapping[str, str]]]
"""Labels of the nodes of pods that have one, by pod set."""

PENDING, READY, RETRY = "Pending", "Ready", "Retry"

EVICTED, EVICTED_BY_CHECK = "Evicted", "AdmissionCheck"
"""Condition of a Workload whose quota Kueue releases, and its reason: an admission check."""


class CheckState(Struct, frozen=True, rename="camel"):
    """State of one admission check of a Workload.

    Attributes:
        requeue_after_seconds: Time from the transition to Retry until Kueue queues the Workload again.
        retry_count: Number of times that the check had the state Retry.
        pod_set_updates: What the check adds to the pods of each pod set, as in the API.
    """

    name: str
    state: str
    last_transition_time: datetime | None = None
    message: str = ""
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: list[dict[str, Any]] | None = None

    @property
    def requeue_at(self) -> datetime | None:
        """Time at which Kueue queues a Workload with the state Retry again; None for at once."""
        if self.last_transition_time is None or self.requeue_after_seconds is None:
            return None
        return self.last_transition_time + timedelta(seconds=self.requeue_after_seconds)


class PodSet(Struct, frozen=True, rename="camel"):
    """Pods with the same template."""

    template: dict[str, Any]
    name: str = "main"
    count: int = 1


class WorkloadSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of a Workload."""

    pod_sets: list[PodSet] | None = None
    priority: int | None = None
    active: bool | None = None


class PodSetAssignment(Struct, frozen=True, rename="camel"):
    """What a pod set gets in an admission.

    Attributes:
        flavors: Name of the ResourceFlavor by resource.
        count: Number of pods; None for that of the pod set.
        topology_assignment: Topology domains of the pods, as in the API.
    """

    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None
    topology_assignment: dict[str, Any] | None = None


class Admission(Struct, frozen=True, rename="camel"):
    """Quota that is reserved."""

    pod_set_assignments: list[PodSetAssignment] | None = None


class ReclaimablePods(Struct, frozen=True):
    """Number of pods of a pod set that have ended."""

    name: str
    count: int


class RequeueState(Struct, frozen=True, rename="camel"):
    """Time before which Kueue does not consider a Workload."""

    requeue_at: datetime | None = None


class WorkloadStatus(Struct, frozen=True, rename="camel"):
    """``status`` of a Workload."""

    conditions: list[ObjectCondition] | None = None
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    admission_checks: list[CheckState] | None = None
    reclaimable_pods: list[ReclaimablePods] | None = None


class Workload(Struct, frozen=True):
    """A Workload of ``kueue.x-k8s.io``."""

    metadata: AnnotatedMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def mark(self) -> str:
        """Value of the label by which its pods are recognized.

        It is the UID. If an elastic Job is scaled, another Workload takes the place of its Workload, and the pods
        stay; so it is the UID of the Job.
        """
        owner = _owner_of(self) if self.metadata.annotations.get(_ELASTIC) == "true" else None
        return self.metadata.uid if owner is None else owner.uid

    @property
    def counts(self) -> list[int]:
        """Number of pods of each pod set."""
        return [pod_set.count for pod_set in self.spec.pod_sets or ()]

    def is_true(self, condition: str) -> bool:
        return any(each.type == condition and each.status == "True" for each in self.status.conditions or ())

    @property
    def has_quota(self) -> bool:
        """Whether quota is reserved for it, and it neither ends nor is being evicted."""
        return (
            self.status.admission is not None
            and self.metadata.deletion_timestamp is None
            and self.is_true("QuotaReserved")
            and not self.is_true(EVICTED)
            and not self.is_true("Finished")
        )

    @property
    def checks(self) -> list[CheckState]:
        return self.status.admission_checks or []

    @property
    def requeue_at(self) -> datetime | None:
        """Time before which Kueue does not consider it; None for none."""
        return None if self.status.requeue_state is None else self.status.requeue_state.requeue_at


class CheckSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of an AdmissionCheck."""

    controller_name: str = ""


class CheckStatus(Struct, frozen=True):
    """``status`` of an AdmissionCheck."""

    conditions: list[ObjectCondition] | None = None


class AdmissionCheck(Struct, frozen=True):
    """An AdmissionCheck of ``kueue.x-k8s.io``."""

    metadata: ObjectMeta
    spec: CheckSpec = CheckSpec()
    status: CheckStatus = CheckStatus()


class FlavorSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of a ResourceFlavor."""

    node_labels: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None


class ResourceFlavor(Struct, frozen=True):
    """A ResourceFlavor of ``kueue.x-k8s.io``."""

    metadata: ObjectMeta
    spec: FlavorSpec = FlavorSpec()


class MissingFlavorError(Exception):
    """A ResourceFlavor of the admission is not known; the message names it."""


def labels_of(workload: Workload, pod_set: str) -> dict[str, str]:
    """Return the labels by which pods of an admitted Workload are recognized."""
    return {WORKLOAD_LABEL: workload.mark, POD_SET_LABEL: pod_set}


def pods_of(
    workload: Workload, checks: Container[str], flavors: Mapping[str, ResourceFlavor], placed: Placed
) -> list[dict[str, Any]]:
    """Return manifests of the pods that a Workload with quota still has to create.

    Args:
        checks: Names of Bayplan's checks; what the others add counts.
        flavors: The ResourceFlavors by name.
        placed: Pods that have nodes already.

    Raises:
        MissingFlavorError: A flavor is not known yet.
        ConfigError: A topology assignment cannot be read, or there are too many pods.
    """
    admission = workload.status.admission
    assignments = {each.name: each for each in (admission.pod_set_assignments if admission is not None else None) or ()}
    ended = {each.name: each.count for each in workload.status.reclaimable_pods or ()}
    owner = _owner_of(workload)
    references = [] if owner is None or owner.kind in _NOT_OF_PODS else [msgspec.to_builtins(owner)]
    found: list[dict[str, Any]] = []
    for pod_set in workload.spec.pod_sets or ():
        assignment = assignments.get(pod_set.name, PodSetAssignment(pod_set.name))
        # An elastic Job that shrinks has the earlier number in its assignment.
        count = pod_set.count if assignment.count is None else min(assignment.count, pod_set.count)
        nodes = placed.get(pod_set.name, ())
        left = max(0, count - ended.get(pod_set.name, 0) - len(nodes))
        if len(found) + left > MAX_PODS:
            where = f"Workload {workload.key}: spec.podSets[{pod_set.name}].count"
            raise ConfigError([Problem(where, f"more than {MAX_PODS} pods cannot be evaluated; use smaller Workloads")])
        template = _template(workload, pod_set, assignment, checks, flavors)
        labels = {
            **template["labels"],
            **_labels_of_gang(workload, owner, pod_set.name),
            **labels_of(workload, pod_set.name),
        }
        specs = _specs(f"Workload {workload.key}", assignment, template["spec"], nodes)
        for number in range(left):
            meta = {
                "name": f"{workload.metadata.name[:_NAME_PART]}-{pod_set.name}-{number}",
                "namespace": workload.metadata.namespace,
                "labels": labels,
                "annotations": template["annotations"],
                "ownerReferences": references,
            }
            found.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": next(specs)})
    return found


def _owner_of(workload: Workload) -> OwnerReference | None:
    """Return the controller of a Workload, else the owner: a LeaderWorkerSet, or any pod of a pod group."""
    owners = workload.metadata.owner_references
    return next((each for each in owners if each.controller), next(iter(owners), None))


def _labels_of_gang(workload: Workload, owner: OwnerReference | None, pod_set: str) -> dict[str, str]:
    """Return the labels by which the pods are a gang of a JobSet, of a replica, or of a pod group.

    The replicated jobs of a JobSet are its pod sets. Each replica has a Workload, and so has each pod group, whose name
    is that of the Workload; a pod without a group controls its Workload.
    """
    if owner is None:
        return {}
    if owner.kind == _JOB_SET:
        return {
            "jobset.sigs.k8s.io/jobset-name": owner.name,
            "jobset.sigs.k8s.io/jobset-uid": owner.uid,
            "jobset.sigs.k8s.io/replicatedjob-name": pod_set,
        }
    if owner.kind == _REPLICAS:
        key = hashlib.sha1(workload.metadata.name.encode(), usedforsecurity=False).hexdigest()
        return {"leaderworkerset.sigs.k8s.io/name": owner.name, "leaderworkerset.sigs.k8s.io/group-key": key}
    if owner.kind == _POD and not owner.controller:
        return {"kueue.x-k8s.io/pod-group-name": workload.metadata.name}
    return {}


def _template(
    workload: Workload,
    pod_set: PodSet,
    assignment: PodSetAssignment,
    checks: Container[str],
    flavors: Mapping[str, ResourceFlavor],
) -> dict[str, Any]:
    meta = pod_set.template.get("metadata") or {}
    spec = pod_set.template.get("spec") or {}
    labels, annotations = dict(meta.get("labels") or {}), dict(meta.get("annotations") or {})
    selector, tolerations = dict(spec.get("nodeSelector") or {}), list(spec.get("tolerations") or ())
    for name in dict.fromkeys((assignment.flavors or {}).values()):
        flavor = flavors.get(name)
        if flavor is None:
            raise MissingFlavorError(f"ResourceFlavor {name} is not known")
        selector |= flavor.spec.node_labels or {}
        tolerations += flavor.spec.tolerations or ()
    for state in workload.checks:
        for update in state.pod_set_updates or () if state.name not in checks else ():
            if update.get("name") == pod_set.name:
                labels |= update.get("labels") or {}
                annotations |= update.get("annotations") or {}
                selector |= update.get("nodeSelector") or {}
                tolerations += update.get("tolerations") or ()
    # Gates are removed before the pods are scheduled: by Kueue, or by what the pods wait for.
    spec = {key: value for key, value in spec.items() if key != "schedulingGates"}
    spec |= {"nodeSelector": selector, "tolerations": tolerations}
    return {"labels": labels, "annotations": annotations, "spec": spec}


def _specs(
    what: str, assignment: PodSetAssignment, spec: dict[str, Any], placed: Sequence[Mapping[str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield the spec of each pod; those of one topology domain share it, which makes their validation cheap.

    Args:
        placed: Labels of the nodes of the pods that have one, whose places in their domains are taken.
    """
    if assignment.topology_assignment is not None:
        where = f"{what}: status.admission.podSetAssignments[{assignment.name}].topologyAssignment"
        taken: Counter[tuple[str | None, ...]] | None = None
        for selector, count in _domains(assignment.topology_assignment, where):
            if taken is None:
                taken = Counter(tuple(labels.get(level) for level in selector) for labels in placed)
            in_domain = {**spec, "nodeSelector": {**spec["nodeSelector"], **selector}}
            for _ in range(count - taken[tuple(selector.values())]):
                yield in_domain
    while True:
        yield spec


def _domains(assignment: Mapping[str, Any], where: str) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the node labels and the number of pods of each topology domain."""
    levels = assignment.get("levels") or ()
    try:
        for domain in assignment.get("domains") or ():
            yield dict(zip(levels, domain["values"], strict=True)), int(domain["count"])
        for part in assignment.get("slices") or ():
            counts, values = part["podCounts"], part["valuesPerLevel"]
            for number in range(int(part["domainCount"])):
                selector = {level: _value(each, number) for level, each in zip(levels, values, strict=True)}
                universal = counts.get("universal")
                yield selector, int(counts["individual"][number] if universal is None else universal)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError([Problem(where, f"cannot be read ({error!r}); upgrade Bayplan")]) from error


def _value(values: Mapping[str, Any], number: int) -> str:
    universal = values.get("universal")
    if universal is not None:
        return str(universal)
    individual = values["individual"]
    return f"{individual.get('prefix') or ''}{individual['roots'][number]}{individual.get('suffix') or ''}"
